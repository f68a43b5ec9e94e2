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
	// Queued is a delivery that has come up for a route: from the server, or because another attempt is due. A route with a key
	// function of the user's tells of it twice.
	Queued(delivery any)
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
	Ended          bool // the app has stopped, or never started
	Connections    []Connection
	Unacknowledged int  // deliveries of both connections that the server has no acknowledgement of
	Unsettled      int  // deliveries of any QoS that a route has and has not settled
	Held           int  // of those, held for another attempt
	Waiting        int  // retry copies that wait until they are due
	Unconfirmed    int  // copies and dead letters that the server has not confirmed
	OnTheirWay     int  // confirmed copies that have not come back
	Settled        int  // deliveries that are settled and whose acknowledgement has not been handed to a connection
	Due            bool // an acknowledgement could leave now
	Writing        bool // what was handed to a connection may not have been written yet
}

// Connection is one of an App's.
type Connection struct {
	Name     string // "main" or "retry"
	ClientID string
	State    string
	Granted  bool   // every subscription is
	Epoch    uint64 // which connection this is, or the last one was
	LastErr  error
}

// Route is what a route of an App is called and where its messages come from and go to.
type Route struct{ Name, Filter, RetryTo, DeadLetterTo string }

// Hooks are package settle's own.
type Hooks struct {
	Observe      func(app any, o Observer)                                                                 // before Start
	Redirect     func(app any, dial func(context.Context, *url.URL) (net.Conn, error), servers []*url.URL) // before Start; nil servers: as configured
	State        func(app any) State
	Elsewhere    func(app any) int // of State.OnTheirWay, those that another member of a group may have got
	Routes       func(app any) []Route
	Drop         func(app any, cause error)                                                   // drops every connection without DISCONNECT
	Acknowledged func(delivery any) (is, canBe bool)                                          // canBe: it is, or the server still waits for it
	Message      func(app any, topic string, value any, options any) (publish any, err error) // a *paho.Publish; options are []settle.MessageOption; app may be nil
	Delivery     func(topic string, value any, options any) (delivery any, err error)
	Attempt      func(n int) (option any) // a settle.MessageOption for Delivery
	Context      func(ctx context.Context, publisher any, deliveries any) context.Context
}

// Settle is filled in by package settle.
var Settle Hooks
