package link

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/eclipse/paho.golang/paho"
	"github.com/eclipse/paho.golang/paho/log"

	"github.com/settlemq/settle/internal/wire"
)

// errHalfOpen says that the server has not answered a PINGREQ.
var errHalfOpen = errors.New("the server has gone silent: no answer to PINGREQ")

// pinger sends PINGREQ when, for three quarters of a keep-alive, nothing went out or nothing came in, and ends the
// connection when nothing has come in for three quarters more. So the server hears of us within a keep-alive
// [MQTT-3.1.2-22], and we notice a half-open connection within one and a half of the last byte. Any byte is an answer: behind
// a long PUBLISH a PINGRESP takes its time. It is fed by the conn, so paho's notices are not needed.
type pinger struct {
	conn      *conn
	keepAlive uint16 // what CONNECT said, in seconds: used where the server wants none
}

var _ paho.Pinger = (*pinger)(nil)

// Run pings until its context ends or the server does not answer. paho passes the keep-alive that CONNACK left, in seconds.
func (p *pinger) Run(ctx context.Context, _ net.Conn, keepAlive uint16) error {
	if keepAlive == 0 {
		keepAlive = p.keepAlive
	}
	if keepAlive == 0 {
		return nil
	}
	every := time.Duration(keepAlive) * time.Second * 3 / 4
	schedule := pingSchedule{every: every}
	timer := time.NewTimer(every)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		now := time.Since(p.conn.opened)
		ping, dead, next := schedule.at(now, time.Duration(p.conn.received.Load()), time.Duration(p.conn.sent.Load()))
		if dead {
			p.conn.fail(errHalfOpen)
			return errHalfOpen
		}
		if ping {
			p.conn.Lock()
			p.conn.Write(wire.AppendPingreq(nil)) //nolint:errcheck // a closed connection ends ctx
			p.conn.Unlock()
		}
		timer.Reset(next)
	}
}

// pingSchedule decides what is due. Times are measured from the opening of the connection.
type pingSchedule struct {
	every  time.Duration
	pinged time.Duration // when the last PINGREQ went; 0: none has
}

// at says whether to ping, or to give the connection up, at a time, and how long to wait until asking again.
func (s *pingSchedule) at(now, received, sent time.Duration) (ping, dead bool, next time.Duration) {
	unanswered := s.pinged > 0 && received < s.pinged
	due := max(min(received, sent), s.pinged) + s.every
	switch {
	case now < due:
		return false, false, due - now
	case unanswered:
		return false, true, 0
	}
	s.pinged = now
	return true, false, s.every
}

// PacketSent does nothing: the conn notes each byte.
func (p *pinger) PacketSent() {}

// PacketReceived does nothing: the conn notes each byte.
func (p *pinger) PacketReceived() {}

// PingResp does nothing: the conn notes each byte.
func (p *pinger) PingResp() {}

// SetDebug does nothing: paho's logs are not used.
func (p *pinger) SetDebug(log.Logger) {}
