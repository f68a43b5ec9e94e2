//go:build !race

package field_test

const raceEnabled = false
