package settle

import (
	"errors"
	"fmt"
	"math"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/settlemq/settle/internal/topic"
)

// validate checks cfg, its defaults filled in, and routes, resolved, and reports all that is wrong at once: an
// errors.Join of *ConfigError, or nil.
func validate(cfg *Config, routes []*routeSpec) error {
	f := new(faults)
	f.identity(cfg, routes)
	f.servers(cfg)
	f.numbers(cfg)
	f.durations(cfg)
	f.will(cfg.Will)
	f.codecs(cfg.Codecs)
	if v := reflect.ValueOf(cfg.Metrics); v.Kind() == reflect.Pointer && v.IsNil() {
		f.add("Metrics", nil, "is a nil "+v.Type().String()+": leave the field out for no metrics")
	}
	f.defaults(cfg)
	f.routes(cfg, routes)
	f.retired(cfg.RetireFilters, routes)
	return errors.Join(f.list...)
}

// faults collects what is wrong.
type faults struct{ list []error }

func (f *faults) add(field string, value any, reason string) {
	f.list = append(f.list, &ConfigError{Field: field, Value: value, Reason: reason})
}

// check adds a fault if err is not nil. The texts of package topic complete a sentence about the field.
func (f *faults) check(field string, value any, err error, advice string) bool {
	if err == nil {
		return true
	}
	reason := err.Error()
	if advice != "" {
		reason += ": " + advice
	}
	f.add(field, value, reason)
	return false
}

func (f *faults) identity(cfg *Config, routes []*routeSpec) {
	if cfg.Name != "" {
		f.label("Name", cfg.Name)
	}
	longest := math.MaxUint16
	for _, s := range routes {
		if s.retryTo != "" {
			longest = math.MaxUint16 - len(retrySuffix)
		}
	}
	switch {
	case cfg.ClientID == "":
		f.add("ClientID", nil, "is missing: the session belongs to it, so it must be set and stay the same from start to start")
	case f.check("ClientID", clip(cfg.ClientID), topic.ValidateString(cfg.ClientID), "") && len(cfg.ClientID) > longest:
		f.add("ClientID", clip(cfg.ClientID), fmt.Sprintf("has %d bytes: at most %d leave room for %q, the second connection's", len(cfg.ClientID), longest, retrySuffix))
	}
	if cfg.Redelivery > HandleAgain {
		f.add("Redelivery", uint8(cfg.Redelivery), "is neither Adopt nor HandleAgain")
	}
}

// label checks a name that becomes a metric label and part of log lines.
func (f *faults) label(field, name string) {
	if !f.check(field, clip(name), topic.ValidateString(name), "") {
		return
	}
	if strings.ContainsFunc(name, unicode.IsControl) {
		f.add(field, clip(name), "contains control characters")
	}
}

func (f *faults) servers(cfg *Config) {
	if len(cfg.Servers) == 0 {
		f.add("Servers", nil, `is empty: name at least one server, such as "mqtt://localhost:1883"`)
		return
	}
	var seen, secure, bad = map[string]bool{}, false, false
	for i, s := range cfg.Servers {
		field := "Servers[" + strconv.Itoa(i) + "]"
		u, reason := parseServer(s, cfg.Dial != nil)
		switch {
		case reason != "":
			bad = true
			f.add(field, redactServer(s), reason)
			continue
		case seen[s]:
			f.add(field, redactServer(s), "is there twice")
		case u.User != nil && cfg.Credentials != nil:
			f.add(field, redactServer(s), "has a user name while Credentials is set: keep one of the two")
		}
		seen[s] = true
		secure = secure || schemes[u.Scheme].tls
	}
	if cfg.TLS != nil && cfg.Dial == nil && !secure && !bad {
		f.add("TLS", nil, "is set while no server's scheme uses it: write mqtts or wss, or leave TLS out")
	}
}

