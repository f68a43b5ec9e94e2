package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/settlemq/settle"
)

// program is the service, its surroundings, and who watches them.
type program struct {
	options

	url     string // of the server
	screen  *screen
	ledger  *Ledger
	billing *Billing
	metrics *prometheus.Registry
	cutter  cutter
	service *settle.App
	desk    *Desk
	fleet   *Fleet
	before  tick // the line before
}

// run is the program from its beginning to the account.
func run(ctx context.Context, o options, s *screen) (balanced bool, err error) {
	p := &program{options: o, screen: s, metrics: prometheus.NewRegistry()}
	if p.ledger, err = OpenLedger(ctx, o.ledger); err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, p.ledger.Close()) }()
	var endServer func()
	if p.url, endServer, err = openServer(ctx, o.server); err != nil {
		return false, err
	}
	defer endServer()
	if err := p.build(); err != nil {
		return false, err
	}
	if o.http != "" {
		address, stop, err := serve(ctx, o.http, handler(p.service, p.metrics))
		if err != nil {
			return false, err
		}
		defer func() { err = errors.Join(err, within(5*time.Second, stop)) }()
		p.http = address
	}
	p.introduce()
	if err := p.start(ctx); err != nil {
		return false, errors.Join(err, p.stop())
	}
	p.work(ctx)
	err = p.stop()
	account := p.all()
	s.account(&account, p.figures())
	return account.Balanced(), err
}

// build makes everything and starts nothing.
func (p *program) build() error {
	log := zerolog.New(zerolog.ConsoleWriter{Out: os.Stderr, TimeFormat: time.TimeOnly, NoColor: !p.screen.colours}).
		Level(p.logLevel).With().Timestamp().Logger()
	var ledger poster = p.ledger
	if p.fail > 0 {
		ledger = unreliable{ledger, p.fail}
	}
	var dial dialFunc
	if p.cuts > 0 {
		dial = p.cutter.Dial
	}
	p.billing = &Billing{ledger: ledger}
	var errs [3]error
	p.service, errs[0] = newService(p.billing, p.url, p.clientID, dial, p.metrics, log)
	p.desk, errs[1] = newDesk(p.url, p.clientID, log)
	p.fleet, errs[2] = newFleet(p.url, p.clientID, p.meters, log)
	return errors.Join(errs[:]...)
}

func (p *program) introduce() {
	p.screen.line(bold, "billing: %s meters on %s", count(int64(p.meters)), p.address())
	p.screen.line(plain, "  usage   QoS 2, 8 workers by meter, retries by %s, dead letters to %s", retryTopic(p.clientID), deadTopic(p.clientID))
	p.screen.line(plain, "  power   QoS 0, in batches of 64")
	p.screen.line(plain, "  ledger  %s; of its posts %.3g %% fail", p.ledger, 100*p.fail)
	if p.http != "" {
		p.screen.line(plain, "  http    http://%s/metrics, /livez, /readyz", p.http)
	}
	p.screen.line(faint, "Numbers count from the start, save those per second. Sent: confirmed to the meters. Dead: in the dead letters.")
	p.screen.line(faint, "Window: what the server has sent and the service has not acknowledged.")
	p.screen.line(plain, "")
}

// address is the server's, without the password that may be in it.
func (p *program) address() string {
	u, err := url.Parse(p.url)
	if err != nil {
		return "a server"
	}
	address := u.Scheme + "://" + u.Host
	if p.server == embedded {
		address += ", a server in this process"
	}
	return address
}

// start starts who receives before who sends.
func (p *program) start(ctx context.Context) error {
	ready, cancel := context.WithTimeoutCause(ctx, p.patience, fmt.Errorf("no MQTT 5 server has let us in for %s", p.patience))
	defer cancel()
	for _, app := range []*settle.App{p.desk.app, p.service, p.fleet.app} {
		if err := app.Start(ctx); err != nil {
			return err
		}
		if err := app.WaitReady(ready); err != nil {
			return err
		}
	}
	p.screen.began = time.Now()
	return nil
}

