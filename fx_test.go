package settle_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/rs/zerolog"
	"go.uber.org/fx"
	"go.uber.org/fx/fxevent"
	"go.uber.org/fx/fxtest"
	"go.uber.org/goleak"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/internal/broker/brokertest"
)

type reading struct {
	Meter string `json:"meter"`
	Value int    `json:"value"`
}

func fxConfig(server *brokertest.Server) settle.Config {
	return settle.Config{
		ClientID: "fx-test",
		Servers:  []string{"mqtt://scripted"},
		Dial:     server.Dial,
		Logger:   zerolog.Nop(),
	}
}

func TestFxRouteThatPublishes(t *testing.T) {
	defer goleak.VerifyNone(t)
	server := brokertest.NewServer(t)
	var app *settle.App
	program := fxtest.New(t,
		fx.NopLogger,
		fx.Supply(fxConfig(server)),
		settle.Module,
		// The app is made of this route, and the route of the app's publisher.
		settle.ProvideRoute(func(publisher settle.Publisher) settle.Route {
			return settle.Handle("readings", func(ctx context.Context, r reading) settle.Outcome {
				return settle.OrRetry(publisher.Publish(ctx, "doubled", reading{r.Meter, 2 * r.Value}, settle.AtMostOnce))
			})
		}),
		fx.Populate(&app),
	)
	program.RequireStart()

	c := server.Accept()
	c.Handshake(false, 1)
	c.Send(brokertest.Publish("readings", 1, 7, `{"meter":"a","value":21}`))
	out := brokertest.Expect[*packets.Publish](c)
	if out.Topic != "doubled" || string(out.Payload) != `{"meter":"a","value":42}` {
		t.Errorf("published to %q: %s", out.Topic, out.Payload)
	}
	if ack := brokertest.Expect[*packets.Puback](c); ack.PacketID != 7 || ack.ReasonCode != 0 {
		t.Errorf("PUBACK %d, 0x%02X; want 7, 0x00", ack.PacketID, ack.ReasonCode)
	}

	stopped := make(chan struct{})
	go func() { defer close(stopped); program.RequireStop() }()
	if d := c.ExpectDisconnect(); d.Code != 0 || d.HasSessionExpiry {
		t.Errorf("DISCONNECT %+v; want 0x00, the session kept", d)
	}
	c.ExpectEOF()
	_ = c.Close()
	<-stopped
	if err := app.Err(); err != nil {
		t.Errorf("after a clean stop Err is %v", err)
	}
}

// What routes need is started before the app dials, and stopped after it has said goodbye.
func TestFxOrder(t *testing.T) {
	defer goleak.VerifyNone(t)
	server := brokertest.NewServer(t)
	events := make(chan string, 10)
	cfg := fxConfig(server)
	cfg.Dial = func(ctx context.Context, u *url.URL) (net.Conn, error) {
		events <- "dial"
		return server.Dial(ctx, u)
	}
	type ledger struct{}
	program := fxtest.New(t,
		fx.NopLogger,
		fx.Supply(cfg),
		settle.Module,
		fx.Provide(func(lc fx.Lifecycle) *ledger {
			lc.Append(fx.StartStopHook(func() { events <- "ledger opens" }, func() { events <- "ledger closes" }))
			return &ledger{}
		}),
		settle.ProvideRoute(func(*ledger) (settle.Route, error) { return nothing("a"), nil }),
	)
	program.RequireStart()
	c := server.Accept()
	c.Handshake(false, 1)
	stopped := make(chan struct{})
	go func() { defer close(stopped); program.RequireStop() }()
	c.ExpectDisconnect()
	events <- "disconnected"
	_ = c.Close()
	<-stopped
	close(events)
	var got []string
	for e := range events {
		got = append(got, e)
	}
	if want := "ledger opens, dial, disconnected, ledger closes"; strings.Join(got, ", ") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, ", "), want)
	}
}

