package settle_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/settlemq/settle"
)

type usage struct {
	Meter string
	KWh   float64
}

var (
	errLedgerDown = errors.New("ledger down")
	errNoMeter    = errors.New("no such meter")
)

func post(_ context.Context, u usage) error {
	switch u.Meter {
	case "busy":
		return errLedgerDown
	case "unknown":
		return errNoMeter
	}
	return nil
}

// A handler is a function that says what should become of its delivery. It can be called as such.
func ExampleOutcome() {
	bill := func(ctx context.Context, u usage) settle.Outcome {
		if u.KWh < 0 {
			return settle.Drop("negative usage") // nobody need look at it
		}
		err := post(ctx, u)
		if errors.Is(err, errNoMeter) {
			return settle.Reject(err) // somebody should: to the dead-letter topic
		}
		return settle.OrRetry(err) // nil: Ack
	}
	ctx := context.Background()
	fmt.Println(bill(ctx, usage{Meter: "42", KWh: 1.5}))
	fmt.Println(bill(ctx, usage{Meter: "42", KWh: -1}))
	fmt.Println(bill(ctx, usage{Meter: "unknown"}))
	fmt.Println(bill(ctx, usage{Meter: "busy"}))
	// Output:
	// ack
	// drop: negative usage
	// reject: no such meter
	// retry: ledger down
}

// RetryAfter says itself when the next attempt is due; Retry leaves it to the route's Backoff.
func ExampleRetryAfter() {
	o := settle.RetryAfter(time.Minute, errLedgerDown)
	delay, set := o.Delay()
	fmt.Println(o.Kind(), delay, set, o.Cause())
	// Output: retry 1m0s true ledger down
}

// Each element of a batch has an outcome of its own.
func ExampleEach() {
	charge := func(ctx context.Context, batch []usage) settle.Outcomes {
		outcomes := make([]settle.Outcome, len(batch))
		for i, u := range batch {
			outcomes[i] = settle.OrRetry(post(ctx, u))
		}
		return settle.Each(outcomes...)
	}
	for i, o := range charge(context.Background(), []usage{{Meter: "1"}, {Meter: "busy"}, {Meter: "2"}}).All() {
		fmt.Println(i, o)
	}
	// Output:
	// 0 ack
	// 1 retry: ledger down
	// 2 ack
}

// A batch that succeeds or fails as a whole has one outcome for all.
func ExampleEvery() {
	insert := func(context.Context, []usage) settle.Outcomes {
		return settle.Every(settle.Retry(errLedgerDown))
	}
	fmt.Println(insert(context.Background(), make([]usage, 64)).At(0))
	// Output: retry: ledger down
}