// work lets the meters send, and waits until what they have sent is settled.
func (p *program) work(ctx context.Context) {
	sending, stopSending := context.WithCancel(ctx)
	if p.duration > 0 {
		sending, stopSending = context.WithTimeout(ctx, p.duration)
	}
	sent := make(chan struct{})
	go func() { defer close(sent); p.fleet.Run(sending) }()
	defer func() { stopSending(); <-sent }()

	second := time.NewTicker(time.Second)
	defer second.Stop()
	var cut <-chan time.Time
	if p.cuts > 0 {
		ticker := time.NewTicker(p.duration / time.Duration(p.cuts+1))
		defer ticker.Stop()
		cut = ticker.C
	}
	var (
		cuts      int
		back      = make(chan time.Duration, 1)
		silent    = sent
		impatient <-chan time.Time
	)
	for {
		select {
		case <-second.C:
			p.tick()
			if silent == nil && p.all().Missing == 0 {
				return
			}
		case <-cut:
			if cuts++; cuts == p.cuts {
				cut = nil
			}
			p.screen.event(yellow, "connection cut, %d of %d", cuts, p.cuts)
			go p.cut(ctx, back)
		case took := <-back:
			p.screen.event(yellow, "connected again and subscribed after %s", took.Round(time.Millisecond))
		case <-silent:
			silent = nil
			impatient = time.After(p.patience)
			p.screen.event(faint, "the meters are silent; what is under way is waited for")
		case <-impatient:
			p.screen.event(red, "after %s some reports are still under way", p.patience)
			return
		case <-p.service.Done():
			p.screen.event(red, "the service has ended by itself")
			return
		}
	}
}

// cut cuts the service's connections and says when they are back.
func (p *program) cut(ctx context.Context, back chan<- time.Duration) {
	began := time.Now()
	dialed := p.cutter.Cut()
	ctx, cancel := context.WithTimeout(ctx, p.patience)
	defer cancel()
	select {
	case <-dialed:
	case <-ctx.Done():
		return
	}
	if p.service.WaitReady(ctx) == nil {
		select {
		case back <- time.Since(began):
		case <-ctx.Done():
		}
	}
}

// tick shows how things stand.
func (p *program) tick() {
	metrics, err := read(p.metrics)
	if err != nil {
		p.screen.event(red, "%v", err)
		return
	}
	watts, samples := p.billing.chart.Load()
	now := tick{
		sent:      p.fleet.sent.Load(),
		billed:    p.ledger.Posted(),
		retried:   metrics.sum("settle_settled_total", "route", "usage", "outcome", "retry"),
		dead:      metrics.sum("settle_dead_letters_total", "result", "confirmed"),
		samples:   samples,
		kilowatts: watts / 1000,
		window:    metrics.sum("settle_window_unacked"),
	}
	now.billedNow, now.samplesNow = now.billed-p.before.billed, now.samples-p.before.samples
	p.before = now
	p.screen.tick(now)
}

// all is the account at this moment. An error is a report that is missing as long as it lasts.
func (p *program) all() Account {
	ledger, err := p.ledger.Postings(context.Background())
	if err != nil {
		p.screen.event(red, "%v", err)
	}
	return settleAccount(p.fleet.Reports(), ledger, p.desk.Letters())
}

func (p *program) figures() Figures {
	_, charted := p.billing.chart.Load()
	f := Figures{Again: p.ledger.Again(), Sampled: p.fleet.samples.Load(), Charted: charted}
	if metrics, err := read(p.metrics); err == nil {
		f.Adopted = metrics.sum("settle_adopted_total")
		f.Redelivered = f.Adopted + metrics.sum("settle_deliveries_total", "route", "usage", "redelivered", "true")
	}
	return f
}

// stop stops all, the meters last: they have nothing more to say.
func (p *program) stop() error {
	var errs []error
	for _, app := range []*settle.App{p.service, p.desk.app, p.fleet.app} {
		errs = append(errs, app.Err(), within(stopTime, app.Stop))
	}
	return errors.Join(errs...)
}

// stopTime is more than an app takes to stop by itself.
const stopTime = 30 * time.Second

func within(d time.Duration, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return f(ctx)
}