// All four kinds of constructor, and values that come by name.
func TestFxCollectsRoutes(t *testing.T) {
	defer goleak.VerifyNone(t)
	type named struct {
		fx.In
		Topic string `name:"topic"`
	}
	server := brokertest.NewServer(t)
	program := fxtest.New(t,
		fx.NopLogger,
		fx.Supply(fxConfig(server), fx.Annotate("named", fx.ResultTags(`name:"topic"`))),
		settle.Module,
		settle.ProvideRoute(func() settle.Route { return nothing("one") }),
		settle.ProvideRoute(func() (settle.Route, error) { return nothing("two"), nil }),
		settle.ProvideRoute(func() []settle.Route { return []settle.Route{nothing("six"), nothing("five")} }),
		settle.ProvideRoute(func() ([]settle.Route, error) { return []settle.Route{nothing("four")}, nil }),
		settle.ProvideRoute(func() ([]settle.Route, error) { return nil, nil }),
		fx.Module("elsewhere", settle.ProvideRoute(func(n named) settle.Route { return nothing(n.Topic) })),
	)
	program.RequireStart()
	c := server.Accept()
	brokertest.Expect[*packets.Connect](c)
	c.Send(brokertest.Connack(false))
	var filters []string
	for _, s := range c.Grant(6) {
		for _, o := range s.Subscriptions {
			filters = append(filters, o.Topic)
		}
	}
	if got, want := fmt.Sprint(filters), "[five four named one six two]"; got != want {
		t.Errorf("subscribed to %s, want %s, in this order", got, want)
	}
	stopped := make(chan struct{})
	go func() { defer close(stopped); program.RequireStop() }()
	c.ExpectDisconnect()
	c.ExpectEOF()
	_ = c.Close()
	<-stopped
}

func nothing(filter string) settle.Route {
	return settle.Handle(filter, func(context.Context, []byte) settle.Outcome { return settle.Ack() })
}

func newRoutes() []settle.Route { return nil }

func TestFxWrongConstructor(t *testing.T) {
	var none func() settle.Route
	for name, test := range map[string]struct {
		constructor any
		want        string
	}{
		"nothing":          {nil, "there is no constructor"},
		"a route":          {nothing("a"), "a settle.Route is no constructor"},
		"a nil function":   {none, "the constructor is nil"},
		"no result":        {func() {}, "it is a func(): a constructor returns settle.Route or []settle.Route"},
		"another result":   {func() string { return "" }, "it is a func() string:"},
		"a pointer":        {func() *settle.Route { return nil }, "it is a func() *settle.Route:"},
		"only an error":    {func() error { return nil }, "it is a func() error:"},
		"no error":         {func() (settle.Route, int) { return settle.Route{}, 0 }, "it is a func() (settle.Route, int):"},
		"too many results": {func() (settle.Route, int, error) { return settle.Route{}, 0, nil }, "it is a func() (settle.Route, int, error):"},
	} {
		t.Run(name, func(t *testing.T) {
			err := fx.New(fx.NopLogger, settle.ProvideRoute(test.constructor)).Err()
			if err == nil || !strings.HasPrefix(err.Error(), "settle.ProvideRoute(") || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got  %v\nwant %s", err, test.want)
			}
		})
	}
}

func TestFxErrors(t *testing.T) {
	errNoTopic := errors.New("no topic")
	good := settle.Config{ClientID: "a", Servers: []string{"mqtt://localhost"}, Logger: zerolog.Nop()}
	t.Run("constructor", func(t *testing.T) {
		err := fx.New(fx.NopLogger, fx.Supply(good), settle.Module,
			settle.ProvideRoute(func() (settle.Route, error) { return settle.Route{}, errNoTopic })).Err()
		if !errors.Is(err, errNoTopic) {
			t.Error(err)
		}
	})
	t.Run("configuration", func(t *testing.T) {
		bad := good
		bad.ClientID = ""
		err := fx.New(fx.NopLogger, fx.Supply(bad), settle.Module).Err()
		var wrong *settle.ConfigError
		if !errors.As(err, &wrong) || wrong.Field != "ClientID" {
			t.Error(err)
		}
	})
	t.Run("zero route", func(t *testing.T) {
		err := fx.New(fx.NopLogger, fx.Supply(good), settle.Module, settle.ProvideRoute(func() settle.Route { return settle.Route{} })).Err()
		if wrong := new(settle.ConfigError); !errors.As(err, &wrong) {
			t.Error(err)
		}
	})
	t.Run("no configuration", func(t *testing.T) {
		if err := fx.New(fx.NopLogger, settle.Module).Err(); err == nil || !strings.Contains(err.Error(), "missing type: settle.Config") {
			t.Error(err)
		}
	})
	t.Run("route of the app", func(t *testing.T) {
		err := fx.New(fx.NopLogger, fx.Supply(good), settle.Module, settle.ProvideRoute(func(*settle.App) settle.Route { return nothing("a") })).Err()
		if err == nil || !strings.Contains(err.Error(), "cycle") {
			t.Error(err)
		}
	})
}

