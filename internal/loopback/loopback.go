// Package loopback opens listeners on 127.0.0.1 whose ports stay free when they are closed, for tests that stop a server and
// start it again at the same address.
package loopback

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// Ports below 32768 are outside what Linux hands out to outgoing connections. A port from that range is no use here: while the
// server is down, a client that dials it again and again may be given that very port as its own, connect to itself, and keep the
// server from coming back.
const (
	firstPort = 20000
	lastPort  = 32000
	tries     = 200
)

// Listen listens on a port of 127.0.0.1 that was free, chosen at random from 20000 to 32000.
func Listen() (*net.TCPListener, error) {
	var last error
	for range tries {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
		if err == nil {
			return l, nil
		}
		last = err
	}
	return nil, fmt.Errorf("loopback: no free port from %d to %d in %d tries: %w", firstPort, lastPort, tries, last)
}

// FreePort returns a port on which Listen would have listened. Nothing reserves it: whoever takes it must be ready to find it taken.
func FreePort() (int, error) {
	l, err := Listen()
	if err != nil {
		return 0, err
	}
	port := l.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // a TCPListener's address is no other type
	return port, l.Close()
}
