package conformance

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settlemq/settle/internal/broker"
)

// inProcess is the in-process server, a new one for each check, in a bubble.
func inProcess(o broker.Options) Server {
	return Server{
		Lag: time.Second,
		Each: func(t *testing.T, check func(*testing.T, Dialer)) {
			t.Helper()
			synctest.Test(t, func(t *testing.T) {
				b := broker.New(o)
				defer b.Close()
				check(t, b.Dial)
				if t.Failed() {
					t.Log("what went over the wire:")
					for _, id := range b.Sessions() {
						t.Log(id + "\n" + strings.Join(b.WireLog(id), "\n"))
					}
				}
			})
		},
	}
}

// The in-process server passes everything. It has limits here, so that there is nothing that does not apply.
func TestBroker(t *testing.T) {
	s := inProcess(broker.Options{ReceiveMaximum: 10, ServerKeepAlive: 60, MaximumPacketSize: 4096, TopicAliasMaximum: 5})
	s.Complete = true
	Run(t, s)
}

// The same where overlapping filters get a PUBLISH each, and without any limits.
func TestBrokerOneEach(t *testing.T) { Run(t, inProcess(broker.Options{Overlap: broker.OneEach})) }
