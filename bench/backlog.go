package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/eclipse/paho.golang/paho"
	"github.com/rs/zerolog"

	"github.com/settlemq/settle"
)

// report is the message that is consumed: 512 bytes of JSON.
type report struct {
	Meter string    `json:"meter"`
	At    time.Time `json:"at"`
	KWh   float64   `json:"kwh"`
	Note  string    `json:"note"`
}

const payloadSize = 512

func payload() []byte {
	r := report{Meter: "meter-0042", At: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC), KWh: 1.25}
	p, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	r.Note = strings.Repeat("x", payloadSize-len(p))
	if p, err = json.Marshal(r); err != nil || len(p) != payloadSize {
		panic(fmt.Sprint(len(p), err))
	}
	return p
}

const receiveMaximum = 1000

func topicOf(consumer string) string    { return "bench/" + consumer + "/report" }
func clientIDOf(consumer string) string { return "bench-" + consumer }

// fill makes a session for a consumer and leaves messages in it.
func fill(ctx context.Context, server, consumer string, messages int) error {
	client, err := connect(ctx, server, clientIDOf(consumer), true, nil)
	if err != nil {
		return err
	}
	if _, err := client.Subscribe(ctx, subscription(consumer)); err != nil {
		return err
	}
	if err := client.Disconnect(&paho.Disconnect{}); err != nil {
		return err
	}
	app, err := settle.New(settle.Config{ClientID: "bench-publisher", Servers: []string{server}, SessionExpiry: -1, Logger: zerolog.Nop()},
		settle.Handle("bench/unused", func(context.Context, []byte) settle.Outcome { return settle.Ack() }))
	if err != nil {
		return err
	}
	if err := app.Start(ctx); err != nil {
		return err
	}
	var (
		body = payload()
		wg   sync.WaitGroup
		errs = make(chan error, 64)
	)
	for worker := range cap(errs) {
		wg.Go(func() {
			for i := worker; i < messages; i += cap(errs) {
				if err := app.Publish(ctx, topicOf(consumer), body); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	return errors.Join(<-errs, app.Stop(ctx))
}

func subscription(consumer string) *paho.Subscribe {
	return &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{{Topic: topicOf(consumer), QoS: 1, RetainHandling: 1}}}
}

// connect opens a session that lasts, with paho.
func connect(ctx context.Context, server, clientID string, clean bool, received func(paho.PublishReceived) (bool, error)) (*paho.Client, error) {
	conn, err := dial(ctx, server)
	if err != nil {
		return nil, err
	}
	cfg := paho.ClientConfig{Conn: conn}
	if received != nil {
		cfg.OnPublishReceived = []func(paho.PublishReceived) (bool, error){received}
	}
	client := paho.NewClient(cfg)
	_, err = client.Connect(ctx, connectPacket(clientID, clean))
	return client, err
}

func connectPacket(clientID string, clean bool) *paho.Connect {
	expiry, window := uint32(3600), uint16(receiveMaximum)
	return &paho.Connect{
		ClientID: clientID, CleanStart: clean, KeepAlive: 30,
		Properties: &paho.ConnectProperties{SessionExpiryInterval: &expiry, ReceiveMaximum: &window},
	}
}

func hostOf(server string) (string, error) {
	u, err := url.Parse(server)
	if err != nil {
		return "", err
	}
	return u.Host, nil
}
