package testkit

import (
	"testing"

	"go.uber.org/fx"

	"github.com/settlemq/settle"
)

// Module has the app of [settle.Module] dial an in-process server instead of its own, in a program that is built with fx. It provides the
// *[Kit], for fx.Populate, and the *[Broker]; fx.Replace or fx.Decorate gives another Broker.
//
//	var kit *testkit.Kit
//	fxtest.New(t, service.Module, testkit.Module(t), fx.Populate(&kit)).RequireStart()
//	kit.Publish("meters/42/usage", Usage{Meter: "42", KWh: 1.5})
func Module(t testing.TB) fx.Option {
	t.Helper()
	return fx.Module("testkit",
		fx.Provide(
			func() *Broker { return NewBroker(t) },
			func(b *Broker, app *settle.App) *Kit { return Attach(t, b, app) },
		),
		fx.Invoke(func(*Kit) {}),
	)
}
