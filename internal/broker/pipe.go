package broker

import (
	"errors"
	"net"
	"time"
)

// end is one end of a connection made of two unbuffered pipes, so that each direction can be closed alone.
type end struct{ in, out net.Conn }

// Pipe returns the two ends of an unbuffered connection in memory. Each has a CloseWrite method. They work in a
// testing/synctest bubble.
func Pipe() (net.Conn, net.Conn) {
	aIn, bOut := net.Pipe()
	bIn, aOut := net.Pipe()
	return &end{aIn, aOut}, &end{bIn, bOut}
}

func (e *end) Read(p []byte) (int, error)         { return e.in.Read(p) }
func (e *end) Write(p []byte) (int, error)        { return e.out.Write(p) }
func (e *end) CloseWrite() error                  { return e.out.Close() }
func (e *end) Close() error                       { return errors.Join(e.in.Close(), e.out.Close()) }
func (e *end) LocalAddr() net.Addr                { return e.in.LocalAddr() }
func (e *end) RemoteAddr() net.Addr               { return e.in.RemoteAddr() }
func (e *end) SetReadDeadline(t time.Time) error  { return e.in.SetReadDeadline(t) }
func (e *end) SetWriteDeadline(t time.Time) error { return e.out.SetWriteDeadline(t) }
func (e *end) SetDeadline(t time.Time) error {
	return errors.Join(e.SetReadDeadline(t), e.SetWriteDeadline(t))
}
