package settle

import (
	"strconv"
	"time"

	"github.com/settlemq/settle/internal/broker"
)

// What the account learns from the server's side of the wire.

// took enters a packet that the server takes from a client.
func (a *account) took(client string, p broker.Packet) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch p.Type {
	case broker.PUBLISH:
		if s, ok := readPublish(p.Bytes); ok && s.id != 0 {
			a.tookPublish(client, s, p.Bytes)
		}
	case broker.UNSUBSCRIBE: // which only Retire does
		a.problem("UNSUBSCRIBE %q by %s", p.Filters, client)
	case broker.PUBACK, broker.PUBREC:
		name, known := a.shown[client][p.ID]
		if !known {
			return
		}
		delete(a.shown[client], p.ID)
		a.taken[name] = true
		if o := a.originals[name]; o != nil && client == "svc" {
			o.onServer = false
		} else if m := a.copyOf[name]; m != nil {
			m.copies[name]--
		}
	}
}

func (a *account) tookPublish(client string, s sighting, frame []byte) {
	m := a.matters[s.route+" "+s.payload]
	if m == nil {
		return
	}
	if s.copyID != "" {
		a.copyOf[s.copyID] = m
		m.copies[s.copyID]++
		a.process.knows(m)
	} else if s.topic == "dead" {
		a.judge(m, frame)
	}
	name := s.copyID + " " + s.topic + " " + s.route + " " + s.payload
	if !a.sent[name].IsZero() {
		m.fact("copy published twice")
	}
	key := client + " " + strconv.Itoa(int(s.id))
	a.sent[name], a.asked[key], a.pending[key] = time.Now(), name, stored{m, s.copyID}
}

// judge wants a dead letter to have its reason.
func (a *account) judge(m *matter, frame []byte) {
	attempts, _ := strconv.Atoi(headerIn(frame, headerAttempt))
	rejected := attempts > 0 && attempts <= len(m.Fates) && m.Fates[attempts-1].Do == "reject"
	undecodable := m.Bad && m.route == "batch"
	if !rejected && !undecodable && attempts < maxAttempts {
		a.problem("%s: %s is dead after %d attempts, and was not rejected", m.route, m.payload(), attempts)
	}
}

// gave enters a packet that the server is about to send to a client.
func (a *account) gave(client string, p broker.Packet) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch p.Type {
	case broker.PUBLISH:
		delete(a.shown[client], p.ID)
		if s, ok := readPublish(p.Bytes); ok {
			a.shown[client][p.ID] = s.name()
			a.gavePublish(s, p)
		}
	case broker.PUBACK:
		key := client + " " + strconv.Itoa(int(p.ID))
		s, ok := a.pending[key]
		delete(a.pending, key)
		switch {
		case !ok:
		case p.Code != 0 && s.copyID != "":
			s.m.copies[s.copyID]-- // it went nowhere
		case p.Code != 0:
		case s.copyID != "":
			s.m.copyLost = false
		default:
			s.m.ended = true
		}
	case broker.CONNACK:
		if p.Code == 0 && len(p.Bytes) > 2 && p.Bytes[2]&1 == 0 {
			a.lost(client)
		}
	}
}

// gavePublish finds acknowledgements that the server has not handled after all, as their connection was cut at that moment: it sends
// what they were for again.
func (a *account) gavePublish(s sighting, p broker.Packet) {
	name := s.name()
	if !a.taken[name] {
		return
	}
	delete(a.taken, name)
	if !p.Dup {
		return
	}
	if m := a.copyOf[name]; m != nil {
		m.copies[name]++
		m.fact("acknowledgement lost")
	}
	if o := a.originals[name]; o != nil {
		o.onServer, o.lost = true, false
		for _, m := range o.matters {
			if p.QoS == 1 {
				m.fact("acknowledgement lost")
			}
		}
	}
}

// lost enters that a session has begun anew: what the one before held is gone.
func (a *account) lost(client string) {
	for _, m := range a.matters {
		if client == "svc" && m.onServer || client != "svc" && m.copied() || !m.ended {
			m.fact("session lost")
		}
	}
	for _, m := range a.matters {
		switch {
		case client == "svc" && m.onServer:
			m.original.lost = true
		case client != "svc" && m.copied():
			clear(m.copies)
			m.copyLost = true
		default:
			continue
		}
		if p := a.process; (m.copyLost || client == "svc") && (p == nil || !p.had[m]) && !(client != "svc" && m.onServer) && !m.copied() {
			m.excused = !m.ended
		}
	}
	if client == "svc" {
		for _, o := range a.originals {
			o.onServer = false
		}
	}
	a.shown[client] = map[uint16]string{}
}

// serverForgot enters that all sessions are lost, for the CONNACK that says so may never be sent.
func (a *account) serverForgot() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lost("svc")
	a.lost("svc-retry")
}
