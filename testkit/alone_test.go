package testkit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/testkit"
)

// quote is a handler that answers requests.
func quote(ctx context.Context, usage Usage) settle.Outcome {
	if settle.DeliveryFrom(ctx).Attempt() > 3 {
		return settle.Drop("too late")
	}
	return settle.OrRetry(settle.Reply(ctx, fmt.Sprintf("%.2f", usage.KWh*0.3), settle.Expiry(time.Minute)))
}

// A handler is called as the function that it is; what it publishes is kept.
func ExampleContext() {
	ctx := testkit.Context(context.Background(),
		testkit.Delivery("quotes/ask", nil, settle.ResponseTopic("quotes/answer"), settle.CorrelationData([]byte("7"))))

	fmt.Println(quote(ctx, Usage{Meter: "42", KWh: 2}))
	for _, m := range testkit.PublishedFrom(ctx) {
		fmt.Printf("%s %s %s\n", m.Topic(), m.Payload(), m.CorrelationData())
	}
	// Output:
	// ack
	// quotes/answer "0.60" 7
}

func ExampleAttempt() {
	ctx := testkit.Context(context.Background(), testkit.Delivery("quotes/ask", nil, testkit.Attempt(4)))
	fmt.Println(quote(ctx, Usage{}))
	// Output: drop: too late
}

// A batch handler finds the delivery of each element.
func ExampleDelivery() {
	sites := func(ctx context.Context, readings []float64) settle.Outcomes {
		for i, kwh := range readings {
			site, _ := settle.DeliveriesFrom(ctx)[i].Header("site")
			fmt.Println(site, kwh)
		}
		return settle.Every(settle.Ack())
	}
	ctx := testkit.Context(context.Background(),
		testkit.Delivery("power", 1.5, settle.Header("site", "north")),
		testkit.Delivery("power", 2.5, settle.Header("site", "south")))
	sites(ctx, []float64{1.5, 2.5})
	// Output:
	// north 1.5
	// south 2.5
}

// What is published through the context is as the options say.
func TestPublishedFrom(t *testing.T) {
	ctx := testkit.Context(t.Context(), testkit.Delivery("a", nil))
	derived, cancel := context.WithCancel(ctx)
	err := settle.Publish(derived, "b", Usage{Meter: "1"}, settle.ExactlyOnce, settle.Retain(), settle.Header("x", "1"), settle.Header("x", "2"),
		settle.MessageID("m"), settle.Expiry(time.Minute), settle.ResponseTopic("r"))
	if err != nil {
		t.Fatal(err)
	}
	var encode *settle.EncodeError
	if err := settle.Publish(ctx, "b/+", nil); !errors.As(err, &encode) {
		t.Errorf("a topic with a wildcard: %v", err)
	}
	if err := settle.Reply(ctx, nil); !errors.Is(err, settle.ErrNoResponseTopic) {
		t.Errorf("a reply to nobody: %v", err)
	}
	cancel()
	if err := settle.Publish(derived, "c", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end: %v", err)
	}

	sent := testkit.PublishedFrom(derived)
	if len(sent) != 1 {
		t.Fatalf("%d messages", len(sent))
	}
	var xs []string
	for name, value := range sent[0].Headers() {
		if name == "x" {
			xs = append(xs, value)
		}
	}
	m := sent[0]
	id, hasID := m.Header(settle.MessageIDHeader)
	_, hasOther := m.Header("y")
	expiry, expires := m.Expiry()
	if m.Topic() != "b" || m.QoS() != settle.ExactlyOnce || !m.Retain() || string(m.Payload()) != `{"meter":"1","kwh":0}` || m.ContentType() != "application/json" ||
		id != "m" || !hasID || hasOther || !slices.Equal(xs, []string{"1", "2"}) || expiry != time.Minute || !expires || m.ResponseTopic() != "r" || m.At().IsZero() {
		t.Errorf("%+v", m)
	}
	if testkit.PublishedFrom(t.Context()) != nil {
		t.Error("another context has messages")
	}
}

func TestDeliveryAsMade(t *testing.T) {
	d := testkit.Delivery("a/b", Usage{Meter: "1"}, settle.ExactlyOnce, settle.Header("k", "v"), settle.MessageID("m"), testkit.Attempt(3))
	if v, _ := d.Header("k"); d.Topic() != "a/b" || d.Level(1) != "b" || d.QoS() != settle.ExactlyOnce || d.Attempt() != 3 || v != "v" || d.MessageID() != "m" ||
		string(d.Payload()) != `{"meter":"1","kwh":0}` || d.Route() != "" || d.Redelivered() {
		t.Errorf("%+v", d)
	}
	if d := testkit.Delivery("a", nil, settle.AtMostOnce); d.Attempt() != 1 || len(d.Payload()) != 0 || d.QoS() != settle.AtMostOnce {
		t.Errorf("%+v", d)
	}
}

func TestMistakesAlone(t *testing.T) {
	for name, f := range map[string]func(){
		"a topic that is none": func() { testkit.Delivery("a/#", nil) },
		"no delivery":          func() { testkit.Context(t.Context()) },
		"a nil delivery":       func() { testkit.Context(t.Context(), nil) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("it did not panic")
				}
			}()
			f()
		})
	}
}

// Outside a test a handler's publish fails; a batch's context tells all of its deliveries.
func TestContextOfABatch(t *testing.T) {
	one, two := testkit.Delivery("a", nil), testkit.Delivery("b", nil)
	ctx := testkit.Context(t.Context(), one, two)
	if got := settle.DeliveriesFrom(ctx); !slices.Equal(got, []*settle.Delivery{one, two}) || settle.DeliveryFrom(ctx) != one {
		t.Errorf("%v", got)
	}
}
