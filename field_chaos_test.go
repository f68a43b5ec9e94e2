package settle_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"github.com/settlemq/settle"
)

// chaos is a server that keeps to MQTT 5 and loses nothing, whose network does: connections are cut at any packet, and what the
// client sent just before may never have arrived. It checks each acknowledgement as it comes.
type chaos struct {
	t    *testing.T
	f    *field
	rand *rand.Rand

	mu       sync.Mutex
	sessions [2]*session     // main, retry
	done     map[string]bool // messages that a handler has acknowledged
	stored   map[string]int  // copies and dead letters in the server's hands, by message
	dead     map[string]bool
	faults   []string
}

// session is a server's half of a session, for what it sends.
type session struct {
	window  int
	queue   []*packets.Publish
	flying  []*packets.Publish // in the order of sending; QoS 2 without those that PUBREC has come for
	awaits  map[uint16]bool    // QoS 2: PUBREL sent, or to be sent
	last    uint16
	present bool
	peer    *peer
	deaf    bool              // what the client sends is lost
	order   map[byte][]uint16 // sent on this connection, unacknowledged, by QoS
	wake    chan struct{}
}

func (c *chaos) fault(format string, args ...any) {
	c.faults = append(c.faults, fmt.Sprintf(format, args...))
}

// serve is the life of one session: it alone sends on it.
func (c *chaos) serve(which int, stop chan struct{}, wg *sync.WaitGroup) {
	defer wg.Done()
	s := c.sessions[which]
	for {
		select {
		case p := <-c.f.arrivals[which == 1]:
			c.connect(s, which, p)
		case <-s.wake:
		case <-stop:
			return
		}
		for c.next(s) {
		}
	}
}

// connect answers CONNECT and sends again what has not been acknowledged.
func (c *chaos) connect(s *session, which int, p *peer) {
	p.set(func(h *hooks) {
		h.came = func(line string) { c.came(which, p, line) }
		h.publish = func(m *packets.Publish) (byte, bool) { return 0, c.store(p, m) }
		h.pubrec = func(uint16) bool { return c.heard(p) }
	})
	c.mu.Lock()
	s.peer, s.deaf, s.order = p, false, map[byte][]uint16{}
	present := s.present
	s.present = true
	flying := slices.Clone(s.flying)
	rels := slices.Sorted(maps.Keys(s.awaits))
	for _, m := range flying {
		s.order[m.QoS] = append(s.order[m.QoS], m.PacketID)
	}
	c.mu.Unlock()
	p.write(&packets.Connack{SessionPresent: present, Properties: &packets.Properties{}})
	for _, m := range flying {
		p.write(again(m))
	}
	for _, id := range rels {
		p.write(&packets.Pubrel{PacketID: id})
	}
}

// next sends one PUBLISH, if the window allows it.
func (c *chaos) next(s *session) bool {
	c.mu.Lock()
	if s.peer == nil || len(s.queue) == 0 || len(s.flying)+len(s.awaits) >= s.window {
		c.mu.Unlock()
		return false
	}
	m := *s.queue[0]
	s.queue = s.queue[1:]
	for {
		s.last = s.last%uint16(s.window+2) + 1
		if !s.awaits[s.last] && !s.flies(s.last) {
			break
		}
	}
	m.PacketID = s.last
	s.flying = append(s.flying, &m)
	s.order[m.QoS] = append(s.order[m.QoS], m.PacketID)
	p := s.peer
	c.mu.Unlock()
	p.write(&m)
	return true
}

func (s *session) push() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *session) flies(id uint16) bool {
	for _, m := range s.flying {
		if m.PacketID == id {
			return true
		}
	}
	return false
}

func (c *chaos) heard(p *peer) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.sessions {
		if s.peer == p {
			return !s.deaf
		}
	}
	return false
}

// store takes a copy or a dead letter.
func (c *chaos) store(p *peer, m *packets.Publish) bool {
	if !c.heard(p) {
		return false
	}
	c.mu.Lock()
	id := string(m.Payload)
	switch m.Topic {
	case "r":
		c.stored[id]++
		c.sessions[1].queue = append(c.sessions[1].queue, comeBack(m, 0))
	case "dead":
		c.dead[id] = true
		c.stored[id]++
	}
	c.mu.Unlock()
	c.sessions[1].push()
	return true
}

// came judges an acknowledgement. The peer's lock is held.
func (c *chaos) came(which int, p *peer, line string) {
	name, rest, _ := strings.Cut(line, " ")
	rest, _, _ = strings.Cut(rest, " ")
	n, err := strconv.Atoi(rest)
	if err != nil || !strings.HasPrefix(name, "PUB") || name == "PUBLISH" {
		return
	}
	id := uint16(n)
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.sessions[which]
	if s.peer != p || s.deaf {
		return
	}
	qos := byte(1)
	if name != "PUBACK" {
		qos = 2
	}
	if name == "PUBCOMP" {
		delete(s.awaits, id)
		s.push()
		return
	}
	if order := s.order[qos]; len(order) == 0 || order[0] != id {
		c.fault("%s out of order: %s, and it was the turn of %v", name, line, order)
		return
	}
	s.order[qos] = s.order[qos][1:]
	for i, m := range s.flying {
		if m.PacketID != id || m.QoS != qos {
			continue
		}
		// A marker is nobody's message.
		if key := string(m.Payload); key != "" && !c.done[key] && c.stored[key] == 0 {
			c.fault("%s for %s, which nobody has handled and nobody keeps", line, key)
		}
		if which == 1 && len(m.Payload) > 0 {
			c.stored[string(m.Payload)]--
		}
		s.flying = append(s.flying[:i:i], s.flying[i+1:]...)
		if qos == 2 {
			s.awaits[id] = true
		}
		s.push()
		return
	}
	c.fault("%s for nothing that was sent", line)
}

