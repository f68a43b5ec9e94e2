package testkit_test

import (
	"testing"

	"github.com/settlemq/settle/internal/mosquitto"
)

// realServer is the URL of a server that is not ours.
func realServer(t *testing.T) string {
	t.Helper()
	return mosquitto.Require(t).URL()
}
