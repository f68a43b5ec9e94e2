package settle_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settlemq/settle"
)

// typedNil is the error that a function returns which declares its own type of error and has none to return.
type typedNil struct{ inner error }

func (e *typedNil) Error() string { return e.inner.Error() }
func (e *typedNil) Unwrap() error { return e.inner }

func TestACauseWhoseMethodsPanicCostsNothing(t *testing.T) {
	var broken *typedNil
	for name, o := range map[string]func() settle.Outcome{
		"retry":       func() settle.Outcome { return settle.Retry(broken) },
		"retry after": func() settle.Outcome { return settle.RetryAfter(time.Second, broken) },
		"reject":      func() settle.Outcome { return settle.Reject(broken) },
	} {
		for _, retryTo := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				in(t, func(t *testing.T) {
					options := []settle.RouteOption{settle.DeadLetterTo("d")}
					if retryTo {
						options = append(options, settle.RetryTo("r"))
					}
					f := begin(t, nil, settle.Handle("a", func(ctx context.Context, b []byte) settle.Outcome {
						if string(b) == "1" && settle.DeliveryFrom(ctx).Attempt() == 1 {
							return o()
						}
						return settle.Ack()
					}, options...))
					main := f.main(false)
					if retryTo {
						circle(main, f.second(false), 0, "r")
					}
					main.send(numbered("a", 1, 1, 3)...)
					pass(time.Minute)
					f.expectValue("settle_window_unacked", 0)
					f.expectValue(`settle_inflight{route="a"}`, 0)
				})
			})
		}
	}
}

// A middleware may give up waiting for the handler, as http.TimeoutHandler does, call it twice, or not at all.
func TestMiddlewareThatTakesLiberties(t *testing.T) {
	var running sync.WaitGroup
	for name, m := range map[string]settle.Middleware{
		"gives up": func(next settle.Next) settle.Next {
			return func(ctx context.Context) settle.Outcomes {
				done := make(chan settle.Outcomes, 1)
				running.Go(func() {
					done <- next(ctx)
				})
				select {
				case o := <-done:
					return o
				case <-time.After(time.Second):
					return settle.Every(settle.Ack())
				}
			}
		},
		"gives up at once": func(next settle.Next) settle.Next {
			return func(ctx context.Context) settle.Outcomes {
				running.Go(func() {
					next(ctx)
				})
				return settle.Every(settle.Ack())
			}
		},
		"twice": func(next settle.Next) settle.Next {
			return func(ctx context.Context) settle.Outcomes { next(ctx); return next(ctx) }
		},
		"twice at once": func(next settle.Next) settle.Next {
			return func(ctx context.Context) settle.Outcomes {
				running.Go(func() {
					next(ctx)
				})
				return next(ctx)
			}
		},
		"never": func(settle.Next) settle.Next {
			return func(context.Context) settle.Outcomes { return settle.Every(settle.Ack()) }
		},
		"other": func(next settle.Next) settle.Next {
			return func(context.Context) settle.Outcomes { return next(context.Background()) }
		},
		"exits": func(next settle.Next) settle.Next {
			return func(ctx context.Context) settle.Outcomes { next(ctx); goexit(); return settle.Outcomes{} }
		},
		"panics": func(next settle.Next) settle.Next {
			return func(ctx context.Context) settle.Outcomes { next(ctx); panic("x") }
		},
	} {
		for _, batch := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				in(t, func(t *testing.T) {
					one := func(ctx context.Context, _ []byte) settle.Outcome {
						select {
						case <-time.After(3 * time.Second):
						case <-ctx.Done():
						}
						return settle.Ack()
					}
					options := []settle.RouteOption{settle.With(m), settle.DeadLetterTo("d"), settle.MaxAttempts(1), settle.Timeout(10 * time.Second)}
					route := settle.Handle("a", one, options...)
					if batch {
						route = settle.HandleBatch("a", func(ctx context.Context, _ []text) settle.Outcomes { return settle.Every(one(ctx, nil)) }, options...)
					}
					f, main := up(t, texts(nil), route)
					main.send(numbered("a", 1, 1, 5)...)
					pass(2 * time.Minute)
					got := slices.DeleteFunc(main.took(), func(s string) bool { return s[:6] != "PUBACK" })
					if !slices.Equal(got, pubacks(1, 5)) {
						t.Errorf("acknowledged %q", got)
					}
					f.expectValue(`settle_inflight{route="a"}`, 0)
					if err := f.stop(); err != nil {
						t.Error(err)
					}
					running.Wait()
				})
			})
		}
	}
}

func TestWaitingForAnAppThatHasEnded(t *testing.T) {
	in(t, func(t *testing.T) {
		for _, started := range []bool{false, true} {
			f := prepare(t, nil, settle.Handle("a", newCalls().ack))
			if started {
				if err := f.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				f.main(false)
			}
			if err := f.stop(); err != nil {
				t.Error(err)
			}
			began := time.Now()
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			if err := f.WaitReady(ctx); err == nil || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("started %t: WaitReady returned %v", started, err)
			}
			if err := f.Retire(ctx); errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("started %t: Retire returned %v", started, err)
			}
			if err := f.Publish(ctx, "x", "y"); !errors.Is(err, settle.ErrNotConnected) || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("started %t: Publish returned %v", started, err)
			}
			cancel()
			if took := time.Since(began); took > time.Second {
				t.Errorf("started %t: it took %s", started, took)
			}
		}
	})
}

// Handlers that publish, reply and stop the app while it stops.
func TestHandlersThatPublishWhileTheAppStops(t *testing.T) {
	in(t, func(t *testing.T) {
		var f *field
		var errs []error
		f, main := up(t, nil, settle.Handle("a", func(ctx context.Context, _ []byte) settle.Outcome {
			pass(time.Second)
			errs = append(errs, settle.Publish(ctx, "x", []byte("y")))
			return settle.Ack()
		}))
		main.send(numbered("a", 1, 1, 2)...)
		stopped := make(chan error, 1)
		go func() { stopped <- f.stop() }()
		synctest.Wait()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		if len(errs) != 1 || errs[0] != nil {
			t.Errorf("published: %v", errs)
		}
		main.expect("PUBLISH x q1 y", "PUBACK 1", "DISCONNECT")
	})
}
