package settle_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/settlemq/settle"
)

// The fault of package mutant that acknowledges on arrival has to be caught by what it breaks, and not by what follows from it.
func TestNothingIsAcknowledgedBeforeItIsSettled(t *testing.T) {
	for qos, ack := range map[byte][]string{1: {"PUBACK 1"}, 2: {"PUBREC 1", "PUBCOMP 1"}} {
		t.Run(fmt.Sprintf("qos %d", qos), func(t *testing.T) {
			in(t, func(t *testing.T) {
				c := newCalls()
				_, main := up(t, nil, settle.Handle("a", c.wait, settle.QoS(qos), settle.Timeout(0)))
				main.send(publish("a", qos, 1, "x"))
				c.expect(t, "x")
				pass(time.Minute)
				if early := main.took(); len(early) > 0 {
					t.Errorf("acknowledged while the handler runs: %q", early)
				}
				c.release(settle.Ack())
				main.expect(ack...)
			})
		})
	}
}
