package settle_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/rs/zerolog"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/internal/broker/brokertest"
)

// tap is the client's end of a connection to a server that pours: as many PUBLISHes as its window allows, encoded before. Neither
// Read nor Write allocates while it pours, so that what is measured is the runtime's own.
type tap struct {
	frames [][]byte // the PUBLISH for each slot of the window
	total  int

	mu      sync.Mutex
	changed sync.Cond
	answers bytes.Buffer // to what comes before the pouring
	open    bool
	sent    int // PUBLISHes
	acked   int // PUBACKs
	reading []byte
	closed  bool
}

func newTap(window, total, size int, users ...string) *tap {
	t := &tap{total: total}
	t.changed.L = &t.mu
	for i := range window {
		t.frames = append(t.frames, brokertest.Bytes(publish("a/b", 1, uint16(i+1), string(make([]byte, size)), append(users, settle.PartitionKeyHeader, strconv.Itoa(i%7))...)))
	}
	return t
}

func (t *tap) dial(context.Context, *url.URL) (net.Conn, error) { return t, nil }

// Read gives what may be sent, a few frames at a time.
func (t *tap) Read(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		switch {
		case t.closed:
			return 0, io.EOF
		case len(t.reading) > 0:
		case t.answers.Len() > 0:
			return t.answers.Read(p)
		case t.open && t.sent < t.total && t.sent-t.acked < len(t.frames):
			t.reading = t.frames[t.sent%len(t.frames)]
			t.sent++
		default:
			t.changed.Wait()
			continue
		}
		n := copy(p, t.reading)
		t.reading = t.reading[n:]
		for n < len(p) && len(t.reading) == 0 && t.open && t.sent < t.total && t.sent-t.acked < len(t.frames) {
			t.reading = t.frames[t.sent%len(t.frames)]
			t.sent++
			m := copy(p[n:], t.reading)
			t.reading = t.reading[m:]
			n += m
		}
		return n, nil
	}
}

// Write takes whole frames, as the link writes them.
func (t *tap) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for rest := p; len(rest) > 0; {
		size, header := binary.Uvarint(rest[1:])
		frame := rest[:1+header+int(size)]
		rest = rest[len(frame):]
		switch frame[0] >> 4 {
		case packets.CONNECT:
			_, _ = brokertest.Connack(false).WriteTo(&t.answers)
		case packets.SUBSCRIBE:
			suback := &packets.Suback{PacketID: binary.BigEndian.Uint16(frame[1+header:]), Reasons: []byte{frame[len(frame)-1] & 3}}
			_, _ = suback.WriteTo(&t.answers)
		case packets.PUBACK:
			t.acked++
		case packets.PINGREQ:
			_, _ = (&packets.Pingresp{}).WriteTo(&t.answers)
		}
	}
	t.changed.Broadcast()
	return len(p), nil
}

// pour lets the PUBLISHes flow.
func (t *tap) pour() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open = true
	t.changed.Broadcast()
}

// wait returns when so many have been acknowledged.
func (t *tap) wait(acked int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.acked < acked {
		t.changed.Wait()
	}
}

func (t *tap) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	t.changed.Broadcast()
	return nil
}

func (t *tap) CloseWrite() error                { return t.Close() }
func (t *tap) LocalAddr() net.Addr              { return nil }
func (t *tap) RemoteAddr() net.Addr             { return nil }
func (t *tap) SetDeadline(time.Time) error      { return nil }
func (t *tap) SetReadDeadline(time.Time) error  { return nil }
func (t *tap) SetWriteDeadline(time.Time) error { return nil }

func drink(t *testing.T, server *tap, route settle.Route) (stop func()) {
	t.Helper()
	app, err := settle.New(settle.Config{ClientID: "c", Servers: []string{"mqtt://s"}, Dial: server.dial, Logger: zerolog.Nop(), ReceiveMaximum: len(server.frames)}, route)
	if err != nil {
		t.Fatal(err)
	}
	if err := app.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := app.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := app.Stop(ctx); err != nil {
			t.Error(err)
		}
	}
}

// TestTheHotPathAllocatesNothingOfItsOwn measures from socket to handler and back. What is left are buffers: one for each 32 KiB of
// the stream, and one for each 16 deliveries.
func TestTheHotPathAllocatesNothingOfItsOwn(t *testing.T) {
	warm, n := 20_000, 100_000
	if raceEnabled {
		warm, n = 5_000, 20_000
	}
	ack := func(context.Context, []byte) settle.Outcome { return settle.Ack() }
	for name, route := range map[string]settle.Route{
		"one lane":         settle.Handle("a/+", ack),
		"lanes":            settle.Handle("a/+", ack, settle.Workers(4)),
		"lanes by key":     settle.Handle("a/+", ack, settle.Workers(4, settle.ByKey)),
		"what it asks for": settle.Handle("a/+", asks),
	} {
		t.Run(name, func(t *testing.T) {
			server := newTap(500, warm+n, 512, "site", "north")
			stop := drink(t, server, route)
			server.pour()
			server.wait(warm)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			server.wait(warm + n)
			runtime.ReadMemStats(&after)
			stop()
			each := float64(after.Mallocs-before.Mallocs) / float64(n)
			size := float64(after.TotalAlloc-before.TotalAlloc) / float64(n)
			t.Logf("%.3f allocations and %.0f bytes a delivery of %d bytes", each, size, len(server.frames[0]))
			if each >= 0.5 {
				t.Errorf("%.3f allocations a delivery", each)
			}
			if most := float64(len(server.frames[0]) + 1024); size > most {
				t.Errorf("%.0f bytes a delivery", size)
			}
		})
	}
}

// asks is a handler that uses what costs nothing.
func asks(ctx context.Context, b []byte) settle.Outcome {
	d := settle.DeliveryFrom(ctx)
	key, _ := d.Header(settle.PartitionKeyHeader)
	if _, ok := ctx.Deadline(); !ok || key == "" || d.Level(0) != "a" || d.Attempt() != 1 || ctx.Err() != nil || len(b) != 512 {
		return settle.Reject(errFails)
	}
	return settle.Ack()
}

func TestC2_AMillionDeliveriesThroughASlowHandlerInFlatMemory(t *testing.T) {
	total := 1_000_000
	if raceEnabled || testing.Short() {
		total = 100_000
	}
	in(t, func(t *testing.T) {
		var handled atomic.Int64
		server := newTap(200, total, 64)
		stop := drink(t, server, settle.Handle("a/+", func(context.Context, []byte) settle.Outcome {
			handled.Add(1)
			sleep(time.Millisecond) // which is a thousand times what the server takes
			return settle.Ack()
		}, settle.Workers(4, settle.ByKey)))
		server.pour()
		const steps = 10
		var heap, goroutine [steps]int
		for i := range steps {
			server.wait(total / steps * (i + 1))
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			heap[i], goroutine[i] = int(m.HeapAlloc), runtime.NumGoroutine()
		}
		stop()
		t.Logf("heap %v, goroutines %v", heap, goroutine)
		if grown := heap[steps-1] - heap[1]; grown > 1<<20 {
			t.Errorf("the heap has grown by %d bytes", grown)
		}
		if goroutine[steps-1] > goroutine[1] {
			t.Errorf("goroutines: %v", goroutine)
		}
		if int(handled.Load()) != total {
			t.Errorf("%d handled", handled.Load())
		}
	})
}
