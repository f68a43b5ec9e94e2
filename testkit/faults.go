package testkit

import (
	"slices"
	"time"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/internal/broker"
	"github.com/settlemq/settle/internal/topic"
)

// Packet is a control packet on its way between a client and the in-process server, as [Broker.Intercept] shows it: its Type as the
// standard numbers them (MQTT 5, 2.1.2), Packet Identifier, Topic, and so on, and all of its Bytes.
type Packet = broker.Packet

// Verdict is what becomes of a [Packet]: Hold or Late makes it wait, Drop loses it, Refuse answers it, Replace puts another in its place, Send
// sends more behind it, and Cut ends the connection. The zero Verdict lets it pass.
type Verdict = broker.Verdict

// fault judges packets. It is called from the goroutines of all connections.
type fault struct {
	judge func(clientID string, toClient bool, p Packet) Verdict
}

// Intercept has f judge every packet, to the client or from it, for what the other methods do not say: it may be delayed, dropped, refused,
// replaced, followed by others or by a cut. It is called from the goroutines of the connections, and may wait.
func (b *Broker) Intercept(f func(clientID string, toClient bool, p Packet) Verdict) (undo func()) {
	made := &fault{judge: f}
	b.change(func(faults []*fault) []*fault { return append(faults, made) })
	return func() {
		b.change(func(faults []*fault) []*fault {
			return slices.DeleteFunc(faults, func(other *fault) bool { return other == made })
		})
	}
}

// change sets the faults. Without any the server is not asked to look at each packet.
func (b *Broker) change(change func([]*fault) []*fault) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults = change(slices.Clone(b.faults))
	if len(b.faults) == 0 {
		b.server.SetInterceptor(nil)
		return
	}
	faults := b.faults
	b.server.SetInterceptor(func(clientID string, direction broker.Direction, p Packet) Verdict {
		if clientID == readerID {
			return Verdict{}
		}
		var decided Verdict
		for _, f := range faults { // all of them see it
			if v := f.judge(clientID, direction == broker.ToClient, p); !passes(v) {
				decided = v
			}
		}
		return decided
	})
}

// passes says that a verdict is the zero one.
func passes(v Verdict) bool {
	return v.Hold == 0 && v.Late == 0 && !v.Drop && v.Refuse == 0 && v.Grant == nil && v.Replace == nil && v.Send == nil && !v.Cut
}

// RefuseConnect answers every CONNECT with a reason code (MQTT 5, 3.2.2.2): 0x86 for a wrong password, 0x88 for a server that is not
// available, 0x89 for one that is busy.
func (b *Broker) RefuseConnect(code byte) (undo func()) {
	return b.Intercept(func(_ string, toClient bool, p Packet) Verdict {
		if toClient || p.Type != broker.CONNECT {
			return Verdict{}
		}
		return Verdict{Refuse: code}
	})
}

// RefusePublish answers what clients publish to topics that a filter matches with a reason code, and takes none of it (3.4.2.1): 0x87 for a lack of
// rights, 0x97 for a quota, 0x10 for a topic that nobody subscribes to. At QoS 0 such a message vanishes.
func (b *Broker) RefusePublish(filter string, code byte) (undo func()) {
	return b.Intercept(func(_ string, toClient bool, p Packet) Verdict {
		if toClient || p.Type != broker.PUBLISH || !topic.Match(filter, p.Topic) {
			return Verdict{}
		}
		return Verdict{Refuse: code}
	})
}

// RefuseSubscribe answers a subscription to exactly this filter, "$share/group/" included, with a reason code (3.9.3): 0x87 for a lack of rights.
func (b *Broker) RefuseSubscribe(filter string, code byte) (undo func()) {
	return b.Intercept(func(_ string, toClient bool, p Packet) Verdict {
		if toClient || p.Type != broker.SUBSCRIBE || !slices.Contains(p.Filters, filter) {
			return Verdict{}
		}
		return Verdict{Refuse: code}
	})
}

// LowerGrant grants a subscription to exactly this filter no more than a QoS.
func (b *Broker) LowerGrant(filter string, qos settle.QoS) (undo func()) {
	most := byte(qos)
	return b.Intercept(func(_ string, toClient bool, p Packet) Verdict {
		if toClient || p.Type != broker.SUBSCRIBE || !slices.Contains(p.Filters, filter) {
			return Verdict{}
		}
		return Verdict{Grant: &most}
	})
}

// WithholdAck takes what clients publish to topics that a filter matches, and never says so: PUBACK and PUBREC are lost on their way. So the client
// cannot know whether the server has the message.
func (b *Broker) WithholdAck(filter string) (undo func()) {
	return b.onAnswer(filter, Verdict{Drop: true})
}

// AnswerLate sends PUBACK and PUBREC for what clients publish to topics that a filter matches only after d. What else there is to be sent does not wait for them.
func (b *Broker) AnswerLate(filter string, d time.Duration) (undo func()) {
	return b.onAnswer(filter, Verdict{Late: d})
}

// onAnswer judges the answers to some publishes.
func (b *Broker) onAnswer(filter string, v Verdict) (undo func()) {
	type publish struct {
		clientID string
		id       uint16
	}
	open := make(chan map[publish]bool, 1) // a lock with what it guards
	open <- make(map[publish]bool)
	return b.Intercept(func(clientID string, toClient bool, p Packet) Verdict {
		this := publish{clientID, p.ID}
		switch {
		case !toClient && p.Type == broker.PUBLISH && p.QoS > 0:
			m := <-open
			m[this] = topic.Match(filter, p.Topic)
			open <- m
		case toClient && (p.Type == broker.PUBACK || p.Type == broker.PUBREC):
			m := <-open
			matched := m[this]
			delete(m, this)
			open <- m
			if matched {
				return v
			}
		}
		return Verdict{}
	})
}

// DropPackets loses every packet between the server and its clients without a trace, in both directions: a connection that is dead and does not look it.
func (b *Broker) DropPackets() (undo func()) {
	return b.Intercept(func(string, bool, Packet) Verdict { return Verdict{Drop: true} })
}
