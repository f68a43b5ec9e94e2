package testkit_test

import (
	"context"
	"fmt"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/testkit"
)

// A message through a whole app. In a test, t is the test's own.
func Example() {
	t := &fakeT{ctx: context.Background()}
	defer t.end()

	app := quietApp(t, settle.Handle("meters/+/usage", func(_ context.Context, usage Usage) settle.Outcome {
		if usage.KWh < 0 {
			return settle.Drop("negative usage")
		}
		return settle.Ack()
	}))
	kit := testkit.Start(t, app)
	kit.Publish("meters/42/usage", Usage{Meter: "42", KWh: 1.5})
	kit.Publish("meters/42/usage", Usage{Meter: "42", KWh: -1})
	for _, s := range kit.Settled("meters/+/usage", 2) {
		fmt.Println(s.Body, s.Outcome, s.Acknowledged)
	}
	// Output:
	// {42 1.5} ack true
	// {42 -1} drop: negative usage true
}
