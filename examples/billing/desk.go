package main

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/settlemq/settle"
)

// Desk is where dead letters end: a program of its own in real life, whose person looks at them. Its session has to be there before the first
// dead letter is, or the server would have nobody to keep it for.
type Desk struct {
	app     *settle.App
	log     zerolog.Logger
	mu      sync.Mutex
	letters map[string]bool // by message id
}

// newDesk makes the desk for the dead letters of the service with the given client identifier.
func newDesk(server, clientID string, log zerolog.Logger) (*Desk, error) {
	d := &Desk{log: log, letters: make(map[string]bool)}
	app, err := settle.New(settle.Config{
		Servers: []string{server}, ClientID: clientID + "-desk", SessionExpiry: time.Hour, Logger: log,
	}, settle.Handle(deadTopic(clientID), d.take, settle.Name("dead letters"))) // the bytes as they are: they may well be what is wrong
	if err != nil {
		return nil, err
	}
	d.app = app
	return d, nil
}

func (d *Desk) take(ctx context.Context, _ []byte) settle.Outcome {
	delivery := settle.DeliveryFrom(ctx)
	if letter, ok := delivery.DeadLetter(); ok {
		d.log.Info().Str("topic", letter.OriginalTopic).Int("attempts", letter.Attempts).Str("reason", letter.Reason).Msg("dead letter")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.letters[delivery.MessageID()] = true
	return settle.Ack()
}

// Letters are the message ids of the dead letters that have come.
func (d *Desk) Letters() map[string]bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.letters)
}
