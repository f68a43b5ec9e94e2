package link

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"

	"github.com/settlemq/settle/internal/wire"
)

// retainIfNew is Retain Handling 1: retained messages come with a new subscription only, so they do not replay with each
// connection (3.8.3.1).
const retainIfNew = 1

// ask sends every subscription, each in a SUBSCRIBE of its own, for each has a Subscription Identifier of its own. All go
// out before the first answer is waited for, which paho's Subscribe cannot do. It returns where the answers will come.
func (l *Link) ask(ctx context.Context, e *epoch) ([]chan packets.ControlPacket, error) {
	if l.isRetiring() {
		return nil, nil
	}
	if err := l.available(e.grant); err != nil {
		return nil, err
	}
	answers := make([]chan packets.ControlPacket, len(l.cfg.Subscriptions))
	for i, s := range l.cfg.Subscriptions {
		answers[i] = make(chan packets.ControlPacket, 1)
		packet := s.packet(e.grant)
		err := e.out.AddToSession(ctx, packet, answers[i])
		if err == nil {
			_, err = packet.WriteTo(e.conn)
		}
		if err != nil {
			return nil, fmt.Errorf("subscribe to %q: %w", s.Filter, err)
		}
	}
	return answers, nil
}

var errNoSuback = errors.New("no answer to SUBSCRIBE")

// granted waits for the answers. It returns nil when everything was granted as asked for, and everything was given up that
// is to be.
func (l *Link) granted(ctx context.Context, e *epoch, answers []chan packets.ControlPacket) error {
	silent := fmt.Errorf("%w within %s", errNoSuback, l.cfg.AnswerTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, l.cfg.AnswerTimeout, silent)
	defer cancel()
	if answers == nil {
		return l.unsubscribe(ctx, e)
	}
	var errs []error
	for i, s := range l.cfg.Subscriptions {
		select {
		case answer := <-answers[i]:
			errs = append(errs, s.granted(answer))
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return l.retire(ctx, e)
}

// available holds the subscriptions against what CONNACK says the server can do.
func (l *Link) available(g Grant) error {
	var errs []error
	for _, s := range l.cfg.Subscriptions {
		switch {
		case !g.SharedAvailable && strings.HasPrefix(s.Filter, "$share/"):
			errs = append(errs, &SubscribeError{Filter: s.Filter, Name: s.Name, QoS: s.QoS, Code: 0x9E})
		case !g.WildcardAvailable && strings.ContainsAny(s.Filter, "#+"):
			errs = append(errs, &SubscribeError{Filter: s.Filter, Name: s.Name, QoS: s.QoS, Code: 0xA2})
		case g.MaximumPacketSize > 0 && packetSize(s.packet(g)) > uint64(g.MaximumPacketSize): // [MQTT-3.2.2-15]
			errs = append(errs, &SubscribeError{Filter: s.Filter, Name: s.Name, QoS: s.QoS, Code: codeTooLarge})
		}
	}
	return errors.Join(errs...)
}

// packet is the subscription's SUBSCRIBE.
func (s Subscription) packet(g Grant) *packets.Subscribe {
	p := &packets.Subscribe{
		Properties:    &packets.Properties{},
		Subscriptions: []packets.SubOptions{{Topic: s.Filter, QoS: s.QoS, NoLocal: s.NoLocal, RetainHandling: retainIfNew}},
	}
	if s.ID != 0 && g.SubscriptionIDAvailable {
		id := int(s.ID)
		p.Properties.SubscriptionIdentifier = &id
	}
	return p
}

// granted judges the answer.
func (s Subscription) granted(answer packets.ControlPacket) error {
	suback, ok := answer.Content.(*packets.Suback)
	if !ok {
		return fmt.Errorf("subscribe to %q: %w", s.Filter, errGone)
	}
	if len(suback.Reasons) != 1 {
		return &wire.Error{Code: wire.CodeProtocol, Reason: "SUBACK has not one reason code for one filter"}
	}
	code := suback.Reasons[0]
	if code == s.QoS {
		return nil
	}
	if code < 0x80 && code > s.QoS {
		return &wire.Error{Code: wire.CodeProtocol, Reason: "SUBACK grants a higher QoS than was asked for"}
	}
	err := &SubscribeError{Filter: s.Filter, Name: s.Name, QoS: s.QoS, Code: code}
	if suback.Properties != nil {
		err.Reason = suback.Properties.ReasonString
	}
	return err
}

// retire gives up the filters of an earlier release, once for each server: on its first connection, and only if the session
// was there, for only then can it hold them. That the server refuses is logged and no reason to stop.
func (l *Link) retire(ctx context.Context, e *epoch) error {
	if l.retired[e.session.Server] || len(l.cfg.Unsubscribe) == 0 {
		return nil
	}
	if e.session.Present {
		answer, err := e.client.Unsubscribe(ctx, &paho.Unsubscribe{Topics: l.cfg.Unsubscribe})
		if err != nil && answer == nil {
			return fmt.Errorf("unsubscribe: %w", err)
		}
		for i, filter := range l.cfg.Unsubscribe {
			if i < len(answer.Reasons) && answer.Reasons[i] >= 0x80 {
				l.cfg.Logger.Warn().Str("link", l.cfg.Name).Str("filter", filter).
					Str("reason", describe(answer.Reasons[i], "")).Msg("the server refused to give up a subscription")
			}
		}
	}
	l.retired[e.session.Server] = true
	return nil
}
