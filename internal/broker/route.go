package broker

import (
	"slices"
	"strings"

	"github.com/settlemq/settle/internal/topic"
)

// target is a session that gets a message, and how.
type target struct {
	session     *session
	ids         []uint32
	qos         byte
	asPublished bool
}

// route gives a message to all who subscribed to its topic, and keeps it if it is to be retained. It returns how many
// sessions and groups matched, or that nobody got it because a queue is full. The message's begin has been called.
func (b *Broker) route(m *message) (matched int, refused bool) {
	b.matches = b.tree.match(b.matches[:0], m.topic)
	b.targets = b.targets[:0]
	b.marks++
	for _, sub := range b.matches {
		switch {
		case sub.group != nil:
			matched++
		case sub.session != nil && !(sub.noLocal && sub.session.clientID == m.publisher):
			b.aim(sub)
		}
	}
	matched += len(b.targets)
	if b.opts.QueuePolicy == RefusePublish && b.full(m) || m.retain && !b.retain(m) {
		return matched, true
	}
	for i := range b.targets {
		t := &b.targets[i]
		t.session.enqueue(&outbound{msg: m, ids: t.ids, qos: min(m.qos, t.qos), retain: m.retain && t.asPublished})
	}
	for _, sub := range b.matches {
		switch {
		case sub.group != nil:
			b.share(sub.group, m)
		case sub.watcher != nil:
			sub.watcher.tell(m)
		}
	}
	clear(b.matches)
	clear(b.targets)
	return matched, false
}

// aim adds a subscription to the targets: to its session's, where one PUBLISH serves all filters.
func (b *Broker) aim(sub *subscription) {
	s := sub.session
	if s.mark != b.marks || b.opts.Overlap == OneEach {
		s.mark, s.target = b.marks, len(b.targets)
		b.targets = append(b.targets, target{session: s, ids: sub.ids, qos: sub.qos, asPublished: sub.asPublished})
		return
	}
	t := &b.targets[s.target]
	t.qos = max(t.qos, sub.qos)
	t.asPublished = t.asPublished || sub.asPublished
	if len(sub.ids) == 0 || slices.Contains(t.ids, sub.ids[0]) {
		return
	}
	t.ids = append(slices.Clip(t.ids), sub.ids...)
	slices.Sort(t.ids)
}

// crowded tells whether a queue takes no more.
func (b *Broker) crowded(l *list) bool {
	return l.n >= b.opts.QueueLimit || l.bytes >= b.opts.QueueBytes
}

// full tells whether a queue that the message would go to has no room.
func (b *Broker) full(m *message) bool {
	for i := range b.targets {
		t := &b.targets[i]
		if s := t.session; min(m.qos, t.qos) > 0 && b.crowded(&s.queued) {
			return true
		}
	}
	for _, sub := range b.matches {
		if g := sub.group; g != nil && m.qos > 0 && b.crowded(&g.queued) {
			return true
		}
	}
	return false
}

// share gives a message to a member of a group, or to the group's queue. At QoS 0 it goes to whoever is connected, if anybody.
func (b *Broker) share(g *group, m *message) {
	o := &outbound{msg: m, group: g, qos: m.qos}
	if m.qos == 0 {
		for range g.members {
			g.next = (g.next + 1) % len(g.members)
			if member := g.members[g.next]; member.session.conn != nil {
				member.session.enqueue(o.meant(member, 0))
				return
			}
		}
		g.dropped++
		return
	}
	if b.crowded(&g.queued) {
		g.dropped += g.queued.expire(b.now())
	}
	if b.crowded(&g.queued) {
		g.dropped++
		if b.opts.QueuePolicy != DropOldest {
			return
		}
		g.queued.head.remove()
	}
	g.queued.pushBack(o)
	g.serve()
}

// retain keeps a message for subscribers to come, or forgets the one it had [MQTT-3.3.1-6]. It tells whether there was room.
func (b *Broker) retain(m *message) bool {
	if len(m.payload) == 0 {
		delete(b.retained, m.topic)
		return true
	}
	if _, known := b.retained[m.topic]; !known && len(b.retained) >= maxRetained {
		return false
	}
	b.retained[m.topic] = m
	return true
}

// sendRetained gives a new subscription what is retained for it (3.3.1.3), in the order of the topics.
func (b *Broker) sendRetained(sub *subscription) {
	var found []*message
	if topic.HasWildcard(sub.topicFilter) {
		for name, m := range b.retained {
			if topic.Match(sub.topicFilter, name) {
				found = append(found, m)
			}
		}
		slices.SortFunc(found, func(x, y *message) int { return strings.Compare(x.topic, y.topic) })
	} else if m := b.retained[sub.topicFilter]; m != nil {
		found = append(found, m)
	}
	for _, m := range found {
		switch {
		case m.expired(b.now()):
			delete(b.retained, m.topic)
		case sub.noLocal && m.publisher == sub.session.clientID:
		default:
			sub.session.enqueue(&outbound{msg: m, ids: sub.ids, qos: min(m.qos, sub.qos), retain: true})
		}
	}
}
