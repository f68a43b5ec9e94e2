package live_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/internal/mosquitto"
)

// D8: the copy of a retained message is not retained, nor is its dead letter; that it was is kept as a header.
func TestLiveD8_RetainIsCleared(t *testing.T) {
	t.Parallel()
	server := mosquitto.Require(t)
	publisher := newPeer(t, server)
	publisher.publish(note{topic: "d8/x", payload: "retained", qos: 1, retain: true})
	watcher := newPeer(t, server)
	watcher.subscribe("d8-dead", 1, 0)
	var got journal
	app := start(t, config(server, "d8"), settle.Handle("d8/+", got.failing(9), settle.RetryTo("d8-retry"), settle.MaxAttempts(2), settle.DeadLetterTo("d8-dead"),
		settle.Backoff(settle.Constant(10*time.Millisecond))))
	for i, h := range got.await(t, 2) {
		if h.attempt != i+1 || !h.retain {
			t.Errorf("call %d: %+v", i, h)
		}
	}
	watcher.await(1)
	app.awaitIdle()
	late := newPeer(t, server)
	late.subscribe("d8-retry", 1, 0)
	late.subscribe("d8-dead", 1, 0)
	late.subscribe("d8-end", 1, 0)
	publisher.publish(notes("d8-end", "end", 1)...)
	if got := payloads(late.await(1)); got[0] != "end-0" {
		t.Errorf("the server kept a copy or a dead letter: %q", got)
	}
}

// Dead letters keep payload and headers, and say why, after how many attempts, and where from.
func TestLiveDeadLetter(t *testing.T) {
	t.Parallel()
	server := mosquitto.Require(t)
	publisher, watcher := newPeer(t, server), newPeer(t, server)
	watcher.subscribe("dead/usage", 1, 0)
	var got journal
	app := start(t, config(server, "deadletter"), settle.Handle("meters/+/usage", got.failing(9), settle.Name("usage"), settle.RetryTo("retry/usage"),
		settle.MaxAttempts(3), settle.DeadLetterTo("dead/usage"), settle.Backoff(settle.Constant(10*time.Millisecond))))
	hour, text := uint32(3600), byte(1)
	publisher.publish(note{topic: "meters/42/usage", payload: "poison", qos: 1, key: "42", props: packets.Properties{
		ContentType: "text/plain", ResponseTopic: "answers/42", CorrelationData: []byte{1, 2, 3}, PayloadFormat: &text, MessageExpiry: &hour,
		User: []packets.User{{Key: "site", Value: "north"}, {Key: "site", Value: "south"}, {Key: "message-id", Value: "42-1"}, {Key: "settle-attempt", Value: "99"}},
	}})
	letter := watcher.await(1)[0]
	app.awaitIdle()
	got.expectAttempts(t, 1, 3)

	if string(letter.Payload) != "poison" || letter.Retain || letter.QoS != 1 {
		t.Errorf("the dead letter is %v", letter)
	}
	p := letter.Properties
	if p.ContentType != "text/plain" || p.ResponseTopic != "answers/42" || !slices.Equal(p.CorrelationData, []byte{1, 2, 3}) || p.PayloadFormat == nil || *p.PayloadFormat != 1 {
		t.Errorf("properties: %v", p)
	}
	if p.MessageExpiry != nil {
		t.Errorf("it expires in %d s", *p.MessageExpiry)
	}
	var theirs []packets.User
	for _, u := range p.User {
		if !strings.HasPrefix(u.Key, "settle-") {
			theirs = append(theirs, u)
		}
	}
	want := []packets.User{{Key: "site", Value: "north"}, {Key: "site", Value: "south"}, {Key: "message-id", Value: "42-1"}, {Key: "partition-key", Value: "42"}}
	if !slices.Equal(theirs, want) {
		t.Errorf("headers: %v, want %v", theirs, want)
	}
	for name, want := range map[string]string{
		"settle-attempt": "3", "settle-original-topic": "meters/42/usage", "settle-route": "usage", "settle-message-id": "42-1",
		"settle-reason": errLedgerDown.Error(), "settle-owner": "deadletter", "settle-copy-id": "", "settle-not-before": "",
	} {
		if got := property(letter, name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

// K2, D3: while nobody subscribes to the dead-letter topic the server stores no dead letter. The original is held, not acknowledged, outlives
// even the process, and goes when a subscriber comes.
func TestLiveK2_D3_DeadLetterWithoutSubscribers(t *testing.T) {
	server := mosquitto.Require(t)
	publisher := newPeer(t, server)
	for _, qos := range []settle.QoS{settle.AtLeastOnce, settle.ExactlyOnce} {
		t.Run("QoS"+qos.String(), func(t *testing.T) {
			publisher.t = t
			id := "k2-" + qos.String()
			var got journal
			route := settle.Handle(id+"/+", func(ctx context.Context, _ []byte) settle.Outcome {
				got.note(ctx)
				return settle.Reject(errLedgerDown)
			}, qos, settle.DeadLetterTo(id+"-dead"))
			app := start(t, config(server, id), route)
			publisher.publish(note{topic: id + "/x", payload: "rejected", qos: byte(qos)})
			await(t, "the server says that it has not stored it", func() bool {
				return app.metric("settle_dead_letters_total", "result=not_stored") >= 2
			})
			if n := app.metric("settle_window_unacked"); n != 1 {
				t.Errorf("%v unacknowledged, want the held original", n)
			}
			if n := app.metric("settle_acks_total"); n != 0 {
				t.Errorf("%v acknowledgements", n)
			}
			if n := app.metric("settle_dead_letters_total", "result=confirmed"); n != 0 {
				t.Errorf("%v dead letters count as stored", n)
			}
			watcher := newPeer(t, server)
			watcher.subscribe(id+"-dead", 1, 0)
			if letter := watcher.await(1)[0]; string(letter.Payload) != "rejected" {
				t.Errorf("the dead letter is %v", letter)
			}
			app.awaitIdle()
			if got.len() != 1 || len(watcher.received()) != 1 {
				t.Errorf("handled %d times, %d dead letters", got.len(), len(watcher.received()))
			}
		})
	}
}
