package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync"
)

// cutter makes the service's connections, and cuts them when it is told to, as a network does that fails: nobody says goodbye.
type cutter struct {
	mu     sync.Mutex
	open   map[*cuttable]struct{}
	dialed chan struct{} // closed at the next dial; nil where nobody waits for it
}

// cuttable is a connection that a cutter knows.
type cuttable struct {
	*net.TCPConn
	cutter *cutter
}

// Dial is for settle.Config.
func (c *cutter) Dial(ctx context.Context, server *url.URL) (net.Conn, error) {
	port := server.Port()
	if port == "" {
		port = "1883"
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(server.Hostname(), port))
	if err != nil {
		return nil, err
	}
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("a TCP connection that is a %T", conn), conn.Close())
	}
	mine := &cuttable{TCPConn: tcp, cutter: c}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open = make(map[*cuttable]struct{})
	}
	c.open[mine] = struct{}{}
	if c.dialed != nil {
		close(c.dialed)
		c.dialed = nil
	}
	return mine, nil
}

// Close closes the connection in good order.
func (c *cuttable) Close() error {
	c.cutter.mu.Lock()
	delete(c.cutter.open, c)
	c.cutter.mu.Unlock()
	return c.TCPConn.Close()
}

// Cut cuts all connections. What has not left this machine is lost. The channel that it returns is closed when another is made.
func (c *cutter) Cut() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	dialed := make(chan struct{})
	c.dialed = dialed
	for conn := range c.open {
		_ = conn.SetLinger(0) // a reset, and nothing more is sent; it fails where the connection is gone already
		_ = conn.TCPConn.Close()
	}
	clear(c.open)
	return dialed
}
