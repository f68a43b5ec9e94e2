package testkit

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"sync"
	"testing"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/internal/bridge"
	"github.com/settlemq/settle/internal/broker"
)

// Options are what an in-process server grants and how it behaves: its Receive Maximum, Maximum QoS, queue limits and so on. The zero Options
// grant everything.
type Options = broker.Options

// What a server does with a message for a session, or a shared group, whose queue is full: Options.QueuePolicy.
const (
	DropNewest    = broker.DropNewest    // the message that comes is lost; its publisher is not told
	DropOldest    = broker.DropOldest    // the first of the queue is lost
	RefusePublish = broker.RefusePublish // the message goes to nobody, and its publisher gets 0x97, Quota exceeded
)

// What a client gets of a message that several of its own filters match: Options.Overlap.
const (
	OnePublish = broker.OnePublish // one PUBLISH with the Subscription Identifiers of all
	OneEach    = broker.OneEach    // a PUBLISH for each
)

// Broker is an MQTT 5 server in this process, for one test. It is strict: a client that breaks the standard is disconnected with the
// standard's reason code. It keeps sessions for as long as their Session Expiry Interval says, so an app that is started again finds what it has missed.
//
// Every app that a [Kit] connects to it has its dead-letter topics subscribed to, as if somebody looked after dead letters. To see
// what an app does where nobody does, have them refused: RefusePublish(topic, 0x10).
//
// Left alone it is a server without faults. Its methods make some; each lasts until the function that the method returned is
// called, or the test ends. Where several concern one packet, the latest decides.
type Broker struct {
	t      testing.TB
	server *broker.Broker

	mu      sync.Mutex
	faults  []*fault            // the latest last
	readers map[string]struct{} // dead-letter topics that are subscribed to
}

// NewBroker starts a server, which is closed when the test ends. At most one Options may be given.
func NewBroker(t testing.TB, options ...Options) *Broker {
	t.Helper()
	var o Options
	switch len(options) {
	case 0:
	case 1:
		o = options[0]
	default:
		t.Fatalf("testkit: NewBroker was given %d Options: give one", len(options))
	}
	if ask := o.Authenticate; ask != nil {
		o.Authenticate = func(clientID, username string, password []byte) byte {
			if clientID == readerID {
				return 0
			}
			return ask(clientID, username, password)
		}
	}
	b := &Broker{t: t, server: broker.New(o), readers: make(map[string]struct{})}
	t.Cleanup(b.server.Close)
	return b
}

// Publish publishes a message as another client would; the value is encoded by the codecs of a Config that sets none: JSON, and bytes as they are.
// It fails the test where that cannot be.
func (b *Broker) Publish(topic string, value any, options ...settle.MessageOption) {
	b.t.Helper()
	p, err := bridge.Settle.Message(nil, topic, value, options)
	if err == nil {
		err = b.publish(p.(*paho.Publish)) //nolint:forcetypeassert // the bridge says so
	}
	if err != nil {
		b.t.Fatalf("testkit: publish to %q: %v", topic, err)
	}
}

func (b *Broker) publish(p *paho.Publish) error {
	_, err := b.server.Publish(fromPacket(p))
	return err //nolint:wrapcheck // it says all
}

// Cut breaks a client's connection without DISCONNECT, as a network does. It does nothing if the client is not connected. [Kit.CutConnection]
// also waits until the app has noticed.
func (b *Broker) Cut(clientID string) { b.server.Cut(clientID) }

// Send sends a client any bytes, between two packets. It does nothing if the client is not connected.
func (b *Broker) Send(clientID string, raw []byte) { b.server.Send(clientID, raw) }

// HoldClock makes the server's clock stand still: nothing expires on it, no session and no message, no keep-alive ends, no will is due.
// The function that it returns lets it go on.
func (b *Broker) HoldClock() (release func()) { return b.server.HoldClock() }

// Restart is a server that is killed and started again: all connections are gone, and with keepSessions = false all sessions, with what was queued
// in them, and retained messages too.
func (b *Broker) Restart(keepSessions bool) {
	b.server.Restart(keepSessions)
	if keepSessions {
		return
	}
	b.mu.Lock()
	topics := b.readers
	b.readers = make(map[string]struct{})
	b.mu.Unlock()
	for topic := range topics {
		if err := b.readDeadLetters(topic); err != nil {
			b.t.Errorf("testkit: %v", err)
		}
	}
}

