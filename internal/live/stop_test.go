package live_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/eclipse/paho.golang/packets"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/internal/mosquitto"
)

// H2: SIGTERM comes while a handler runs in a real process. The handler finishes, its delivery is acknowledged, the process ends with 0, and
// the next one does not get the delivery again.
func TestLiveH2_SIGTERMInAHandler(t *testing.T) {
	t.Parallel()
	server := mosquitto.Require(t)
	publisher := newPeer(t, server)
	c := childConfig{Server: server.URL(), ClientID: "h2", Filter: "h2/+", Mode: modeGate}
	first := startChild(t, c)
	publisher.publish(notes("h2/x", "report", 3)...)
	first.awaitLine("started 1 report-0")
	first.terminate()
	first.awaitLine("stopping")
	first.goOn()
	if code := first.awaitExit(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	if handled := first.said("handled"); len(handled) != 1 || handled[0] != "handled 1 report-0" {
		t.Errorf("it handled %v", handled)
	}
	if started := first.said("started"); len(started) != 1 {
		t.Errorf("it began %v after SIGTERM", started)
	}

	var got journal
	app := start(t, config(server, "h2"), settle.Handle("h2/+", got.ack))
	got.await(t, 2)
	app.awaitIdle()
	app.stop()
	for i, h := range got.all() {
		if want := fmt.Sprintf("report-%d", i+1); h.payload != want {
			t.Errorf("delivery %d of the next process is %s, want %s", i, h.payload, want)
		}
	}
}

// K4: an app is stopped while deliveries keep arriving. What it has handled is acknowledged, so none of it comes again, and no will
// is published. With several lanes too: what one has not begun does not keep back the acknowledgements of what the others have finished.
func TestLiveK4_StopWhileDeliveriesArrive(t *testing.T) {
	for _, workers := range []int{1, 4} {
		t.Run(fmt.Sprintf("Workers %d", workers), func(t *testing.T) { testStopWhileDeliveriesArrive(t, workers) })
	}
}

func testStopWhileDeliveriesArrive(t *testing.T, workers int) {
	const rounds, each = 5, 2000
	server := mosquitto.Require(t, mosquitto.Options{MaxQueued: mosquitto.NoLimit})
	publisher, watcher := newPeer(t, server), newPeer(t, server)
	watcher.subscribe("k4-will", 1, 0)
	cfg := config(server, "k4")
	cfg.Will = &settle.Will{Topic: "k4-will", Payload: []byte("down"), QoS: settle.AtLeastOnce}
	var got journal
	route := settle.Handle("k4/+", got.ack, settle.Workers(workers))
	app := start(t, cfg, route)

	stop := make(chan struct{})
	sent := 0
	var pump sync.WaitGroup
	pump.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			batch := make([]note, 100)
			for i := range batch {
				batch[i] = note{topic: "k4/x", payload: fmt.Sprintf("message-%d", sent+i), qos: 1}
			}
			publisher.publish(batch...)
			sent += len(batch)
		}
	})
	for range rounds {
		got.await(t, got.len()+each)
		app.stop()
		app = start(t, cfg, route)
	}
	close(stop)
	pump.Wait()
	await(t, "all that was published", func() bool { return len(got.times()) == sent })
	app.awaitIdle()
	app.stop()
	got.expectEach(t, "message", sent, 1)
	if dups := got.where(func(h handled) bool { return h.dup }); len(dups) > 0 {
		t.Logf("%d of %d deliveries that no handler had seen came with DUP", len(dups), sent)
	}
	publisher.publish(notes("k4-will", "end", 1)...)
	if wills := payloads(watcher.await(1)); wills[0] != "end-0" {
		t.Errorf("the will was published: %v", wills)
	}
}

