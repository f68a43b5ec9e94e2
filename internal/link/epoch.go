package link

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/eclipse/paho.golang/paho"

	"github.com/settlemq/settle/internal/wire"
)

// Grant is what a CONNACK granted (3.2.2.3), defaults filled in.
type Grant struct {
	SessionExpiry           uint32 // seconds; what was asked for where the server named nothing else
	ReceiveMaximum          uint16 // QoS 1 and 2 publishes that the server takes unanswered
	MaximumQoS              byte
	MaximumPacketSize       uint32 // bytes; 0: no limit
	KeepAlive               uint16 // seconds
	RetainAvailable         bool
	WildcardAvailable       bool
	SubscriptionIDAvailable bool
	SharedAvailable         bool
}

// epoch is one connection from its CONNACK on.
type epoch struct {
	conn    *conn
	client  *paho.Client
	out     *attached
	session Session
	grant   Grant
}

// forever is a timeout that never comes: each call has a deadline of its own in its context.
const forever = 10 * 365 * 24 * time.Hour

// noAuth answers for enhanced authentication (4.12), which is not configured: without it paho calls a nil Auther when a
// CONNACK names a method. It is never asked for more: AUTH ends the connection before paho sees it.
type noAuth struct{}

func (noAuth) Authenticate(*paho.Auth) *paho.Auth { return &paho.Auth{ReasonCode: codeBadAuthMethod} }
func (noAuth) Authenticated()                     {}

// attempt makes one connection and stays with it to its end. When it returns nothing of it runs any more, and the Receiver
// has been told.
func (l *Link) attempt(ctx context.Context, server *url.URL) outcome {
	l.move(Dialling)
	if l.cfg.BeforeDial != nil {
		if err := l.cfg.BeforeDial(ctx); err != nil {
			return outcome{err: err}
		}
	}
	raw, login, err := l.dial(ctx, server)
	if err != nil {
		return outcome{err: err}
	}

	e := &epoch{}
	var began time.Time
	e.conn = newConn(raw, &l.cfg, func(ack wire.Connack) (Session, error) {
		began = time.Now()
		return l.accept(e, server, ack)
	})
	e.out = l.out.attach(e.conn.violated)
	e.client = paho.NewClient(paho.ClientConfig{
		Conn:              e.conn,
		Session:           e.out,
		PingHandler:       &pinger{conn: e.conn, keepAlive: l.cfg.KeepAlive},
		AuthHandler:       noAuth{},
		PacketTimeout:     forever,
		OnPublishReceived: []func(paho.PublishReceived) (bool, error){discard}, // none comes; else paho makes a router
	})
	defer context.AfterFunc(ctx, func() { l.hangUp(ctx, e.conn) })()

	o := outcome{}
	ack, err := l.connect(ctx, e, login, server)
	if err == nil {
		o.granted = l.serve(ctx, e, ack)
		<-e.client.Done()
	}
	e.conn.fail(cmp.Or(err, errGone))
	e.conn.join()
	_ = e.out.ConnectionLost(nil)
	o.err = e.conn.why()
	if o.accepted = e.session.Epoch != 0; o.accepted {
		o.delivered, o.lasted = e.conn.delivered.Load(), time.Since(began)
		l.lost(e)
		reason := o.err
		if errors.Is(reason, errClosed) {
			reason = nil // our own DISCONNECT is no failure
		}
		l.cfg.Receiver.End(reason)
	}
	return o
}

func discard(paho.PublishReceived) (bool, error) { return true, nil }

// connect sends CONNECT and waits for CONNACK.
func (l *Link) connect(ctx context.Context, e *epoch, who login, server *url.URL) (*paho.Connack, error) {
	l.move(Connecting)
	silent := fmt.Errorf("%s has not answered CONNECT within %s", redact(server), l.cfg.AnswerTimeout)
	// The end of ctx reaches the connection by hangUp, which may have a DISCONNECT to send first.
	wait, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), l.cfg.AnswerTimeout, silent)
	defer cancel()
	ack, err := e.client.Connect(wait, l.connectPacket(who))
	switch {
	case err == nil:
		return ack, nil
	case ack != nil && ack.ReasonCode >= 0x80:
		refused := &ConnectError{Code: ack.ReasonCode, Server: redact(server)}
		if ack.Properties != nil {
			refused.Reason = ack.Properties.ReasonString
		}
		e.conn.because(refused)
		return nil, refused
	case wait.Err() != nil:
		return nil, context.Cause(wait)
	}
	return nil, fmt.Errorf("connect to %s: %w", redact(server), err)
}

