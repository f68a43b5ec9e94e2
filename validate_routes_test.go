package settle

import (
	"context"
	"strings"
	"testing"
	"time"
)

func passOn(next Next) Next { return next }

func TestInvalidRoute(t *testing.T) {
	long := strings.Repeat("f", 65_530)
	var noHandler func(context.Context, []byte) Outcome
	var noBatch func(context.Context, []int) Outcomes
	for name, c := range map[string]struct {
		route Route
		want  []fault
	}{
		"zero route":             {Route{}, []fault{{"Routes[0]", "<nil>", "zero Route"}}},
		"nil handler":            {Handle("f", noHandler), []fault{{`Routes[0] "f": handler`, "<nil>", "is nil"}}},
		"nil batch":              {HandleBatch("f", noBatch), []fault{{`Routes[0] "f": handler`, "<nil>", "is nil"}}},
		"batch of byte":          {HandleBatch("f", func(context.Context, []byte) Outcomes { return Every(Ack()) }), []fault{{`Routes[0] "f": handler`, "<nil>", "[][]byte"}}},
		"channel":                {Handle("f", func(context.Context, chan int) Outcome { return Ack() }), []fault{{`Routes[0] "f": handler`, "chan int", "nothing decodes into"}}},
		"pointer to function":    {Handle("f", func(context.Context, *func()) Outcome { return Ack() }), []fault{{`Routes[0] "f": handler`, "*func()", "nothing decodes into"}}},
		"interface with methods": {Handle("f", func(context.Context, error) Outcome { return Ack() }), []fault{{`Routes[0] "f": handler`, "error", "concrete type"}}},

		"filter: empty":                   {Handle("", ackBytes), []fault{{`Routes[0] "": filter`, "", "is empty"}}},
		"filter: hash":                    {Handle("a/#/b", ackBytes), []fault{{`Routes[0] "a/#/b": filter`, "a/#/b", "'#'"}}},
		"filter: plus":                    {Handle("a+", ackBytes), []fault{{`Routes[0] "a+": filter`, "a+", "'+'"}}},
		"filter: UTF-8":                   {Handle("a\xff", ackBytes), []fault{{"Routes[0] \"a\\xff\": filter", "a\xff", "UTF-8"}}},
		"filter: U+0000":                  {Handle("a\x00", ackBytes), []fault{{`Routes[0] "a\x00": filter`, "a\x00", "U+0000"}}},
		"filter: too long":                {Handle(long+"123456", ackBytes, Name("n")), []fault{{`Routes[0] "n": filter`, clip(long), "65536 bytes"}}},
		"filter: $share":                  {Handle("$share/g/a", ackBytes), []fault{{`Routes[0] "$share/g/a": filter`, "$share/g/a", "by hand"}}},
		"filter: too long with its group": {Handle(long, ackBytes, Name("n"), Shared("g")), []fault{{`Routes[0] "n": filter`, clip(long), "the group counts too"}}},

		"nil option":                 {Handle("f", ackBytes, AtMostOnce, nil), []fault{{`Routes[0] "f": option 1`, "<nil>", "is nil"}}},
		"QoS":                        {Handle("f", ackBytes, QoS(7)), []fault{{`Routes[0] "f": QoS`, "7", "ExactlyOnce"}}},
		"name: empty":                {Handle("f", ackBytes, Name("")), []fault{{`Routes[0] "f": Name`, "", "is empty"}}},
		"name: control":              {Handle("f", ackBytes, Name("a\tb")), []fault{{`Routes[0] "a\tb": Name`, "a\tb", "control"}}},
		"workers: none":              {Handle("f", ackBytes, Workers(0)), []fault{{`Routes[0] "f": Workers`, "0", "between 1 and 65536"}}},
		"workers: too many":          {Handle("f", ackBytes, Workers(65_537)), []fault{{`Routes[0] "f": Workers`, "65537", "between 1 and 65536"}}},
		"two keys":                   {Handle("f", ackBytes, Workers(4, ByKey, ByTopic)), []fault{{`Routes[0] "f": Workers`, "4", "two key functions"}}},
		"two keys, apart":            {Handle("f", ackBytes, Workers(4, ByKey), Workers(8, ByTopic)), []fault{{`Routes[0] "f": Workers`, "8", "second Workers with a key function"}}},
		"nil key":                    {Handle("f", ackBytes, Workers(4, nil)), []fault{{`Routes[0] "f": Workers`, "4", "key function is nil"}}},
		"timeout: negative":          {Handle("f", ackBytes, Timeout(-1)), []fault{{`Routes[0] "f": Timeout`, "-1ns", "negative"}}},
		"timeout: no unit":           {Handle("f", ackBytes, Timeout(30)), []fault{{`Routes[0] "f": Timeout`, "30ns", "unit"}}},
		"linger: negative":           {HandleBatch("f", ackBatch, Linger(-1)), []fault{{`Routes[0] "f": Linger`, "-1ns", "negative"}}},
		"linger: no unit":            {HandleBatch("f", ackBatch, Linger(20)), []fault{{`Routes[0] "f": Linger`, "20ns", "unit"}}},
		"linger: on Handle":          {Handle("f", ackBytes, Linger(time.Second)), []fault{{`Routes[0] "f": Linger`, "1s", "option of HandleBatch"}}},
		"batch: none":                {HandleBatch("f", ackBatch, BatchSize(0)), []fault{{`Routes[0] "f": BatchSize`, "0", "at least 1"}}},
		"batch: on Handle":           {Handle("f", ackBytes, BatchSize(1)), []fault{{`Routes[0] "f": BatchSize`, "1", "option of HandleBatch"}}},
		"batch: window":              {HandleBatch("f", ackBatch, BatchSize(1001)), []fault{{`Routes[0] "f": BatchSize`, "1001", "exceeds ReceiveMaximum, 1000"}}},
		"batch: queue":               {HandleBatch("f", ackBatch, AtMostOnce, BatchSize(10_001)), []fault{{`Routes[0] "f": BatchSize`, "10001", "exceeds QoS0Queue, 10000"}}},
		"backoff: nil":               {Handle("f", ackBytes, Backoff(nil)), []fault{{`Routes[0] "f": Backoff`, "<nil>", "is nil"}}},
		"backoff: zero":              {Handle("f", ackBytes, Backoff(Constant(0))), []fault{{`Routes[0] "f": Backoff`, "Constant(0s)", "at least 1ms"}}},
		"backoff: negative":          {Handle("f", ackBytes, Backoff(Constant(-time.Second))), []fault{{`Routes[0] "f": Backoff`, "Constant(-1s)", "at least 1ms"}}},
		"backoff: no unit":           {Handle("f", ackBytes, Backoff(Constant(5))), []fault{{`Routes[0] "f": Backoff`, "Constant(5ns)", "unit"}}},
		"backoff: first":             {Handle("f", ackBytes, Backoff(Exponential(0, time.Second))), []fault{{`Routes[0] "f": Backoff`, "Exponential(0s, 1s)", "first wait"}}},
		"backoff: limit":             {Handle("f", ackBytes, Backoff(Exponential(time.Minute, time.Second))), []fault{{`Routes[0] "f": Backoff`, "Exponential(1m0s, 1s)", "not be shorter"}}},
		"backoff: for ever":          {Handle("f", ackBytes, Backoff(Exponential(time.Minute, maxDelay+1))), []fault{{`Routes[0] "f": Backoff`, "Exponential(1m0s, 87600h0m0.000000001s)", "at most 87600h"}}},
		"backoff: constant for ever": {Handle("f", ackBytes, Backoff(Constant(maxDelay+1))), []fault{{`Routes[0] "f": Backoff`, "Constant(87600h0m0.000000001s)", "at most 87600h"}}},

		"attempts: none":          {Handle("f", ackBytes, MaxAttempts(0), DeadLetterTo("d")), []fault{{`Routes[0] "f": MaxAttempts`, "0", "at least 1"}}},
		"attempts: capped":        {Handle("f", ackBytes, MaxAttempts(3)), []fault{{`Routes[0] "f": MaxAttempts`, "3", "no dead-letter topic"}}},
		"exhausted: uncapped":     {Handle("f", ackBytes, DropExhausted()), []fault{{`Routes[0] "f": DropExhausted`, "<nil>", "without MaxAttempts"}}},
		"exhausted: contradicted": {Handle("f", ackBytes, DropExhausted(), MaxAttempts(3), DeadLetterTo("d")), []fault{{`Routes[0] "f": DropExhausted`, "<nil>", `contradicts DeadLetterTo("d")`}}},

		"shared: empty": {Handle("f", ackBytes, Shared("")), []fault{{`Routes[0] "f": Shared`, "", "is empty"}}},
		"shared: slash": {Handle("f", ackBytes, Shared("a/b")), []fault{{`Routes[0] "f": Shared`, "a/b", "'/'"}}},
		"shared: plus":  {Handle("f", ackBytes, Shared("+")), []fault{{`Routes[0] "f": Shared`, "+", "'/'"}}},

		"retry: empty":             {Handle("f", ackBytes, RetryTo("")), []fault{{`Routes[0] "f": RetryTo`, "", "is empty"}}},
		"retry: wildcard":          {Handle("f", ackBytes, RetryTo("r/#")), []fault{{`Routes[0] "f": RetryTo`, "r/#", "wildcard"}}},
		"retry: $share":            {Handle("f", ackBytes, RetryTo("$share/g/r")), []fault{{`Routes[0] "f": RetryTo`, "$share/g/r", "begins with '$'"}}},
		"retry: own filter":        {Handle("f", ackBytes, RetryTo("f")), []fault{{`Routes[0] "f": RetryTo`, "f", "is the route's own filter"}}},
		"retry: shared own filter": {Handle("f/+", ackBytes, Shared("g"), RetryTo("f/retry")), []fault{{`Routes[0] "f/+": RetryTo`, "f/retry", "matches the route's own filter, \"f/+\", which is shared"}}},

		"dead: empty":       {Handle("f", ackBytes, DeadLetterTo("")), []fault{{`Routes[0] "f": DeadLetterTo`, "", "is empty"}}},
		"dead: wildcard":    {Handle("f", ackBytes, DeadLetterTo("d/+")), []fault{{`Routes[0] "f": DeadLetterTo`, "d/+", "wildcard"}}},
		"dead: server's":    {Handle("f", ackBytes, DeadLetterTo("$d")), []fault{{`Routes[0] "f": DeadLetterTo`, "$d", "begins with '$'"}}},
		"dead: own filter":  {Handle("f/#", ackBytes, DeadLetterTo("f/dead")), []fault{{`Routes[0] "f/#": DeadLetterTo`, "f/dead", "matches the route's own filter"}}},
		"dead: retry topic": {Handle("f", ackBytes, RetryTo("r"), DeadLetterTo("r")), []fault{{`Routes[0] "f": DeadLetterTo`, "r", "is the retry topic of Routes[0] \"f\", which would handle"}}},

		"encoding: empty":    {Handle("f", ackAny, Encoding("")), []fault{{`Routes[0] "f": Encoding`, "", "is empty"}}},
		"encoding: unknown":  {Handle("f", ackAny, Encoding("application/cbor")), []fault{{`Routes[0] "f": Encoding`, "application/cbor", "none of Codecs"}}},
		"encoding: on bytes": {Handle("f", ackBytes, Encoding("application/json")), []fault{{`Routes[0] "f": Encoding`, "application/json", "has no effect"}}},

		"nil decode policy":   {Handle("f", ackBytes, OnDecodeFailure(nil)), []fault{{`Routes[0] "f": OnDecodeFailure`, "<nil>", "policy is nil"}}},
		"nil panic policy":    {Handle("f", ackBytes, OnPanic(nil)), []fault{{`Routes[0] "f": OnPanic`, "<nil>", "policy is nil"}}},
		"nil timeout policy":  {Handle("f", ackBytes, OnTimeout(nil)), []fault{{`Routes[0] "f": OnTimeout`, "<nil>", "policy is nil"}}},
		"nil oversize policy": {Handle("f", ackBytes, OnOversize(nil)), []fault{{`Routes[0] "f": OnOversize`, "<nil>", "policy is nil"}}},
		"nil middleware":      {Handle("f", ackBytes, With(passOn, nil)), []fault{{`Routes[0] "f": With`, "<nil>", "middleware is nil"}}},
	} {
		t.Run(name, func(t *testing.T) { expect(t, invalid(validConfig(), c.route), c.want...) })
	}
}

