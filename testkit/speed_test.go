package testkit

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/rs/zerolog"

	"github.com/settlemq/settle"
)

const (
	speedMessages = 100_000
	// leastSpeed is what two cores have to do a second, if they have nothing else to do.
	leastSpeed = 50_000
)

// 100,000 messages at QoS 1 go through net.Pipe to the server and through another to an app, and are acknowledged on both, at 50,000 a
// second at least, in the best of three, as others use the machine too.
func TestSpeedThroughNetPipe(t *testing.T) {
	if raceEnabled || testing.Short() {
		t.Skip("not with -race, under which everything takes ten times as long, and not with -short")
	}
	best := time.Hour
	for i := 0; i < 3 && speedMessages/best.Seconds() < leastSpeed; i++ {
		best = min(best, pour(t, netPipe, false))
		t.Logf("%.0f messages a second at best", speedMessages/best.Seconds())
	}
	if speed := speedMessages / best.Seconds(); speed < leastSpeed {
		t.Errorf("%.0f messages a second, want %d", speed, leastSpeed)
	}
}

// netPipe connects to a server by the standard library's pipe.
func netPipe(_ context.Context, server *Broker) (net.Conn, error) {
	client, end := net.Pipe()
	go server.server.Serve(end) // Close of the server ends it
	return client, nil
}

// ownPipe connects to it as Kits do, but without one.
func ownPipe(ctx context.Context, server *Broker) (net.Conn, error) { return server.server.Dial(ctx) }

// pour has a publisher send all messages to an app, which a Kit records or which only dials the server, and returns how long it took until both had their
// acknowledgements.
func pour(t testing.TB, dial func(context.Context, *Broker) (net.Conn, error), recorded bool) time.Duration {
	t.Helper()
	server := NewBroker(t, Options{WireLog: -1})
	settled, n := make(chan struct{}), 0
	app, err := settle.New(settle.Config{
		ClientID: "svc", Servers: []string{"mqtt://somewhere"}, Logger: zerolog.Nop(), ReceiveMaximum: 1000,
		Dial: func(ctx context.Context, _ *url.URL) (net.Conn, error) { return dial(ctx, server) },
	}, settle.Handle("jobs", func(context.Context, []byte) settle.Outcome {
		if n++; n == speedMessages {
			close(settled)
		}
		return settle.Ack()
	}))
	if err != nil {
		t.Fatal(err)
	}
	var kit *Kit
	if recorded {
		kit = StartOn(t, server, app)
	} else {
		_ = app.Start(t.Context())
		_ = app.WaitReady(t.Context())
	}
	conn, err := dial(t.Context(), server)
	if err != nil {
		t.Fatal(err)
	}
	connectPublisher(t, conn)

	began := time.Now()
	go publishMany(conn)
	if _, err := io.CopyN(io.Discard, conn, speedMessages*4); err != nil { // the PUBACKs
		t.Fatal(err)
	}
	<-settled
	if kit != nil {
		kit.Settled("jobs", speedMessages)
	} else if err := app.Stop(context.Background()); err != nil { // which waits until the server has read every acknowledgement
		t.Fatal(err)
	}
	took := time.Since(began)
	_ = conn.Close()
	if kit != nil {
		if err := kit.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	if info, _ := server.server.Session("svc"); info.Inflight+info.Queued > 0 {
		t.Fatalf("%+v", info)
	}
	server.server.Close()
	return took
}

// connectPublisher makes the connection that of a client, which may have as many PUBLISHes unanswered as there are.
func connectPublisher(t testing.TB, conn net.Conn) {
	t.Helper()
	connect := packets.Connect{ProtocolName: "MQTT", ProtocolVersion: 5, ClientID: "publisher", Properties: &packets.Properties{}}
	if _, err := connect.WriteTo(conn); err != nil {
		t.Fatal(err)
	}
	if _, err := packets.ReadPacket(conn); err != nil {
		t.Fatal(err)
	}
}

// publishMany writes messages of 512 bytes, some of them in each Write. It lets the reader of the answers be at most so many behind.
func publishMany(conn net.Conn) {
	const inOneWrite = 50
	frame := []byte{0x32, 0x89, 0x04, 0, 4, 'j', 'o', 'b', 's', 0, 0, 0}
	const idAt = 9
	frame = append(frame, make([]byte, 512)...)
	id := uint16(0)
	for range speedMessages / inOneWrite {
		var batch []byte
		for range inOneWrite {
			if id++; id == 0 {
				id = 1
			}
			at := len(batch)
			batch = append(batch, frame...)
			binary.BigEndian.PutUint16(batch[at+idAt:], id)
		}
		if _, err := conn.Write(batch); err != nil {
			return
		}
	}
}
