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
//	answered  the same as one whose PUBREC was handed over; it stands in the list for that to be repeated in its turn
//	gone      acknowledged, or no longer anything that an acknowledgement may be sent for
//
// An entry in state open or settled stands in exactly one of two lists of its QoS: live (it has arrived on this
// connection) or unseen (it arrived on the connection before, and this one has not shown it again). Parked and
// answered entries are always live.
//
//	event                                         from             to
//	Arrive, nothing known under its identifier    –                open, live
//	Arrive, same as an unseen one                 open|settled     the same state, live (adopted)
//	Arrive, same as one acknowledged before       –                parked
//	Arrive, same as one whose PUBREC is out       –                answered
//	Arrive, repeated on one connection            any              unchanged (ignored)
//	Arrive, another message, same identifier      any              gone (handled on, or handled; never acknowledged)
//	an unseen one of its QoS is adopted           parked           settled
//	nothing unseen left, DUP = 0, a frame that
//	matches nothing, ReleaseParked                parked           open (handled again)
//	Settle                                        open             settled
//	TakeAcks, nothing before it open or parked    settled|answered gone; remembered as acknowledged
//	Pubrel                                        any              gone; PUBCOMP is due
//	End                                           parked|answered  gone; remembered as acknowledged again
//	Begin                                         live             unseen, or gone if nothing can be proved
//	Begin                                         unseen           gone
//
// Two memories outlast an entry. An identifier that was acknowledged at QoS 1 keeps the digest of its frame
// until the identifier is used again or a whole further connection has passed; one whose PUBREC was sent
// keeps it until PUBREL, or until a whole connection has shown neither.
//
// # Proof
//
// A server sends again in the order in which it sent (MQTT-4.6.0). So the first PUBLISH of its QoS on a connection
// is the oldest that was not acknowledged, or one that was; and no adoption leaves out one that is older. What
// breaks this, or a PUBREL for what we have not acknowledged, says that the session is not the one that we knew:
// nothing more is adopted or parked on that connection. A redelivery that carries an expiry says nothing either way.
//
// The proof rests on CONNACK having been read. A server whose state went back to an older one, and which sent new
// messages on a connection whose CONNACK never reached us, can show one under the identifier of the very oldest that we
// hold. If it has the same bytes, too, nothing can tell the two apart.
package window
