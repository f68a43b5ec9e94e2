package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/rs/zerolog"

	"github.com/settlemq/settle"
)

// consumerEnv makes a process a consumer: its value is a consumerConfig in JSON.
const consumerEnv = "SETTLE_CHAOS_CONSUMER"

type consumerConfig struct {
	Seed     uint64    `json:"seed"`
	Began    time.Time `json:"began"` // the run
	Server   string    `json:"server"`
	ClientID string    `json:"client_id"`
	Stream   string    `json:"stream"`
	Careless bool      `json:"careless"` // acknowledges some without handling them, for the harness to notice
}

// RunIfConsumer runs a consumer where the harness has started this process as one, and reports whether it has, and with which code to exit. It
// comes first in main, and in TestMain.
func RunIfConsumer() (code int, was bool) {
	text := os.Getenv(consumerEnv)
	if text == "" {
		return 0, false
	}
	var c consumerConfig
	err := json.Unmarshal([]byte(text), &c)
	if err == nil {
		err = c.run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1, true
	}
	return 0, true
}

func (c *consumerConfig) run() error {
	go func() { // standard input ends with the harness
		_, _ = os.Stdin.Read(make([]byte, 1))
		os.Exit(3) //nolint:revive // nobody is left to tell
	}()
	j := &journal{out: os.Stdout, began: c.Began}
	app, err := settle.New(settle.Config{
		Servers: []string{c.Server}, ClientID: c.ClientID, ReceiveMaximum: receiveMaximum, KeepAlive: 3 * time.Second,
		ShutdownTimeout: 3 * time.Second, Dial: (&tap{journal: j}).dial,
		Logger: zerolog.New(os.Stderr).Level(zerolog.InfoLevel).With().Timestamp().Str("client", c.ClientID).Logger(),
	}, c.route(j))
	if err != nil {
		return err
	}
	return app.Run(context.Background())
}

func (c *consumerConfig) route(j *journal) settle.Route {
	s := streamOf(c.Stream)
	options := []settle.RouteOption{
		settle.Name(s.name), settle.QoS(s.qos), settle.DeadLetterTo(deadTopic), settle.MaxAttempts(maxAttempts),
		settle.Timeout(handlerTimeout), settle.Backoff(settle.Constant(backoff)),
	}
	if s.retryTo != "" {
		options = append(options, settle.RetryTo(s.retryTo))
	}
	if len(s.consumers) > 1 {
		options = append(options, settle.Shared("chaos"))
	}
	h := &handler{config: c, stream: s, journal: j}
	filter := "load/" + s.name + "/+"
	if s.batch {
		return settle.HandleBatch(filter, h.batch, append(options, settle.Workers(batchLanes, settle.ByKey), settle.BatchSize(batchSize))...)
	}
	return settle.Handle(filter, h.single, append(options, settle.Workers(lanes, settle.ByKey))...)
}

// handler handles the messages of a stream.
type handler struct {
	config  *consumerConfig
	stream  *stream
	journal *journal
}

var errByFate = errors.New("as its fate wants")

func (h *handler) single(ctx context.Context, _ []byte) settle.Outcome {
	d := settle.DeliveryFrom(ctx)
	unit, message, ok := numbersOf(d.Payload())
	if !ok {
		return settle.Drop("none of ours")
	}
	if h.config.Careless && message%500 == 7 {
		return settle.Ack()
	}
	f, attempt := fateOf(h.config.Seed, h.stream, message), d.Attempt()
	h.journal.note(h.event(eventBegun, unit, attempt, 0))
	if f == slow {
		take(longWork)
	}
	take(work)
	code, outcome := h.judge(ctx, f, attempt)
	h.journal.say(h.event(eventReturned, unit, attempt, code))
	if f.at(attempt) == panics {
		panic(errByFate)
	}
	return outcome
}

// batch takes as long as its elements would one by one on twice as many lanes, and tells their outcomes when it is about to return: until then
// the batch may still run out of time.
func (h *handler) batch(ctx context.Context, all [][]byte) settle.Outcomes {
	began, ended := make([]event, len(all)), make([]event, len(all))
	each := make([]settle.Outcome, len(all))
	deliveries := settle.DeliveriesFrom(ctx)
	for i, d := range deliveries {
		unit, _, _ := numbersOf(d.Payload())
		began[i] = h.event(eventBegun, unit, d.Attempt(), 0)
	}
	h.journal.note(began...)
	take(time.Duration(len(all)) * work * batchLanes / lanes)
	for i, d := range deliveries {
		unit, message, _ := numbersOf(d.Payload())
		code, outcome := h.judge(ctx, fateOf(h.config.Seed, h.stream, message), d.Attempt())
		ended[i], each[i] = h.event(eventReturned, unit, d.Attempt(), code), outcome
	}
	h.journal.say(ended...)
	return settle.Each(each...)
}

// judge does what a message's fate wants at an attempt, and says what the journal should hold of it.
func (h *handler) judge(ctx context.Context, f fate, attempt int) (code byte, outcome settle.Outcome) {
	code, outcome = returnedAck, settle.Ack()
	switch f.at(attempt) {
	case fails, panics:
		code, outcome = returnedRetry, settle.Retry(errByFate)
	case rejects:
		code, outcome = returnedReject, settle.Reject(errByFate)
	case hangs:
		<-ctx.Done()
		take(2 * work) // what it says then has no effect
	}
	if errors.Is(context.Cause(ctx), settle.ErrHandlerTimeout) {
		code = returnedLate
	}
	return code, outcome
}

func (h *handler) event(kind eventKind, unit uint32, attempt int, code byte) event {
	return event{kind: kind, unit: unit, attempt: uint8(min(attempt, 255)), code: code} //nolint:gosec // bounded
}

func take(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	<-t.C
}
