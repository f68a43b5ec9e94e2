package hostile_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"github.com/settlemq/settle/internal/broker"
	"github.com/settlemq/settle/internal/hostile"
)

// script is what a server does by itself on one connection.
type script struct {
	connack []byte // the answer to CONNECT; nil: none
	suback  bool   // SUBSCRIBE is granted
	puback  bool   // PUBLISH is answered, and PUBREL
	pubrel  bool   // PUBREC is answered
}

// obliging does all that a server should.
func obliging(present bool) script {
	s := script{connack: []byte{hostile.CONNACK << 4, 3, 0, 0, 0}, suback: true, puback: true, pubrel: true}
	if present {
		s.connack[2] = 1
	}
	return s
}

// peer is the server's end of one connection. A goroutine reads it, holds what comes against what was sent, and answers by its script.
type peer struct {
	*broker.Script
	r      *rig
	second bool
	turn   chan struct{} // holds one: whoever has it may write
	done   chan struct{} // closed when nothing more comes

	mu        sync.Mutex
	script    script
	frames    []string // what came, but for CONNECT: type and identifier, and the reason code where there is one
	faults    []string // what the client may not do
	ended     bool
	parted    bool     // DISCONNECT has come
	code      byte     // its reason code
	stays     bool     // the connection is left open when the client has closed its side
	asked     []asked  // SUBSCRIBEs that were not answered
	givenUp   []uint16 // UNSUBSCRIBEs; no answer is sent
	published []uint16 // PUBLISHes that were not answered
	lastID    uint16

	maximum int // Maximum Packet Size of CONNACK; 0: none

	given    [3][]*given     // by QoS
	received map[uint16]bool // PUBREC has come, and PUBREL was not sent
	released []pubcomp       // PUBRELs that were sent, and what is to answer them
	recorded map[uint16]int  // PUBRECs that were sent, and PUBCOMP was not
}

// asked is a SUBSCRIBE.
type asked struct {
	id  uint16
	qos byte
}

func newPeer(r *rig, conn *broker.Script, s script) *peer {
	p := &peer{
		Script: conn, r: r, script: s, turn: make(chan struct{}, 1), done: make(chan struct{}),
		received: make(map[uint16]bool), recorded: make(map[uint16]int), lastID: 100,
	}
	maps.Copy(p.recorded, r.recorded)
	return p
}

// stay leaves the connection open when the client has closed its side.
func (p *peer) stay() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stays = true
}

// send writes bytes. A client that has gone is no failure.
func (p *peer) send(b []byte) { p.sendNoted(func() {}, b) }

// sendNoted writes bytes, each part by itself, and before that notes under mu what they are.
func (p *peer) sendNoted(note func(), parts ...[]byte) {
	p.turn <- struct{}{}
	defer func() { <-p.turn }()
	p.mu.Lock()
	note()
	p.mu.Unlock()
	_ = p.SetWriteDeadline(time.Now().Add(time.Minute))
	for _, part := range parts {
		_ = p.Script.Send(part)
	}
}

// give sends a PUBLISH that is to be acknowledged once the call of a key is done.
func (p *peer) give(b []byte, qos byte, id uint16, key string) {
	p.sendNoted(func() { p.deliver(b, qos, id, key) }, b)
}

// nextID is an identifier that was not used on this connection.
func (p *peer) nextID() uint16 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lastID++
	return p.lastID
}

// release sends PUBREL.
func (p *peer) release(b []byte, id uint16) {
	p.sendNoted(func() { p.noteRelease(id) }, b)
}

// releaseAll sends every PUBREL that is due.
func (p *peer) releaseAll() {
	p.mu.Lock()
	ids := slices.Sorted(maps.Keys(p.received))
	p.mu.Unlock()
	for _, id := range ids {
		p.release(pubrel(id), id)
	}
}

func pubrel(id uint16) []byte { return []byte{hostile.PUBREL<<4 | 2, 2, byte(id >> 8), byte(id)} }

// inherit sends again what an earlier connection of the session left open.
func (p *peer) inherit(from *peer) {
	from.mu.Lock()
	open := slices.DeleteFunc(slices.Concat(from.given[1], from.given[2]), func(g *given) bool { return g.gone })
	received := maps.Clone(from.received)
	p.mu.Lock()
	p.lastID = from.lastID
	maps.Copy(p.received, received)
	p.mu.Unlock()
	from.mu.Unlock()
	for _, g := range open {
		again := slices.Clone(g.bytes)
		again[0] |= 8
		p.give(again, again[0]>>1&3, g.id, g.key)
	}
	p.releaseAll()
}

// record sends PUBREC.
func (p *peer) record(b []byte, id uint16) {
	p.sendNoted(func() { p.recorded[id]++ }, b)
}

// read is the peer's goroutine.
func (p *peer) read() {
	defer close(p.done)
	for {
		packet, err := p.Script.Next()
		if err == nil {
			p.take(packet.Bytes)
			continue
		}
		p.mu.Lock()
		p.ended = true
		if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrClosedPipe) {
			p.fault("what comes is no packet: %v", err)
		}
		stays := p.stays
		p.mu.Unlock()
		if !stays {
			_ = p.Close()
		}
		return
	}
}

// split returns the first packet in b.
func split(b []byte) (frame, rest []byte) {
	length, size := binary.Uvarint(b[min(len(b), 1):])
	if end := 1 + size + int(length); size > 0 && len(b) >= end {
		return b[:end], b[end:]
	}
	return nil, b
}

func (p *peer) fault(format string, args ...any) {
	p.faults = append(p.faults, fmt.Sprintf(format, args...))
}

