package testkit

import (
	"context"
	"errors"
	"net"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/paho"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/internal/bridge"
	"github.com/settlemq/settle/internal/topic"
)

// Kit is an app under test: what it settled and published, and what can be done to it. It remembers all of it, payloads included, until the test ends.
type Kit struct {
	*shared

	patience time.Duration // of its waits; 0: the default
}

// shared is what all Kits of one app have in common.
type shared struct {
	t      testing.TB
	app    *settle.App
	server server
	rec    *recorder
	began  time.Time

	ready   sync.Once // the app has been ready once, so a message finds its subscription
	stop    sync.Once
	stopErr error
}

// server is where an app is connected to.
type server interface {
	// attach has the app dial this server, and the recorder be told what is published.
	attach(k *Kit) error
	// detach ends what attach began.
	detach()
	publish(ctx context.Context, p *paho.Publish) error
	// caughtUp says that the server has handled all that the app has written, as far as can be seen.
	caughtUp() bool
	// cut breaks the connections of these clients.
	cut(k *Kit, clientIDs []string)
	// idle says that a client is connected, or is not, and that nothing is queued or in flight for it, as far as can be seen.
	idle(clientID string, connected bool) bool
	// session says in words what the server knows about a client; "" if that cannot be seen.
	session(clientID string) string
	wire(clientID string) []string
}

// Start runs an app against an in-process server of its own and waits until it is ready. It overrides where the app dials, and nothing
// else: servers, TLS and Dial of its Config are not used. The app must not have been started. Both are stopped when the test ends.
func Start(t testing.TB, app *settle.App) *Kit {
	t.Helper()
	return StartOn(t, NewBroker(t), app)
}

// StartOn is [Start] on a server that the test has made: to run several apps on it, to start one again on the session that it left, or
// to have the server misbehave.
func StartOn(t testing.TB, b *Broker, app *settle.App) *Kit {
	t.Helper()
	k := attach(t, &inProcess{Broker: b}, app)
	k.start()
	return k
}

// Attach records an app that something else starts and stops, fx for one, and has it dial b. It must be called before the app starts. A test
// that wants to see how a start fails attaches, and starts the app itself. The app is stopped when the test ends, if nothing
// else has done so.
func Attach(t testing.TB, b *Broker, app *settle.App) *Kit {
	t.Helper()
	return attach(t, &inProcess{Broker: b}, app)
}

func attach(t testing.TB, s server, app *settle.App) *Kit {
	t.Helper()
	k := &Kit{shared: &shared{t: t, app: app, server: s, rec: newRecorder(bridge.Settle.Routes(app)), began: time.Now()}}
	bridge.Settle.Observe(app, k.rec)
	t.Cleanup(k.cleanup)
	if err := s.attach(k); err != nil {
		t.Fatalf("testkit: %v", err)
	}
	return k
}

func (k *Kit) start() {
	k.t.Helper()
	if err := k.app.Start(k.t.Context()); err != nil {
		k.t.Fatalf("testkit: %v", err)
	}
	k.awaitReady()
}

// awaitReady waits until the app has been ready once.
func (k *Kit) awaitReady() {
	k.t.Helper()
	k.ready.Do(func() {
		k.t.Helper()
		if !k.await(func() bool { return k.app.Ready() == nil || ended(k.app) }) || ended(k.app) {
			k.fail("the app did not get ready within %s: %v", k.wait(), k.app.Ready())
		}
	})
}

func ended(app *settle.App) bool {
	select {
	case <-app.Done():
		return true
	default:
		return false
	}
}

// Within is the same Kit with another patience: how long its waits last at the most before they fail. The default is five seconds, and an hour in a
// testing/synctest bubble, where it costs nothing.
func (k *Kit) Within(d time.Duration) *Kit { return &Kit{shared: k.shared, patience: d} }

// Broker is the in-process server that the app is connected to; nil with [StartLive].
func (k *Kit) Broker() *Broker {
	if s, ok := k.server.(*inProcess); ok {
		return s.Broker
	}
	return nil
}

