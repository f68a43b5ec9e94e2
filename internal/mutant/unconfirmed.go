//go:build settle_mutant_unconfirmed

package mutant

// Active is the fault that is in.
const Active = "unconfirmed"