// take holds a packet of the client against what it may send, and answers.
func (p *peer) take(frame []byte) {
	answer := p.judge(frame)
	if answer != nil {
		answer()
	}
}

func (p *peer) judge(frame []byte) (answer func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	kind := frame[0] >> 4
	if p.parted {
		p.fault("type %d behind DISCONNECT", kind)
	}
	_, size := binary.Uvarint(frame[1:])
	body := frame[1+size:]
	var id uint16
	var code byte
	switch kind {
	case hostile.CONNECT:
		return p.connected(frame)
	case hostile.SUBSCRIBE, hostile.UNSUBSCRIBE, hostile.PUBACK, hostile.PUBREC, hostile.PUBREL, hostile.PUBCOMP:
		id = binary.BigEndian.Uint16(body)
		if kind < hostile.SUBSCRIBE && len(body) > 2 {
			code = body[2]
		}
	case hostile.DISCONNECT:
		if len(body) > 0 {
			code = body[0]
		}
	}
	p.frames = append(p.frames, fmt.Sprintf("%d:%d:%02X", kind, id, code))
	if p.maximum > 0 && len(frame) > p.maximum && kind != hostile.DISCONNECT { // [MQTT-3.2.2-15]; of one that goes it matters little
		p.fault("type %d of %d bytes, where the Maximum Packet Size is %d", kind, len(frame), p.maximum)
	}
	switch kind {
	case hostile.SUBSCRIBE:
		return p.subscribed(frame, id)
	case hostile.UNSUBSCRIBE:
		p.givenUp = append(p.givenUp, id)
	case hostile.PUBLISH:
		return p.publishedTo(frame)
	case hostile.PUBACK:
		p.acknowledged(1, id)
	case hostile.PUBREC:
		if p.acknowledged(2, id) {
			p.received[id] = true
		}
		if p.script.pubrel {
			return func() { p.release(pubrel(id), id) }
		}
	case hostile.PUBCOMP:
		if len(p.released) == 0 || p.released[0] != (pubcomp{id, code}) {
			p.fault("PUBCOMP %d 0x%02X, due are %v", id, code, p.released)
		} else {
			p.released = p.released[1:]
		}
	case hostile.PUBREL:
		if p.recorded[id] == 0 {
			p.fault("PUBREL %d, and no PUBREC was sent", id)
		}
		if p.script.puback {
			delete(p.recorded, id)
			return func() { p.send([]byte{hostile.PUBCOMP << 4, 2, byte(id >> 8), byte(id)}) }
		}
	case hostile.PINGREQ:
		return func() { p.send([]byte{hostile.PINGRESP << 4, 0}) }
	case hostile.DISCONNECT:
		p.parted, p.code = true, code
	default:
		p.fault("type %d", kind)
	}
	return nil
}

// connected takes CONNECT.
func (p *peer) connected(frame []byte) func() {
	p.second = bytes.Contains(frame, []byte("-retry"))
	if p.second {
		p.r.mu.Lock()
		p.script = p.r.scripts[1]
		p.r.mu.Unlock()
	}
	connack := p.script.connack
	return func() {
		if connack != nil {
			p.send(connack)
		}
		p.r.arrivals[b2i(p.second)] <- p
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (p *peer) subscribed(frame []byte, id uint16) func() {
	qos := frame[len(frame)-1] & 3
	if !p.script.suback {
		p.asked = append(p.asked, asked{id, qos})
		return nil
	}
	return func() { p.send([]byte{hostile.SUBACK << 4, 4, byte(id >> 8), byte(id), 0, qos}) }
}

// publishedTo takes a PUBLISH. A retry copy is brought back over the second connection; a dead letter settles what it is of.
func (p *peer) publishedTo(frame []byte) func() {
	cp, err := packets.ReadPacket(bytes.NewReader(frame))
	if err != nil {
		p.fault("PUBLISH that cannot be read: %v", err)
		return nil
	}
	c := cp.Content.(*packets.Publish)
	if c.QoS > 0 && slices.Contains(p.published, c.PacketID) {
		p.fault("PUBLISH %d, which is in flight", c.PacketID)
	}
	if !p.script.puback && c.Topic == "out" {
		p.published = append(p.published, c.PacketID)
		return nil
	}
	original := userProperty(c, "settle-original-topic")
	if c.Topic == "dead" || c.Topic == "again" && userProperty(c, "settle-attempt") == "1" {
		for qos := range byte(3) { // which of them it was does not stand in a copy
			p.r.book.settled(key(original, qos, c.Payload))
		}
	}
	return func() {
		switch c.QoS {
		case 1:
			p.send([]byte{hostile.PUBACK << 4, 2, byte(c.PacketID >> 8), byte(c.PacketID)})
		case 2:
			p.record([]byte{hostile.PUBREC << 4, 2, byte(c.PacketID >> 8), byte(c.PacketID)}, c.PacketID)
		}
		if c.Topic == "again" {
			p.r.bringBack(c, original)
		}
	}
}

func userProperty(c *packets.Publish, name string) string {
	for _, u := range c.Properties.User {
		if u.Key == name {
			return u.Value
		}
	}
	return ""
}

// snapshot is what has come of a case.
type snapshot struct {
	ended, parted bool
	code          byte
	faults        []string
	frames        []string
}

func (p *peer) snapshot() snapshot {
	p.mu.Lock()
	defer p.mu.Unlock()
	return snapshot{p.ended, p.parted, p.code, slices.Clone(p.faults), slices.Clone(p.frames)}
}
