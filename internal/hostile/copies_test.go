package hostile_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settlemq/settle/internal/hostile"
)

// What the library writes into the user properties of a retry copy, anybody can write who may publish to the retry topic, or to a topic of a
// route. It is a legal PUBLISH whatever it says.
func TestHostileCopies(t *testing.T) {
	names := []string{
		"message-id", "copy-id", "attempt", "original-topic", "not-before", "delay-ms", "reason", "route", "owner", "retained", "marker", "stub", "", "future",
	}
	values := []string{
		"", "0", "1", "2", "-1", "-9223372036854775808", "9223372036854775806", "9223372036854775807", "99999999999999999999", "1e3", "0x10", "3000", " 1", "x",
		"failing/x", "again", "dead", "one/x", "#", "$share/g/one", "svc", "failing", "nobody", "\x01\ufffe", strings.Repeat("z", 60_000),
		"2006-01-02T15:04:05Z", "9999-12-31T23:59:59.999999999Z", "0000-01-01T00:00:00Z", "2006-01-02T15:04:05+99:99",
	}
	const prefix = "settle-"
	count := 0
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.up()
		for _, second := range []bool{false, true} {
			for _, name := range names {
				for _, value := range values {
					for _, how := range []string{"alone", "in a copy", "twice in a copy"} {
						if count++; count%stride != 0 {
							continue
						}
						r.begin(fmt.Sprintf("%s%s %.40q %s, second connection %t", prefix, name, value, how, second))
						user := []string{prefix + name, value}
						if how != "alone" {
							user = append(user,
								prefix+"copy-id", fmt.Sprint("copy ", count), prefix+"owner", "svc", prefix+"route", "failing",
								prefix+"original-topic", "failing/x", prefix+"attempt", "1")
						}
						if how == "twice in a copy" || how == "in a copy" { // the last one counts for some, the first for others
							user = append(user, prefix+name, value)
						}
						if how == "in a copy" {
							user = user[2:]
						}
						r.copies(second, user)
					}
				}
			}
		}
		r.begin("afterwards")
		r.givesMemoryBack()
		r.stop()
	})
	t.Logf("%d cases", count/stride)
}

// copies sends a PUBLISH with our user properties, at each QoS. All that is to come of it is that it is acknowledged, be it handled or not, once.
func (r *rig) copies(second bool, user []string) {
	r.t.Helper()
	p, topic := r.main, "one/x"
	if second {
		p, topic = r.second, "again"
	}
	for qos := range byte(3) {
		c := hostile.Publication("", topic, qos, "payload", user...)
		id := p.nextID()
		p.give(c.WithID(id), qos, id, "")
	}
	pass(3 * time.Second) // as long as a header may ask for
	for _, p := range []*peer{r.main, r.second} {
		if got := p.snapshot(); got.ended || got.parted || len(got.faults) > 0 {
			r.fail("%+v", got)
		}
	}
	r.idle()
	for _, c := range r.book.take() {
		if c.attempt < 1 {
			r.fail("a handler was told of attempt %d", c.attempt)
		}
	}
}
