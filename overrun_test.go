package settle_test

import (
	"context"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"github.com/settlemq/settle"
)

// A server far beyond Receive Maximum is held up, but what stands further back in the stream is seen in time: the answer
// that the first handler waits for, and the server's DISCONNECT.
func TestAnOverrunHoldsNothingUpForLong(t *testing.T) {
	in(t, func(t *testing.T) {
		const n = 20_000
		c := newCalls()
		f, main := up(t, func(c *settle.Config) { c.ReceiveMaximum = 20 },
			settle.Handle("a", func(ctx context.Context, b []byte) settle.Outcome {
				c.note(string(b))
				if string(b) == "0" {
					return settle.OrRetry(settle.Publish(ctx, "out", []byte("x")))
				}
				return settle.Ack()
			}))
		began := time.Now()
		main.set(func(h *hooks) {
			h.publish = func(p *packets.Publish) (byte, bool) {
				go main.write(&packets.Puback{PacketID: p.PacketID}) // behind the flood
				return 0, false
			}
		})
		main.send(numbered("a", 1, 1, n)...)
		pass(5 * time.Second)
		if got := len(c.list()); got != n {
			t.Fatalf("%d of %d handled", got, n)
		}
		f.expectValue("settle_window_unacked", 0)
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}
