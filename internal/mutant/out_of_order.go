//go:build settle_mutant_out_of_order

package mutant

// Active is the fault that is in.
const Active = "out_of_order"