// Publish publishes a message to the app's server, as another client would; the value is encoded by the app's codecs. It returns when the server has
// it, and fails the test where that cannot be. The first Publish waits until the app is ready.
func (k *Kit) Publish(topic string, value any, options ...settle.MessageOption) {
	k.t.Helper()
	k.awaitReady()
	p, err := bridge.Settle.Message(k.app, topic, value, options)
	if err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), k.wait())
		defer cancel()
		err = k.server.publish(ctx, p.(*paho.Publish)) //nolint:forcetypeassert // the bridge says so
	}
	if err != nil {
		k.t.Fatalf("testkit: publish to %q: %v", topic, err)
	}
}

// CutConnection breaks the app's connections without DISCONNECT, as a network does, and returns when the app has noticed. The app
// connects again by itself, after its backoff, which is long for one that is cut again and again as soon as it is connected.
func (k *Kit) CutConnection() {
	k.t.Helper()
	before := make(map[string]uint64)
	var ids []string
	for _, c := range bridge.Settle.State(k.app).Connections {
		if c.State == "up" || c.State == "subscribing" {
			before[c.ClientID] = c.Epoch
			ids = append(ids, c.ClientID)
		}
	}
	k.server.cut(k, ids)
	noticed := k.await(func() bool {
		return !slices.ContainsFunc(bridge.Settle.State(k.app).Connections, func(c bridge.Connection) bool {
			epoch, was := before[c.ClientID]
			return was && c.Epoch == epoch && (c.State == "up" || c.State == "subscribing")
		})
	})
	if !noticed {
		k.fail("the app did not notice within %s that its connection is gone", k.wait())
	}
}

// Stop stops the app as production does, and returns what [settle.App.Stop] returns. The test's end does it otherwise. Calling
// it again returns the same.
func (k *Kit) Stop() error {
	k.stop.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), k.wait())
		defer cancel()
		k.stopErr = k.app.Stop(ctx)
	})
	return k.stopErr
}

// Wire is what has passed between the app and the in-process server, a line for each packet: the time since the server began, the direction ('>' from
// the app), and what the packet holds, for each connection. With [StartLive] there is none.
func (k *Kit) Wire() []string {
	var lines []string
	for _, c := range bridge.Settle.State(k.app).Connections {
		if log := k.server.wire(c.ClientID); len(log) > 0 {
			lines = append(append(lines, c.ClientID+":"), log...)
		}
	}
	return lines
}

// cleanup ends what the Kit has begun.
func (k *Kit) cleanup() {
	if k.t.Failed() {
		k.logWire()
		k = k.Within(failedPatience)
	}
	err := k.Stop()
	k.server.detach()
	var drain *settle.DrainError
	switch {
	case errors.As(err, &drain) && drain.Running > 0:
		k.t.Errorf("testkit: handlers did not return when their contexts ended: %v", err)
	case err != nil && k.t.Failed():
		k.t.Logf("testkit: stop: %v", err)
	}
}

// failedPatience is how long a test that has failed waits for its app.
const failedPatience = time.Second

// wireShown is how many packets of each connection a failed test shows.
const wireShown = 100

func (k *Kit) logWire() {
	for _, c := range bridge.Settle.State(k.app).Connections {
		log := k.server.wire(c.ClientID)
		if len(log) == 0 {
			continue
		}
		left := max(0, len(log)-wireShown)
		k.t.Logf("testkit: what went over the wire of %q, without the first %d packets:", c.ClientID, left)
		for _, line := range log[left:] {
			k.t.Log(line)
		}
	}
}

// redirect has the app dial somewhere else.
func (k *Kit) redirect(dial func(context.Context, *url.URL) (net.Conn, error), servers []*url.URL) {
	bridge.Settle.Redirect(k.app, dial, servers)
}

// routesOf are the names of the routes that a name or a topic filter stands for.
func (k *Kit) routesOf(nameOrFilter string) []string {
	k.t.Helper()
	if _, known := k.rec.routes[nameOrFilter]; known {
		return []string{nameOrFilter}
	}
	var names, all []string
	for name, rt := range k.rec.routes {
		all = append(all, name)
		if rt.Filter == nameOrFilter {
			names = append(names, name)
		}
	}
	slices.Sort(all)
	slices.Sort(names)
	if len(names) == 0 {
		k.t.Fatalf("testkit: the app has no route %q; it has %q", nameOrFilter, all)
	}
	return names
}

func matches(filter string, m Message) bool { return topic.Match(filter, m.Topic()) }
