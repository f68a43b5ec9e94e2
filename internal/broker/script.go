package broker

import (
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// Script is a connection that a test serves in the server's place, packet by packet, for what no well-behaved server shows. All
// else is the server's: the pipe, the frames, what is seen of a packet, and the wire log. Nothing is answered but what the test sends, and
// no byte is read before the test asks for its packet: a script that stops reading holds up a client's Write, even within it.
// It takes one Next at a time; other methods may be called meanwhile.
type Script struct {
	b  *Broker
	nc net.Conn
	in inbox

	// Guarded by the broker's lock.
	clientID string
	log      *wireLog // nil before CONNECT
	closed   bool
}

// Script returns the client's end of a new connection, a pipe as [Pipe] makes them, and the server's end for a test to serve. The
// server does not close it.
func (b *Broker) Script() (client net.Conn, s *Script) {
	client, server := newPipe()
	return client, b.ScriptOn(server)
}

// ScriptOn is [Broker.Script] for a connection that somebody has accepted.
func (b *Broker) ScriptOn(nc net.Conn) *Script { return &Script{b: b, nc: nc} }

// ClientID is the Client Identifier of the CONNECT that has come, under which [Broker.WireLog] has the connection; "" before.
func (s *Script) ClientID() string {
	s.b.mu.Lock()
	defer s.b.unlock()
	return s.clientID
}

// Next returns the packet that comes next, whatever it holds. Its Bytes are the caller's until the next call. The error is
// [io.EOF] where the client sends nothing more, and [io.ErrUnexpectedEOF] where it ends within a packet.
func (s *Script) Next() (Packet, error) {
	for {
		frame, _, need, violation := splitFrame(s.in.bytes())
		if violation != nil {
			s.say("the client broke a rule: %s", violation.reason)
			return Packet{}, fmt.Errorf("the client broke a rule: %s", violation.reason)
		}
		if frame != nil {
			s.in.start += len(frame)
			return s.took(frame), nil
		}
		have := len(s.in.bytes())
		missing := max(need, have+1, 2) - have // no packet has less than two bytes
		space := s.in.space(need)
		n, err := s.nc.Read(space[:min(len(space), missing)])
		s.in.end += n
		if n == 0 && err != nil {
			if errors.Is(err, io.EOF) && have > 0 {
				err = io.ErrUnexpectedEOF
			}
			s.say("reading ended: %v", err)
			return Packet{}, err
		}
	}
}

// say notes in the wire log what is no packet, up to Close.
func (s *Script) say(format string, args ...any) {
	s.b.mu.Lock()
	defer s.b.unlock()
	if !s.closed {
		s.log.say(s.b, format, args...)
	}
}

func (s *Script) took(frame []byte) Packet {
	s.b.mu.Lock()
	defer s.b.unlock()
	if s.log == nil && frame[0] == CONNECT<<4 {
		if p, err := decodeConnect(append([]byte(nil), frameBody(frame)...)); err == nil {
			s.clientID = p.clientID
			s.log = s.b.logOf(s.clientID)
			s.log.say(s.b, "connection opened, served by a script")
		}
	}
	s.log.add(s.b, FromClient, frame, "")
	return inspect(frame)
}

// Send sends bytes, whatever they are, by one Write: so the client has them in one segment.
func (s *Script) Send(raw []byte) error {
	s.b.mu.Lock()
	for rest := raw; len(rest) > 0; {
		frame, behind, _, err := splitFrame(rest)
		if err != nil || frame == nil {
			s.log.say(s.b, "%d bytes that are no whole packet", len(rest))
			break
		}
		s.log.add(s.b, ToClient, frame, "")
		rest = behind
	}
	s.b.unlock()
	n, err := s.nc.Write(raw)
	if err != nil {
		s.say("%d of %d bytes were written: %v", n, len(raw), err)
	}
	return err
}

// NetConn is the connection beneath, for what TLS knows of it.
func (s *Script) NetConn() net.Conn { return s.nc }

// Close ends the connection without a word.
func (s *Script) Close() error {
	s.b.mu.Lock()
	if !s.closed {
		s.log.say(s.b, "connection closed by the script")
	}
	s.closed = true
	s.b.unlock()
	return s.nc.Close()
}

// SetReadDeadline ends a Next that takes longer; the zero time lets it take as long as it likes.
func (s *Script) SetReadDeadline(t time.Time) error { return s.nc.SetReadDeadline(t) }

// SetWriteDeadline does so for Send.
func (s *Script) SetWriteDeadline(t time.Time) error { return s.nc.SetWriteDeadline(t) }
