package settle

import (
	"context"
	"crypto/tls"
	"math"
	"net"
	"net/url"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

// Config is what an app needs to know besides its routes. Only Servers and ClientID are required; the zero value of
// every other field means its default. [New] copies it, fills the defaults in and checks everything.
type Config struct {
	// Name is the program's name, for logs and, where it is not "", the constant label app="<Name>" on every metric.
	// Two apps on one registry need different names. Defaults to "", no label.
	Name string

	// Servers are the addresses of one MQTT 5 server or of several that are tried in turn. Schemes and their default
	// ports: mqtt or tcp (1883), mqtts, tls or ssl (8883), ws (80), wss (443). A path belongs to ws and wss only. A
	// user name and a password in the URL are used where Credentials is nil, and never logged. Required.
	//
	// A session lives on one server: after a change of address nothing is adopted from the connection before (see
	// Redelivery).
	Servers []string

	// ClientID is the client identifier, under which the server keeps the session (MQTT 5 section 3.1.3.1). It must be
	// the same each time the program starts, and no other process may use it, nor "<ClientID>-retry", which the second
	// connection uses. 1 to 65,535 bytes of UTF-8, six fewer where a route has a retry topic. Required: a session under
	// a random identifier would be an orphan after each restart.
	ClientID string

	// CleanStart throws away, at the first successful connection only, the session that an earlier process left, and
	// the backlog in it. Defaults to false: carry on.
	CleanStart bool

	// SessionExpiry is how long the server keeps the session, and what waits in it, after a connection is gone (MQTT 5
	// section 3.1.2.11.2). Whole seconds, rounded up, at least 1 s; 4,294,967,295 s means for ever. Negative: the
	// session ends with its connection, so that a cut loses what was published meanwhile; that forbids retry topics,
	// and shared routes at QoS 1 and 2. Defaults to 1 h.
	SessionExpiry time.Duration

	// ReceiveMaximum is the size of the window: how many QoS 1 and 2 deliveries the server may send ahead of our
	// acknowledgements, 1 to 65,535. Servers have been seen to exceed it. Holds take slots of it, and no batch at QoS 1
	// or 2 can be larger. Defaults to 1000.
	ReceiveMaximum int

	// KeepAlive is the longest silence on a connection before it is probed, 1 s to 65,535 s, rounded up to whole
	// seconds. A connection that is dead without saying so is noticed within 1.5 of it. The server may order another.
	// Defaults to 30 s; it cannot be switched off.
	KeepAlive time.Duration

	// MaxPayload is the largest payload that is kept, in bytes, up to 268,435,455. A larger one is read past and its
	// delivery goes to the route's [OnOversize]. It is not announced to the server, as servers discard in silence what
	// exceeds an announced maximum. Together with ReceiveMaximum it bounds the memory of the window. Defaults to 1 MiB.
	MaxPayload int

	// UnsettledBytes bounds the bytes of QoS 1 and 2 deliveries of earlier connections that are still being handled:
	// while they occupy more, the next dial waits, for up to 30 s. At least MaxPayload. Defaults to 256 MiB, or to MaxPayload where
	// that is more.
	UnsettledBytes int

	// QoS0Queue bounds the QoS 0 deliveries that wait for a lane or for another attempt. Beyond it the oldest is
	// dropped, and counted. At least 1. Defaults to 10,000.
	QoS0Queue int

	// QoS0Bytes bounds the same queue by bytes. At least MaxPayload, so that every payload fits. Defaults to 16 MiB, or
	// to MaxPayload where that is more.
	QoS0Bytes int

	// Redelivery says what to do with a delivery that the server sends again while we still hold it: [Adopt] it, or
	// [HandleAgain]. Defaults to Adopt.
	Redelivery Redelivery

	// RetryBacklog is how many confirmed retry copies may be on their way back to us at once; beyond it the originals
	// are held. It keeps the retry topic's queue on the server, which may be short and may drop in silence what exceeds
	// it (Mosquitto: 1000), from overrunning. Members of a shared group each have their own: divide what the server's
	// queue holds by their number. At least 1. Defaults to 500.
	RetryBacklog int

	// RetryReceiveMaximum is ReceiveMaximum of the second connection, where copies wait until they are due: so it is
	// how many can wait on the client. 1 to 65,535. Defaults to 65,535.
	RetryReceiveMaximum int

	// DialTimeout is how long one dial may take: Credentials, name lookup, and the handshakes of TCP, TLS and WebSocket.
	// The server then has 10 s to answer CONNECT. It cannot be negative. Defaults to 10 s.
	DialTimeout time.Duration

	// ShutdownTimeout is how long Stop and Run let running handlers finish before their contexts end with the cause
	// [ErrStopping]. It cannot be negative. Keep it below the grace period of whatever stops the process. Defaults to
	// 10 s, below fx's stop timeout of 15 s.
	ShutdownTimeout time.Duration

	// Credentials returns the user name and the password; it is called at every dial, so they may rotate. "" and nil
	// leave either out of CONNECT. An error counts as a failed dial. It cannot be combined with userinfo in Servers.
	// Defaults to nil: none, or the userinfo.
	Credentials func(ctx context.Context) (username string, password []byte, err error)

	// TLS is used for mqtts, tls, ssl and wss; it is cloned at each dial, ServerName filled in. Read rotated
	// certificates in its GetClientCertificate, which is asked each time. To set it while no server has such a scheme
	// is an error. Defaults to nil: the system's roots.
	TLS *tls.Config

	// Will is what the server publishes when the connection ends without a DISCONNECT of ours. Defaults to nil:
	// nothing.
	Will *Will

	// Dial replaces how connections are made, TLS and WebSocket included: MQTT is spoken over what it returns. The
	// scheme of a server is then its own affair. It must mind its context. Defaults to nil: by scheme.
	Dial func(ctx context.Context, server *url.URL) (net.Conn, error)

	// Logger receives what happens, with route, outcome, attempt and cause, and never a payload, a password or the
	// userinfo of a URL. Defaults, for the zero Logger, to warnings and errors on stderr; zerolog.Nop() is silence.
	Logger zerolog.Logger

	// Metrics is where the collectors, all named settle_..., are registered by New. Defaults to nil: no metrics.
	Metrics prometheus.Registerer

	// RouteDefaults are options for every route, before the route's own, which go before them. Options for batches have
	// no effect on single routes here.
	RouteDefaults []RouteOption

	// RetireFilters are subscriptions of an earlier release to give up: the server keeps subscriptions with the session
	// until they are unsubscribed. A shared one is written as it was sent, "$share/group/filter". None may be in use by
	// a route.
	RetireFilters []string

	// Codecs encode and decode by content type; the first serves messages that have none. Each content type can be
	// there once. Defaults to JSON alone: add JSON() to a list of your own to keep it.
	Codecs []Codec
}

// Redelivery is what to do with a delivery that the server sends again, on a resumed session, while the first is still
// being handled, waiting or held.
type Redelivery uint8

const (
	// Adopt joins the redelivery with the delivery that we hold, where it is proved to be the same one: the handler
	// goes on, and what it says settles the new arrival. What cannot be proved is handled again. The proof needs a
	// server that sends again in the order of its first sending, as MQTT 5 section 4.6 demands.
	Adopt Redelivery = iota
	// HandleAgain handles every redelivery again, for servers that do not keep that order.
	HandleAgain
)

// String returns "adopt" or "handle again".
func (r Redelivery) String() string {
	switch r {
	case Adopt:
		return "adopt"
	case HandleAgain:
		return "handle again"
	default:
		return "invalid"
	}
}

// Will is the message that the server publishes when the connection ends without our DISCONNECT (MQTT 5 section
// 3.1.2.5). An orderly Stop withdraws it.
type Will struct {
	Topic       string        // where to, without wildcards. Required
	Payload     []byte        // at most 65,535 bytes
	QoS         QoS           // defaults to AtMostOnce
	Retain      bool          // whether the server keeps it for later subscribers
	ContentType string        // defaults to none
	Delay       time.Duration // how long the server waits, for the connection may come back; rounded up to whole seconds. Defaults to 0
	Expiry      time.Duration // how long the server may keep it, rounded up to whole seconds. Defaults to 0: for ever
}

const (
	defaultSessionExpiry  = time.Hour
	defaultReceiveMaximum = 1000
	defaultKeepAlive      = 30 * time.Second
	defaultMaxPayload     = 1 << 20
	defaultUnsettledBytes = 256 << 20
	defaultQoS0Queue      = 10_000
	defaultQoS0Bytes      = 16 << 20
	defaultRetryBacklog   = 500
	defaultRetryReceive   = 65_535
	defaultDialTimeout    = 10 * time.Second
	defaultShutdown       = 10 * time.Second
)

// withDefaults returns c with every zero field in its final form. Wrong values are left for validate to find.
func (c Config) withDefaults() Config {
	fill(&c.SessionExpiry, defaultSessionExpiry)
	fill(&c.ReceiveMaximum, defaultReceiveMaximum)
	fill(&c.KeepAlive, defaultKeepAlive)
	fill(&c.MaxPayload, defaultMaxPayload)
	fill(&c.UnsettledBytes, max(defaultUnsettledBytes, c.MaxPayload))
	fill(&c.QoS0Queue, defaultQoS0Queue)
	fill(&c.QoS0Bytes, max(defaultQoS0Bytes, c.MaxPayload))
	fill(&c.RetryBacklog, defaultRetryBacklog)
	fill(&c.RetryReceiveMaximum, defaultRetryReceive)
	fill(&c.DialTimeout, defaultDialTimeout)
	fill(&c.ShutdownTimeout, defaultShutdown)
	if len(c.Codecs) == 0 {
		c.Codecs = []Codec{JSON()}
	}
	if reflect.ValueOf(c.Logger).IsZero() {
		c.Logger = zerolog.New(os.Stderr).Level(zerolog.WarnLevel).With().Timestamp().Logger()
	}
	return c
}

func fill[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// retrySuffix makes the client identifier of the second connection out of the first one's.
const retrySuffix = "-retry"

// sessionSeconds is SessionExpiry as CONNECT carries it. 0 ends the session with its connection.
func (c Config) sessionSeconds() uint32 {
	s, _ := wholeSeconds(max(c.SessionExpiry, 0))
	return s
}

// keepAliveSeconds is KeepAlive as CONNECT carries it.
func (c Config) keepAliveSeconds() uint16 {
	s, _ := wholeSeconds(c.KeepAlive)
	return uint16(min(s, math.MaxUint16)) //nolint:gosec // bounded in this line
}

// keepsSession tells whether the session outlives its connection.
func (c Config) keepsSession() bool { return c.SessionExpiry > 0 }

// servers returns the parsed Servers; what validate refuses is left out.
func (c Config) servers() []*url.URL {
	parsed := make([]*url.URL, 0, len(c.Servers))
	for _, s := range c.Servers {
		if u, reason := parseServer(s, c.Dial != nil); reason == "" {
			parsed = append(parsed, u)
		}
	}
	return parsed
}

// schemes are those that we dial ourselves, and whether they carry TLS.
var schemes = map[string]struct{ tls, web bool }{
	"mqtt":  {},
	"tcp":   {},
	"mqtts": {tls: true},
	"tls":   {tls: true},
	"ssl":   {tls: true},
	"ws":    {web: true},
	"wss":   {tls: true, web: true},
}

// redactServer returns a server's address without its userinfo and without its query, which may be a signed one, for
// logs and errors, also if it does not parse.
func redactServer(s string) string {
	head, rest, ok := strings.Cut(s, "://")
	if !ok {
		head, rest = "", s
	}
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		if strings.Contains(rest[:at], "?") {
			return head + "://..." // a password or a query with both signs in it: none of it can be shown
		}
		rest = rest[at+1:]
	}
	rest, _, _ = strings.Cut(rest, "?")
	if ok {
		head += "://"
	}
	return head + rest
}
