//go:build !race

package hostile_test

// stride is how many cases there are for each one that is sent.
const stride = 1
