package settle

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/settlemq/settle/internal/topic"
)

// label names a route for whoever reads an error.
func (s *routeSpec) label() string {
	return fmt.Sprintf("Routes[%d] %q", s.index, clip(s.name))
}

// defaults checks the values in RouteDefaults by themselves; what they mean together with a route's own is found with
// the route.
func (f *faults) defaults(cfg *Config) {
	s := &routeSpec{batch: true}
	s.apply(cfg.RouteDefaults)
	f.values("RouteDefaults: ", s, cfg)
}

func (f *faults) routes(cfg *Config, routes []*routeSpec) {
	var sound []*routeSpec // those whose topics can be compared with the others'
	for _, s := range routes {
		if s.typ == nil {
			f.add("Routes["+strconv.Itoa(s.index)+"]", nil, "is the zero Route: make routes with Handle and HandleBatch")
			continue
		}
		prefix := s.label() + ": "
		usable := f.handler(prefix, s)
		f.values(prefix, s, cfg)
		f.combination(prefix, s, cfg)
		if usable {
			sound = append(sound, s)
		}
	}
	f.names(routes)
	f.retryTopics(sound)
	f.deadLetterCircles(sound)
	if cfg.Will != nil {
		for _, s := range sound {
			if s.retryTo != "" && s.retryTo == cfg.Will.Topic {
				f.add("Will.Topic", clip(cfg.Will.Topic), "is the retry topic of "+s.label()+", which would handle the will: choose another")
			}
		}
	}
}

// handler checks what Handle and HandleBatch were called with. It reports whether the filter can be compared with
// topics.
func (f *faults) handler(prefix string, s *routeSpec) bool {
	if s.noFunc {
		f.add(prefix+"handler", nil, "is nil")
	}
	switch reason := undecodable(s.typ); {
	case s.batch && s.typ == byteType:
		f.add(prefix+"handler", nil, "takes a batch of single bytes: write [][]byte for a batch of payloads, or Handle for one payload")
	case reason != "":
		f.add(prefix+"handler", s.typ.String(), reason)
	}
	if strings.HasPrefix(s.filter, sharePrefix) || s.filter == "$share" {
		f.add(prefix+"filter", clip(s.filter), "writes $share by hand: give the filter alone, and the group with Shared")
		return false
	}
	if !f.check(prefix+"filter", clip(s.filter), topic.ValidateFilter(s.filter), "") {
		return false
	}
	if s.group != "" && topic.ValidateGroup(s.group) == nil {
		return f.check(prefix+"filter", clip(s.filter), topic.ValidateString(topic.Shared(s.group, s.filter)), "the group counts too")
	}
	return true
}

// undecodable says why no payload can become a t, "" if one can.
func undecodable(t reflect.Type) string {
	if rawType(t) || implementsAny(reflect.PointerTo(t), jsonUnmarshaler, textUnmarshaler, binaryUnmarshaler) {
		return ""
	}
	switch t.Kind() {
	case reflect.Chan, reflect.Func, reflect.UnsafePointer, reflect.Complex64, reflect.Complex128:
		return "is a type that nothing decodes into"
	case reflect.Interface:
		if t.NumMethod() > 0 {
			return "is an interface with methods, which nothing decodes into: take a concrete type"
		}
	case reflect.Pointer:
		return undecodable(t.Elem())
	}
	return ""
}

// values checks the options of one layer, the defaults or a route's own, each by itself.
func (f *faults) values(prefix string, s *routeSpec, cfg *Config) {
	for _, p := range s.problems {
		f.add(prefix+p.Field, p.Value, p.Reason)
	}
	if s.set.has(setQoS) && s.qos > ExactlyOnce {
		f.add(prefix+"QoS", byte(s.qos), unknownQoS)
	}
	if s.set.has(setName) && s.name != "" {
		f.label(prefix+"Name", s.name)
	}
	if s.set.has(setWorkers) && (s.workers < 1 || s.workers > maxWorkers) {
		f.add(prefix+"Workers", s.workers, fmt.Sprintf("must be between 1 and %d", maxWorkers))
	}
	if s.set.has(setShared) {
		f.check(prefix+"Shared", clip(s.group), topic.ValidateGroup(s.group), "")
	}
	if s.set.has(setRetryTo) {
		f.publishTopic(prefix+"RetryTo", s.retryTo)
	}
	if s.set.has(setDeadLetterTo) {
		f.publishTopic(prefix+"DeadLetterTo", s.deadLetterTo)
	}
	if s.set.has(setEncoding) {
		f.encoding(prefix+"Encoding", s.encoding, cfg)
	}
	if s.set.has(setBackoff) {
		f.backoff(prefix+"Backoff", s.backoff)
	}
	f.times(prefix, s)
	f.policies(prefix, s)
}

