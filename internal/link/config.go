package link

import (
	"context"
	"crypto/tls"
	"net"
	"net/url"
	"time"

	"github.com/eclipse/paho.golang/paho"
	"github.com/rs/zerolog"

	"github.com/settlemq/settle/internal/wire"
)

// Defaults of [Config].
const (
	DefaultDialTimeout   = 10 * time.Second
	DefaultAnswerTimeout = 10 * time.Second
	DefaultDrainTimeout  = 2 * time.Second
)

// Receiver is what the reader hands the inbound half to. All methods are called from the one goroutine that reads the
// connection, but End, which is called when that goroutine will read no more. None may write, nor block but for a
// moment in Flush: a reader that waits can wait for its own peer.
type Receiver interface {
	// Begin starts an epoch: CONNACK accepted the connection. It is called before paho sees that CONNACK, and so before
	// any PUBLISH of the epoch.
	Begin(Session)
	// Publish takes a PUBLISH. An error ends the connection; a *wire.Error does so with its code in the DISCONNECT.
	Publish(wire.Frame) error
	// Pubrel takes a PUBREL for a QoS 2 message that the server sent.
	Pubrel(id uint16, code byte)
	// Flush says that what one read of the socket held has been passed on. It is called before the reader may block
	// again, and before End, whenever anything was passed since the last call.
	Flush()
	// End says that the connection is gone, and why: nil if we closed it ourselves, by Close. It is called exactly once
	// for each Begin; no other method is called between it and the next Begin.
	End(error)
}

// Session is what CONNACK said about the session, with the facts of its epoch.
type Session struct {
	Epoch      uint64 // 1, 2, …: one for each connection that a server accepted
	Present    bool   // Session Present (3.2.2.1.1)
	SameServer bool   // the server's address is that of the epoch before; false on the first
	Server     string // the server's URL without userinfo
}

// AckSource yields the acknowledgements that are due, encoded, in their order.
type AckSource interface {
	// TakeAcks appends to dst what is due in this epoch and returns it. The writer calls it right before it hands the
	// bytes to the connection's Write: what was returned counts as handed over, whatever Write says. It may be called
	// from any goroutine, but never from two at once for one link, and must not call the link.
	TakeAcks(epoch uint64, dst []byte) []byte
}

// Subscription is one topic filter that the link subscribes to on every connection (3.8).
type Subscription struct {
	Filter  string // with "$share/group/" where it is shared
	QoS     byte   // 0, 1 or 2; a lower grant is an error
	NoLocal bool   // forbidden on a shared subscription (3.8.3.1)
	ID      uint32 // Subscription Identifier, 1 to 268,435,455; 0: none. Left out where the server has none available
	Name    string // what errors call it: the route's name
}

// Config says what a Link connects to, and as whom. It is not changed once New has it.
type Config struct {
	// Name tells links apart in logs: "main", "retry".
	Name string
	// Servers are tried in turn: mqtt, tcp (1883), mqtts, tls, ssl (8883), ws (80), wss (443). At least one.
	Servers []*url.URL
	// Dial opens the network connection; nil goes by the URL's scheme. It should return when its context ends. One that
	// does not is left behind and its connection closed when it comes; a few such are tolerated at a time.
	Dial func(context.Context, *url.URL) (net.Conn, error)
	// TLS is cloned at each dial; an empty ServerName is filled in from the URL, and GetClientCertificate is asked each
	// time, so a rotated certificate is used. Nil means the defaults of crypto/tls.
	TLS *tls.Config
	// Credentials are asked for at each dial, within DialTimeout. Nil: the userinfo of the server's URL, if it has any.
	Credentials func(context.Context) (username string, password []byte, err error)

	ClientID       string               // required by the caller; sent as it is
	CleanStart     bool                 // on the first connection that a server accepts, and on none after it
	SessionExpiry  uint32               // Session Expiry Interval, seconds; 0 ends the session with its connection
	ReceiveMaximum uint16               // what the server may have unacknowledged; 0 is sent as 65,535, the protocol's default
	KeepAlive      uint16               // seconds; 0: none, and a half-open connection is never noticed
	Will           *paho.WillMessage    // nil: none
	WillProperties *paho.WillProperties // nil: none

	Subscriptions []Subscription // subscribed on every connection, in this order
	Unsubscribe   []string       // filters of an earlier release: given up once a process and server, if its session is present

	Limits   wire.Limits // of inbound frames
	Receiver Receiver    // required
	Acks     AckSource   // required

	// BeforeDial is waited for before each dial; nil: nothing is. An error other than its context's fails the attempt.
	BeforeDial func(context.Context) error
	// Check judges what CONNACK grants before anything is subscribed; its error ends Run. Nil: everything will do.
	Check func(*paho.Connack) error
	// OnUp is called when SUBACK has granted every subscription, by Run's goroutine. It may block briefly, and must not
	// call Close, which waits for Run.
	OnUp func(Session)
	// OnDown is called when an attempt or a connection has ended and another will be made, by Run's goroutine. It may
	// block briefly, and must not call Close, which waits for Run.
	OnDown func(err error, retryIn time.Duration)

	Logger zerolog.Logger

	DialTimeout   time.Duration // credentials, dial and handshakes together. Defaults to 10 s
	AnswerTimeout time.Duration // the wait for CONNACK, and for SUBACK and UNSUBACK. Defaults to 10 s
	DrainTimeout  time.Duration // Close's wait for the server to close its side. Defaults to 2 s
}

func (c Config) withDefaults() Config {
	if c.DialTimeout <= 0 {
		c.DialTimeout = DefaultDialTimeout
	}
	if c.AnswerTimeout <= 0 {
		c.AnswerTimeout = DefaultAnswerTimeout
	}
	if c.DrainTimeout <= 0 {
		c.DrainTimeout = DefaultDrainTimeout
	}
	if c.ReceiveMaximum == 0 {
		c.ReceiveMaximum = 65535
	}
	return c
}