// parseServer reads a server's address. Its reason, empty if all is well, quotes nothing of s, which may hold a
// password. With anyScheme, where the user's own Dial makes sense of the address, only its syntax is checked.
func parseServer(s string, anyScheme bool) (u *url.URL, reason string) {
	u, err := url.Parse(s)
	switch {
	case s == "":
		return nil, `is empty: write an address such as "mqtt://localhost:1883"`
	case err != nil && !strings.Contains(s, "://"), err == nil && (u.Scheme == "" || u.Opaque != ""):
		return nil, "has no scheme: write mqtt://host:port, mqtts://host:port, ws://host:port/path or wss://host:port/path"
	case err != nil:
		return nil, "is not a URL: escape what is special in user name and password, and write IPv6 addresses in brackets"
	case anyScheme:
		return u, ""
	}
	scheme, known := schemes[u.Scheme]
	port := u.Port()
	number, err := strconv.Atoi(port)
	switch {
	case !known:
		return nil, fmt.Sprintf("has the scheme %q: there are mqtt, tcp, mqtts, tls, ssl, ws and wss; any other needs Dial", clip(u.Scheme))
	case u.Hostname() == "":
		return nil, "has no host"
	case strings.Contains(u.Hostname(), ":") && !strings.HasPrefix(u.Host, "["):
		return nil, "has an IPv6 address without brackets: write mqtt://[::1]:1883"
	case port != "" && (err != nil || number < 1 || number > math.MaxUint16):
		return nil, "has a port that is not between 1 and 65535"
	case !scheme.web && (u.Path != "" && u.Path != "/" || u.RawQuery != ""):
		return nil, "has a path or a query, which only ws and wss have"
	case u.Fragment != "":
		return nil, "has a fragment, which no server is sent"
	}
	return u, ""
}

func (f *faults) numbers(cfg *Config) {
	for _, n := range []struct {
		field         string
		value         int
		least, most   int
		leastIs, hint string
	}{
		{field: "ReceiveMaximum", value: cfg.ReceiveMaximum, least: 1, most: math.MaxUint16, hint: "0 means 1000"},
		{field: "RetryReceiveMaximum", value: cfg.RetryReceiveMaximum, least: 1, most: math.MaxUint16, hint: "0 means 65535"},
		{field: "MaxPayload", value: cfg.MaxPayload, least: 1, most: maxRemainingLength, hint: "0 means 1 MiB"},
		{field: "UnsettledBytes", value: cfg.UnsettledBytes, least: max(1, cfg.MaxPayload), most: math.MaxInt, leastIs: "MaxPayload", hint: "0 means 256 MiB"},
		{field: "QoS0Queue", value: cfg.QoS0Queue, least: 1, most: math.MaxInt, hint: "0 means 10000"},
		{field: "QoS0Bytes", value: cfg.QoS0Bytes, least: max(1, cfg.MaxPayload), most: math.MaxInt, leastIs: "MaxPayload", hint: "0 means 16 MiB"},
		{field: "RetryBacklog", value: cfg.RetryBacklog, least: 1, most: math.MaxInt, hint: "0 means 500"},
	} {
		least := strconv.Itoa(n.least)
		if n.leastIs != "" {
			least = n.leastIs + ", " + least
		}
		switch {
		case n.value < n.least && n.most == math.MaxInt:
			f.add(n.field, n.value, fmt.Sprintf("must be at least %s; %s", least, n.hint))
		case n.value < n.least || n.value > n.most:
			f.add(n.field, n.value, fmt.Sprintf("must be between %s and %d; %s", least, n.most, n.hint))
		}
	}
}

// maxRemainingLength is the longest that a packet can be after its fixed header (MQTT 5 section 2.1.4).
const maxRemainingLength = 268_435_455

// noUnit is the advice for a duration so short that its unit was forgotten: time.Duration counts nanoseconds.
const noUnit = "was the unit forgotten, as in 30*time.Second?"