// maxWorkers keeps a typing error from becoming a million goroutines.
const maxWorkers = 65_536

func (f *faults) times(prefix string, s *routeSpec) {
	if s.set.has(setBatchSize) && s.batchSize < 1 {
		f.add(prefix+"BatchSize", s.batchSize, "must be at least 1")
	}
	if s.set.has(setTimeout) {
		switch {
		case s.timeout < 0:
			f.add(prefix+"Timeout", s.timeout, "must not be negative; 0 means no limit")
		case s.timeout > 0 && s.timeout < time.Millisecond:
			f.add(prefix+"Timeout", s.timeout, "must be at least 1ms, or 0 for no limit: "+noUnit)
		}
	}
	if s.set.has(setLinger) {
		switch {
		case s.linger < 0:
			f.add(prefix+"Linger", s.linger, "must not be negative; 0 means not to wait")
		case s.linger > 0 && s.linger < time.Microsecond:
			f.add(prefix+"Linger", s.linger, "must be at least 1µs, or 0 for not to wait: "+noUnit)
		}
	}
}

func (f *faults) policies(prefix string, s *routeSpec) {
	for _, p := range []struct {
		bit    settings
		field  string
		policy func(error) Outcome
	}{
		{setOnDecode, "OnDecodeFailure", s.onDecode},
		{setOnPanic, "OnPanic", s.onPanic},
		{setOnTimeout, "OnTimeout", s.onTimeout},
		{setOnOversize, "OnOversize", s.onOversize},
	} {
		if s.set.has(p.bit) && p.policy == nil {
			f.add(prefix+p.field, nil, "the policy is nil: leave it out for the default")
		}
	}
}

func (f *faults) backoff(field string, policy BackoffPolicy) {
	if v := reflect.ValueOf(policy); policy == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		f.add(field, nil, "the policy is nil: leave it out for the default")
		return
	}
	if p, ok := policy.(interface{ check() string }); ok {
		if reason := p.check(); reason != "" {
			f.add(field, fmt.Sprint(policy), reason)
		}
	}
}

func (f *faults) encoding(field, contentType string, cfg *Config) {
	if contentType == "" {
		f.add(field, "", "is empty: leave it out for the first codec")
		return
	}
	known := newCodecs(cfg.Codecs)
	_, err := known.forContent(contentType, "")
	f.check(field, clip(contentType), codecAdvice(err), "")
}

func codecAdvice(err error) error {
	if err == nil {
		return nil
	}
	return errors.New("is the content type of none of Codecs")
}

// combination checks what a route's settings mean together, and together with the app's.
func (f *faults) combination(prefix string, s *routeSpec, cfg *Config) {
	switch {
	case !s.batch && s.set.has(setBatchSize):
		f.add(prefix+"BatchSize", s.batchSize, "is an option of HandleBatch, and this is a Handle")
	case s.batch && s.qos == AtMostOnce && s.batchSize > cfg.QoS0Queue && cfg.QoS0Queue > 0:
		f.add(prefix+"BatchSize", s.batchSize, fmt.Sprintf("exceeds QoS0Queue, %d: no batch would ever fill; raise one or lower the other", cfg.QoS0Queue))
	case s.batch && s.qos != AtMostOnce && s.batchSize > cfg.ReceiveMaximum && cfg.ReceiveMaximum > 0:
		f.add(prefix+"BatchSize", s.batchSize, fmt.Sprintf("exceeds ReceiveMaximum, %d: no batch would ever fill; raise one or lower the other", cfg.ReceiveMaximum))
	}
	if !s.batch && s.set.has(setLinger) {
		f.add(prefix+"Linger", s.linger, "is an option of HandleBatch, and this is a Handle")
	}
	if s.set.has(setEncoding) && rawType(s.typ) {
		f.add(prefix+"Encoding", clip(s.encoding), "has no effect: the handler takes bytes, which are not decoded")
	}

	switch capped := s.maxAttempts > 0; {
	case s.dropExhausted && s.deadLetterTo != "":
		f.add(prefix+"DropExhausted", nil, fmt.Sprintf("contradicts DeadLetterTo(%q), where exhausted deliveries go: keep one of the two", clip(s.deadLetterTo)))
	case capped && s.deadLetterTo == "" && !s.dropExhausted:
		f.add(prefix+"MaxAttempts", s.maxAttempts, "caps the attempts while there is no dead-letter topic: give DeadLetterTo, or DropExhausted if what fails so often may be lost")
	case s.set.has(setDropExhausted) && !capped:
		f.add(prefix+"DropExhausted", nil, "has no effect without MaxAttempts: attempts are unlimited")
	}

	if cfg.keepsSession() {
		return
	}
	if s.group != "" && s.qos != AtMostOnce {
		f.add(prefix+"Shared", clip(s.group), "needs a session at QoS 1 and 2: what a member without one leaves unacknowledged goes to nobody; make SessionExpiry positive, or the route AtMostOnce")
	}
	if s.retryTo != "" {
		f.add(prefix+"RetryTo", clip(s.retryTo), "needs a session, where copies wait: make SessionExpiry positive, or leave RetryTo out to hold deliveries instead")
	}
}

