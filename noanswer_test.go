package settle_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"github.com/settlemq/settle"
)

// A server that swallows the answer to one publish has used up a Receive Maximum of 1 for as long as the connection lasts. It is made anew,
// and what is held comes to its end.
func TestAServerThatSwallowsAnAnswerIsLeft(t *testing.T) {
	in(t, func(t *testing.T) {
		one := uint16(1)
		f := begin(t, nil, settle.Handle("a", func(context.Context, []byte) settle.Outcome { return settle.Reject(errFails) },
			settle.DeadLetterTo("dead")))
		main := f.next(false)
		var swallowed atomic.Bool
		main.set(func(h *hooks) {
			h.publish = func(*packets.Publish) (byte, bool) { swallowed.Store(true); return 0, false }
		})
		main.write(&packets.Connack{Properties: &packets.Properties{ReceiveMaximum: &one}})
		main.send(numbered("a", 1, 1, 2)...)
		for began := time.Now(); f.dialled() < 2 && time.Since(began) < time.Minute; {
			pass(time.Second)
		}
		if !swallowed.Load() || f.dialled() < 2 {
			t.Fatalf("%d connections", f.dialled())
		}
		main = f.main(true) // its redelivery is adopted
		for _, p := range numbered("a", 1, 1, 2) {
			main.send(again(p.(*packets.Publish)))
		}
		pass(time.Minute)
		if got := main.published("dead"); len(got) != 2 {
			t.Errorf("%d dead letters", len(got))
		}
		f.expectValue("settle_window_unacked", 0)
	})
}
