package testkit_test

import (
	"context"
	"testing"
	"time"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/internal/mosquitto"
	"github.com/settlemq/settle/testkit"
)

// realServer is the URL of a server that is not ours.
func realServer(t *testing.T) string {
	t.Helper()
	return mosquitto.Require(t).URL()
}

// What a Kit says on a real server it says as on the one in this process.
func TestLiveKit(t *testing.T) {
	kit := testkit.StartLive(t, realServer(t), quietApp(t, settle.Handle("jobs/+", says(settle.Reject(errNo)), settle.ExactlyOnce, settle.DeadLetterTo("dead")))).
		Within(20 * time.Second)
	if kit.Broker() != nil || len(kit.Wire()) > 0 {
		t.Error("there is a server in this process")
	}
	kit.Publish("jobs/1", Usage{Meter: "1"}, settle.ExactlyOnce, settle.MessageID("m-1"), settle.Header("site", "north"), settle.Expiry(time.Hour))
	got := kit.Settled("jobs/+", 1)[0]
	if got.MessageID != "m-1" || got.SentTo != "dead" || !got.Acknowledged || got.Delivery.QoS() != settle.ExactlyOnce {
		t.Errorf("%v", got)
	}
	sent, letter := kit.Published("jobs/#", 1)[0], kit.Published("dead", 1)[0]
	if expiry, expires := sent.Expiry(); sent.QoS() != settle.ExactlyOnce || !expires || expiry != time.Hour || sent.ContentType() != "application/json" {
		t.Errorf("sent: %+v", sent)
	}
	site, _ := letter.Header("site")
	if reason, _ := letter.Header("settle-reason"); site != "north" || reason != errNo.Error() {
		t.Errorf("the dead letter: %+v", letter)
	}
	if !kit.Quiet(20 * time.Second) {
		t.Error("not quiet")
	}

	kit.CutConnection()
	kit.Publish("jobs/2", nil)
	if got := kit.Settled("jobs/+", 2)[1]; got.Topic != "jobs/2" || !got.Acknowledged {
		t.Errorf("after the cut: %v", got)
	}
	if err := kit.Stop(); err != nil {
		t.Error(err)
	}
}

// What is held is seen on a real server too: the app is not at rest before it is settled.
func TestLiveQuiet(t *testing.T) {
	kit := testkit.StartLive(t, realServer(t), quietApp(t,
		settle.Handle("held", func(ctx context.Context, _ []byte) settle.Outcome {
			if settle.DeliveryFrom(ctx).Attempt() == 1 {
				return settle.RetryAfter(2*time.Second, errNo)
			}
			return settle.Ack()
		}))).Within(20 * time.Second)
	kit.Publish("held", nil)
	kit.Settled("held", 1)
	if kit.Quiet(time.Second) {
		t.Error("quiet, with a delivery that is held")
	}
	if !kit.Quiet(20*time.Second) || len(kit.Settlements("held")) != 2 {
		t.Errorf("not quiet: %v", kit.Settlements("held"))
	}
}

// What a server had kept from before is not taken for something published.
func TestLiveRetained(t *testing.T) {
	url := realServer(t)
	first := testkit.StartLive(t, url, quietApp(t, settle.Handle("other", says(settle.Ack())))).Within(20 * time.Second)
	first.Publish("jobs", []byte("old"), settle.Retain())
	if m := first.Published("jobs", 1)[0]; string(m.Payload()) != "old" {
		t.Errorf("%q", m.Payload())
	}
	if err := first.Stop(); err != nil {
		t.Error(err)
	}
	second := testkit.StartLive(t, url, quietApp(t, settle.Handle("jobs", says(settle.Ack())))).Within(20 * time.Second)
	if got := second.Settled("jobs", 1)[0]; !got.Delivery.Retained() {
		t.Errorf("%v", got)
	}
	second.Publish("jobs", []byte("new"))
	if m := second.Published("jobs", 1)[0]; string(m.Payload()) != "new" {
		t.Errorf("%q", m.Payload())
	}
}
