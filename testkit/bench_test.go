package testkit

import (
	"context"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/settlemq/settle"
)

// Messages at QoS 1 go from a publisher through a pipe to the server and through another to an app, and are acknowledged on both: with
// an app that a Kit records, with one that only dials the server, and with that one over the standard library's pipe.
func BenchmarkPublisherToApp(b *testing.B) {
	b.Run("recorded", func(b *testing.B) { benchmark(b, func() time.Duration { return pour(b, ownPipe, true) }) })
	b.Run("bare", func(b *testing.B) { benchmark(b, func() time.Duration { return pour(b, ownPipe, false) }) })
	b.Run("net.Pipe", func(b *testing.B) { benchmark(b, func() time.Duration { return pour(b, netPipe, false) }) })
}

func benchmark(b *testing.B, once func() time.Duration) {
	b.Helper()
	var took time.Duration
	for b.Loop() {
		took += once()
	}
	b.ReportMetric(float64(speedMessages*b.N)/took.Seconds(), "msg/s")
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
