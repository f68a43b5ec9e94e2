package link

import (
	"context"
	"io"
	"slices"
	"sync"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho/session"
)

// outbound is the half of the MQTT session that we began: packet identifiers, what the server has not answered yet, and
// the quota that its Receive Maximum leaves (4.9). It outlives connections; attached is its side that one connection
// sees. The inbound half never comes here: the Receiver has it.
//
// mu is held over appends to a conn's pending bytes, never over I/O; conn's lock comes after it.
type outbound struct {
	mu        sync.Mutex
	current   *attached            // the connection past its CONNACK; nil: none
	maximum   int                  // the server's Receive Maximum on it
	used      int                  // how much of it is taken: sent and unanswered, or promised to a publisher
	exchanges map[uint16]*exchange // by Packet Identifier
	resends   []*exchange          // PUBLISHes of earlier connections that wait for quota on this one, in order
	waiting   []*waiter            // publishers that wait for quota, first come first served
	lastID    uint16
	lastSeq   uint64
	closed    bool
}

// exchange is one packet of ours that the server has to answer.
type exchange struct {
	id     uint16
	kind   byte             // packets.PUBLISH, PUBREL once PUBREC has come, SUBSCRIBE, UNSUBSCRIBE
	qos    byte             // of a PUBLISH
	seq    uint64           // order of sending: of the PUBLISH, then of the PUBREL
	packet *packets.Publish // kept to be sent again; nil once PUBREC has come, or nobody wants it
	answer chan<- packets.ControlPacket
	rec    byte      // the reason code of PUBREC
	on     *attached // the connection whose quota it takes; nil: none
	resent bool
}

// waiter is a publisher that waits for quota.
type waiter struct {
	granted bool
	ready   chan error // one value: nil, or why there will be no quota
}

// publication is a publish with its place in the quota. It travels to AddToSession in the context, because paho offers
// no other way past it, and brings the answer back.
type publication struct {
	on       *attached
	exchange *exchange // set by AddToSession
	answer   chan packets.ControlPacket
}

type publicationKey struct{}

func newOutbound() *outbound {
	return &outbound{exchanges: make(map[uint16]*exchange)}
}

// acquire waits for a place in the current connection's quota.
func (o *outbound) acquire(ctx context.Context) (*publication, error) {
	o.mu.Lock()
	if o.current == nil {
		o.mu.Unlock()
		return nil, session.ErrNoConnection
	}
	p := &publication{on: o.current, answer: make(chan packets.ControlPacket, 1)}
	if o.used < o.maximum && len(o.resends) == 0 && len(o.waiting) == 0 {
		o.used++
		o.mu.Unlock()
		return p, nil
	}
	w := &waiter{ready: make(chan error, 1)}
	o.waiting = append(o.waiting, w)
	o.mu.Unlock()

	select {
	case err := <-w.ready:
		if err != nil {
			return nil, err
		}
		return p, nil
	case <-ctx.Done():
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if w.granted {
		o.release(p)
	} else if i := slices.Index(o.waiting, w); i >= 0 {
		o.waiting = slices.Delete(o.waiting, i, i+1)
	}
	return nil, context.Cause(ctx)
}

// cancel gives a promised place back that was not used.
func (o *outbound) cancel(p *publication) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if p.exchange == nil {
		o.release(p)
	}
}

// withdraw forgets a publish whose frame could not be written, and says whether it is certain not to have been sent: it
// is not if a later connection has sent it meanwhile.
func (o *outbound) withdraw(p *publication) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	e := p.exchange
	if e == nil {
		return true
	}
	if o.exchanges[e.id] != e || e.resent {
		return false
	}
	o.drop(e)
	return true
}

