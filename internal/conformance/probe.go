package conformance

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/eclipse/paho.golang/packets"
)

// patience bounds every wait for something that must come.
const patience = 10 * time.Second

// probe is one run of one check. Its methods, and those of its peers, are for the check's goroutine.
type probe struct {
	ctx          context.Context //nolint:containedctx // of the test that the probe is
	dial         Dialer
	lag          time.Duration
	prefix       string // of Client Identifiers and topics, so that checks share a server
	peers        []*peer
	sender       *peer
	failure      string
	inapplicable string
	done         chan struct{} // closed when the check has run
}

// failf ends the check as failed.
func (p *probe) failf(format string, args ...any) {
	_, file, line, _ := runtime.Caller(1)
	for skip := 2; strings.HasSuffix(file, "/peer.go") || strings.HasSuffix(file, "/exchange.go") || strings.HasSuffix(file, "/probe.go"); skip++ {
		var ok bool
		if _, file, line, ok = runtime.Caller(skip); !ok {
			break
		}
	}
	p.failure = fmt.Sprintf("%s:%d: ", file[strings.LastIndexByte(file, '/')+1:], line) + fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// doesNotApply ends a check that this server cannot be asked.
func (p *probe) doesNotApply(why string) {
	p.inapplicable = why
	runtime.Goexit()
}

// topic is a topic, or a filter, of this check's own.
func (p *probe) topic(name string) string { return p.prefix + "/" + name }

// pass lets time go by.
func (p *probe) pass(d time.Duration) { <-time.After(d) }

// publisher is a client that publishes for the check.
func (p *probe) publisher() *peer {
	if p.sender == nil {
		p.sender = p.connect("publisher", cleanStart)
	}
	return p.sender
}

// publish has another client publish payloads to a topic, each of them answered.
func (p *probe) publish(topic string, qos byte, payloads ...string) {
	for _, payload := range payloads {
		p.publisher().publish(message(topic, qos, payload))
	}
	p.arrive()
}

// arrive waits until what was published is with its subscribers.
func (p *probe) arrive() {
	if p.lag > 0 {
		p.pass(p.lag)
	}
}

// numbered are the payloads m<from> to m<to>.
func numbered(from, to int) []string {
	var all []string
	for i := from; i <= to; i++ {
		all = append(all, fmt.Sprint("m", i))
	}
	return all
}

// message is a PUBLISH without properties.
func message(topic string, qos byte, payload string) *packets.Publish {
	return &packets.Publish{Topic: topic, QoS: qos, Payload: []byte(payload), Properties: &packets.Properties{}}
}

func ptr[T any](v T) *T { return &v }

// The changes to a CONNECT.

func cleanStart(c *packets.Connect) { c.CleanStart = true }

// session asks for a session of so many seconds.
func session(seconds uint32) func(*packets.Connect) {
	return func(c *packets.Connect) { c.Properties.SessionExpiryInterval = &seconds }
}

// lasting asks for a session that outlives the check.
func lasting(c *packets.Connect) { session(3600)(c) }

func receiveMaximum(n uint16) func(*packets.Connect) {
	return func(c *packets.Connect) { c.Properties.ReceiveMaximum = &n }
}

// will gives a CONNECT a will for the mourner, "gone" at QoS 1.
func (p *probe) will(delay uint32) func(*packets.Connect) {
	return func(c *packets.Connect) {
		c.WillFlag, c.WillQOS, c.WillTopic, c.WillMessage = true, 1, p.topic("will"), []byte("gone")
		c.WillProperties = &packets.Properties{}
		if delay > 0 {
			c.WillProperties.WillDelayInterval = &delay
		}
	}
}
