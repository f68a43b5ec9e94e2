// Package window is the acknowledgement ledger of one MQTT session: which deliveries the server has
// sent and not yet seen acknowledged, in which order their acknowledgements may leave, and which
// redelivery is a delivery that this process still has.
//
// It is a state machine over entries, one for each inbound PUBLISH at QoS 1 or 2. It does no I/O, starts
// no goroutine, reads no clock and calls nobody back; its one lock is held for a few instructions.
//
// # States of an entry
//
//	open      arrived and to be handled, or being handled
//	parked    arrived; the same as one that was acknowledged on the connection before, undecided
//	settled   its acknowledgement is due, but has not been handed to the connection
//	gone      acknowledged, or no longer anything that an acknowledgement may be sent for
//
// An entry in state open or settled stands in exactly one of two lists of its QoS: live (it has arrived on this
// connection) or unseen (it arrived on the connection before, and this one has not shown it again). A
// parked entry is always live.
//
//	event                                         from             to
//	Arrive, nothing known under its identifier    –                open, live
//	Arrive, same as an unseen one                 open|settled     the same state, live (adopted)
//	Arrive, same as one acknowledged before       –                parked
//	Arrive, same as one whose PUBREC is out       –                settled (PUBREC again)
//	Arrive, repeated on one connection            any              unchanged (ignored)
//	Arrive, another message, same identifier      open|settled     gone (handled on, never acknowledged)
//	an unseen one of its QoS is adopted           parked           settled
//	nothing unseen left, DUP = 0, a frame that
//	matches nothing, window full, 5 s             parked           open (handled again)
//	Settle                                        open             settled
//	TakeAcks, nothing before it open or parked    settled          gone; remembered as acknowledged
//	Pubrel                                        any              gone; PUBCOMP is due
//	Begin                                         live             unseen, or gone if nothing can be proved
//	Begin                                         unseen           gone
//	Begin                                         parked           gone; remembered as acknowledged again
//
// Two memories outlast an entry. An identifier that was acknowledged at QoS 1 keeps the digest of its frame
// until the identifier is used again or a whole further connection has passed; one whose PUBREC was sent
// keeps it until PUBREL, or until a whole connection has shown neither.
package window
