package hostile_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settlemq/settle/internal/hostile"
)

// A server that has thrown the session away cannot say that it has it [MQTT-3.2.2-2]. It can on the next connection.
func TestSessionPresentAfterCleanStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.begin("Session Present after Clean Start")
		r.clean = true
		r.will(obliging(true), obliging(false))
		r.start()
		first := r.await(false)
		if got := first.snapshot(); !got.ended || !got.parted || got.code != hostile.CodeProtocol {
			r.fail("%+v", got)
		}
		r.oblige(false)
		r.await(true)
		r.await(false)
		r.ready()
		r.probe()
		r.oblige(true)
		_ = r.main.Close()
		r.await(false)
		r.ready()
		r.probe()
		r.stop()
	})
}

// TestFilterThatIsGivenUp answers an UNSUBSCRIBE with everything that an UNSUBACK can say, and with what is none. The filter belongs to
// an earlier release, and whatever becomes of it the App consumes.
func TestFilterThatIsGivenUp(t *testing.T) {
	type answered struct {
		name  string
		bytes func(id uint16) []byte
		codes []byte // of the DISCONNECT; none: it goes on
		or    bool   // it may as well go on
	}
	var all []answered
	for code := range 256 {
		a := answered{name: fmt.Sprintf("UNSUBACK 0x%02X", code), bytes: func(id uint16) []byte { return granted(hostile.UNSUBACK, id, byte(code)) }}
		if code < 0x80 && code != 0 && code != 0x11 {
			a.codes = []byte{hostile.CodeMalformed, hostile.CodeProtocol}
		}
		all = append(all, a)
	}
	wrong := []byte{hostile.CodeProtocol}
	all = append(all,
		answered{"two codes", func(id uint16) []byte { return granted(hostile.UNSUBACK, id, 0, 0) }, wrong, true}, // [MQTT-3.11.3-1]
		answered{"SUBACK", func(id uint16) []byte { return granted(hostile.SUBACK, id, 0) }, wrong, false},
		answered{"PUBACK", func(id uint16) []byte { return answer(hostile.PUBACK, id) }, wrong, false},
		answered{"PUBREC", func(id uint16) []byte { return answer(hostile.PUBREC, id) }, wrong, false},
		answered{"PUBCOMP", func(id uint16) []byte { return answer(hostile.PUBCOMP, id) }, wrong, false},
		answered{"another's UNSUBACK", func(id uint16) []byte {
			return slices.Concat(granted(hostile.UNSUBACK, id+1, 0), granted(hostile.UNSUBACK, id, 0))
		}, nil, false},
	)
	synctest.Test(t, func(t *testing.T) {
		for _, a := range all {
			r := newRig(t)
			r.begin(a.name)
			r.retire = []string{"old/#"}
			r.will(obliging(true), obliging(false))
			r.start()
			p := r.await(false)
			r.await(true)
			p.mu.Lock()
			ids := p.givenUp
			p.mu.Unlock()
			if len(ids) != 1 {
				r.fail("%d UNSUBSCRIBEs", len(ids))
			}
			p.send(a.bytes(ids[0]))
			pass(time.Millisecond)
			got := p.snapshot()
			switch on := !got.ended && !got.parted; {
			case len(got.faults) > 0, on && len(a.codes) > 0 && !a.or, !on && !(got.ended && slices.Contains(a.codes, got.code)):
				r.fail("got %+v, want %x", got, a.codes)
			case !on:
				r.oblige(false) // without a session there is nothing to give up
				r.await(false)
			}
			r.ready()
			r.probe()
			r.stop()
		}
	})
	t.Logf("%d cases", len(all))
}