// connectPacket is the CONNECT (3.1). Maximum Packet Size is left out on purpose: servers discard in silence what exceeds
// it, and some never give the slot of the window back.
func (l *Link) connectPacket(who login) *paho.Connect {
	return &paho.Connect{
		ClientID:       l.cfg.ClientID,
		CleanStart:     l.cleanStart(),
		KeepAlive:      l.cfg.KeepAlive,
		Username:       who.username,
		UsernameFlag:   who.hasUsername,
		Password:       who.password,
		PasswordFlag:   who.hasPassword,
		WillMessage:    l.cfg.Will,
		WillProperties: l.cfg.WillProperties,
		Properties: &paho.ConnectProperties{
			SessionExpiryInterval: &l.cfg.SessionExpiry,
			ReceiveMaximum:        &l.cfg.ReceiveMaximum,
			RequestProblemInfo:    true,
		},
	}
}

func (l *Link) cleanStart() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cfg.CleanStart && l.epochs == 0
}

// accept judges a CONNACK that accepts the connection, and begins the epoch. The reader calls it.
func (l *Link) accept(e *epoch, server *url.URL, ack wire.Connack) (Session, error) {
	if ack.HasAuthMethod { // [MQTT-4.12.0-6]
		return Session{}, &wire.Error{Code: codeBadAuthMethod, Reason: "CONNACK names an authentication method that was not agreed on"}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if ack.SessionPresent && l.cfg.CleanStart && l.epochs == 0 { // [MQTT-3.2.2-4]
		return Session{}, &wire.Error{Code: wire.CodeProtocol, Reason: "CONNACK has Session Present after Clean Start"}
	}
	address := redact(server)
	l.epochs++
	e.session = Session{Epoch: l.epochs, Present: ack.SessionPresent, SameServer: l.lastServer == address, Server: address}
	e.grant = l.grant(ack)
	l.lastServer = address
	l.status.Epoch, l.status.Server = l.epochs, address
	l.current.Store(e.conn)
	return e.session, nil
}

// grant fills in what the server left out.
func (l *Link) grant(ack wire.Connack) Grant {
	g := Grant{
		SessionExpiry: l.cfg.SessionExpiry, KeepAlive: l.cfg.KeepAlive,
		ReceiveMaximum: ack.ReceiveMaximum, MaximumQoS: ack.MaximumQoS, MaximumPacketSize: ack.MaximumPacketSize,
		RetainAvailable: ack.RetainAvailable, WildcardAvailable: ack.WildcardAvailable,
		SubscriptionIDAvailable: ack.SubscriptionIDAvailable, SharedAvailable: ack.SharedAvailable,
	}
	if ack.HasSessionExpiry {
		g.SessionExpiry = ack.SessionExpiry
	}
	if ack.HasServerKeepAlive {
		g.KeepAlive = ack.ServerKeepAlive
	}
	return g
}

// serve brings an accepted connection up. What is wrong with it ends it with a DISCONNECT. It returns whether everything
// was granted.
func (l *Link) serve(ctx context.Context, e *epoch, ack *paho.Connack) bool {
	if l.cfg.Check != nil {
		if err := l.cfg.Check(ack); err != nil {
			l.giveUp(e, fatalError{err})
			return false
		}
	}
	// The end of ctx reaches the connection by hangUp, and these by the connection.
	ctx = context.WithoutCancel(ctx)
	answers, err := l.ask(ctx, e)
	if err != nil {
		l.giveUp(e, err)
		return false
	}
	// SUBSCRIBE is on its way: from here on publishing works, and nothing overtakes it.
	l.mu.Lock()
	l.epoch = e
	l.moveTo(Subscribing)
	l.mu.Unlock()
	l.cfg.Logger.Info().Str("link", l.cfg.Name).Str("server", e.session.Server).Uint64("epoch", e.session.Epoch).
		Bool("session_present", e.session.Present).Msg("connected")
	if err := l.granted(ctx, e, answers); err != nil {
		l.giveUp(e, err)
		return false
	}
	if !l.move(Up) {
		return false
	}
	l.cfg.Logger.Debug().Str("link", l.cfg.Name).Uint64("epoch", e.session.Epoch).
		Int("subscriptions", len(l.cfg.Subscriptions)).Msg("every subscription is granted")
	if l.cfg.OnUp != nil {
		l.cfg.OnUp(e.session)
	}
	return true
}

// giveUp ends a connection that is of no use, in good order: the server keeps the session, and publishes no will. One whose server has
// broken the protocol ends with that.
func (l *Link) giveUp(e *epoch, err error) {
	l.move(Draining)
	if isViolation(err) {
		e.conn.violated(err)
		return
	}
	e.conn.part(wire.AppendDisconnect(nil, 0), err, l.cfg.DrainTimeout)
}

// lost takes a connection out of use.
func (l *Link) lost(e *epoch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.status.LastReceived = e.conn.lastReceived()
	l.current.Store(nil)
	l.epoch = nil
}

// violated ends the connection of a server that broke the protocol. It never blocks.
func (c *conn) violated(err error) {
	var broken *wire.Error
	if errors.As(err, &broken) {
		c.leave(wire.AppendDisconnect(nil, broken.Code), err, c.drainTimeout)
		_ = c.Close()
	}
}

// lastReceived is when the last byte came.
func (c *conn) lastReceived() time.Time { return c.opened.Add(time.Duration(c.received.Load())) }
