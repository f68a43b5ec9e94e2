//go:build settle_mutant_adopt_acknowledged

package mutant

// Active is the fault that is in.
const Active = "adopt_acknowledged"
