package settle_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/settlemq/settle"
)

// New finds everything that is wrong with a configuration, at once.
func ExampleConfigError() {
	bill := func(context.Context, usage) settle.Outcome { return settle.Ack() }
	_, err := settle.New(
		settle.Config{Servers: []string{"localhost:1883"}, ClientID: "billing-0"},
		settle.Handle("meters/+/usage", bill, settle.RetryTo("meters/#"), settle.Timeout(10)),
	)
	fmt.Println(err)

	var first *settle.ConfigError
	fmt.Println(errors.As(err, &first), first.Field)
	// Output:
	// settle: Servers[0]: "localhost:1883": has no scheme: write mqtt://host:port, mqtts://host:port, ws://host:port/path or wss://host:port/path
	// settle: Routes[0] "meters/+/usage": RetryTo: "meters/#": contains a wildcard, '+' or '#', which only a topic filter may
	// settle: Routes[0] "meters/+/usage": Timeout: 10ns: must be at least 1ms, or 0 for no limit: was the unit forgotten, as in 30*time.Second?
	// true Servers[0]
}

// A route that loses nothing: failures go round through a retry topic, and what cannot be handled ends as a dead letter.
func ExampleRouteOption() {
	bill := func(context.Context, usage) settle.Outcome { return settle.Ack() }
	_, err := settle.New(
		settle.Config{Servers: []string{"mqtt://localhost"}, ClientID: "billing-0"},
		settle.Handle("meters/+/usage", bill,
			settle.ExactlyOnce,
			settle.Workers(8, settle.ByKey), // eight lanes; a key's deliveries stay in order
			settle.Timeout(10*time.Second),
			settle.RetryTo("billing/retry/usage"),
			settle.Backoff(settle.Exponential(time.Second, time.Minute)),
			settle.MaxAttempts(5),
			settle.DeadLetterTo("billing/dead/usage"),
		),
	)
	fmt.Println(err)
	// Output: <nil>
}

// A key function of your own decides what stays in order.
func ExampleKeyFunc() {
	bySite := func(d *settle.Delivery) string {
		site, _ := d.Header("site")
		return site
	}
	_ = settle.Workers(16, bySite)
	fmt.Printf("%q\n", bySite(nil)) // "": takes turns
	// Output: ""
}

// A policy tells the faults apart by their errors.
func ExampleOnDecodeFailure() {
	policy := func(err error) settle.Outcome {
		var failure *settle.DecodeError
		if errors.As(err, &failure) && failure.Delivery.Retained() {
			return settle.Drop("an old retained message")
		}
		return settle.Reject(err)
	}
	_ = settle.OnDecodeFailure(policy)
	fmt.Println(policy(&settle.DecodeError{Type: "Usage"}).Kind())
	// Output: reject
}

// Constant waits exactly; Exponential draws each wait from ±20 % around a doubling one.
func ExampleConstant() {
	fmt.Println(settle.Constant(5 * time.Minute).Delay(3))
	fmt.Println(settle.Constant(5*time.Minute), settle.Exponential(time.Second, time.Minute))
	// Output:
	// 5m0s
	// Constant(5m0s) Exponential(1s, 1m0s)
}
