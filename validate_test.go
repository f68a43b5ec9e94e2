package settle

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func ackBytes(context.Context, []byte) Outcome           { return Ack() }
func ackBatch(_ context.Context, _ [][]byte) Outcomes    { return Every(Ack()) }
func ackAny(context.Context, map[string]any) Outcome     { return Ack() }
func noDial(context.Context, *url.URL) (net.Conn, error) { return nil, errors.ErrUnsupported }

func noCredentials(context.Context) (string, []byte, error) { return "", nil, nil }

func validConfig() Config {
	return Config{ClientID: "billing-0", Servers: []string{"mqtt://localhost:1883"}}
}

// invalid returns what New finds wrong, in the order in which it reports it.
func invalid(cfg Config, routes ...Route) []*ConfigError {
	cfg = cfg.withDefaults()
	err := validate(&cfg, resolveRoutes(&cfg, routes))
	if err == nil {
		return nil
	}
	var found []*ConfigError
	for _, e := range err.(interface{ Unwrap() []error }).Unwrap() {
		found = append(found, e.(*ConfigError))
	}
	return found
}

// fault is an expected ConfigError: its field, its value in print, and what its reason must say.
type fault struct{ field, value, reason string }

func expect(t *testing.T, got []*ConfigError, want ...fault) {
	t.Helper()
	for i, e := range got {
		if i >= len(want) {
			t.Errorf("beyond what was expected: %v", e)
			continue
		}
		w := want[i]
		if e.Field != w.field || fmt.Sprint(e.Value) != w.value || !strings.Contains(e.Reason, w.reason) {
			t.Errorf("got  %s | %v | %s\nwant %s | %s | ...%s...", e.Field, e.Value, e.Reason, w.field, w.value, w.reason)
		}
		if !strings.HasPrefix(e.Error(), "settle: "+e.Field+": ") || !strings.HasSuffix(e.Error(), e.Reason) || len(e.Error()) > 512 {
			t.Errorf("text: %s", e.Error())
		}
	}
	for _, w := range want[min(len(got), len(want)):] {
		t.Errorf("not found: %+v", w)
	}
}

func TestValidConfigs(t *testing.T) {
	everything := validConfig()
	everything.Name = "billing"
	everything.Servers = []string{"mqtt://localhost:1883", "mqtts://standby:8883", "tcp://10.0.0.1", "tls://[::1]:8883/", "ssl://h", "ws://h/mqtt?x=y", "wss://h:443/mqtt"}
	everything.SessionExpiry = math.MaxUint32 * time.Second
	everything.ReceiveMaximum = 65_535
	everything.RetryReceiveMaximum = 1
	everything.KeepAlive = 65_535 * time.Second
	everything.MaxPayload = 268_435_455
	everything.Redelivery = HandleAgain
	everything.TLS = new(tls.Config)
	everything.Will = &Will{Topic: "services/billing", Payload: make([]byte, 65_535), QoS: ExactlyOnce, Retain: true, ContentType: "text/plain", Delay: time.Minute, Expiry: time.Hour}
	everything.Credentials = noCredentials
	everything.Metrics = prometheus.NewRegistry()
	everything.RouteDefaults = []RouteOption{Timeout(time.Minute), BatchSize(10), Linger(time.Second), DropExhausted(), MaxAttempts(3)}
	everything.RetireFilters = []string{"meters/+/old", "$share/billing/meters/+/old"}
	everything.Codecs = []Codec{JSON(), fakeCodec("application/cbor")}

	noSession := validConfig()
	noSession.SessionExpiry = -1

	ownDial := validConfig()
	ownDial.Servers = []string{"unix:///run/mosquitto.sock"}
	ownDial.Dial = noDial
	ownDial.TLS = new(tls.Config)

	userinfo := validConfig()
	userinfo.Servers = []string{"mqtt://billing:secret@localhost"}

	for name, c := range map[string]struct {
		cfg    Config
		routes []Route
	}{
		"no routes":  {cfg: validConfig()},
		"own dial":   {cfg: ownDial},
		"userinfo":   {cfg: userinfo},
		"no session": {noSession, []Route{Handle("a", ackBytes), Handle("b", ackBytes, AtMostOnce, Shared("g"))}},
		"everything": {everything, []Route{
			Handle("meters/+/usage", ackAny, ExactlyOnce, Workers(8, ByKey), Timeout(0), RetryTo("meters/retry/usage"), Backoff(Exponential(time.Second, time.Second)),
				MaxAttempts(1), DeadLetterTo("billing/dead"), Encoding("application/CBOR; x=y"), AllowEmpty(), Name("usage")),
			Handle("meters/+/frame", ackBytes, Shared("billing"), RetryTo("billing/retry/frame"), Backoff(Constant(time.Millisecond)), DeadLetterTo("billing/dead"), MaxAttempts(math.MaxInt)),
			HandleBatch("meters/+/power", ackBatch, AtMostOnce, BatchSize(10_000), Linger(0)),
			HandleBatch("#", ackBatch, BatchSize(65_535), OnPanic(Reject), OnTimeout(Reject), OnOversize(Retry), OnDecodeFailure(Retry), With()),
			Handle("billing/dead", ackBytes, AtLeastOnce),
			Handle("$SYS/#", ackBytes),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, invalid(c.cfg, c.routes...))
		})
	}
}