// abandon says that nobody waits for the answer any more. A QoS 1 publish is then not sent again: its caller was told
// that it is unconfirmed, and has perhaps published anew. Its identifier is free with its PUBACK, or with its connection.
// A QoS 2 publish is carried to its end all the same, by PUBLISH or PUBREL: the server may have recorded the identifier,
// and would take another message under it for a repetition, and discard it.
func (o *outbound) abandon(p *publication) {
	o.mu.Lock()
	defer o.mu.Unlock()
	e := p.exchange
	if e == nil || o.exchanges[e.id] != e {
		return
	}
	e.answer = nil
	if e.qos == 1 {
		e.packet = nil
		if e.on == nil { // not sent on this connection
			o.drop(e)
		}
	}
}

// close ends the session for this process: whoever waits is told.
func (o *outbound) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.detach()
	o.forget()
}

// detach is the end of the current connection. mu is held.
func (o *outbound) detach() {
	o.current, o.used, o.resends = nil, 0, nil
	for _, w := range o.waiting {
		w.ready <- session.ErrNoConnection
	}
	o.waiting = nil
	for id, e := range o.exchanges {
		e.on = nil
		given := e.kind == packets.PUBLISH && e.packet == nil
		if given || e.kind == packets.SUBSCRIBE || e.kind == packets.UNSUBSCRIBE {
			delete(o.exchanges, id)
			e.tell(packets.ControlPacket{})
		}
	}
}

// forget drops every exchange and tells those who wait: the server has lost the session, or we give it up. mu is held.
func (o *outbound) forget() {
	for id, e := range o.exchanges {
		delete(o.exchanges, id)
		e.tell(packets.ControlPacket{})
	}
}

// end drops an exchange with the server's last word on it. mu is held.
func (o *outbound) end(e *exchange, cp packets.ControlPacket) {
	e.tell(cp)
	o.drop(e)
}

// drop frees the identifier and the quota. mu is held.
func (o *outbound) drop(e *exchange) {
	delete(o.exchanges, e.id)
	e.packet = nil
	if e.on != nil && e.on == o.current {
		e.on = nil
		o.used--
		o.pump()
	}
}

// release gives back a promise that became no exchange. mu is held.
func (o *outbound) release(p *publication) {
	if p != nil && p.on == o.current && o.current != nil {
		o.used--
		o.pump()
	}
}

// take counts an exchange against the current connection's quota. mu is held.
func (o *outbound) take(e *exchange) {
	e.on = o.current
	o.used++
}

// pump spends the quota that is free: first on what has to be sent again, then on new publishers. mu is held.
func (o *outbound) pump() {
	for o.used < o.maximum && len(o.resends) > 0 {
		e := o.resends[0]
		o.resends = o.resends[1:]
		if o.exchanges[e.id] != e || e.packet == nil {
			continue // given up, or answered unasked, while it waited
		}
		o.take(e)
		e.resent = true
		again := *e.packet // the original may still be on its way through paho
		again.Duplicate = true
		o.send(&again)
	}
	for o.used < o.maximum && len(o.waiting) > 0 {
		w := o.waiting[0]
		o.waiting = o.waiting[1:]
		o.used++
		w.granted = true
		w.ready <- nil
	}
}

// send appends a packet to the current connection. An error means that the connection has closed, which its owner learns
// by itself. mu is held.
func (o *outbound) send(packet interface {
	WriteTo(io.Writer) (int64, error)
}) {
	_, _ = packet.WriteTo(o.current.conn)
}

// freeID returns the next Packet Identifier that is not in use. mu is held.
func (o *outbound) freeID() (uint16, bool) {
	if len(o.exchanges) >= 65535 {
		return 0, false
	}
	for {
		if o.lastID++; o.lastID == 0 {
			o.lastID = 1
		}
		if _, used := o.exchanges[o.lastID]; !used {
			return o.lastID, true
		}
	}
}

// tell passes the answer on, if somebody waits. It never blocks: each channel has room for the one answer it gets.
func (e *exchange) tell(cp packets.ControlPacket) {
	if e.answer == nil {
		return
	}
	select {
	case e.answer <- cp:
	default:
	}
	e.answer = nil
}
