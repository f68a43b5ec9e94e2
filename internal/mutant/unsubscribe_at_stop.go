//go:build settle_mutant_unsubscribe_at_stop

package mutant

// Active is the fault that is in.
const Active = "unsubscribe_at_stop"
