package delivery_test

import (
	"context"

	"github.com/settlemq/settle"
)

var orderScenarios = []scenario{
	{"OneLaneHandlesInTheOrderOfTheServer", func(w *world) {
		kit := w.begin(settle.Handle("jobs/+", w.acks))
		w.publishAll("jobs/1", numbered(50)...)
		kit.Settled("jobs/+", 50)
		w.wantHandled(numbered(50)...)
	}},
	{"AKeysDeliveriesAreHandledInOrder", func(w *world) { w.byKey(func() {}) }},
	{"AKeysOrderHoldsOverACut", func(w *world) {
		w.byKey(func() { w.kit.CutConnection() })
	}},
}

// byKey has twelve deliveries of each of three keys handled on four lanes, with something done in the middle. A repetition is allowed
// where what was acknowledged cannot be proved; then all that follows it comes again too.
func (w *world) byKey(between func()) {
	w.t.Helper()
	g := newGate()
	kit := w.begin(settle.Handle("jobs/+", func(_ context.Context, payload []byte) settle.Outcome {
		if string(payload) == "a5" || string(payload) == "b5" || string(payload) == "c5" {
			g.wait(payload)
		}
		w.journal.note(payload)
		return settle.Ack()
	}, settle.Workers(4, settle.ByKey)))
	for i := range 8 {
		for _, key := range []string{"a", "b", "c"} {
			kit.Publish("jobs/1", []byte(key+string(rune('0'+i))), settle.PartitionKey(key))
		}
	}
	w.held(g)
	between()
	kit.Until("connected", func() bool { return w.app.Ready() == nil })
	close(g.open)
	w.quiet()
	for _, key := range []byte{'a', 'b', 'c'} {
		last := byte('0' - 1)
		for _, p := range w.journal.all() {
			if p[0] != key {
				continue
			}
			if p[1] > last+1 {
				w.t.Errorf("%s was handled after %c%c", p, key, last)
			}
			last = p[1]
		}
		if last != '7' {
			w.t.Errorf("the last of %c is %c", key, last)
		}
	}
}
