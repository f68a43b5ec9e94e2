package broker

import (
	"maps"
	"slices"
	"time"
)

// Snapshot is what a server with persistence would find on its disk: sessions with their subscriptions and messages, what waits in shared
// groups, and retained messages. It can be restored any number of times.
type Snapshot struct {
	sessions []savedSession
	groups   map[string][]savedMessage
	retained map[string]*message
}

type savedSession struct {
	clientID  string
	expiry    uint32
	lastID    uint16
	lastOrder uint64
	written   uint64
	dropped   uint64
	subs      []savedSubscription
	queued    []savedMessage
	sent      []savedMessage
	released  []savedMessage
	inbound   map[uint16]struct{}
	will      *message
	willDelay uint32
}

type savedSubscription struct {
	filter filter
	ids    []uint32
}

type savedMessage struct {
	outbound // without its place in a list, its group and its connection
	groupKey string
}

// Snapshot copies the state. What has been put into a write buffer and not been written counts as queued to be sent, with its identifier.
func (b *Broker) Snapshot() *Snapshot {
	b.mu.Lock()
	defer b.unlock()
	return b.snapshot()
}

func (b *Broker) snapshot() *Snapshot {
	out := &Snapshot{groups: make(map[string][]savedMessage), retained: maps.Clone(b.retained)}
	for _, clientID := range slices.Sorted(maps.Keys(b.sessions)) {
		s := b.sessions[clientID]
		saved := savedSession{
			clientID: s.clientID, expiry: s.expiry, lastID: s.lastID, lastOrder: s.lastOrder, written: s.written, dropped: s.dropped,
			queued: s.queued.save(), sent: s.sent.save(), released: s.released.save(), inbound: maps.Clone(s.inbound),
			will: s.will, willDelay: s.willDelay,
		}
		for _, key := range slices.Sorted(maps.Keys(s.subscriptions)) {
			sub := s.subscriptions[key]
			saved.subs = append(saved.subs, savedSubscription{sub.filter, sub.ids})
		}
		out.sessions = append(out.sessions, saved)
	}
	for key, g := range b.groups {
		out.groups[key] = g.queued.save()
	}
	return out
}

func (l *list) save() (out []savedMessage) {
	for o := l.head; o != nil; o = o.next {
		saved := savedMessage{outbound: *o}
		saved.in, saved.prev, saved.next, saved.conn, saved.group = nil, nil, nil, nil, nil
		if o.group != nil {
			saved.groupKey = o.group.key
		}
		out = append(out, saved)
	}
	return out
}

// Restore cuts every connection and puts the state back to a snapshot's: what a server finds after it was killed, be it all or be it older
// than what its clients remember. Sessions that were connected wait for their clients from now on, for their expiry at most; those that
// end with their connection are gone, and their wills with them. Observers and the wire logs stay.
func (b *Broker) Restore(snapshot *Snapshot) {
	b.mu.Lock()
	defer b.unlock()
	b.restore(snapshot)
}

// Restart is a server that is killed and comes back, with all that its sessions held or with nothing.
func (b *Broker) Restart(keepSessions bool) {
	b.mu.Lock()
	defer b.unlock()
	snapshot := &Snapshot{}
	if keepSessions {
		snapshot = b.snapshot()
	}
	b.restore(snapshot)
}

func (b *Broker) restore(snapshot *Snapshot) {
	if b.closed {
		return
	}
	for c := range b.conns {
		if c.session != nil {
			c.report("connection ended: the server restarts")
			c.session.conn, c.session = nil, nil
		}
		c.close()
	}
	for _, s := range b.sessions {
		b.disarm(s.expires)
		b.disarm(s.willDue)
		for _, sub := range s.subscriptions {
			b.unsubscribe(sub)
		}
	}
	clear(b.sessions)
	b.stale = b.stale[:0]
	b.retained = maps.Clone(snapshot.retained)
	if b.retained == nil {
		b.retained = make(map[string]*message)
	}
	for i := range snapshot.sessions {
		if saved := &snapshot.sessions[i]; saved.expiry != 0 {
			b.revive(saved)
		}
	}
	for key, waiting := range snapshot.groups {
		if g := b.groups[key]; g != nil {
			for i := range waiting {
				g.queued.pushBack(waiting[i].revive(b))
			}
		}
	}
}

// revive makes a session of a saved one, without a connection.
func (b *Broker) revive(saved *savedSession) {
	s := &session{
		b: b, clientID: saved.clientID, expiry: saved.expiry, lastID: saved.lastID,
		lastOrder: saved.lastOrder, written: saved.written, dropped: saved.dropped,
		inbound: maps.Clone(saved.inbound), byID: make(map[uint16]*outbound),
	}
	b.sessions[s.clientID] = s
	for _, sub := range saved.subs {
		made, _ := b.subscribe(s, sub.filter, 0)
		made.ids = sub.ids
	}
	for i := range saved.queued {
		s.queued.pushBack(saved.queued[i].revive(b))
	}
	for i := range saved.sent {
		o := saved.sent[i].revive(b)
		s.sent.pushBack(o)
		s.byID[o.id] = o
	}
	for i := range saved.released {
		o := saved.released[i].revive(b)
		s.released.pushBack(o)
		s.byID[o.id] = o
	}
	if s.expiry != never {
		s.expires = b.arm(time.Duration(s.expiry)*time.Second, func() { b.endSession(s) })
	}
	if s.will, s.willDelay = saved.will, saved.willDelay; s.will != nil {
		s.willDue = b.arm(time.Duration(s.willDelay)*time.Second, s.publishWill)
	}
}

// revive makes an entry of a saved one. A group that is not there any more leaves it to the session.
func (m *savedMessage) revive(b *Broker) *outbound {
	o := m.outbound
	o.group = b.groups[m.groupKey]
	return &o
}
