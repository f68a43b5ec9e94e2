package settle

import (
	"context"
	"net"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/settlemq/settle/internal/broker"
)

// Two ways in which the server can lose confirmed copies while the process that published them lives and remembers them, and say
// Session Present = 1 all the same: a kill that it comes back from with what it last saved; and a restart without sessions after which the first CONNACK, which
// says that the session is new, is cut off: the next one finds the session that this very connection began.
func TestCopiesThatTheServerLosesInSilence(t *testing.T) {
	t.Run("an older snapshot", func(t *testing.T) {
		silentLoss(t, func(b *broker.Broker, saved *broker.Snapshot) { b.Restore(saved) })
	})
	t.Run("the CONNACK of the new session is lost", func(t *testing.T) {
		silentLoss(t, func(b *broker.Broker, _ *broker.Snapshot) {
			var cut atomic.Bool
			b.SetInterceptor(func(client string, dir broker.Direction, p broker.Packet) (v broker.Verdict) {
				if client == "svc-retry" && dir == broker.ToClient && p.Type == broker.CONNACK && cut.CompareAndSwap(false, true) {
					v.Drop, v.Cut = true, true
				}
				return v
			})
			b.Restart(false)
		})
	})
}

func silentLoss(t *testing.T, happens func(*broker.Broker, *broker.Snapshot)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := broker.New(broker.Options{MaxInflight: 2})
		defer b.Close()
		var mu sync.Mutex
		done := map[string]int{}
		var failing atomic.Int64
		a, err := New(Config{
			ClientID: "svc", Servers: []string{"mqtt://server"}, Logger: zerolog.Nop(),
			Dial: func(ctx context.Context, _ *url.URL) (net.Conn, error) { return b.Dial(ctx) },
		}, Handle("a", func(ctx context.Context, p []byte) Outcome {
			d := DeliveryFrom(ctx)
			if d.Attempt() == 1 {
				failing.Add(1)
				return RetryAfter(20*time.Second, errSimulated)
			}
			mu.Lock()
			defer mu.Unlock()
			done[string(p)]++
			return Ack()
		}, RetryTo("retry"), DeadLetterTo("dead")))
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := a.WaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		saved := b.Snapshot()
		const n = 10
		for i := range n {
			if _, err := b.Publish(broker.Message{Topic: "a", Payload: []byte(strconv.Itoa(i)), QoS: 1}); err != nil {
				t.Fatal(err)
			}
		}
		sleep(500 * time.Millisecond)
		synctest.Wait()
		if failing.Load() != n {
			t.Fatalf("%d handled once", failing.Load())
		}
		happens(b, saved)
		sleep(3 * time.Hour)
		synctest.Wait()
		mu.Lock()
		if len(done) != n {
			t.Errorf("lost: %d messages that the server had confirmed as copies, whose process lives and remembers them; it holds %q", n-len(done), leftIn(a))
		}
		mu.Unlock()
		_ = a.Stop(context.Background())
	})
}