func (f *faults) durations(cfg *Config) {
	const longest = math.MaxUint32 * time.Second
	if d := cfg.SessionExpiry; d > 0 && d < time.Second {
		f.add("SessionExpiry", d, "must be at least 1s, or negative for a session that ends with its connection: "+noUnit)
	} else if d > longest {
		f.add("SessionExpiry", d, fmt.Sprintf("must be at most %s, which means for ever", longest))
	}
	if d := cfg.KeepAlive; d < 0 {
		f.add("KeepAlive", d, "must be between 1s and 65535s: it cannot be switched off, or a dead connection would never be noticed")
	} else if d < time.Second {
		f.add("KeepAlive", d, "must be between 1s and 65535s: "+noUnit)
	} else if d > math.MaxUint16*time.Second {
		f.add("KeepAlive", d, "must be between 1s and 65535s")
	}
	for _, t := range []struct {
		field string
		value time.Duration
	}{{"DialTimeout", cfg.DialTimeout}, {"ShutdownTimeout", cfg.ShutdownTimeout}} {
		switch {
		case t.value < 0:
			f.add(t.field, t.value, "must not be negative; 0 means 10s")
		case t.value < time.Millisecond:
			f.add(t.field, t.value, "must be at least 1ms: "+noUnit)
		}
	}
}

func (f *faults) will(w *Will) {
	if w == nil {
		return
	}
	f.publishTopic("Will.Topic", w.Topic)
	if len(w.Payload) > math.MaxUint16 {
		f.add("Will.Payload", nil, fmt.Sprintf("has %d bytes: at most 65535 fit", len(w.Payload)))
	}
	if w.QoS > ExactlyOnce {
		f.add("Will.QoS", byte(w.QoS), unknownQoS)
	}
	f.check("Will.ContentType", clip(w.ContentType), topic.ValidateString(w.ContentType), "")
	for _, t := range []struct {
		field string
		value time.Duration
	}{{"Will.Delay", w.Delay}, {"Will.Expiry", w.Expiry}} {
		switch _, ok := wholeSeconds(t.value); {
		case !ok:
			f.add(t.field, t.value, "must be between 0 and 4294967295s")
		case t.value > 0 && t.value < time.Millisecond:
			f.add(t.field, t.value, noUnit)
		}
	}
}

const unknownQoS = "there are AtMostOnce, AtLeastOnce and ExactlyOnce"

// publishTopic checks a topic that the app publishes to.
func (f *faults) publishTopic(field, to string) {
	if f.check(field, clip(to), topic.ValidateTopic(to), "") && strings.HasPrefix(to, "$") {
		f.add(field, clip(to), "begins with '$': such topics are the server's (MQTT 5 section 4.7.2)")
	}
}

func (f *faults) codecs(list []Codec) {
	seen := make(map[string]int, len(list))
	for i, codec := range list {
		field := "Codecs[" + strconv.Itoa(i) + "]"
		if v := reflect.ValueOf(codec); codec == nil || v.Kind() == reflect.Pointer && v.IsNil() {
			f.add(field, nil, "is nil: leave it out")
			continue
		}
		contentType := codec.ContentType()
		key := mediaType(contentType)
		first, twice := seen[key]
		switch {
		case key == "":
			f.add(field, nil, fmt.Sprintf("the %T has no content type, by which codecs are found", codec))
			continue
		case strings.Contains(contentType, ";"):
			f.add(field, clip(contentType), "has parameters: name the content type alone, which serves it with any parameters")
		case !f.check(field, clip(contentType), topic.ValidateString(contentType), ""):
		case twice:
			f.add(field, clip(contentType), fmt.Sprintf("is the content type of Codecs[%d] too: each can be there once", first))
		}
		if !twice {
			seen[key] = i
		}
	}
}

func (f *faults) retired(filters []string, routes []*routeSpec) {
	inUse := make(map[string]*routeSpec, len(routes))
	for _, s := range routes {
		inUse[topic.Shared(s.group, s.filter)] = s
		if s.retryTo != "" {
			inUse[topic.Shared(s.group, s.retryTo)] = s
		}
	}
	for i, written := range filters {
		field := "RetireFilters[" + strconv.Itoa(i) + "]"
		filter := written
		if shared, ok := strings.CutPrefix(written, sharePrefix); ok {
			group, rest, _ := strings.Cut(shared, "/")
			if !f.check(field, clip(written), topic.ValidateGroup(group), "a shared subscription is written $share/group/filter") {
				continue
			}
			filter = rest
		}
		if !f.check(field, clip(written), topic.ValidateFilter(filter), "") {
			continue
		}
		if s := inUse[written]; s != nil {
			f.add(field, clip(written), "is the subscription of "+s.label()+": remove one of the two")
		}
	}
}

const sharePrefix = "$share/"
