package testkit_test

import (
	"testing"

	"github.com/rs/zerolog"
	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/testkit"
)

func program(t *testing.T, options ...fx.Option) *fxtest.App {
	t.Helper()
	return fxtest.New(t, append(options, fx.Supply(settle.Config{ClientID: "svc", Servers: []string{"mqtt://somewhere"}, Logger: zerolog.Nop()}),
		settle.Module, settle.ProvideRoute(func() settle.Route { return settle.Handle("jobs", says(settle.Ack())) }), testkit.Module(t))...)
}

// A program can be given a server of the test's own, and started on it again.
func TestModuleOnOwnServer(t *testing.T) {
	b := testkit.NewBroker(t)
	var kit *testkit.Kit
	first := program(t, fx.Replace(b), fx.Populate(&kit)).RequireStart()
	kit.Publish("jobs", []byte("1"))
	kit.Settled("jobs", 1)
	first.RequireStop()
	b.Publish("jobs", []byte("2"))

	program(t, fx.Replace(b), fx.Populate(&kit)).RequireStart() // the Kit stops the app if nobody else does
	if kit.Broker() != b {
		t.Error("another server")
	}
	if got := kit.Settled("jobs", 1)[0]; !got.Acknowledged || string(got.Payload) != "2" {
		t.Errorf("%v", got)
	}
}
