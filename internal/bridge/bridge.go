// Package bridge lets package testkit see and steer what an App does, without names that users would see. Package
// settle fills Settle in when it is initialised; values of its types cross as any, since neither package can name the other's.
package bridge

import (
	"context"
	"net"
	"net/url"
	"time"
)

// Observer is told what an App does. Its methods are called from lanes and connections: they must not block, nor call the App.
// A delivery is a *settle.Delivery, an outcome a settle.Outcome, a publisher a settle.Publisher.
type Observer interface {
	// Decoded is what a payload was decoded into, before the handler is called.
	Decoded(delivery, body any)
	// Batch is a []*settle.Delivery that was assembled into one batch.
	Batch(deliveries any)
	// Settled is an outcome, when it is about to be carried out. due is when the next attempt will be, zero if there is none.
	Settled(delivery, outcome any, lane int, due time.Time)
	// Sent is where a copy or a dead letter of a delivery has been stored by the server.
	Sent(delivery any, topic string)
	// Changed says that anything else may have: connections, acknowledgements, queues.
	Changed()
}

// State is what an App has not finished.
type State struct {
	Ready          bool
	Unacknowledged int // deliveries of both connections that the server has no acknowledgement of
	Unsettled      int // deliveries of any QoS that a route has and has not settled
	Held           int // of those, held for another attempt
	Waiting        int // retry copies that wait until they are due
	Unconfirmed    int // copies and dead letters that the server has not confirmed
	OnTheirWay     int // confirmed copies that have not come back
}

// Hooks are package settle's own.
type Hooks struct {
	Observe      func(app any, o Observer)                                                                 // before Start
	Redirect     func(app any, dial func(context.Context, *url.URL) (net.Conn, error), servers []*url.URL) // before Start; nil servers: as configured
	State        func(app any) State
	Routes       func(app any) map[string]string // filters by name
	ClientIDs    func(app any) []string
	Drop         func(app any, cause error) // drops every connection without DISCONNECT
	Acknowledged func(delivery any) bool
	Message      func(app any, topic string, value any, options any) (publish any, err error) // a *paho.Publish; options are []settle.MessageOption; app may be nil
	Delivery     func(topic string, value any, options any) (delivery any, err error)
	Attempt      func(n int) (option any) // a settle.MessageOption for Delivery
	Context      func(ctx context.Context, publisher any, deliveries any) context.Context
}

// Settle is filled in by package settle.
var Settle Hooks
