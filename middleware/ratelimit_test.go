package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/middleware"
)

func ExampleRateLimit() {
	began := time.Now()
	bill := func(context.Context, usage) settle.Outcome { return settle.Ack() }
	app := newApp(settle.Handle("meters/+/usage", bill))
	app.Use(middleware.RateLimit(20)) // two at once after a pause, then one each 50 ms
	app.deliver("meters/42/usage", `{"kwh": 1}`, `{"kwh": 2}`, `{"kwh": 3}`, `{"kwh": 4}`)
	fmt.Println(time.Since(began) >= 100*time.Millisecond)
	// Output: true
}

func acks(context.Context) settle.Outcomes { return settle.Every(settle.Ack()) }

func TestRateLimitPace(t *testing.T) {
	for name, test := range map[string]struct {
		perSecond float64
		calls     int
		want      time.Duration
	}{
		"a burst is free":          {100, 10, 0},
		"after it, evenly":         {100, 110, time.Second},
		"one a second":             {1, 4, 3 * time.Second},
		"one in four seconds":      {0.25, 3, 8 * time.Second},
		"a burst is at least one":  {5, 6, time.Second},
		"faster than timers count": {1e6, 100_000, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				limited := middleware.RateLimit(test.perSecond)(acks)
				for range test.calls {
					if o := limited(t.Context()).At(0); o.Kind() != settle.KindAck {
						t.Fatal(o)
					}
				}
				if took := time.Since(began).Round(time.Millisecond); took != test.want {
					t.Errorf("%d calls took %s, want %s", test.calls, took, test.want)
				}
			})
		})
	}
}

// Routes that were given one limiter share it.
func TestRateLimitShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		limit := middleware.RateLimit(2)
		one, other := limit(acks), limit(acks)
		for range 3 {
			one(t.Context())
			other(t.Context())
		}
		if took := time.Since(began); took != 2500*time.Millisecond {
			t.Errorf("6 calls at 2 a second took %s", took)
		}
	})
}

func TestRateLimitBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sizes []int
		app := newScripted(t, settle.HandleBatch("a", func(_ context.Context, all []usage) settle.Outcomes {
			sizes = append(sizes, len(all))
			return settle.Every(settle.Ack())
		}, settle.Linger(0), settle.Timeout(time.Second)))
		app.Use(middleware.RateLimit(2)) // a batch is more than the limiter ever gives at once
		app.start(1)
		began := time.Now()
		app.sendAtOnce("a", `{"kwh":1}`, `{"kwh":2}`, `{"kwh":3}`, `{"kwh":4}`, `{"kwh":5}`)
		app.await(1)
		if took := time.Since(began); took != 2*time.Second || fmt.Sprint(sizes) != "[5]" {
			t.Errorf("batches %d took %s, want [5] in 2s", sizes, took)
		}
		if id := <-app.acked; id != 1 { // longer than the handler's timeout, and still handled
			t.Errorf("the first acknowledgement is %d", id)
		}
		app.stop()
	})
}

func TestRateLimitEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errWhy := errors.New("why")
		ctx, cancel := context.WithCancelCause(t.Context())
		calls := 0
		limited := middleware.RateLimit(0.001)(func(ctx context.Context) settle.Outcomes {
			calls++
			return acks(ctx)
		})
		limited(ctx)
		time.AfterFunc(time.Second, func() { cancel(errWhy) })
		o := limited(ctx).At(0)
		if o.Kind() != settle.KindRetry || !errors.Is(o.Cause(), errWhy) || calls != 1 {
			t.Errorf("after %d calls: %v", calls, o)
		}

		short, cancelShort := context.WithTimeout(t.Context(), time.Second)
		defer cancelShort()
		began := time.Now()
		if o = limited(short).At(0); o.Kind() != settle.KindRetry || o.Cause() == nil || time.Since(began) != 0 {
			t.Errorf("with no hope in time: %v after %s", o, time.Since(began))
		}
	})
}

// A delivery that waits when the app stops goes to whoever comes next: it spends no attempt, and is not acknowledged.
func TestRateLimitWhenStopping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		app := newScripted(t, settle.Handle("a", func(context.Context, []byte) settle.Outcome {
			calls++
			return settle.Ack()
		}))
		app.Use(middleware.RateLimit(0.001))
		app.start(1)
		app.send("a", "1")
		app.await(1)
		app.send("a", "2")
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if err := app.Stop(ctx); err != nil {
			t.Error(err)
		}
		app.reading.Wait()
		if calls != 1 || len(app.acked) != 1 {
			t.Errorf("%d calls and %d acknowledgements, want 1 and 1", calls, len(app.acked))
		}
	})
}

func TestRateLimitPanics(t *testing.T) {
	for _, rate := range []float64{0, -1, math.NaN(), math.Inf(1), math.Inf(-1)} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, "the rate must be a positive number") {
					t.Errorf("RateLimit(%v): %s", rate, got)
				}
			}()
			middleware.RateLimit(rate)
		}()
	}
}
