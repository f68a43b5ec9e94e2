package settle

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/settlemq/settle/internal/bridge"
	"github.com/settlemq/settle/internal/wire"
)

// What package testkit needs to know of an App and its deliveries, and users do not.
func init() { //nolint:gochecknoinits // the one place where two packages meet that cannot import each other
	bridge.Settle = bridge.Hooks{
		Observe:   func(app any, o bridge.Observer) { app.(*App).observer = o },
		Redirect:  func(app any, dial dialFunc, servers []*url.URL) { app.(*App).redirect(dial, servers) },
		State:     func(app any) bridge.State { return app.(*App).state() },
		Elsewhere: func(app any) int { return app.(*App).returns.elsewhere() },
		Routes: func(app any) []bridge.Route {
			var routes []bridge.Route
			for _, rt := range app.(*App).routes {
				routes = append(routes, bridge.Route{Name: rt.name, Filter: rt.filter, RetryTo: rt.retryTo, DeadLetterTo: rt.deadLetterTo})
			}
			return routes
		},
		Drop: func(app any, cause error) {
			for _, in := range app.(*App).inbounds() {
				in.link.Drop(cause)
			}
		},
		Acknowledged: func(delivery any) (is, canBe bool) {
			a := delivery.(*Delivery).arrival
			if a.QoS == 0 || a.in == nil {
				return false, false
			}
			canBe = a.in.window.Holds(&a.Entry) // asked for first: it ends when the other begins
			is = a.in.window.Acknowledged(&a.Entry)
			return is, is || canBe
		},
		Message:  testMessage,
		Delivery: testDelivery,
		Attempt:  func(n int) any { return messageOptionFunc(func(m *message) { m.attempt = n }) },
		Context: func(ctx context.Context, publisher, deliveries any) context.Context {
			r := &run{batch: deliveries.([]*Delivery)}
			r.publisher, _ = publisher.(Publisher)
			return context.WithValue(ctx, runKey{}, r)
		},
	}
}

type dialFunc = func(context.Context, *url.URL) (net.Conn, error)

// redirect has an app that has not been started connect elsewhere. No servers: those that are configured.
func (a *App) redirect(dial dialFunc, servers []*url.URL) {
	a.config.Dial = dial
	if servers != nil {
		a.config.Servers = nil
		for _, u := range servers {
			a.config.Servers = append(a.config.Servers, u.String())
		}
	}
	a.connect()
}

func (a *App) observed(d *Delivery, o Outcome, due time.Time) {
	if a.observer != nil {
		a.observer.Settled(d, o, d.lane, due)
	}
}

func (a *App) changed() {
	if a.observer != nil {
		a.observer.Changed()
	}
}

// observe tells of a copy or a dead letter that was stored.
func (e *errand) observe() {
	if o := e.d.route.app.observer; o != nil && e.kind != errandHop {
		to := e.d.route.retryTo
		if e.kind == errandDead {
			to = e.d.route.deadLetterTo
		}
		o.Sent(e.d, to)
	}
}

func (a *App) state() bridge.State {
	a.mu.Lock()
	ended := a.phase == phaseNew || a.phase == phaseEnded
	a.mu.Unlock()
	s := bridge.State{Ready: a.Ready() == nil, Ended: ended, Held: a.holds.set.len(), Unconfirmed: a.couriers.pending.count()}
	for i, in := range a.inbounds() {
		status := in.link.Status()
		s.Connections = append(s.Connections, bridge.Connection{
			Name: in.name, ClientID: a.config.ClientID + [...]string{"", retrySuffix}[i],
			State: status.State.String(), Granted: status.Granted, Epoch: status.Epoch, LastErr: status.LastError,
		})
		s.Unacknowledged += in.window.Unacknowledged()
		s.Settled += in.window.Settled()
		s.Due = s.Due || in.window.Due()
		s.Writing = s.Writing || in.link.Writing()
	}
	for _, rt := range a.routes {
		s.Unsettled += int(rt.unsettled.Load())
	}
	a.returns.mu.Lock()
	defer a.returns.mu.Unlock()
	s.Waiting, s.OnTheirWay = a.returns.idle, len(a.returns.out)
	return s
}

// elsewhere is how many copies have not come back that another member of a group may have got.
func (rs *returns) elsewhere() (n int) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, c := range rs.out {
		if c.errand.d.route.group != "" {
			n++
		}
	}
	return n
}

// testMessage is a message as App.Publish would send it.
func testMessage(app any, topic string, value, options any) (any, error) {
	codecs := newCodecs([]Codec{JSON()})
	if app != nil {
		codecs = app.(*App).codecs
	}
	p, _, err := packetOf(&codecs, topic, value, options.([]MessageOption))
	return p, err
}

// testDelivery is a delivery that no server sent.
func testDelivery(topic string, value, options any) (any, error) {
	codecs := newCodecs([]Codec{JSON()})
	p, attempt, err := packetOf(&codecs, topic, value, options.([]MessageOption))
	if err != nil {
		return nil, err
	}
	packet := p.Packet()
	if packet.QoS > 0 {
		packet.PacketID = 1
	}
	var b bytes.Buffer
	if _, err := packet.WriteTo(&b); err != nil {
		return nil, fmt.Errorf("settle: encode a delivery: %w", err)
	}
	frame, err := wire.NewScanner(&b, wire.Limits{}).Next()
	if err != nil {
		return nil, fmt.Errorf("settle: read a delivery: %w", err)
	}
	a := new(arrival)
	if err := wire.ParsePublish(frame, &a.Publish); err != nil {
		return nil, fmt.Errorf("settle: parse a delivery: %w", err)
	}
	a.first.init(a, nil, max(attempt, 1))
	return &a.first, nil
}