// G1: two processes fight over one client identifier, and Mosquitto just closes the connection that it had. The fight ends by a long
// backoff, with a line in the log that names the suspicion, and the one that is left consumes.
func TestLiveG1_TwoProcessesOneClientID(t *testing.T) {
	t.Parallel()
	server := mosquitto.Require(t)
	publisher := newPeer(t, server)
	var got journal
	route := settle.Handle("g1/+", got.ack)
	apps := []*service{start(t, config(server, "g1"), route), begin(t, config(server, "g1"), route)}
	const suspicion = "another process uses the same client identifier"
	await(t, "the suspicion is in the log", func() bool { return apps[0].log.contains(suspicion) || apps[1].log.contains(suspicion) })
	await(t, "one of the two is left", func() bool { return (apps[0].Ready() == nil) != (apps[1].Ready() == nil) })
	if n := apps[0].metric("settle_connections_total") + apps[1].metric("settle_connections_total"); n > 10 {
		t.Errorf("%v connections before the fight was over", n)
	}
	publisher.publish(notes("g1/x", "report", 10)...)
	got.await(t, 10)
	got.expectEach(t, "report", 10, 1)
	for _, app := range apps {
		if err := app.Live(); err != nil {
			t.Errorf("a fight over a client identifier is no reason to restart the process: %v", err)
		}
	}
}

// B3: handlers finish in any order, and the acknowledgements leave in the order of arrival all the same. Mosquitto 2.0.11 overruns the window
// even so, which is taken in.
func TestLiveB3_AcknowledgementsInOrder(t *testing.T) {
	const n, window = 3000, 20
	server := mosquitto.Require(t, mosquitto.Options{MaxQueued: mosquitto.NoLimit})
	publisher := newPeer(t, server)
	for _, qos := range []settle.QoS{settle.AtLeastOnce, settle.ExactlyOnce} {
		t.Run("QoS"+qos.String(), func(t *testing.T) {
			publisher.t = t
			var (
				mu               sync.Mutex
				open             []uint16 // identifiers that have arrived, in their order
				disorder, acks   int
				widest           int
				acknowledgements = map[settle.QoS]byte{settle.AtLeastOnce: packets.PUBACK, settle.ExactlyOnce: packets.PUBREC}[qos]
			)
			tap := &wires{on: func(_ *wire, outgoing bool, f frame) {
				mu.Lock()
				defer mu.Unlock()
				switch {
				case !outgoing && f.kind() == packets.PUBLISH:
					_, id, _, _ := f.publish()
					open = append(open, id)
					widest = max(widest, len(open))
				case outgoing && f.kind() == acknowledgements:
					acks++
					if len(open) == 0 || open[0] != f.acknowledged() {
						disorder++
						return
					}
					open = open[1:]
				}
			}}
			topic := "b3/" + qos.String()
			cfg := config(server, "b3-"+qos.String())
			cfg.Dial = tap.dial
			cfg.ReceiveMaximum = window
			var got journal
			finished := make([]chan struct{}, n)
			for i := range finished {
				finished[i] = make(chan struct{})
			}
			app := start(t, cfg, settle.Handle(topic, func(ctx context.Context, _ []byte) settle.Outcome {
				h := got.note(ctx)
				var i int
				_, _ = fmt.Sscanf(h.payload, "message-%d", &i)
				if i%2 == 0 {
					<-finished[i+1] // which came after it, and is in the next lane
				}
				close(finished[i])
				return settle.Ack()
			}, qos, settle.Workers(8)))
			backlog := notes(topic, "message", n)
			for i := range backlog {
				backlog[i].qos = byte(qos)
			}
			publisher.publish(backlog...)
			got.await(t, n)
			app.awaitIdle()
			app.stop()
			got.expectEach(t, "message", n, 1)
			mu.Lock()
			defer mu.Unlock()
			if disorder > 0 || acks != n {
				t.Errorf("%d of %d acknowledgements out of order, want %d in order", disorder, acks, n)
			}
			t.Logf("at a Receive Maximum of %d the server sent %d ahead", window, widest)
		})
	}
}
