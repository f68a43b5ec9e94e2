package main

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"

	"github.com/settlemq/settle"
)

// book is a ledger that a test reads.
type book struct {
	mu       sync.Mutex
	postings []Posting
	err      error
}

func (b *book) Post(_ context.Context, p Posting) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return false, b.err
	}
	b.postings = append(b.postings, p)
	return true, nil
}

// A handler is a function, and is tested as one.
func TestBill(t *testing.T) {
	for name, test := range map[string]struct {
		usage  Usage
		ledger error
		kind   settle.Kind
		cause  error
		wh     int64
	}{
		"good":             {usage: Usage{"42", 1.5}, kind: settle.KindAck, wh: 1500},
		"nothing used":     {usage: Usage{"42", 0}, kind: settle.KindAck},
		"rounded":          {usage: Usage{"42", 0.1 + 0.2}, kind: settle.KindAck, wh: 300},
		"no meter":         {usage: Usage{"", 1}, kind: settle.KindReject, cause: errNoMeter},
		"negative":         {usage: Usage{"42", -1}, kind: settle.KindReject, cause: errNegative},
		"no number":        {usage: Usage{"42", math.NaN()}, kind: settle.KindReject, cause: errNegative},
		"too much":         {usage: Usage{"42", math.Inf(1)}, kind: settle.KindReject, cause: errNegative},
		"the ledger fails": {usage: Usage{"42", 1}, ledger: errDown, kind: settle.KindRetry, cause: errDown},
		"locked":           {usage: Usage{"42", 1}, ledger: errLocked, kind: settle.KindRetry, cause: errLocked},
	} {
		t.Run(name, func(t *testing.T) {
			ledger := &book{err: test.ledger}
			got := (&Billing{ledger: ledger}).bill(t.Context(), test.usage)
			if got.Kind() != test.kind || !errors.Is(got.Cause(), test.cause) {
				t.Errorf("%v, want %s: %v", got, test.kind, test.cause)
			}
			switch {
			case test.kind != settle.KindAck:
				if len(ledger.postings) > 0 {
					t.Errorf("posted %+v", ledger.postings)
				}
			case len(ledger.postings) != 1, ledger.postings[0].Meter != "42", ledger.postings[0].Wh != test.wh:
				t.Errorf("posted %+v, want %d Wh", ledger.postings, test.wh)
			}
		})
	}
}

func TestDraw(t *testing.T) {
	var b Billing
	for _, batch := range [][]Sample{{{"1", 100}, {"2", 50}, {"1", 200}}, {{"2", 70}}} {
		if got := b.draw(t.Context(), batch).At(0); got.Kind() != settle.KindAck {
			t.Error(got)
		}
	}
	if watts, samples := b.chart.Load(); watts != 270 || samples != 4 {
		t.Errorf("%v W of %d samples, want 270 of 4", watts, samples)
	}
}

// What is wrong with the settings of a route is found without a server.
func TestRoutes(t *testing.T) {
	if _, err := settle.New(settle.Config{Servers: []string{"mqtt://localhost"}, ClientID: "billing-0"}, routes(&Billing{}, "billing-0")...); err != nil {
		t.Error(err)
	}
}

func TestUnreliable(t *testing.T) {
	const posts = 2000
	for _, rate := range []float64{0, 0.5, 1} {
		ledger := &book{}
		u := unreliable{ledger, rate}
		var down, silent, good int
		for range posts {
			switch _, err := u.Post(t.Context(), Posting{}); {
			case errors.Is(err, errDown):
				down++
			case errors.Is(err, errSilent):
				silent++
			case err == nil:
				good++
			}
		}
		about := func(got int, part float64) bool { return math.Abs(float64(got)-part*posts) < 200 }
		if !about(down, rate/2) || !about(silent, rate/2) || !about(good, 1-rate) || len(ledger.postings) != good+silent {
			t.Errorf("rate %v: %d down, %d silent, %d good, %d written", rate, down, silent, good, len(ledger.postings))
		}
	}
}