func TestInvalidConfig(t *testing.T) {
	long := strings.Repeat("c", 65_536)
	for name, c := range map[string]struct {
		set  func(*Config)
		want []fault
	}{
		"name: UTF-8":       {func(c *Config) { c.Name = "a\xff" }, []fault{{"Name", "a\xff", "not valid UTF-8"}}},
		"name: control":     {func(c *Config) { c.Name = "a\nb" }, []fault{{"Name", "a\nb", "control characters"}}},
		"no servers":        {func(c *Config) { c.Servers = nil }, []fault{{"Servers", "<nil>", "at least one server"}}},
		"client id: none":   {func(c *Config) { c.ClientID = "" }, []fault{{"ClientID", "<nil>", "is missing"}}},
		"client id: long":   {func(c *Config) { c.ClientID = long }, []fault{{"ClientID", clip(long), "has 65536 bytes: at most 65535"}}},
		"client id: UTF-8":  {func(c *Config) { c.ClientID = "a\xff" }, []fault{{"ClientID", "a\xff", "not valid UTF-8"}}},
		"client id: U+0000": {func(c *Config) { c.ClientID = "a\x00" }, []fault{{"ClientID", "a\x00", "U+0000"}}},

		"session: no unit":       {func(c *Config) { c.SessionExpiry = 3600 }, []fault{{"SessionExpiry", "3.6µs", "at least 1s"}}},
		"session: too long":      {func(c *Config) { c.SessionExpiry = (math.MaxUint32 + 1) * time.Second }, []fault{{"SessionExpiry", "1193046h28m16s", "for ever"}}},
		"session: hair too long": {func(c *Config) { c.SessionExpiry = math.MaxUint32*time.Second + 1 }, []fault{{"SessionExpiry", "1193046h28m15.000000001s", "for ever"}}},
		"keep-alive: negative":   {func(c *Config) { c.KeepAlive = -1 }, []fault{{"KeepAlive", "-1ns", "cannot be switched off"}}},
		"keep-alive: no unit":    {func(c *Config) { c.KeepAlive = 30 }, []fault{{"KeepAlive", "30ns", "unit"}}},
		"keep-alive: too long":   {func(c *Config) { c.KeepAlive = 65_536 * time.Second }, []fault{{"KeepAlive", "18h12m16s", "between 1s and 65535s"}}},
		"dial: negative":         {func(c *Config) { c.DialTimeout = -time.Second }, []fault{{"DialTimeout", "-1s", "not be negative"}}},
		"dial: no unit":          {func(c *Config) { c.DialTimeout = 10 }, []fault{{"DialTimeout", "10ns", "unit"}}},
		"shutdown: negative":     {func(c *Config) { c.ShutdownTimeout = -1 }, []fault{{"ShutdownTimeout", "-1ns", "not be negative"}}},
		"shutdown: no unit":      {func(c *Config) { c.ShutdownTimeout = 10 }, []fault{{"ShutdownTimeout", "10ns", "unit"}}},

		"receive maximum: negative":       {func(c *Config) { c.ReceiveMaximum = -1 }, []fault{{"ReceiveMaximum", "-1", "between 1 and 65535"}}},
		"receive maximum: too large":      {func(c *Config) { c.ReceiveMaximum = 65_536 }, []fault{{"ReceiveMaximum", "65536", "between 1 and 65535"}}},
		"retry receive maximum: negative": {func(c *Config) { c.RetryReceiveMaximum = -1 }, []fault{{"RetryReceiveMaximum", "-1", "between 1 and 65535"}}},
		"retry receive maximum: large":    {func(c *Config) { c.RetryReceiveMaximum = 65_536 }, []fault{{"RetryReceiveMaximum", "65536", "between 1 and 65535"}}},
		"max payload: negative":           {func(c *Config) { c.MaxPayload = -1 }, []fault{{"MaxPayload", "-1", "between 1 and 268435455"}}},
		"max payload: too large":          {func(c *Config) { c.MaxPayload = 268_435_456 }, []fault{{"MaxPayload", "268435456", "between 1 and 268435455"}}},
		"unsettled: below payload":        {func(c *Config) { c.MaxPayload, c.UnsettledBytes = 100, 99 }, []fault{{"UnsettledBytes", "99", "at least MaxPayload, 100"}}},
		"queue: negative":                 {func(c *Config) { c.QoS0Queue = -1 }, []fault{{"QoS0Queue", "-1", "at least 1"}}},
		"queue: below payload":            {func(c *Config) { c.MaxPayload, c.QoS0Bytes = 100, 99 }, []fault{{"QoS0Bytes", "99", "at least MaxPayload, 100"}}},
		"backlog: negative":               {func(c *Config) { c.RetryBacklog = -1 }, []fault{{"RetryBacklog", "-1", "at least 1"}}},
		"redelivery":                      {func(c *Config) { c.Redelivery = 7 }, []fault{{"Redelivery", "7", "neither"}}},

		"will: no topic":     {func(c *Config) { c.Will = &Will{} }, []fault{{"Will.Topic", "", "is empty"}}},
		"will: wildcard":     {func(c *Config) { c.Will = &Will{Topic: "a/+"} }, []fault{{"Will.Topic", "a/+", "wildcard"}}},
		"will: server topic": {func(c *Config) { c.Will = &Will{Topic: "$SYS/a"} }, []fault{{"Will.Topic", "$SYS/a", "begins with '$'"}}},
		"will: the rest": {func(c *Config) {
			c.Will = &Will{Topic: "a", Payload: make([]byte, 65_536), QoS: 3, ContentType: "\xff", Delay: -1, Expiry: 60}
		}, []fault{
			{"Will.Payload", "<nil>", "has 65536 bytes"},
			{"Will.QoS", "3", "AtLeastOnce"},
			{"Will.ContentType", "\xff", "UTF-8"},
			{"Will.Delay", "-1ns", "between 0 and"},
			{"Will.Expiry", "60ns", "unit"},
		}},

		"TLS for nobody":      {func(c *Config) { c.TLS = new(tls.Config) }, []fault{{"TLS", "<nil>", "no server's scheme uses it"}}},
		"nil registry":        {func(c *Config) { c.Metrics = (*prometheus.Registry)(nil) }, []fault{{"Metrics", "<nil>", "nil *prometheus.Registry"}}},
		"nil codec":           {func(c *Config) { c.Codecs = []Codec{nil} }, []fault{{"Codecs[0]", "<nil>", "is nil"}}},
		"nil pointer codec":   {func(c *Config) { c.Codecs = []Codec{(*pointerCodec)(nil)} }, []fault{{"Codecs[0]", "<nil>", "is nil"}}},
		"codec without type":  {func(c *Config) { c.Codecs = []Codec{fakeCodec("")} }, []fault{{"Codecs[0]", "<nil>", "settle.fakeCodec has no content type"}}},
		"codec with charset":  {func(c *Config) { c.Codecs = []Codec{fakeCodec("a/b; charset=c")} }, []fault{{"Codecs[0]", "a/b; charset=c", "parameters"}}},
		"codec not UTF-8":     {func(c *Config) { c.Codecs = []Codec{fakeCodec("a\xff")} }, []fault{{"Codecs[0]", "a\xff", "UTF-8"}}},
		"codec twice":         {func(c *Config) { c.Codecs = []Codec{JSON(), fakeCodec("Application/JSON")} }, []fault{{"Codecs[1]", "Application/JSON", "of Codecs[0] too"}}},
		"retire: syntax":      {func(c *Config) { c.RetireFilters = []string{"a/#/b"} }, []fault{{"RetireFilters[0]", "a/#/b", "'#'"}}},
		"retire: empty":       {func(c *Config) { c.RetireFilters = []string{"a", ""} }, []fault{{"RetireFilters[1]", "", "is empty"}}},
		"retire: no filter":   {func(c *Config) { c.RetireFilters = []string{"$share/g"} }, []fault{{"RetireFilters[0]", "$share/g", "is empty"}}},
		"retire: bad group":   {func(c *Config) { c.RetireFilters = []string{"$share/+/a"} }, []fault{{"RetireFilters[0]", "$share/+/a", "$share/group/filter"}}},
		"retire: shared hash": {func(c *Config) { c.RetireFilters = []string{"$share/g/a#"} }, []fault{{"RetireFilters[0]", "$share/g/a#", "'#'"}}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := validConfig()
			c.set(&cfg)
			expect(t, invalid(cfg), c.want...)
		})
	}
}

