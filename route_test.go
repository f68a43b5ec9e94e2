package settle

import (
	"math"
	"reflect"
	"testing"
	"time"
)

func resolved(t *testing.T, cfg Config, r Route) *routeSpec {
	t.Helper()
	cfg = cfg.withDefaults()
	return resolveRoutes(&cfg, []Route{r})[0]
}

func TestRouteDefaultsOfThePackage(t *testing.T) {
	s := resolved(t, Config{}, HandleBatch("f", ackBatch))
	if s.name != "f" || s.qos != AtLeastOnce || s.workers != 1 || s.keyKind != keyNone || s.timeout != 30*time.Second || s.maxAttempts != 0 ||
		s.batchSize != 64 || s.linger != 20*time.Millisecond || s.backoff != defaultBackoff || s.group != "" || s.retryTo != "" || s.deadLetterTo != "" || s.allowEmpty {
		t.Errorf("%+v", s)
	}
	for name, c := range map[string]struct {
		policy func(error) Outcome
		want   Kind
	}{
		"decode failure": {s.onDecode, KindReject},
		"oversize":       {s.onOversize, KindReject},
		"panic":          {s.onPanic, KindRetry},
		"timeout":        {s.onTimeout, KindRetry},
	} {
		if o := c.policy(errDown); o.Kind() != c.want || o.Cause() != errDown {
			t.Errorf("%s: %s", name, o)
		}
	}
	if s := resolved(t, Config{ReceiveMaximum: 20}, HandleBatch("f", ackBatch)); s.batchSize != 20 {
		t.Errorf("a default batch of %d in a window of 20", s.batchSize)
	}
}

// The route's own options go before RouteDefaults, and the same Route can serve two apps.
func TestRouteLayers(t *testing.T) {
	var order []string
	mark := func(name string) Middleware {
		return func(next Next) Next { order = append(order, name); return next }
	}
	r := Handle("f", ackBytes, Workers(2), Timeout(time.Second), With(mark("own 1"), mark("own 2")), AllowEmpty())
	a := resolved(t, Config{RouteDefaults: []RouteOption{ExactlyOnce, Workers(8, ByKey), Timeout(time.Hour), With(mark("default")), Encoding("x/y")}}, r)
	b := resolved(t, Config{RouteDefaults: []RouteOption{AtMostOnce}}, r)

	if a.qos != ExactlyOnce || a.workers != 2 || a.key != nil || a.keyKind != keyNone || a.timeout != time.Second || a.encoding != "x/y" || !a.allowEmpty {
		t.Errorf("%+v", a)
	}
	for _, m := range a.middleware {
		m(nil)
	}
	if want := []string{"default", "own 1", "own 2"}; !reflect.DeepEqual(order, want) {
		t.Errorf("middleware: %q", order)
	}
	if b.qos != AtMostOnce || len(b.middleware) != 2 {
		t.Errorf("the second app's route: %+v", b)
	}
	if r.spec.workers != 0 || r.spec.middleware != nil {
		t.Error("the Route itself was changed")
	}
}

func TestMaxAttemptsDefaults(t *testing.T) {
	for name, c := range map[string]struct {
		options  []RouteOption
		defaults []RouteOption
		want     int
		drop     bool
	}{
		"unlimited":               {nil, nil, 0, false},
		"with dead letters":       {[]RouteOption{DeadLetterTo("d")}, nil, 10, false},
		"with common ones":        {nil, []RouteOption{DeadLetterTo("d")}, 10, false},
		"set":                     {[]RouteOption{DeadLetterTo("d"), MaxAttempts(3)}, nil, 3, false},
		"endless":                 {[]RouteOption{DeadLetterTo("d"), MaxAttempts(math.MaxInt)}, nil, math.MaxInt, false},
		"own over default":        {[]RouteOption{MaxAttempts(3), DropExhausted()}, []RouteOption{MaxAttempts(5)}, 3, true},
		"dead letters over drops": {[]RouteOption{DeadLetterTo("d")}, []RouteOption{MaxAttempts(5), DropExhausted()}, 5, false},
		"both, so that it shows":  {[]RouteOption{DropExhausted(), DeadLetterTo("d")}, nil, 10, true},
	} {
		s := resolved(t, Config{RouteDefaults: c.defaults}, Handle("f", ackBytes, c.options...))
		if s.maxAttempts != c.want || s.dropExhausted != c.drop {
			t.Errorf("%s: %d, %v", name, s.maxAttempts, s.dropExhausted)
		}
	}
	capped, endless := &routeSpec{maxAttempts: 3}, &routeSpec{}
	if capped.exhausted(2) || !capped.exhausted(3) || !capped.exhausted(4) || endless.exhausted(math.MaxInt) {
		t.Error("the n-th failure is the last, and without a cap none is")
	}
}

func TestKeyKinds(t *testing.T) {
	own := func(*Delivery) string { return "k" }
	for name, c := range map[string]struct {
		options []RouteOption
		want    keyKind
		key     string
	}{
		"none":     {nil, keyNone, ""},
		"by key":   {[]RouteOption{Workers(2, ByKey)}, keyUser, "k42"},
		"by topic": {[]RouteOption{Workers(2, ByTopic)}, keyTopic, "meters/1"},
		"own":      {[]RouteOption{Workers(2, own)}, keyCustom, "k"},
	} {
		s := resolved(t, Config{}, Handle("f", ackBytes, c.options...))
		if s.keyKind != c.want {
			t.Errorf("%s: %d", name, s.keyKind)
		}
		if s.key != nil && s.key(keyedDelivery("meters/1", "k42")) != c.key {
			t.Errorf("%s: key %q", name, s.key(keyedDelivery("meters/1", "k42")))
		}
	}
	if ByKey(nil) != "" || ByTopic(nil) != "" || ByKey(bareDelivery("r", "", nil)) != "" {
		t.Error("a delivery without a key has one")
	}
}

func TestRouteDelay(t *testing.T) {
	s := resolved(t, Config{}, Handle("f", ackBytes, Backoff(Constant(time.Minute))))
	if d := s.delay(3); d != time.Minute {
		t.Error(d)
	}
}

func TestQoSString(t *testing.T) {
	if got := AtMostOnce.String() + AtLeastOnce.String() + ExactlyOnce.String() + QoS(3).String(); got != "012invalid" {
		t.Error(got)
	}
}
