//go:build !settle_mutant_ack_early && !settle_mutant_out_of_order && !settle_mutant_cross_epoch && !settle_mutant_adopt_acknowledged && !settle_mutant_unconfirmed && !settle_mutant_leak_on_panic && !settle_mutant_unsubscribe_at_stop

package mutant

// Active is the name of the fault that is in; none is.
const Active = ""
