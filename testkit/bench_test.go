package testkit

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"testing"

	"github.com/eclipse/paho.golang/packets"
	"github.com/rs/zerolog"

	"github.com/settlemq/settle"
)

const benchMessages = 100_000

// Messages at QoS 1 go from a publisher through a pipe to the server and through another to an app, and are acknowledged on both: with
// an app that a Kit records, and with one that only dials the server.
func BenchmarkPublisherToApp(b *testing.B) {
	for _, c := range []struct {
		name     string
		recorded bool
	}{{"recorded", true}, {"bare", false}} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				server := NewBroker(b, Options{WireLog: -1})
				settled, n := make(chan struct{}), 0
				app, err := settle.New(settle.Config{
					ClientID: "svc", Servers: []string{"mqtt://somewhere"}, Logger: zerolog.Nop(), ReceiveMaximum: 1000,
					Dial: func(ctx context.Context, _ *url.URL) (net.Conn, error) { return server.server.Dial(ctx) },
				}, settle.Handle("jobs", func(context.Context, []byte) settle.Outcome {
					if n++; n == benchMessages {
						close(settled)
					}
					return settle.Ack()
				}))
				if err != nil {
					b.Fatal(err)
				}
				var kit *Kit
				if c.recorded {
					kit = StartOn(b, server, app)
				} else {
					_ = app.Start(b.Context())
					_ = app.WaitReady(b.Context())
				}
				conn := connectPublisher(b, server)
				b.StartTimer()

				go publishMany(conn)
				if _, err := io.CopyN(io.Discard, conn, benchMessages*4); err != nil { // the PUBACKs
					b.Fatal(err)
				}
				<-settled
				if kit != nil {
					kit.Settled("jobs", benchMessages)
				}
				b.StopTimer()
				_ = conn.Close()
				if err := app.Stop(context.Background()); err != nil {
					b.Fatal(err)
				}
				if info, _ := server.server.Session("svc"); info.Inflight+info.Queued > 0 {
					b.Fatalf("%+v", info)
				}
				b.StartTimer()
			}
			b.ReportMetric(float64(benchMessages*b.N)/b.Elapsed().Seconds(), "msg/s")
		})
	}
}

// BenchmarkStartAndStop is a test's own cost.
func BenchmarkStartAndStop(b *testing.B) {
	for b.Loop() {
		app, err := settle.New(settle.Config{ClientID: "svc", Servers: []string{"mqtt://somewhere"}, Logger: zerolog.Nop()},
			settle.Handle("jobs", func(context.Context, []byte) settle.Outcome { return settle.Ack() }, settle.RetryTo("again"), settle.DeadLetterTo("dead")))
		if err != nil {
			b.Fatal(err)
		}
		server := NewBroker(b)
		kit := StartOn(b, server, app)
		if err := kit.Stop(); err != nil {
			b.Fatal(err)
		}
		server.server.Close()
	}
}

// connectPublisher returns the connection of a client that may have as many PUBLISHes unanswered as there are.
func connectPublisher(b *testing.B, server *Broker) net.Conn {
	b.Helper()
	conn, err := server.server.Dial(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	connect := packets.Connect{ProtocolName: "MQTT", ProtocolVersion: 5, ClientID: "publisher", Properties: &packets.Properties{}}
	if _, err := connect.WriteTo(conn); err != nil {
		b.Fatal(err)
	}
	if _, err := packets.ReadPacket(conn); err != nil {
		b.Fatal(err)
	}
	return conn
}

// publishMany writes messages of 512 bytes, some of them in each Write. It lets the reader of the answers be at most so many behind.
func publishMany(conn net.Conn) {
	const inOneWrite = 50
	frame := []byte{0x32, 0x89, 0x04, 0, 4, 'j', 'o', 'b', 's', 0, 0, 0}
	const idAt = 9
	frame = append(frame, make([]byte, 512)...)
	id := uint16(0)
	for range benchMessages / inOneWrite {
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