// readerID is the client that subscribes to dead-letter topics.
const readerID = "testkit-reads-dead-letters"

// readDeadLetters makes a subscription to a topic, so that the server does not answer that there is none (0x10), on which dead letters are held. The
// subscriber is never connected, and at QoS 0 nothing is kept for it.
func (b *Broker) readDeadLetters(topic string) error {
	b.mu.Lock()
	_, known := b.readers[topic]
	b.readers[topic] = struct{}{}
	b.mu.Unlock()
	if known || topic == "" {
		return nil
	}
	conn, err := b.server.Dial(context.Background())
	if err != nil {
		return fmt.Errorf("subscribe to the dead-letter topic: %w", err)
	}
	defer func() { _ = conn.Close() }()
	never := uint32(0xFFFFFFFF)
	_, err = (&packets.Connect{
		ProtocolName: "MQTT", ProtocolVersion: 5, ClientID: readerID, Properties: &packets.Properties{SessionExpiryInterval: &never},
	}).WriteTo(conn)
	if err == nil {
		_, err = packets.ReadPacket(conn) // CONNACK
	}
	if err == nil {
		_, err = (&packets.Subscribe{PacketID: 1, Properties: &packets.Properties{}, Subscriptions: []packets.SubOptions{{Topic: topic}}}).WriteTo(conn)
	}
	var answer *packets.ControlPacket
	if err == nil {
		answer, err = packets.ReadPacket(conn)
	}
	if err != nil {
		return fmt.Errorf("subscribe to the dead-letter topic %q: %w", topic, err)
	}
	if granted, ok := answer.Content.(*packets.Suback); !ok || granted.Reasons[0] > 2 {
		return fmt.Errorf("subscribe to the dead-letter topic %q: the server does not grant it", topic)
	}
	return nil
}

// inProcess is a Broker as the server of a Kit.
type inProcess struct {
	*Broker

	cancel func()

	tapsMu sync.Mutex
	taps   []*tap // of connections that the app has not closed, and perhaps others
}

func (s *inProcess) attach(k *Kit) error {
	k.redirect(func(ctx context.Context, _ *url.URL) (net.Conn, error) {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		t, app, server := newTap(&k.rec.pulse)
		s.tapsMu.Lock()
		s.taps = append(slices.DeleteFunc(s.taps, func(t *tap) bool { return t.closed.Load() }), t)
		s.tapsMu.Unlock()
		go s.server.Serve(server) // Close of the server ends it
		return app, nil
	}, nil)
	for _, rt := range k.rec.routes {
		if err := s.readDeadLetters(rt.DeadLetterTo); err != nil {
			return err
		}
	}
	var err error
	s.cancel, err = s.server.Subscribe("#", k.rec.sawPublished)
	return err //nolint:wrapcheck // it says all
}

func (s *inProcess) detach() {
	if s.cancel != nil {
		s.cancel()
	}
}

func (s *inProcess) publish(ctx context.Context, p *paho.Publish) error {
	return errors.Join(ctx.Err(), s.Broker.publish(p))
}

func (s *inProcess) caughtUp() bool {
	s.tapsMu.Lock()
	defer s.tapsMu.Unlock()
	return !slices.ContainsFunc(s.taps, func(t *tap) bool { return !t.caughtUp() })
}

func (s *inProcess) cut(_ *Kit, clientIDs []string) {
	for _, id := range clientIDs {
		s.Cut(id)
	}
}

func (s *inProcess) idle(clientID string, connected bool) bool {
	info, _ := s.server.Session(clientID)
	return info.Connected == connected && info.Queued+info.Inflight+info.SharedQueued+info.Unwritten+info.Inbound == 0
}

func (s *inProcess) session(clientID string) string {
	info, known := s.server.Session(clientID)
	if !known {
		return "there is no such session"
	}
	connected := "not connected"
	if info.Connected {
		connected = "connected"
	}
	return fmt.Sprintf("%s, subscribed to %q, %d messages queued, %d in flight, %d lost to its limits",
		connected, info.Subscriptions, info.Queued+info.SharedQueued, info.Inflight, info.Dropped)
}

func (s *inProcess) wire(clientID string) []string { return s.server.WireLog(clientID) }