func TestInvalidServers(t *testing.T) {
	for _, c := range []struct{ server, shown, reason string }{
		{"", "", "is empty"},
		{"localhost", "localhost", "has no scheme"},
		{"localhost:1883", "localhost:1883", "has no scheme"},
		{"10.0.0.1:1883", "10.0.0.1:1883", "has no scheme"},
		{"user:pass@localhost:1883", "localhost:1883", "has no scheme"},
		{"//localhost", "//localhost", "has no scheme"},
		{"http://localhost", "http://localhost", `has the scheme "http"`},
		{"mqtt://", "mqtt://", "has no host"},
		{"mqtt://:1883", "mqtt://:1883", "has no host"},
		{"mqtt://h:0", "mqtt://h:0", "port"},
		{"mqtt://h:65536", "mqtt://h:65536", "port"},
		{"mqtt://h:x", "mqtt://h:x", "is not a URL"},
		{"mqtt://::1:1883", "mqtt://::1:1883", "brackets"},
		{"mqtt://u:p%zz@h", "mqtt://h", "is not a URL"},
		{"mqtt://u:p w@h", "mqtt://h", "is not a URL"},
		{"mqtt://h/path", "mqtt://h/path", "path or a query"},
		{"mqtts://h?q=1", "mqtts://h", "path or a query"},
		{"ws://h/#frag", "ws://h/#frag", "fragment"},
		{"http://u:sec?ret@h", "http://...", ""},
	} {
		cfg := validConfig()
		cfg.Servers = []string{c.server}
		expect(t, invalid(cfg), fault{"Servers[0]", c.shown, c.reason})
	}

	cfg := validConfig()
	cfg.Servers = []string{"mqtt://h", "mqtt://h"}
	expect(t, invalid(cfg), fault{"Servers[1]", "mqtt://h", "twice"})

	cfg.Servers = []string{"mqtt://user:secret@h"}
	cfg.Credentials = noCredentials
	expect(t, invalid(cfg), fault{"Servers[0]", "mqtt://h", "Credentials"})
}

