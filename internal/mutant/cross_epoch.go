//go:build settle_mutant_cross_epoch

package mutant

// Active is the fault that is in.
const Active = "cross_epoch"
