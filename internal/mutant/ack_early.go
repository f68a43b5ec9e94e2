//go:build settle_mutant_ack_early

package mutant

// Active is the fault that is in.
const Active = "ack_early"
