package settle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/eclipse/paho.golang/paho"

	"github.com/settlemq/settle/internal/link"
	"github.com/settlemq/settle/internal/topic"
	"github.com/settlemq/settle/internal/window"
	"github.com/settlemq/settle/internal/wire"
)

// connect makes the links and what stands behind them; nothing is dialled yet.
func (a *App) connect() {
	a.byTopic = topic.Trie[*route]{}
	main := a.mainSubscriptions()
	a.main = a.newInbound("main", a.config.ReceiveMaximum)
	a.main.deliver = a.main.accept
	a.both[0] = a.main
	cfg := a.linkConfig(a.main, a.config.ClientID, main)
	cfg.CleanStart = a.config.CleanStart
	cfg.Unsubscribe = a.config.RetireFilters
	cfg.Limits.Chunk = chunkSize
	cfg.Will, cfg.WillProperties = a.config.Will.packet()
	a.main.link = link.New(cfg)

	if len(a.retryRoutes) == 0 {
		return
	}
	a.retry = a.newInbound("retry", a.config.RetryReceiveMaximum)
	a.retry.index = 1
	a.retry.deliver = a.returns.deliver
	a.retry.lost = a.returns.sessionLost
	a.returns.in = a.retry
	a.both[1] = a.retry
	cfg = a.linkConfig(a.retry, a.config.ClientID+retrySuffix, a.retrySubscriptions())
	cfg.CleanStart = a.config.CleanStart
	cfg.Unsubscribe = a.config.RetireFilters // an earlier release's retry topic may be among them
	cfg.OnUp = a.returns.up
	cfg.OnDown = func(err error, again time.Duration) { a.returns.down(); a.retry.down(err, again) }
	a.retry.link = link.New(cfg)
}

// chunkSize is how much of the main connection's stream is kept together: a delivery that is still held keeps at most so much
// besides itself. Copies that wait for hours on the second connection each have memory of their own.
const chunkSize = 32 << 10

// maxControl bounds what any packet may have besides a payload: topic, properties, reason strings.
const maxControl = 256 << 10

// leastOverrun is what any server may send ahead of our acknowledgements before it is slowed down.
const leastOverrun = 8192

func (a *App) newInbound(name string, receiveMaximum int) *inbound {
	limit := int64(receiveMaximum)*int64(a.config.MaxPayload+maxControl+arrivalOverhead) + int64(a.config.UnsettledBytes)
	return &inbound{
		app:    a,
		name:   name,
		log:    a.log.With().Str("connection", name).Logger(),
		window: window.New(window.Config{ReceiveMaximum: receiveMaximum, HandleAgain: a.config.Redelivery == HandleAgain}),
		memory: newRoom(limit, int64(a.config.UnsettledBytes)),

		overrun:  max(2*receiveMaximum, leastOverrun),
		pause:    min(time.Second, a.config.KeepAlive/4),
		progress: make(chan struct{}, 1),
	}
}

func (a *App) linkConfig(in *inbound, clientID string, subscriptions []link.Subscription) link.Config {
	c := a.config
	return link.Config{
		Name:           in.name,
		Servers:        c.servers(),
		Dial:           c.Dial,
		TLS:            c.TLS,
		Credentials:    c.Credentials,
		ClientID:       clientID,
		SessionExpiry:  c.sessionSeconds(),
		ReceiveMaximum: uint16(in.window.ReceiveMaximum()), //nolint:gosec // validated: at most 65,535
		KeepAlive:      c.keepAliveSeconds(),
		Subscriptions:  subscriptions,
		Limits:         wire.Limits{MaxPayload: c.MaxPayload, MaxControl: maxControl},
		Receiver:       in,
		Acks:           in,
		BeforeDial:     in.memory.wait,
		Check:          a.checkGrant,
		OnDown:         in.down,
		Logger:         in.log,
		DialTimeout:    c.DialTimeout,
		// The server closes when it has read our DISCONNECT, and so every acknowledgement before it. One that is behind with its
		// reading, as Mosquitto 2.0.11 is after a large backlog, would send again to the next process what it has not read by then.
		DrainTimeout: c.ShutdownTimeout,
	}
}

// mainSubscriptions are one for each distinct pair of group and filter, at the highest QoS that a route on it asks for: a second SUBSCRIBE for
// the same filter would replace the first.
func (a *App) mainSubscriptions() []link.Subscription {
	a.bySubID = make(map[uint32][]*route)
	type key struct{ group, filter string }
	at := make(map[key]int)
	var subscriptions []link.Subscription
	for _, rt := range a.routes {
		a.byTopic.Insert(rt.filter, rt)
		k := key{rt.group, rt.filter}
		i, known := at[k]
		if !known {
			i = len(subscriptions)
			at[k] = i
			id := topic.ID(rt.group, rt.filter)
			subscriptions = append(subscriptions, link.Subscription{
				Filter: topic.Shared(rt.group, rt.filter), ID: id, Name: rt.name, NoLocal: rt.group == "" && a.hasRetryTopicIn(rt.filter),
			})
			a.ownPublish = a.ownPublish || subscriptions[i].NoLocal
		}
		subscriptions[i].QoS = max(subscriptions[i].QoS, byte(rt.qos))
		a.bySubID[subscriptions[i].ID] = append(a.bySubID[subscriptions[i].ID], rt)
	}
	return subscriptions
}

