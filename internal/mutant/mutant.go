// Package mutant puts deliberate faults into the core, one at a time, to show that the tests catch them: a suite that no fault turns red
// proves nothing. `make mutants` does it.
//
// Each fault is a mistake that somebody could make, at the place where it would be made. A build tag puts it in, settle_mutant_ and the name
// below; only tests are built with one. Without a tag all of these are constants that are false: the compiler drops the branch, and the program is
// the one that it would be without this package.
//
// Each tag has a file of its own that defines Active, so two faults at once do not compile.
package mutant

// The faults. In brackets stands the row that forbids it of "What is never done" in docs/guarantees.md.
const (
	// AckEarly acknowledges a delivery when it arrives, before its handler has run (1).
	AckEarly = Active == "ack_early"
	// OutOfOrder acknowledges whatever is settled, without waiting for what arrived before it (2).
	OutOfOrder = Active == "out_of_order"
	// CrossEpoch acknowledges what was settled too late for its connection on the next one, under the Packet Identifier that it had (4).
	CrossEpoch = Active == "cross_epoch"
	// AdoptAcknowledged takes a redelivery that looks like what was acknowledged for just that, without proof, and acknowledges it (5).
	AdoptAcknowledged = Active == "adopt_acknowledged"
	// Unconfirmed settles an original when its copy or dead letter has been handed to the connection, whatever the server says to it (7).
	Unconfirmed = Active == "unconfirmed"
	// LeakOnPanic counts a delivery as settled when its handler panics, and does not settle it (8).
	LeakOnPanic = Active == "leak_on_panic"
	// UnsubscribeAtStop gives up the subscriptions when the app stops (11).
	UnsubscribeAtStop = Active == "unsubscribe_at_stop"
)
