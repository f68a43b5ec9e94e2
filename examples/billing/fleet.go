package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/settlemq/settle"
)

// Fleet is a number of simulated meters. They are other programs, so they have a connection of their own, which is never cut, and keep
// their own book of what they have sent.
type Fleet struct {
	app    *settle.App
	meters int
	run    string // begins every message id, so that each run's are its own

	mu      sync.Mutex
	reports map[string]*Report // by message id
	sent    atomic.Int64       // reports that the server has confirmed
	samples atomic.Int64
}

// Report is what a meter knows about a report that it has sent.
type Report struct {
	Wh        int64 // 0 of a malformed one
	Malformed bool
	Confirmed bool // the server has it
}

const (
	samplePeriod     = 100 * time.Millisecond
	samplesPerReport = 10
	malformedOneIn   = 200
)

func newFleet(server, clientID string, meters int, log zerolog.Logger) (*Fleet, error) {
	app, err := settle.New(settle.Config{
		Servers: []string{server}, ClientID: clientID + "-meters", SessionExpiry: -1, Logger: log,
	}) // it only publishes
	if err != nil {
		return nil, err
	}
	return &Fleet{app: app, meters: meters, run: strconv.FormatInt(time.Now().UnixMilli(), 36), reports: make(map[string]*Report)}, nil
}

// Run lets all meters send until ctx ends, and returns when each has the server's answer to its last report.
func (f *Fleet) Run(ctx context.Context) {
	var all sync.WaitGroup
	for i := range f.meters {
		all.Go(func() { f.meter(ctx, strconv.Itoa(i+1)) })
	}
	all.Wait()
}

// meter is the life of one meter.
func (f *Fleet) meter(ctx context.Context, name string) {
	var (
		watts = 200 + 1800*rand.Float64()
		swing = 2 * math.Pi * rand.Float64()
		usage float64 // Wh that have not been reported
		tick  = rand.IntN(samplesPerReport)
	)
	pause := time.NewTimer(rand.N(samplePeriod)) // or all would send in the same instant
	defer pause.Stop()
	for n := 1; ; tick++ {
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
			pause.Reset(samplePeriod)
		}
		now := watts * (1 + 0.3*math.Sin(swing+float64(tick)/50))
		usage += now * samplePeriod.Hours() * 60 // this fleet lives a minute in a second
		f.sample(ctx, Sample{Meter: name, Watts: math.Round(now)})
		if tick%samplesPerReport == 0 {
			wh := int64(usage)
			usage -= float64(wh)
			f.report(ctx, name, n, wh)
			n++
		}
	}
}

// sample sends the power of this moment. Nobody waits for an answer, and there is none.
func (f *Fleet) sample(ctx context.Context, s Sample) {
	if f.app.Publish(ctx, powerTopic(s.Meter), s, settle.AtMostOnce) == nil {
		f.samples.Add(1)
	}
}

// report sends a usage report until the server says that it has it, each time under the same message id.
func (f *Fleet) report(ctx context.Context, meter string, n int, wh int64) {
	id := fmt.Sprintf("%s-%s-%d", f.run, meter, n)
	r := &Report{Wh: wh}
	var value any = Usage{Meter: meter, KWh: float64(wh) / 1000}
	if rand.IntN(malformedOneIn) == 0 {
		r = &Report{Malformed: true}
		value = malformed(meter)
	}
	f.mu.Lock()
	f.reports[id] = r
	f.mu.Unlock()
	// The end of the run is no reason not to wait for the answer to this one.
	patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	for patience.Err() == nil {
		err := f.app.Publish(patience, usageTopic(meter), value,
			settle.ExactlyOnce, settle.PartitionKey(meter), settle.MessageID(id), settle.ContentType("application/json"))
		if err == nil {
			f.mu.Lock()
			r.Confirmed = true
			f.mu.Unlock()
			f.sent.Add(1)
			return
		}
		if !errors.Is(err, settle.ErrUnconfirmed) {
			return // refused, or the time is up: the book says that it is not confirmed
		}
	}
}

// malformed is a report that a meter with a fault sends.
func malformed(meter string) any {
	switch rand.IntN(3) {
	case 0:
		return []byte(`{"meter":"` + meter + `","kwh":0.0`) // cut short
	case 1:
		return Usage{Meter: meter, KWh: -1}
	default:
		return Usage{Meter: meter + "?", KWh: 1} // not its own name
	}
}

// Reports are what the meters have sent, by message id.
func (f *Fleet) Reports() map[string]Report {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make(map[string]Report, len(f.reports))
	for id, r := range f.reports {
		all[id] = *r
	}
	return all
}