// What is wrong between two routes, or between a route and the app.
func TestInvalidTogether(t *testing.T) {
	for name, c := range map[string]struct {
		set    func(*Config)
		routes []Route
		want   []fault
	}{
		"one filter, no names": {routes: []Route{Handle("f", ackBytes), Handle("f", ackBytes)},
			want: []fault{{`Routes[1] "f": Name`, "f", "is the name of Routes[0] too"}}},
		"one name": {routes: []Route{Handle("f", ackBytes, Name("n")), Handle("g", ackBytes), Handle("h", ackBytes, Name("n"))},
			want: []fault{{`Routes[2] "n": Name`, "n", "is the name of Routes[0] too"}}},
		"one retry topic": {routes: []Route{Handle("f", ackBytes, RetryTo("r")), Handle("g", ackBytes, RetryTo("r"))},
			want: []fault{{`Routes[1] "g": RetryTo`, "r", `is the retry topic of Routes[0] "f" too`}}},
		"retry topic is another's filter": {routes: []Route{Handle("f", ackBytes, RetryTo("g")), Handle("g", ackBytes)},
			want: []fault{{`Routes[0] "f": RetryTo`, "g", `is the filter of Routes[1] "g"`}}},
		"retry topic in another's shared filter": {routes: []Route{Handle("f", ackBytes, RetryTo("g/r")), Handle("g/+", ackBytes, Shared("s"))},
			want: []fault{{`Routes[0] "f": RetryTo`, "g/r", `matches the filter of Routes[1] "g/+", "g/+", which is shared`}}},
		"retry topic in another's filter": {routes: []Route{Handle("f", ackBytes, RetryTo("g/r")), Handle("#", ackBytes)}},
		"dead letters to a retry topic": {routes: []Route{Handle("f", ackBytes, RetryTo("r")), Handle("g", ackBytes, DeadLetterTo("r"))},
			want: []fault{{`Routes[1] "g": DeadLetterTo`, "r", `is the retry topic of Routes[0] "f"`}}},
		"dead letters in a circle of two": {routes: []Route{Handle("f", ackBytes, DeadLetterTo("g")), Handle("g", ackBytes, DeadLetterTo("f"))},
			want: []fault{
				{`Routes[0] "f": DeadLetterTo`, "g", `goes to Routes[1] "g"`},
				{`Routes[1] "g": DeadLetterTo`, "f", `goes to Routes[0] "f"`},
			}},
		"dead letters in a circle of three": {routes: []Route{
			Handle("a", ackBytes, DeadLetterTo("b/x")), Handle("b/+", ackBytes, DeadLetterTo("c")), Handle("c", ackBytes, DeadLetterTo("a")), Handle("c", ackBytes, Name("ends")),
		}, want: []fault{
			{`Routes[0] "a": DeadLetterTo`, "b/x", `goes to Routes[1] "b/+"`},
			{`Routes[1] "b/+": DeadLetterTo`, "c", `goes to Routes[2] "c"`},
			{`Routes[2] "c": DeadLetterTo`, "a", `goes to Routes[0] "a"`},
		}},
		"dead letters that lead into a circle": {routes: []Route{
			Handle("a", ackBytes, DeadLetterTo("b")), Handle("b", ackBytes, DeadLetterTo("c")), Handle("c", ackBytes, DeadLetterTo("b")),
		}, want: []fault{
			{`Routes[1] "b": DeadLetterTo`, "c", `goes to Routes[2] "c"`},
			{`Routes[2] "c": DeadLetterTo`, "b", `goes to Routes[1] "b"`},
		}},
		"dead letters in a chain": {routes: []Route{Handle("a", ackBytes, DeadLetterTo("b")), Handle("b", ackBytes, DeadLetterTo("c")), Handle("c", ackBytes)}},

		"batch above the window": {set: func(c *Config) { c.ReceiveMaximum = 10 },
			routes: []Route{HandleBatch("f", ackBatch), HandleBatch("g", ackBatch, BatchSize(11)), HandleBatch("h", ackBatch, BatchSize(11), AtMostOnce)},
			want:   []fault{{`Routes[1] "g": BatchSize`, "11", "exceeds ReceiveMaximum, 10"}}},
		"E2: shared without a session": {set: func(c *Config) { c.SessionExpiry = -1 },
			routes: []Route{Handle("f", ackBytes, Shared("g")), Handle("h", ackBytes, Shared("g"), ExactlyOnce), Handle("i", ackBytes, Shared("g"), AtMostOnce)},
			want: []fault{
				{`Routes[0] "f": Shared`, "g", "needs a session at QoS 1 and 2"},
				{`Routes[1] "h": Shared`, "g", "needs a session at QoS 1 and 2"},
			}},
		"retry topic without a session": {set: func(c *Config) { c.SessionExpiry = -1 }, routes: []Route{Handle("f", ackBytes, RetryTo("r"))},
			want: []fault{{`Routes[0] "f": RetryTo`, "r", "needs a session"}}},
		"client id with a retry topic": {set: func(c *Config) { c.ClientID = strings.Repeat("c", 65_530) }, routes: []Route{Handle("f", ackBytes, RetryTo("r"))},
			want: []fault{{"ClientID", clip(strings.Repeat("c", 65_530)), `at most 65529 leave room for "-retry"`}}},
		"client id without": {set: func(c *Config) { c.ClientID = strings.Repeat("c", 65_535) }, routes: []Route{Handle("f", ackBytes)}},
		"will to a retry topic": {set: func(c *Config) { c.Will = &Will{Topic: "r"} }, routes: []Route{Handle("f", ackBytes, RetryTo("r"))},
			want: []fault{{"Will.Topic", "r", `is the retry topic of Routes[0] "f"`}}},
		"retired and in use": {set: func(c *Config) { c.RetireFilters = []string{"f", "$share/s/g", "g", "$share/s/f"} }, routes: []Route{Handle("f", ackBytes), Handle("g", ackBytes, Shared("s"))},
			want: []fault{
				{"RetireFilters[0]", "f", `is the subscription of Routes[0] "f"`},
				{"RetireFilters[1]", "$share/s/g", `is the subscription of Routes[1] "g"`},
			}},

		"defaults are blamed once": {set: func(c *Config) {
			c.RouteDefaults = []RouteOption{nil, Workers(0), Timeout(-1), RetryTo("+"), OnPanic(nil)}
		},
			routes: []Route{Handle("f", ackBytes, RetryTo("r")), Handle("g", ackBytes, Workers(2), RetryTo("s"))},
			want: []fault{
				{"RouteDefaults: option 0", "<nil>", "is nil"},
				{"RouteDefaults: Workers", "0", "between"},
				{"RouteDefaults: RetryTo", "+", "wildcard"},
				{"RouteDefaults: Timeout", "-1ns", "negative"},
				{"RouteDefaults: OnPanic", "<nil>", "nil"},
			}},
		"defaults: a cap without dead letters": {set: func(c *Config) { c.RouteDefaults = []RouteOption{MaxAttempts(3)} },
			routes: []Route{Handle("f", ackBytes, DeadLetterTo("d")), Handle("g", ackBytes), Handle("h", ackBytes, DropExhausted())},
			want:   []fault{{`Routes[1] "g": MaxAttempts`, "3", "no dead-letter topic"}}},
		"defaults: one retry topic for all": {set: func(c *Config) { c.RouteDefaults = []RouteOption{RetryTo("r")} },
			routes: []Route{Handle("f", ackBytes), Handle("g", ackBytes)},
			want:   []fault{{`Routes[1] "g": RetryTo`, "r", `is the retry topic of Routes[0] "f" too`}}},
		"defaults: one name for all": {set: func(c *Config) { c.RouteDefaults = []RouteOption{Name("n")} },
			routes: []Route{Handle("f", ackBytes), Handle("g", ackBytes)},
			want:   []fault{{`Routes[1] "n": Name`, "n", `is the name of Routes[0] too`}}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := validConfig()
			if c.set != nil {
				c.set(&cfg)
			}
			expect(t, invalid(cfg, c.routes...), c.want...)
		})
	}
}
