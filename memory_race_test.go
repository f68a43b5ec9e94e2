//go:build race

package settle_test

const raceEnabled = true // everything takes ten times as long
