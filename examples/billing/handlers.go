package main

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/settlemq/settle"
)

// Billing handles what meters send. A handler is a function of a message, which says what is to become of it.
type Billing struct {
	ledger poster
	chart  Chart
}

var (
	errNoMeter   = errors.New("the report names no meter")
	errNegative  = errors.New("the usage is negative or no number")
	errImpostor  = errors.New("the report is about another meter than its topic")
	errKeyDiffer = errors.New("the report is about another meter than its key")
)

// lockedPause is how long a report waits for whoever has locked the ledger: that takes minutes, and asking each second would not help.
const lockedPause = 5 * time.Minute

// bill posts a report to the ledger. It is called again for a report that it has seen: after a failure, and where a connection was lost
// at the wrong moment. The ledger has each message id once, so that does no harm.
func (b *Billing) bill(ctx context.Context, usage Usage) settle.Outcome {
	d := settle.DeliveryFrom(ctx)
	if err := check(d, usage); err != nil {
		return settle.Reject(err) // to the dead letters: it will be no better the next time
	}
	wh := int64(math.Round(usage.KWh * 1000))
	fresh, err := b.ledger.Post(ctx, Posting{Report: d.MessageID(), Meter: usage.Meter, Wh: wh})
	switch {
	case errors.Is(err, errLocked):
		return settle.RetryAfter(lockedPause, err) // to the retry topic, and back when that is over
	case err != nil:
		return settle.Retry(err) // the same, with the route's backoff
	}
	zerolog.Ctx(ctx).Debug().Int64("wh", wh).Bool("fresh", fresh).Msg("billed")
	return settle.Ack()
}

// check says what is wrong with a report.
func check(d *settle.Delivery, usage Usage) error {
	key, keyed := d.Header(settle.PartitionKeyHeader)
	topic := d.Level(1)
	switch {
	case usage.Meter == "":
		return errNoMeter
	case !(usage.KWh >= 0 && usage.KWh < 1e9): // false for NaN
		return errNegative
	case topic != "" && topic != usage.Meter:
		return errImpostor
	case keyed && key != usage.Meter:
		return errKeyDiffer
	}
	return nil
}

// draw puts a batch of samples on the chart.
func (b *Billing) draw(_ context.Context, samples []Sample) settle.Outcomes {
	b.chart.add(samples)
	return settle.Every(settle.Ack())
}

// Chart knows the power that each meter measured last. The zero Chart is ready to use.
type Chart struct {
	mu      sync.Mutex
	last    map[string]float64 // watts, by meter
	samples int64
}

func (c *Chart) add(samples []Sample) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last == nil {
		c.last = make(map[string]float64)
	}
	for _, s := range samples {
		c.last[s.Meter] = s.Watts
	}
	c.samples += int64(len(samples))
}

// Load is the power of all meters together, in watts, and how many samples have been charted.
func (c *Chart) Load() (watts float64, samples int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.last {
		watts += w
	}
	return watts, c.samples
}
