package main

import (
	"strings"
	"testing"
)

func TestServerOf(t *testing.T) {
	for args, want := range map[string]string{
		"":                                     "",
		"-for 30s":                             "",
		"-server mosquitto":                    "mosquitto",
		"--server mosquitto":                   "mosquitto",
		"-server=mosquitto -for 30s":           "mosquitto",
		"--server=mqtt://a?b=c":                "mqtt://a?b=c",
		"-server embedded -server mosquitto":   "mosquitto",
		"-server mosquitto -server mqtt://a:1": "mqtt://a:1",
		"server mosquitto":                     "",
		"-server":                              "",
	} {
		if got := serverOf(strings.Fields(args)); got != want {
			t.Errorf("%s: %q, want %q", args, got, want)
		}
	}
}