// hasRetryTopicIn says that one of our own retry topics matches a filter. The main subscription then has No Local, so that the
// copies, which go out over the main connection, do not come back to it as well.
func (a *App) hasRetryTopicIn(filter string) bool {
	for to := range a.retryRoutes {
		if topic.Match(filter, to) {
			return true
		}
	}
	return false
}

func (a *App) retrySubscriptions() []link.Subscription {
	subscriptions := make([]link.Subscription, 0, len(a.retryRoutes))
	for _, rt := range a.routes {
		if rt.retryTo == "" {
			continue
		}
		subscriptions = append(subscriptions, link.Subscription{
			Filter: topic.Shared(rt.group, rt.retryTo), QoS: byte(AtLeastOnce), ID: topic.ID(rt.group, rt.retryTo), Name: rt.name,
		})
	}
	return subscriptions
}

// outbound is the link that the program's own messages go out over. It is the second one where the main
// subscriptions have No Local: our own message to a topic that we subscribe to would not come back.
func (a *App) outbound() *link.Link {
	if a.ownPublish {
		return a.retry.link
	}
	return a.main.link
}

// checkGrant holds what CONNACK grants against what the routes need. What is missing is a matter of the server's configuration, so the error
// ends the app.
func (a *App) checkGrant(ack *paho.Connack) error {
	var errs []error
	lacks := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("the server grants too little: "+format, args...))
	}
	p := ack.Properties
	if p == nil {
		return nil
	}
	if p.SessionExpiryInterval != nil && *p.SessionExpiryInterval < a.config.sessionSeconds() {
		switch got := time.Duration(*p.SessionExpiryInterval) * time.Second; got {
		case 0:
			lacks("Session Expiry Interval 0, where SessionExpiry is %s: every cut would lose the session", a.config.SessionExpiry)
		default:
			a.log.Warn().Dur("granted", got).Dur("asked", a.config.SessionExpiry).Msg("the server keeps sessions for less time than asked for")
		}
	}
	if p.MaximumQoS != nil {
		most := QoS(*p.MaximumQoS)
		for _, rt := range a.routes {
			switch {
			case rt.qos > most:
				lacks("Maximum QoS %s, where route %q asks for QoS %s", most, rt.name, rt.qos)
			case most == AtMostOnce && (rt.retryTo != "" || rt.deadLetterTo != ""):
				lacks("Maximum QoS 0, where the copies of route %q are published at QoS 1", rt.name)
			}
		}
		if w := a.config.Will; w != nil && w.QoS > most {
			lacks("Maximum QoS %s, where the will has QoS %s", most, w.QoS)
		}
	}
	if w := a.config.Will; w != nil && w.Retain && !p.RetainAvailable {
		lacks("no retained messages, where the will is to be retained")
	}
	return errors.Join(errs...)
}

// packet is the will as CONNECT carries it.
func (w *Will) packet() (*paho.WillMessage, *paho.WillProperties) {
	if w == nil {
		return nil, nil
	}
	message := &paho.WillMessage{Topic: w.Topic, Payload: slices.Clone(w.Payload), QoS: byte(w.QoS), Retain: w.Retain}
	properties := &paho.WillProperties{ContentType: w.ContentType}
	if s, ok := wholeSeconds(w.Delay); ok && s > 0 {
		properties.WillDelayInterval = &s
	}
	if s, ok := wholeSeconds(w.Expiry); ok && s > 0 {
		properties.MessageExpiry = &s
	}
	return message, properties
}

// dial starts the links. They are the last thing that starts: what a delivery needs is there before it comes.
func (a *App) dial() {
	for _, in := range a.inbounds() {
		a.spawn(func() {
			if err := in.link.Run(a.running); err != nil && a.running.Err() == nil {
				a.fail(fmt.Errorf("settle: %s: %w", in.name, err))
			}
		})
	}
	if a.retry != nil {
		a.spawn(func() { a.returns.pace(a.running) })
	}
}

// fail ends the app because it cannot go on.
func (a *App) fail(err error) {
	a.mu.Lock()
	if a.phase != phaseRunning {
		a.mu.Unlock()
		return
	}
	a.err = err
	a.mu.Unlock()
	a.log.Error().Err(err).Msg("the app cannot go on, and ends")
	go func() { _ = a.Stop(context.Background()) }() // it waits for the goroutine that calls this
}

// warnAtStart names what is allowed and may not be meant.
func (a *App) warnAtStart() {
	for _, rt := range a.routes {
		if rt.qos > AtMostOnce && rt.deadLetterTo == "" {
			a.log.Warn().Str("route", rt.name).
				Msg("no dead-letter topic: what this route rejects, undecodable payloads included, is dropped; see settle.DeadLetterTo")
		}
	}
}

// warnQoS0Hold says once a route that a retry at QoS 0 lives in memory alone.
func (a *App) warnQoS0Hold(rt *route) {
	if _, again := a.qos0Once.LoadOrStore(rt.name, true); !again {
		a.log.Warn().Str("route", rt.name).
			Msg("a delivery at QoS 0 is retried from memory: it is gone if the process ends, see settle.RetryTo")
	}
}