// cut ends a connection; what the client has sent in the last milliseconds may be lost.
func (c *chaos) cut(which int, lose bool) {
	c.mu.Lock()
	s := c.sessions[which]
	p := s.peer
	if p == nil {
		c.mu.Unlock()
		return
	}
	s.deaf = true
	c.mu.Unlock()
	sleep(time.Duration(c.rand.IntN(5)) * time.Millisecond)
	_ = p.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	s.peer = nil
	if lose {
		// Copies that it has confirmed are in the client's memory, and nowhere else now: they still count as stored, and
		// have to be handled in the end.
		if which == 1 {
			s.queue = nil
		}
		s.flying, s.awaits, s.present = nil, map[uint16]bool{}, false
	}
}

func TestNothingIsLostOverCuts(t *testing.T) {
	seeds := chaosSeeds
	if testing.Short() {
		seeds = 10
	}
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			in(t, func(t *testing.T) { chaosRun(t, seed) })
		})
	}
}

func chaosRun(t *testing.T, seed uint64) {
	const messages, keys = 150, 5
	r := rand.New(rand.NewPCG(seed, 1))
	retryTopic, loses, handleAgain, maxAttempts := r.IntN(2) == 0, r.IntN(3) == 0, r.IntN(6) == 0, r.IntN(2) == 0
	c := &chaos{t: t, rand: r, done: map[string]bool{}, stored: map[string]int{}, dead: map[string]bool{}}
	window := 2 + r.IntN(20)
	for i := range c.sessions {
		c.sessions[i] = &session{window: window, awaits: map[uint16]bool{}, wake: make(chan struct{}, 1)}
	}
	c.sessions[1].window = 4 + r.IntN(20)
	var firsts []string
	seen, handled := map[string]bool{}, 0
	handlerRand := rand.New(rand.NewPCG(seed, 2))
	handler := func(ctx context.Context, b []byte) settle.Outcome {
		d := settle.DeliveryFrom(ctx)
		id := string(b)
		c.mu.Lock()
		handled++
		if !seen[id] {
			seen[id] = true
			firsts = append(firsts, d.Level(1)+" "+id)
		}
		roll, wait := handlerRand.IntN(100), time.Duration(handlerRand.IntN(200))*time.Millisecond
		c.mu.Unlock()
		switch {
		case roll < 10:
			sleep(wait)
		case roll < 25 && d.Attempt() < 4:
			return settle.Retry(errFails)
		case roll < 28 && d.Attempt() < 4:
			panic(errFails)
		}
		c.mu.Lock()
		c.done[id] = true
		c.mu.Unlock()
		return settle.Ack()
	}
	options := []settle.RouteOption{settle.ExactlyOnce, settle.Workers(3, settle.ByTopic), settle.Backoff(settle.Exponential(50*time.Millisecond, time.Second))}
	if retryTopic {
		options = append(options, settle.RetryTo("r"))
	}
	if maxAttempts {
		options = append(options, settle.MaxAttempts(2), settle.DeadLetterTo("dead"))
	}
	c.f = begin(t, func(cfg *settle.Config) {
		cfg.ReceiveMaximum, cfg.RetryReceiveMaximum = window, c.sessions[1].window
		if handleAgain {
			cfg.Redelivery = settle.HandleAgain
		}
	}, settle.Handle("t/+", handler, options...))
	for i := range messages {
		c.sessions[0].queue = append(c.sessions[0].queue, publish("t/"+strconv.Itoa(r.IntN(keys)), byte(1+r.IntN(2)), 0, fmt.Sprintf("%04d", i)))
	}
	stop := make(chan struct{})
	var serving sync.WaitGroup
	serving.Add(2)
	go c.serve(0, stop, &serving)
	go c.serve(1, stop, &serving)

	for range 25 {
		sleep(time.Duration(r.IntN(400)) * time.Millisecond)
		which := 0
		if retryTopic && r.IntN(3) == 0 {
			which = 1
		}
		c.cut(which, loses && r.IntN(4) == 0)
	}
	left := func() (missing []string) {
		c.mu.Lock()
		defer c.mu.Unlock()
		for i := range messages {
			if id := fmt.Sprintf("%04d", i); !c.done[id] && !c.dead[id] {
				missing = append(missing, id)
			}
		}
		return missing
	}
	deadline := time.Now().Add(time.Hour)
	for len(left()) > 0 && time.Now().Before(deadline) {
		sleep(time.Second)
	}
	sleep(time.Minute)
	if missing := left(); len(missing) > 0 {
		t.Errorf("never handled: %v", missing)
	}
	close(stop)
	serving.Wait()
	if err := c.f.stop(); err != nil && !loses {
		var drain *settle.DrainError
		t.Errorf("Stop returned %v (%t)", err, errors.As(err, &drain))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, fault := range c.faults {
		t.Error(fault)
	}
	last := map[string]string{}
	for _, s := range firsts {
		key, id, _ := strings.Cut(s, " ")
		if id < last[key] {
			t.Errorf("key %s: %s was first handled after %s", key, id, last[key])
		}
		last[key] = id
	}
	for i, s := range c.sessions {
		if n := len(s.flying) + len(s.queue) + len(s.awaits); n > 0 && !loses {
			t.Errorf("session %d: %d are left", i, n)
		}
	}
	t.Logf("retry topic %t, sessions lost %t, window %d: %d calls for %d messages, %d dead letters", retryTopic, loses, window, handled, messages, len(c.dead))
}

// chaosSeeds is how many runs there are; the first of them are the same each time.
const chaosSeeds = 60
