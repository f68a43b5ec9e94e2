package conformance

import (
	"context"
	"net"
	"os"
	"testing"
	"time"

	"github.com/settlemq/settle/internal/mosquitto"
)

// overTCP dials a server at an address.
func overTCP(address string) Dialer {
	return func(ctx context.Context) (net.Conn, error) { return (&net.Dialer{}).DialContext(ctx, "tcp", address) }
}

func TestLiveMosquitto(t *testing.T) {
	m := mosquitto.Require(t, mosquitto.Options{
		MaxInflight: 10, MaxQueued: mosquitto.NoLimit,
		Lines: []string{"set_tcp_nodelay true", "max_keepalive 60", "max_packet_size 4096", "max_topic_alias 5"},
	})
	Run(t, Server{Dial: overTCP(m.Addr()), Complete: true, Deviations: Mosquitto2})
}

// addressEnv names a server by host:port, to see what it passes. Nothing is declared of it, so what it fails at is shown.
const addressEnv = "SETTLE_CONFORMANCE_ADDRESS"

func TestServerAtAddress(t *testing.T) {
	address := os.Getenv(addressEnv)
	if address == "" {
		t.Skip("no server is named: set " + addressEnv + " to its host:port")
	}
	Run(t, Server{Dial: overTCP(address), Lag: 100 * time.Millisecond})
}
