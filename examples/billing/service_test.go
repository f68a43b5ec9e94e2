package main

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/testkit"
)

// service is the app as the program makes it. testkit has it dial a server in this process instead of the one that it names here.
func service(t *testing.T, b *Billing) *settle.App {
	t.Helper()
	app, err := newService(b, "mqtts://mqtt.example.com", "billing-0", nil, prometheus.NewRegistry(), zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	return app
}

// set changes what becomes of posts.
func (b *book) set(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
}

// read is what has been posted so far.
func (b *book) read() []Posting {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.postings)
}

// What becomes of reports, good ones and others: what the handler says, and what is left of them on the server.
func TestServiceOutcomes(t *testing.T) {
	ledger := &book{}
	kit := testkit.Start(t, service(t, &Billing{ledger: ledger}))
	type test struct {
		name   string
		report any
		key    string
		kind   settle.Kind
		reason string // of the dead letter
	}
	tests := []test{
		{"good", Usage{"42", 1.5}, "42", settle.KindAck, ""},
		{"negative", Usage{"42", -1}, "42", settle.KindReject, errNegative.Error()},
		{"of another meter", Usage{"43", 1}, "42", settle.KindReject, errImpostor.Error()},
		{"under another key", Usage{"42", 1}, "43", settle.KindReject, errKeyDiffer.Error()},
		{"no JSON", []byte(`{"meter":"42"`), "42", settle.KindReject, "a payload of 13 bytes does not decode as main.Usage"},
	}
	for _, test := range tests {
		kit.Publish("meters/42/usage", test.report, settle.ExactlyOnce, settle.PartitionKey(test.key), settle.MessageID(test.name))
	}

	dead := 0
	for i, got := range kit.Settled("usage", len(tests)) { // waits until all are settled and acknowledged
		want := tests[i]
		if got.MessageID != want.name || got.Outcome.Kind() != want.kind || !got.Acknowledged {
			t.Errorf("%s: %v", want.name, got)
		}
		if want.kind == settle.KindReject {
			dead++
		}
	}
	for _, letter := range kit.Published(deadTopic("billing-0"), dead) {
		id, _ := letter.Header(settle.MessageIDHeader)
		reason, _ := letter.Header("settle-reason")
		i := slices.IndexFunc(tests, func(t test) bool { return t.name == id })
		if i < 0 || !strings.Contains(reason, tests[i].reason) {
			t.Errorf("the dead letter of %q gives as its reason %q", id, reason)
		}
	}
	if got := ledger.read(); !slices.Equal(got, []Posting{{Report: "good", Meter: "42", Wh: 1500}}) {
		t.Errorf("in the ledger: %v", got)
	}
}

// Samples that come together are charted together.
func TestServiceBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // so that no pause of this machine can fall between them
		billing := &Billing{ledger: &book{}}
		kit := testkit.Start(t, service(t, billing))
		for _, watts := range []float64{100, 200, 300} {
			kit.Publish(powerTopic("7"), Sample{"7", watts}, settle.AtMostOnce)
		}
		if batch := kit.Batches("power", 1)[0]; len(batch) != 3 {
			t.Errorf("a batch of %d", len(batch))
		}
		if watts, samples := billing.chart.Load(); watts != 300 || samples != 3 {
			t.Errorf("%v W of %d samples, want the last of 3", watts, samples)
		}
	})
}

// A report that finds the ledger locked waits for five minutes, which take milliseconds here: app, server and test share a clock that is
// put forward whenever nothing is left to be done.
func TestServiceWaitsForTheLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger := &book{err: errLocked}
		kit := testkit.Start(t, service(t, &Billing{ledger: ledger}))
		kit.Publish(usageTopic("42"), Usage{"42", 1.5}, settle.ExactlyOnce, settle.MessageID("a"))

		first := kit.Settled("usage", 1)[0]
		if first.Outcome.Kind() != settle.KindRetry || first.SentTo != retryTopic("billing-0") || !first.Acknowledged {
			t.Errorf("the first attempt: %v", first)
		}
		ledger.set(nil)
		second := kit.Settled("usage", 2)[1]
		if second.Outcome.Kind() != settle.KindAck || second.Attempt != 2 || second.MessageID != "a" {
			t.Errorf("the second attempt: %v", second)
		}
		if wait := second.At.Sub(first.At); wait < lockedPause || wait > lockedPause+time.Second {
			t.Errorf("it came after %s", wait)
		}
		if got := ledger.read(); len(got) != 1 {
			t.Errorf("in the ledger: %v", got)
		}
	})
}

// A ledger that stays down: the last attempt ends in the dead letters.
func TestServiceGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kit := testkit.Start(t, service(t, &Billing{ledger: &book{err: errDown}}))
		kit.Publish(usageTopic("42"), Usage{"42", 1.5}, settle.ExactlyOnce)

		last := kit.Settled("usage", 5)[4]
		if last.Attempt != 5 || last.SentTo != deadTopic("billing-0") || !errors.Is(last.Outcome.Cause(), errDown) {
			t.Errorf("the last attempt: %v", last)
		}
		if !kit.Quiet(time.Minute) {
			t.Error("something is still to come")
		}
	})
}

// A service that is stopped, and another that takes its place: it finds what was sent meanwhile, and what was on its way round.
func TestServiceRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := testkit.NewBroker(t)
		kit := testkit.StartOn(t, server, service(t, &Billing{ledger: &book{err: errLocked}}))
		kit.Publish(usageTopic("1"), Usage{"1", 1}, settle.ExactlyOnce, settle.MessageID("before"))
		kit.Settled("usage", 1)
		if err := kit.Stop(); err != nil {
			t.Fatal(err)
		}
		server.Publish(usageTopic("2"), Usage{"2", 2}, settle.ExactlyOnce, settle.MessageID("meanwhile"))

		ledger := &book{}
		kit = testkit.StartOn(t, server, service(t, &Billing{ledger: ledger}))
		for i, got := range kit.Settled("usage", 2) {
			if want := []int{1, 2}[i]; got.Attempt != want || got.Outcome.Kind() != settle.KindAck {
				t.Errorf("want attempt %d: %v", want, got)
			}
		}
		if !kit.Quiet(time.Minute) { // nothing in flight, nothing queued, nothing unacknowledged
			t.Error("something is still to come")
		}
		if got := ledger.read(); !slices.Equal(got, []Posting{{"meanwhile", "2", 2000}, {"before", "1", 1000}}) {
			t.Errorf("in the ledger: %v", got)
		}
	})
}
