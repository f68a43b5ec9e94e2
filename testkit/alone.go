package testkit

import (
	"context"
	"slices"
	"sync"

	"github.com/eclipse/paho.golang/paho"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/internal/bridge"
)

// Delivery is a delivery that no server sent, to call a handler with: see [Context]. The value is encoded as [settle.App.Publish] would,
// nil as an empty payload. The options are those of a publish: its QoS, default at least once, its headers, [settle.MessageID], and
// [Attempt]. It panics where a publish would fail.
func Delivery(topic string, value any, options ...settle.MessageOption) *settle.Delivery {
	d, err := bridge.Settle.Delivery(topic, value, options)
	if err != nil {
		panic("testkit: " + err.Error())
	}
	return d.(*settle.Delivery) //nolint:forcetypeassert // the bridge says so
}

// Attempt is an option of [Delivery]: which attempt it is, 1 by default. Publishing ignores it.
func Attempt(n int) settle.MessageOption {
	return bridge.Settle.Attempt(n).(settle.MessageOption) //nolint:forcetypeassert // the bridge says so
}

// Context is a context as a handler of these deliveries gets it: [settle.DeliveryFrom] finds the first of them, and
// [settle.DeliveriesFrom] all. What the handler publishes and replies through it goes nowhere and succeeds, if it can be encoded;
// [PublishedFrom] reads it. It ends when ctx does. Without a delivery it panics.
func Context(ctx context.Context, deliveries ...*settle.Delivery) context.Context {
	if len(deliveries) == 0 || slices.Contains(deliveries, nil) {
		panic("testkit: Context needs a delivery, or several: make them with Delivery")
	}
	out := new(outbox)
	return bridge.Settle.Context(context.WithValue(ctx, outboxKey{}, out), out, slices.Clone(deliveries))
}

// PublishedFrom is what has been published through a context of [Context], or one derived from it, so far and in order. With any other
// context it is nil.
func PublishedFrom(ctx context.Context) []Message {
	out, _ := ctx.Value(outboxKey{}).(*outbox)
	if out == nil {
		return nil
	}
	out.mu.Lock()
	defer out.mu.Unlock()
	return slices.Clone(out.messages)
}

type outboxKey struct{}

// outbox keeps what would have been published.
type outbox struct {
	mu       sync.Mutex
	messages []Message
}

// Publish implements settle.Publisher.
func (o *outbox) Publish(ctx context.Context, topic string, value any, options ...settle.MessageOption) error {
	p, err := bridge.Settle.Message(nil, topic, value, options)
	if err != nil {
		return err //nolint:wrapcheck // it is what App.Publish returns
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.messages = append(o.messages, Message{fromPacket(p.(*paho.Publish))}) //nolint:forcetypeassert // the bridge says so
	return nil
}
