//go:build settle_mutant_leak_on_panic

package mutant

// Active is the fault that is in.
const Active = "leak_on_panic"
