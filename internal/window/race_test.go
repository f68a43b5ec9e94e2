//go:build race

package window

// raceEnabled makes the explorations smaller: the race detector makes them ten times slower.
const raceEnabled = true
