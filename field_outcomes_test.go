package settle_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/settlemq/settle"
)

// TestOutcomesOnTheWire holds the design's table: what leaves, in which order, for each outcome and QoS.
func TestOutcomesOnTheWire(t *testing.T) {
	acks := [3][]string{nil, {"PUBACK 7"}, {"PUBREC 7", "PUBCOMP 7"}}
	outcomes := []struct {
		name    string
		outcome settle.Outcome
		kind    string
	}{
		{"ack", settle.Ack(), "ack"},
		{"drop", settle.Drop("unwanted"), "drop"},
		{"retry", settle.Retry(errFails), "retry"},
		{"retry after", settle.RetryAfter(10*time.Second, errFails), "retry"},
		{"reject", settle.Reject(errFails), "reject"},
		{"zero", settle.Outcome{}, "retry"},
	}
	for _, o := range outcomes {
		for qos := range byte(3) {
			for _, to := range []string{"", "retry", "dead", "both"} {
				for _, batch := range []bool{false, true} {
					name := fmt.Sprintf("%s/qos %d/to %s/batch %t", o.name, qos, to, batch)
					t.Run(name, func(t *testing.T) {
						in(t, func(t *testing.T) { oneOutcome(t, o.outcome, o.kind, qos, to, batch, acks[qos]) })
					})
				}
			}
		}
	}
}

func oneOutcome(t *testing.T, outcome settle.Outcome, kind string, qos byte, to string, batch bool, ack []string) {
	const backoff = 5 * time.Second
	options := []settle.RouteOption{settle.QoS(qos), settle.Backoff(settle.Constant(backoff))}
	retryTo, deadTo := to == "retry" || to == "both", to == "dead" || to == "both"
	if retryTo {
		options = append(options, settle.RetryTo("svc/retry"))
	}
	if deadTo {
		options = append(options, settle.DeadLetterTo("svc/dead"))
	}
	attempts := newCalls()
	say := func(d *settle.Delivery) settle.Outcome {
		attempts.note(strconv.Itoa(d.Attempt()))
		if d.Attempt() > 1 {
			return settle.Ack()
		}
		return outcome
	}
	route := settle.Handle("a", func(ctx context.Context, _ []byte) settle.Outcome { return say(settle.DeliveryFrom(ctx)) }, options...)
	if batch {
		options = append(options, settle.BatchSize(2), settle.Linger(time.Millisecond))
		route = settle.HandleBatch("a", func(ctx context.Context, _ []text) settle.Outcomes {
			return settle.Each(say(settle.DeliveriesFrom(ctx)[0]))
		}, append(options, settle.Encoding("text/plain"))...)
	}
	f := begin(t, func(c *settle.Config) { c.Codecs = []settle.Codec{textCodec{}} }, route)
	main := f.main(false)
	var second *peer
	if retryTo {
		second = f.second(false)
		f.ready()
	}
	release := make(chan struct{})
	main.set(func(h *hooks) { h.hold = release })

	main.send(publish("a", qos, 7, "x"))
	var copied []string
	switch {
	case kind == "retry" && retryTo:
		copied = []string{"PUBLISH svc/retry q1 x"}
	case kind == "reject" && deadTo:
		copied = []string{"PUBLISH svc/dead q1 x"}
	case kind == "retry":
		// Held: nothing leaves until its time has come, and nothing would.
		pass(3 * time.Second)
		main.expect()
		wait := backoff
		if d, given := outcome.Delay(); given {
			wait = d
		}
		pass(wait - 3*time.Second - 10*time.Millisecond)
		attempts.expect(t, "1")
		pass(100 * time.Millisecond)
	}
	if copied != nil {
		main.expect(copied...) // and no acknowledgement before the copy is confirmed
		pass(3 * time.Second)
		main.expect()
		close(release)
	}
	main.expect(ack...)
	f.expectValue(fmt.Sprintf(`settle_settled_total{outcome=%q,route="a"}`, kind), 1)
	f.expectValue("settle_window_unacked", 0)
	f.expectValue(`settle_held{route="a"}`, 0)

	if copied != nil && kind == "retry" {
		second.send(comeBack(main.published("svc/retry")[0], 9))
		pass(11 * time.Second)
		second.expect("PUBACK 9")
	}
	want := []string{"1"}
	if kind == "retry" {
		want = []string{"1", "2"}
	}
	attempts.expect(t, want...)
	f.expectValue(`settle_inflight{route="a"}`, 0)
	if kind == "drop" || kind == "retry" || kind == "reject" {
		f.expectLogged(fmt.Sprintf(`"route":"a","outcome":%q,"attempt":1`, kind))
	}
	if outcome.Kind() == settle.KindInvalid {
		f.expectLogged("zero Outcome")
	}
	_ = f.stop()
	main.expect("DISCONNECT")
}

