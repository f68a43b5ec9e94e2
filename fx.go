package settle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"sync/atomic"

	"go.uber.org/fx"
)

// Module is an app for a program that is built with fx. It takes a [Config] from the graph, and the routes that [ProvideRoute] gives; it
// provides *[App] and [Publisher].
//
//	fx.New(
//		fx.Provide(newConfig, newLedger), // func(...) settle.Config, ...
//		settle.Module,
//		settle.ProvideRoute(func(l *Ledger) settle.Route { return settle.Handle("meters/+/usage", l.Bill) }),
//		fx.Invoke(func(app *settle.App, log zerolog.Logger) { app.Use(middleware.Logging(log)) }),
//	).Run()
//
// The app starts and stops with fx's lifecycle, whether or not anything asks for it. What its routes need is constructed before it, so is
// started before the first dial and stopped after the last handler has returned. Starting does not wait for the connection:
// [App.WaitReady] does. Stopping is [App.Stop], bounded by fx's StopTimeout, 15 s by default: Config.ShutdownTimeout has to be some
// five seconds below it, as its default of 10 s is.
//
// When the app ends by itself, fx is shut down with exit code 1; when the program has called App.Stop or App.Retire, with 0.
//
// A route's constructor may ask for the Publisher, although the app is made of the routes: the Publisher finds its app later. A
// publish before that fails with [ErrNotConnected]; constructors have nothing to publish. An error of [New] is the error of fx.New.
var Module fx.Option = fxOption{
	name: "settle.Module",
	Option: fx.Module("settle",
		fx.Provide(newLatePublisher, fx.Private),
		fx.Provide(asPublisher, newFxApp),
		fx.Invoke(requireApp),
	),
}

// ProvideRoute gives the app of [Module] the routes of a constructor, a function that returns [Route], []Route, (Route, error) or
// ([]Route, error). Its parameters are whatever the graph provides, [Publisher] included; an fx.In struct asks for named values. Any other function
// is an error of fx.New. *[App] cannot be a parameter: it is made of the routes.
//
// Routes have no order among each other, wherever they come from.
func ProvideRoute(constructor any) fx.Option {
	name := constructorName(constructor)
	group := routeGroup
	switch kind, err := constructorKind(constructor); {
	case err != nil:
		return fxOption{name: "settle.ProvideRoute(" + name + ")", Option: fx.Error(fmt.Errorf("settle.ProvideRoute(%s): %w", name, err))}
	case kind == reflect.TypeFor[[]Route]():
		group += ",flatten"
	}
	return fxOption{name: "settle.ProvideRoute(" + name + ")", Option: fx.Provide(fx.Annotated{Group: group, Target: constructor})}
}

// routeGroup is the fx value group of the routes. fxParams has it in a tag.
const routeGroup = "settle.routes"

// fxOption prints as what was written, not as what fx makes of it.
type fxOption struct {
	fx.Option
	name string
}

func (o fxOption) String() string { return o.name }

// constructorKind returns what a constructor of routes returns first: Route or []Route. The error says what is wrong with it.
func constructorKind(constructor any) (reflect.Type, error) {
	t := reflect.TypeOf(constructor)
	if t == nil {
		return nil, errors.New("there is no constructor: give a function that returns a settle.Route")
	}
	if t.Kind() != reflect.Func {
		return nil, fmt.Errorf("a %s is no constructor: give a function that returns a settle.Route", t)
	}
	if reflect.ValueOf(constructor).IsNil() {
		return nil, errors.New("the constructor is nil")
	}
	wrong := fmt.Errorf("it is a %s: a constructor returns settle.Route or []settle.Route, and after that an error or nothing", t)
	switch {
	case t.NumOut() < 1, t.NumOut() > 2, t.NumOut() == 2 && t.Out(1) != reflect.TypeFor[error]():
		return nil, wrong
	case t.Out(0) == reflect.TypeFor[Route](), t.Out(0) == reflect.TypeFor[[]Route]():
		return t.Out(0), nil
	default:
		return nil, wrong
	}
}

// constructorName is how a constructor appears in errors and where options are printed.
func constructorName(constructor any) string {
	v := reflect.ValueOf(constructor)
	if v.IsValid() && v.Kind() == reflect.Func && !v.IsNil() {
		if f := runtime.FuncForPC(v.Pointer()); f != nil {
			return f.Name()
		}
	}
	return fmt.Sprintf("%T", constructor)
}

// latePublisher publishes over an app that is made after it.
type latePublisher struct{ app atomic.Pointer[App] }

// These are functions with names because fx logs them.
func newLatePublisher() *latePublisher       { return new(latePublisher) }
func asPublisher(p *latePublisher) Publisher { return p }
func requireApp(*App)                        {}

// Publish implements [Publisher].
func (p *latePublisher) Publish(ctx context.Context, topic string, value any, options ...MessageOption) error {
	app := p.app.Load()
	if app == nil {
		return fmt.Errorf("%w: the app has not been made yet; publish from handlers and from fx's OnStart hooks on, not from constructors", ErrNotConnected)
	}
	return app.Publish(ctx, topic, value, options...)
}

type fxParams struct {
	fx.In

	Config     Config
	Routes     []Route `group:"settle.routes"`
	Publisher  *latePublisher
	Lifecycle  fx.Lifecycle
	Shutdowner fx.Shutdowner
}

// newFxApp makes the app of Module and ties its life to fx's.
func newFxApp(p fxParams) (*App, error) {
	// fx shuffles value groups. One order makes errors, logs and subscriptions the same each time.
	cfg := p.Config.withDefaults()
	slices.SortStableFunc(p.Routes, func(a, b Route) int { return cmp.Compare(a.sortKey(&cfg), b.sortKey(&cfg)) })

	app, err := New(p.Config, p.Routes...)
	if err != nil {
		return nil, err
	}
	p.Publisher.app.Store(app)
	p.Lifecycle.Append(fxHook(app, p.Shutdowner))
	return app, nil
}

// sortKey is the filter and, since several routes may have the same, the name.
func (r Route) sortKey(cfg *Config) string {
	if r.spec == nil {
		return ""
	}
	return r.spec.filter + "\x00" + r.spec.resolve(0, cfg).name
}

// fxHook starts and stops an app with fx, and shuts fx down when the app has ended before that.
func fxHook(app *App, fxApp fx.Shutdowner) fx.Hook {
	stopping := make(chan struct{})
	watched := make(chan struct{})
	watch := func() {
		defer close(watched)
		select {
		case <-stopping:
			return
		case <-app.Done():
		}
		code := 0
		if app.Err() != nil {
			code = 1
		}
		_ = fxApp.Shutdown(fx.ExitCode(code)) // fails only where fx is shutting down already
	}
	return fx.Hook{
		OnStart: func(ctx context.Context) error {
			if err := app.Start(ctx); err != nil {
				return err
			}
			go watch()
			return nil
		},
		OnStop: func(ctx context.Context) error {
			close(stopping)
			<-watched
			return app.Stop(ctx)
		},
	}
}
