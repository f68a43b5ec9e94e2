package settle_test

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"time"

	"github.com/settlemq/settle"
)

// A handler takes a decoded value, or the payload as it is, and finds the rest of its delivery in its context. Outside of an app a
// delivery is nil and answers with zeros, so a handler can be called as the function that it is.
func ExampleDeliveryFrom() {
	store := func(ctx context.Context, frame []byte) settle.Outcome {
		d := settle.DeliveryFrom(ctx)
		if d.Redelivered() && len(frame) == 0 {
			return settle.Drop("an empty frame, twice")
		}
		fmt.Printf("%d bytes of meter %q, attempt %d\n", len(frame), d.Level(1), d.Attempt())
		return settle.Ack()
	}
	_ = settle.Handle("meters/+/frame", store, settle.Workers(4, settle.ByTopic))

	fmt.Println(store(context.Background(), []byte{1, 2, 3}))
	// Output:
	// 3 bytes of meter "", attempt 1
	// ack
}

// A batch handler gets up to BatchSize elements, or what has come when Linger is over.
func ExampleHandleBatch() {
	chart := func(_ context.Context, samples []usage) settle.Outcomes {
		total := 0.0
		for _, s := range samples {
			total += s.KWh
		}
		fmt.Println(len(samples), "samples,", total, "kWh")
		return settle.Every(settle.Ack())
	}
	_, err := settle.New(
		settle.Config{Servers: []string{"mqtt://localhost"}, ClientID: "charts-0"},
		settle.HandleBatch("meters/+/power", chart, settle.AtMostOnce, settle.BatchSize(64), settle.Linger(20*time.Millisecond)),
	)
	fmt.Println(err)
	fmt.Println(chart(context.Background(), []usage{{KWh: 1}, {KWh: 2.5}}).At(0))
	// Output:
	// <nil>
	// 2 samples, 3.5 kWh
	// ack
}

// A middleware sees every call of a handler, and what came of it, single deliveries and batches alike.
func ExampleMiddleware() {
	counting := func(next settle.Next) settle.Next {
		return func(ctx context.Context) settle.Outcomes {
			outcomes := next(ctx)
			for _, o := range outcomes.All() {
				fmt.Println("said", o.Kind())
			}
			return outcomes
		}
	}
	_ = settle.With(counting) // around one route; App.Use for all

	handler := func(context.Context) settle.Outcomes { return settle.Each(settle.Ack(), settle.Retry(errLedgerDown)) }
	counting(handler)(context.Background())
	// Output:
	// said ack
	// said retry
}

// What a handler panics with reaches the route's policy; the delivery is settled and the lane lives on.
func ExampleOnPanic() {
	policy := func(err error) settle.Outcome {
		var panicked *settle.PanicError
		if errors.As(err, &panicked) && fmt.Sprint(panicked.Value) == "no such meter" {
			return settle.Reject(err)
		}
		return settle.Retry(err) // the default
	}
	_ = settle.OnPanic(policy)
	fmt.Println(policy(&settle.PanicError{Value: "no such meter"}).Kind())
	// Output: reject
}

// What has failed three times may be lost, and that is said: without DropExhausted or a dead-letter topic, New refuses MaxAttempts.
func ExampleDropExhausted() {
	show := func(context.Context, usage) settle.Outcome { return settle.Retry(errors.New("no display")) }
	_, err := settle.New(
		settle.Config{Servers: []string{"mqtt://localhost"}, ClientID: "display-0"},
		settle.Handle("meters/+/usage", show, settle.MaxAttempts(3), settle.DropExhausted()),
	)
	fmt.Println(err)
	// Output: <nil>
}

// weekdays is a policy of one's own: it waits longer where nobody is at work.
type weekdays struct{ settle.BackoffPolicy }

func (w weekdays) Delay(attempt int) time.Duration {
	d := w.BackoffPolicy.Delay(attempt)
	if day := time.Now().Weekday(); day == time.Saturday || day == time.Sunday {
		return 10 * d
	}
	return d
}

// A policy of your own says how long to wait after each attempt.
func ExampleBackoffPolicy() {
	policy := weekdays{settle.Constant(time.Minute)}
	_ = settle.Backoff(policy)
	fmt.Println(policy.Delay(1) >= time.Minute)
	// Output: true
}

// records is a codec of one's own: CSV, one line a message, into a *[]string.
type records struct{}

func (records) ContentType() string { return "text/csv" }

func (records) Marshal(v any) ([]byte, error) {
	line, ok := v.([]string)
	if !ok {
		return nil, fmt.Errorf("text/csv: a %T is no line", v)
	}
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	err := w.Write(line)
	w.Flush()
	return b.Bytes(), err
}

func (records) Unmarshal(data []byte, v any) error {
	line, ok := v.(*[]string)
	if !ok {
		return fmt.Errorf("text/csv: nothing decodes into a %T", v)
	}
	var err error
	*line, err = csv.NewReader(bytes.NewReader(data)).Read()
	return err
}

// A codec of your own serves the messages of its content type; a route's Encoding those that have none.
func ExampleCodec() {
	old := func(_ context.Context, line []string) settle.Outcome {
		fmt.Println(line)
		return settle.Ack()
	}
	_, err := settle.New(
		settle.Config{Servers: []string{"mqtt://localhost"}, ClientID: "billing-0", Codecs: []settle.Codec{settle.JSON(), records{}}},
		settle.Handle("meters/+/csv", old, settle.Encoding("text/csv")),
	)
	fmt.Println(err)

	var line []string
	fmt.Println(records{}.Unmarshal([]byte("42,1.5\n"), &line), old(context.Background(), line))
	// Output:
	// <nil>
	// [42 1.5]
	// <nil> ack
}

// A program that reads dead letters takes the bytes as they are, and asks the delivery what became of the message.
func ExampleDelivery_DeadLetter() { //nolint:testableexamples // it needs a dead letter
	desk := settle.Handle("billing/dead/+", func(ctx context.Context, _ []byte) settle.Outcome {
		letter, ok := settle.DeliveryFrom(ctx).DeadLetter()
		if !ok {
			return settle.Drop("not a dead letter")
		}
		fmt.Println(letter.OriginalTopic, letter.Attempts, letter.Reason)
		return settle.Ack()
	})
	_ = desk // given to settle.New
}