// A publish in a constructor cannot wait for an app that waits for it.
func TestFxPublishInConstructor(t *testing.T) {
	var err error
	program := fx.New(fx.NopLogger, fx.Supply(settle.Config{ClientID: "a", Servers: []string{"mqtt://localhost"}, Logger: zerolog.Nop()}), settle.Module,
		settle.ProvideRoute(func(p settle.Publisher) settle.Route {
			err = p.Publish(t.Context(), "a", nil)
			return nothing("a")
		}))
	if program.Err() != nil {
		t.Fatal(program.Err())
	}
	if !errors.Is(err, settle.ErrNotConnected) || !strings.Contains(err.Error(), "has not been made yet") {
		t.Errorf("got %v", err)
	}
}

func TestFxShutsDownWithTheApp(t *testing.T) {
	for name, test := range map[string]struct {
		end  func(*testing.T, *brokertest.Server, *settle.App)
		code int
	}{
		"by itself": {
			code: 1,
			end: func(t *testing.T, server *brokertest.Server, app *settle.App) {
				c := server.Accept()
				brokertest.Expect[*packets.Connect](c)
				c.Send(&packets.Connack{ReasonCode: 0x85, Properties: &packets.Properties{}}) // Client Identifier not valid
				<-app.Done()
				_ = c.Close()
				if app.Err() == nil {
					t.Error("the app ended without an error")
				}
			},
		},
		"stopped by the program": {
			code: 0,
			end: func(t *testing.T, server *brokertest.Server, app *settle.App) {
				c := server.Accept()
				c.Handshake(false, 1)
				stopped := make(chan error, 1)
				go func() { stopped <- app.Stop(t.Context()) }()
				c.ExpectDisconnect()
				_ = c.Close()
				if err := <-stopped; err != nil {
					t.Error(err)
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			defer goleak.VerifyNone(t)
			server := brokertest.NewServer(t)
			var app *settle.App
			program := fxtest.New(t, fx.NopLogger, fx.Supply(fxConfig(server)), settle.Module, settle.ProvideRoute(func() settle.Route { return nothing("a") }), fx.Populate(&app))
			signals := program.Wait()
			program.RequireStart()
			test.end(t, server, app)
			select {
			case s := <-signals:
				if s.ExitCode != test.code {
					t.Errorf("exit code %d, want %d", s.ExitCode, test.code)
				}
			case <-time.After(time.Minute):
				t.Fatal("fx goes on without its app")
			}
			program.RequireStop()
		})
	}
}

func TestFxPrints(t *testing.T) {
	got := fx.Options(settle.Module, settle.ProvideRoute(newRoutes), settle.ProvideRoute(42)).String()
	want := "fx.Options(settle.Module, settle.ProvideRoute(github.com/settlemq/settle_test.newRoutes), settle.ProvideRoute(int))"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// fx's own log names functions that a person can find.
func TestFxLogs(t *testing.T) {
	var seen []string
	program := fx.New(fx.Supply(settle.Config{ClientID: "a", Servers: []string{"mqtt://localhost"}, Logger: zerolog.Nop()}), settle.Module, settle.ProvideRoute(newRoutes),
		fx.WithLogger(func() fxevent.Logger {
			return loggerFunc(func(e fxevent.Event) {
				if p, ok := e.(*fxevent.Provided); ok {
					seen = append(seen, p.ConstructorName)
				}
			})
		}))
	if program.Err() != nil {
		t.Fatal(program.Err())
	}
	for _, want := range []string{"settle.newFxApp()", "settle.asPublisher()", "settle_test.newRoutes()"} {
		if !strings.Contains(strings.Join(seen, " "), want) {
			t.Errorf("no %s in %q", want, seen)
		}
	}
}

type loggerFunc func(fxevent.Event)

func (f loggerFunc) LogEvent(e fxevent.Event) { f(e) }
