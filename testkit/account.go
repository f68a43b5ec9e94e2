package testkit

import (
	"fmt"
	"strings"
	"time"

	"github.com/settlemq/settle/internal/bridge"
)

// shown is how many of the last settlements and messages an account shows.
const shown = 20

// account is what a failed wait says there was instead.
func (k *Kit) account() string {
	var b strings.Builder
	state := bridge.Settle.State(k.app)
	r := k.rec
	r.mu.Lock()
	fmt.Fprintf(&b, "settled: %d\n", len(r.all))
	for i, s := range r.all[max(0, len(r.all)-shown):] {
		fmt.Fprintf(&b, "  %d. %s %s\n", max(0, len(r.all)-shown)+i+1, k.clock(s.At), s.snapshot())
	}
	fmt.Fprintf(&b, "published: %d\n", len(r.published))
	for i, m := range r.published[max(0, len(r.published)-shown):] {
		fmt.Fprintf(&b, "  %d. %s %q QoS %s, payload %q\n", max(0, len(r.published)-shown)+i+1, k.clock(m.At()), m.Topic(), m.QoS(), clip(string(m.Payload()), 48))
	}
	r.mu.Unlock()
	fmt.Fprintf(&b, "in flight: %s\n", inFlight(state))
	for _, c := range state.Connections {
		fmt.Fprintf(&b, "connection %s (client id %q): %s, number %d", c.Name, c.ClientID, c.State, c.Epoch)
		if c.LastErr != nil {
			fmt.Fprintf(&b, "; the last one ended: %v", c.LastErr)
		}
		b.WriteByte('\n')
	}
	for _, c := range state.Connections {
		if known := k.server.session(c.ClientID); known != "" {
			fmt.Fprintf(&b, "the server about %q: %s\n", c.ClientID, known)
		}
	}
	return strings.TrimRight(b.String(), "\n")
}

func (k *Kit) clock(at time.Time) string {
	return fmt.Sprintf("+%.3fs", at.Sub(k.began).Seconds())
}

// inFlight says in words what an app has not finished.
func inFlight(s bridge.State) string {
	var parts []string
	add := func(n int, what string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, what))
		}
	}
	add(s.Unsettled-s.Held-s.Waiting, "in lanes, in handlers or settled with a copy under way")
	add(s.Held, "held for another attempt")
	add(s.Waiting, "waiting as retry copies until they are due")
	add(s.Unconfirmed, "copies or dead letters that the server has not confirmed")
	add(s.OnTheirWay, "retry copies that have not come back")
	add(s.Unacknowledged, "deliveries without an acknowledgement")
	add(s.Settled, "settled whose acknowledgement waits for those before it, or for a connection")
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, "; ")
}
