// Package broker is an MQTT 5 server in memory, for tests and demonstrations. It is strict where real servers are lax: what the
// standard forbids ends the connection with the reason code that the standard names, so that a client that passes here owes
// nothing to a server's patience.
//
// It is not a server for production, and lacks what one needs: persistence, clustering, bridges, ACL files, MQTT 3.
//
//	b := broker.New(broker.Options{})
//	defer b.Close()
//	conn, _ := b.Dial(ctx) // the client's end of a pipe
//
// It runs inside a testing/synctest bubble: it uses package time only, holds no lock while it waits, and Close returns when
// every goroutine has ended.
//
// # How it is built
//
// One lock guards all state; nothing waits while holding it. Each connection has one goroutine that reads, and one that writes
// for as long as there is something to write. Whoever produces a packet appends it to the connection's buffer under the lock;
// the writer takes the whole buffer and writes it in one call, so that an unbuffered pipe carries a batch a rendezvous. The
// reader never writes and never waits for the writer.
//
// # An outbound message
//
// Each message of QoS 1 or 2 for a session is one entry in exactly one of three lists of the session, each in order:
//
//	queued    waits for room: a free slot of the window, room in the write buffer, a connection
//	sent      has a Packet Identifier; its PUBLISH was put into a write buffer
//	released  QoS 2, PUBREC has come; PUBREL was put into a write buffer
//
//	event                                        from       to
//	publish                                      –          queued
//	room, not expired, fits the client's maximum queued     sent, DUP 0, counted against the window
//	room, expired or larger than the maximum     queued     gone
//	PUBACK (QoS 1)                               sent       gone
//	PUBREC below 0x80 (QoS 2)                    sent       released, PUBREL
//	PUBREC of 0x80 or more (QoS 2)               sent       gone
//	PUBCOMP                                      released   gone
//	connection resumed                           released   released, PUBREL again, in the order of the PUBRECs
//	connection resumed, room                     sent       unchanged; PUBLISH again with DUP 1, in send order, before all queued ones
//	the same, PUBLISH never handed to Write      sent       unchanged; PUBLISH with DUP 0
//	session ends                                 any        gone; if shared, back to its group (see below)
//
// On a connection that lives nothing is sent twice. The window is the smaller of the client's Receive Maximum and
// Options.MaxInflight; an entry counts from its PUBLISH on this connection to its PUBACK, PUBCOMP or refusing PUBREC on it.
//
// QoS 0 has a queue of its own, used while the write buffer is full, since a full window must not hold it back.
//
// # An inbound QoS 2 identifier
//
//	event                              state             answer
//	PUBLISH                            unknown → known   routed; PUBREC
//	PUBLISH, DUP 1                     known             not routed; PUBREC
//	PUBLISH, DUP 0                     known             not routed; PUBREC 0x91
//	PUBREL                             known → unknown   PUBCOMP
//	PUBREL                             unknown           PUBCOMP 0x92
//
// It belongs to the session and outlives connections. The quota that the client's PUBLISH takes is free again when its PUBACK,
// PUBCOMP or refusing PUBREC is handed to Write, and not before: a client cannot have seen it earlier.
//
// # Shared subscriptions
//
// A group has one queue of its own. A message goes to the next member that is connected and has room, in turn; without one it
// waits in the group's queue, and the first member to have room takes it. So offline and full members are passed over, and order is
// kept. What a member was sent stays with its session over a lost connection (MQTT 5 section 4.8.2 allows it to wait). When the
// session ends, its unacknowledged QoS 1 messages go back to the front of the group's queue, and QoS 2 messages that it has
// been sent are discarded, for they must not be sent to another. What was never written goes back at once.
//
// # Own codec
//
// Packets are read and written here and not by paho's packets package, which passes what this server must refuse: reserved bits,
// malformed UTF-8, repeated properties, bytes left over. The tests speak through paho's packets, so that the two check each
// other.
//
// Section numbers in comments refer to the OASIS standard "MQTT Version 5.0".
package broker