func (f *faults) names(routes []*routeSpec) {
	first := make(map[string]*routeSpec, len(routes))
	for _, s := range routes {
		if s.typ == nil {
			continue
		}
		if other := first[s.name]; other != nil {
			f.add(s.label()+": Name", clip(s.name), fmt.Sprintf("is the name of Routes[%d] too: tell them apart with Name, which defaults to the topic filter", other.index))
			continue
		}
		first[s.name] = s
	}
}

// retryTopics checks every retry topic against the other topics and filters of the app. What arrives on a retry topic
// over the main connection is acknowledged and never handled, so a route that listens to that very topic would never
// get a message.
func (f *faults) retryTopics(routes []*routeSpec) {
	owner := make(map[string]*routeSpec, len(routes))
	for _, s := range routes {
		if s.retryTo == "" || topic.ValidateTopic(s.retryTo) != nil {
			continue
		}
		field := s.label() + ": RetryTo"
		if other := owner[s.retryTo]; other != nil {
			f.add(field, clip(s.retryTo), "is the retry topic of "+other.label()+" too: each route needs one of its own")
		} else {
			owner[s.retryTo] = s
		}
		for _, other := range routes {
			whose := "the filter of " + other.label()
			if other == s {
				whose = "the route's own filter"
			}
			switch {
			case other.filter == s.retryTo:
				f.add(field, clip(s.retryTo), "is "+whose+", which would get nothing else: choose a topic of its own")
			case other.group != "" && topic.Match(other.filter, s.retryTo):
				f.add(field, clip(s.retryTo), fmt.Sprintf("matches %s, %q, which is shared, so that other members would get the copies: choose a topic outside of it", whose, clip(other.filter)))
			}
		}
	}
	for _, s := range routes {
		if other := owner[s.deadLetterTo]; other != nil && s.deadLetterTo != "" {
			f.add(s.label()+": DeadLetterTo", clip(s.deadLetterTo), "is the retry topic of "+other.label()+", which would handle the dead letters: choose another")
		}
	}
}

// deadLetterCircles finds dead letters that come back to the route that rejected them, at once or by way of other
// routes: a message that nobody can handle would go round for ever.
func (f *faults) deadLetterCircles(routes []*routeSpec) {
	for _, s := range routes {
		if s.deadLetterTo == "" || topic.ValidateTopic(s.deadLetterTo) != nil {
			continue
		}
		field := s.label() + ": DeadLetterTo"
		if topic.Match(s.filter, s.deadLetterTo) {
			f.add(field, clip(s.deadLetterTo), fmt.Sprintf("matches the route's own filter, %q: what it rejects would come back for ever; choose a topic outside of it", clip(s.filter)))
			continue
		}
		if via := circle(s, s, routes, map[*routeSpec]bool{}); via != nil {
			f.add(field, clip(s.deadLetterTo), "goes to "+via.label()+", whose dead letters come back to this route: what both reject would go round for ever")
		}
	}
}

// circle returns the route to which the dead letters of from go next on a way that ends at goal, nil if there is none.
func circle(goal, from *routeSpec, routes []*routeSpec, seen map[*routeSpec]bool) *routeSpec {
	if from.deadLetterTo == "" {
		return nil
	}
	for _, next := range routes {
		if seen[next] || !topic.Match(next.filter, from.deadLetterTo) {
			continue
		}
		if next == goal {
			return next
		}
		seen[next] = true
		if circle(goal, next, routes, seen) != nil {
			return next
		}
	}
	return nil
}