// text and textCodec stand for a codec of the user's own.
type text string

type textCodec struct{}

func (textCodec) ContentType() string { return "text/plain" }

func (textCodec) Marshal(v any) ([]byte, error) {
	s, ok := v.(text)
	if !ok {
		return nil, errors.New("not a text")
	}
	return []byte(s), nil
}

func (textCodec) Unmarshal(b []byte, v any) error {
	if s, ok := v.(*text); ok {
		*s = text(b)
		return nil
	}
	return errors.New("not a text")
}

// Outcomes of one batch go different ways; acknowledgements keep the order of arrival all the same.
func TestOutcomesOfABatchGoTheirOwnWays(t *testing.T) {
	in(t, func(t *testing.T) {
		f, main, second := upBoth(t, func(c *settle.Config) { c.Codecs = []settle.Codec{textCodec{}} },
			settle.HandleBatch("a", func(_ context.Context, all []text) settle.Outcomes {
				each := make([]settle.Outcome, len(all))
				for i, s := range all {
					each[i] = map[text]settle.Outcome{
						"ack": settle.Ack(), "drop": settle.Drop(""), "retry": settle.Retry(errFails), "reject": settle.Reject(errFails),
					}[s]
				}
				return settle.Each(each...)
			}, settle.BatchSize(5), settle.RetryTo("svc/retry"), settle.DeadLetterTo("svc/dead")))
		hold := make(chan struct{})
		main.set(func(h *hooks) { h.hold = hold })
		main.send(publish("a", 1, 1, "ack"), publish("a", 1, 2, "retry"), publish("a", 1, 3, "reject"), publish("a", 1, 4, "drop"), publish("a", 1, 5, "ack"))
		got := main.took()
		slices.Sort(got)
		if !slices.Equal(got, []string{"PUBACK 1", "PUBLISH svc/dead q1 reject", "PUBLISH svc/retry q1 retry"}) {
			t.Errorf("sent %q", got)
		}
		close(hold)
		main.expect("PUBACK 2", "PUBACK 3", "PUBACK 4", "PUBACK 5")
		second.expect()
		f.expectValue(`settle_batch_size{route="a"}`, 1)
	})
}

func TestAWrongNumberOfOutcomesRetriesTheRest(t *testing.T) {
	for name, test := range map[string]struct {
		outcomes settle.Outcomes
		acked    []string
		logged   string
	}{
		"none":     {settle.Outcomes{}, nil, "0 outcomes for 3 deliveries"},
		"too few":  {settle.Each(settle.Ack()), []string{"PUBACK 1"}, "1 outcomes for 3 deliveries"},
		"too many": {settle.Each(settle.Ack(), settle.Ack(), settle.Ack(), settle.Reject(errFails)), []string{"PUBACK 1", "PUBACK 2", "PUBACK 3"}, "4 outcomes for 3 deliveries"},
		"every":    {settle.Every(settle.Ack()), []string{"PUBACK 1", "PUBACK 2", "PUBACK 3"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				sizes := newCalls()
				f, main := up(t, func(c *settle.Config) { c.Codecs = []settle.Codec{textCodec{}} },
					settle.HandleBatch("a", func(_ context.Context, all []text) settle.Outcomes {
						sizes.note(strconv.Itoa(len(all)))
						if len(sizes.seen) == 1 {
							return test.outcomes
						}
						return settle.Every(settle.Ack())
					}, settle.BatchSize(3), settle.Backoff(settle.Constant(time.Second))))
				main.send(publish("a", 1, 1, "1"), publish("a", 1, 2, "2"), publish("a", 1, 3, "3"))
				main.expect(test.acked...)
				if test.logged != "" {
					f.expectLogged(test.logged, `"route":"a"`)
				}
				pass(2 * time.Second)
				if n := len(test.acked); n < 3 {
					sizes.expect(t, "3", strconv.Itoa(3-n))
				}
				f.expectValue("settle_window_unacked", 0)
			})
		})
	}
}
