package broker

import "time"

// QueuePolicy says what happens to a message for a session, or a shared group, whose queue is full. Every message that a
// queue loses is counted in [SessionInfo.Dropped].
type QueuePolicy int

// What can be done with a full queue.
const (
	DropNewest    QueuePolicy = iota // the message that comes is lost; its publisher is not told
	DropOldest                       // the first of the queue is lost
	RefusePublish                    // the message goes to nobody, and its publisher gets 0x97, Quota exceeded
)

// Overlap says what a client gets of a message that several of its own filters match (3.3.4).
type Overlap int

// What overlapping filters lead to.
const (
	OnePublish Overlap = iota // one PUBLISH with the identifiers of all, at the highest QoS among them
	OneEach                   // a PUBLISH for each
)

// Options are what a server grants and how it behaves. The zero Options grant everything.
type Options struct {
	// ReceiveMaximum is how many QoS 1 and 2 messages of a client may be unanswered at once; one more is answered by DISCONNECT
	// 0x93. Zero is 65,535, and not said in CONNACK.
	ReceiveMaximum uint16
	// MaximumQoS is the highest QoS of a PUBLISH and of a grant: a publish above it is answered by DISCONNECT 0x9B, and a
	// subscription above it is granted less. Nil is 2.
	MaximumQoS *byte
	// MaximumPacketSize is the size of the largest packet that a client may send, in bytes; a larger one is answered by
	// DISCONNECT 0x95. Zero is 16 MiB. CONNACK always says it, since it is always enforced.
	MaximumPacketSize uint32
	// ServerKeepAlive is the Keep Alive in seconds that the server sets in place of the client's. Zero leaves it to the client.
	ServerKeepAlive uint16
	// SessionExpiryMaximum is the longest Session Expiry Interval in seconds that is granted. Nil grants any.
	SessionExpiryMaximum *uint32
	// TopicAliasMaximum is the highest topic alias that a client may use. Zero allows none.
	TopicAliasMaximum uint16
	// What is not available, as CONNACK says it. A client that asks for it all the same is answered as the standard tells.
	NoRetain, NoWildcards, NoSubscriptionIDs, NoShared bool

	// MaxInflight is how many QoS 1 and 2 messages the server has unacknowledged at once with one client, whatever Receive
	// Maximum the client sends. Zero sets no limit of its own.
	MaxInflight int
	// QueueLimit is how many messages wait for one session, apart from those in flight, and for one shared group. QoS 0 is
	// counted apart and always drops the newest. Zero is 100,000.
	QueueLimit int
	// QueueBytes is how large the messages of such a queue may be together, in bytes; the last one may exceed it. Zero is 256 MiB.
	QueueBytes int
	// QueuePolicy rules full queues.
	QueuePolicy QueuePolicy
	// Overlap rules overlapping filters of one client.
	Overlap Overlap

	// Authenticate returns the reason code for a CONNECT: 0 accepts it. It is called from the connection's goroutine with no
	// lock held. Nil accepts everybody.
	Authenticate func(clientID, username string, password []byte) (code byte)
	// Logf is told of connections that begin and end, and why. It is called with no lock held, from several goroutines. Nil logs nothing.
	Logf func(format string, args ...any)
	// WireLog is how many packets of each client [Broker.WireLog] remembers. Zero is 500; a negative number remembers none.
	WireLog int
}

// Limits that are not for options.
const (
	highWater       = 64 << 10         // bytes in a write buffer beyond which messages wait in their queue
	outLimit        = 1 << 20          // bytes of answers to a client that does not read, beyond which it is cut
	connectPatience = 10 * time.Second // from the connection to its CONNECT
	closePatience   = 5 * time.Second  // for the last bytes of a connection that the server ends
	lingerPatience  = time.Second      // for the client to close after them

	// What a hostile client could otherwise fill the memory with.
	maxRetained      = 100_000
	maxSessions      = 100_000
	maxSubscriptions = 10_000 // of one session
)

func (o Options) withDefaults() Options {
	if o.ReceiveMaximum == 0 {
		o.ReceiveMaximum = 65_535
	}
	if o.MaximumPacketSize == 0 {
		o.MaximumPacketSize = 16 << 20
	}
	if o.MaximumQoS == nil {
		two := byte(2)
		o.MaximumQoS = &two
	}
	if o.QueueLimit == 0 {
		o.QueueLimit = 100_000
	}
	if o.QueueBytes == 0 {
		o.QueueBytes = 256 << 20
	}
	if o.WireLog == 0 {
		o.WireLog = 500
	}
	return o
}
