package link

import (
	"net"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"github.com/settlemq/settle/internal/broker/brokertest"
	"github.com/settlemq/settle/internal/wire"
)

// treadmill is a connection that brings the same bytes round and round, and takes whatever is written.
type treadmill struct {
	net.Conn
	brings []byte
	at     int
	wrote  int
}

func (t *treadmill) Read(p []byte) (int, error) {
	n := copy(p, t.brings[t.at:])
	t.at = (t.at + n) % len(t.brings)
	return n, nil
}
func (t *treadmill) Write(p []byte) (int, error)      { t.wrote += len(p); return len(p), nil }
func (t *treadmill) SetWriteDeadline(time.Time) error { return nil }
func (t *treadmill) Close() error                     { return nil }

// quiet acknowledges each QoS 1 message and notes nothing.
type quiet struct{ ids []uint16 }

func (q *quiet) Begin(Session) {}
func (q *quiet) Publish(f wire.Frame) error {
	var p wire.Publish
	if err := wire.ParsePublish(f, &p); err != nil {
		return err
	}
	q.ids = append(q.ids, p.PacketID)
	return nil
}
func (q *quiet) Pubrel(uint16, byte) {}
func (q *quiet) Flush()              {}
func (q *quiet) End(error)           {}
func (q *quiet) TakeAcks(_ uint64, dst []byte) []byte {
	for _, id := range q.ids {
		dst = wire.AppendPuback(dst, id)
	}
	q.ids = q.ids[:0]
	return dst
}

// From the socket to the Receiver, and from the acknowledgements to the socket, nothing is allocated but the chunks that
// frames are cut from, and what one PINGRESP costs here to get out of Read.
func TestTheHotPathAllocatesNothing(t *testing.T) {
	const n = 20
	var frames []brokertest.Packet
	for id := range n {
		frames = append(frames, brokertest.Publish("a/b", 1, uint16(id+1), string(make([]byte, 400))))
	}
	raw := &treadmill{brings: brokertest.Bytes(append(frames, &packets.Pingresp{})...)}
	q := &quiet{}
	cfg := Config{Receiver: q, Acks: q, Limits: wire.Limits{MaxPayload: 1 << 20, MaxControl: 1 << 16, Chunk: 256 << 10}}.withDefaults()
	c := newConn(raw, &cfg, nil)
	defer func() { _ = c.Close(); c.join() }()
	c.epoch.Store(1)
	p := make([]byte, 2)
	allocs := testing.AllocsPerRun(1000, func() {
		for {
			if _, err := c.Read(p); err != nil {
				t.Fatal(err)
			}
			if len(c.rest) == 0 {
				break
			}
		}
		c.flush(false)
	})
	if allocs != 0 {
		t.Errorf("%v allocations for %d deliveries", allocs, n)
	}
	if raw.wrote == 0 {
		t.Error("nothing was acknowledged")
	}
}