// I2: whatever is wrong with an address, the password in it stays out of the error.
func TestI2ServerErrorsHideUserinfo(t *testing.T) {
	for _, server := range []string{
		"http://user:secret@h", "mqtt://user:secret@", "mqtt://user:secret@h:0", "mqtt://user:secret@h:x", "mqtt://user:se@secret@h/x",
		"user:secret@h", "mqtt://user:secret%zz@h", "mqtt://user:secret\x01@h", "://user:secret@h", "mqtt://user:a?secret@h", "mqtt://user:a/secret@h", "mqtt://user:a#secret@h",
		"http://h?token=secret", "mqtt://h?token=secret",
	} {
		cfg := validConfig()
		cfg.Servers = []string{server}
		got := invalid(cfg)
		if len(got) != 1 {
			t.Errorf("%s: %v", server, got)
		}
		for _, e := range got {
			if text := e.Error() + fmt.Sprint(e.Value); strings.Contains(text, "secret") || strings.Contains(text, "user:") {
				t.Errorf("%s: %s", server, text)
			}
		}
	}
}

// Everything that is wrong is reported by one New, and errors.As finds it.
func TestAllFaultsAtOnce(t *testing.T) {
	cfg := Config{ReceiveMaximum: -1, KeepAlive: 30, RouteDefaults: []RouteOption{Workers(0)}}
	cfg = cfg.withDefaults()
	err := validate(&cfg, resolveRoutes(&cfg, []Route{
		Handle("a#", ackBytes, QoS(7), Workers(4, ByKey, ByTopic), MaxAttempts(3)),
		{},
	}))
	var first *ConfigError
	if !errors.As(err, &first) || first.Field != "ClientID" {
		t.Fatal(err)
	}
	for _, field := range []string{
		"ClientID", "Servers", "ReceiveMaximum", "KeepAlive", "RouteDefaults: Workers",
		`Routes[0] "a#": filter`, `Routes[0] "a#": QoS`, `Routes[0] "a#": Workers`, `Routes[0] "a#": MaxAttempts`, "Routes[1]",
	} {
		if !strings.Contains(err.Error(), "settle: "+field+": ") {
			t.Errorf("%s is missing in\n%v", field, err)
		}
	}
}
