package settle

import (
	"reflect"
	"slices"
	"time"
)

func (q QoS) applyRoute(s *routeSpec) { s.qos, s.set = q, s.set|setQoS }

// Name gives the route a name for logs, for the route label of metrics and for the "settle-route" header of copies. It
// must be unique in the app. Defaults to the topic filter, so of two routes on one filter one needs a name.
//
// A copy on a retry topic finds its route by this name: rename a route only when its retry topic is empty.
func Name(name string) RouteOption {
	return routeOptionFunc(func(s *routeSpec) {
		if name == "" {
			s.problem("Name", name, "is empty: leave it out for the topic filter")
		}
		s.name, s.set = name, s.set|setName
	})
}

// KeyFunc returns the key of a delivery: [Workers] sends the deliveries of one key to one lane, in their order. It runs
// on a goroutine of the route, one call after the other, and holds up that route while it runs, so it must be quick. Deliveries
// with the key "" take turns among the lanes. A KeyFunc that panics makes its delivery a Retry.
type KeyFunc func(*Delivery) string

// ByKey is the [KeyFunc] of the user property "partition-key" ([PartitionKeyHeader]), as publishers set it with
// [PartitionKey]. Deliveries without one take turns among the lanes.
func ByKey(d *Delivery) string {
	key, _ := d.Header(PartitionKeyHeader)
	return key
}

// ByTopic is the [KeyFunc] of the topic: the deliveries of one topic are handled in order. A retry copy keeps its
// original's topic.
func ByTopic(d *Delivery) string { return d.Topic() }

// Workers sets how many lanes, each a goroutine with an ordered queue, handle the route's deliveries: from 1 to 65,536.
// Defaults to 1: strict arrival order, apart from retries.
//
// Without a key function the deliveries are shared out among the lanes, and only the order of their acknowledgements is
// that of their arrival. With one ([ByKey], [ByTopic] or a function of your own) the deliveries of a key go to one lane
// and keep their order. At most one key function can be given. Lanes beyond Config.ReceiveMaximum have nothing to do,
// save at QoS 0.
func Workers(n int, by ...KeyFunc) RouteOption {
	return routeOptionFunc(func(s *routeSpec) {
		switch {
		case len(by) > 1:
			s.problem("Workers", n, "there are two key functions or more: give one, which may join several keys")
		case len(by) == 1 && by[0] == nil:
			s.problem("Workers", n, "the key function is nil: leave it out, or give ByKey, ByTopic or a function of your own")
		case len(by) == 1 && s.set.has(setWorkers) && s.keyKind != keyNone:
			s.problem("Workers", n, "it is the second Workers with a key function: give one")
		}
		s.workers, s.key, s.keyKind, s.set = n, nil, keyNone, s.set|setWorkers
		if len(by) > 0 && by[0] != nil {
			s.key, s.keyKind = by[0], kindOfKey(by[0])
		}
	})
}

// kindOfKey recognises the built-in key functions, which the dispatcher then need not call as if they were user code.
// Functions cannot be compared in Go; their code pointers can, once, when the app is made.
func kindOfKey(f KeyFunc) keyKind {
	switch reflect.ValueOf(f).Pointer() {
	case reflect.ValueOf(ByKey).Pointer():
		return keyUser
	case reflect.ValueOf(ByTopic).Pointer():
		return keyTopic
	default:
		return keyCustom
	}
}

// Timeout sets how long a handler may take for one delivery or one batch. Then its context ends with the cause
// [ErrHandlerTimeout], the delivery is settled by [OnTimeout], and the lane goes on; the handler goes on too until it
// minds its context, and what it returns is a counted no-op.
//
// Waits in middleware do not count. Defaults to 30 s. 0 means no limit: a handler that never returns then holds its
// lane, and in the end the window, for good. It cannot be negative.
func Timeout(d time.Duration) RouteOption {
	return routeOptionFunc(func(s *routeSpec) { s.timeout, s.set = d, s.set|setTimeout })
}

// RetryTo sets the retry topic: what the handler answers with [Retry] or [RetryAfter] is published there, at QoS 1, and
// acknowledged once the server has confirmed the copy. The app subscribes to the topic itself, over a second connection
// with the client identifier "<ClientID>-retry" and a session of its own, where a copy waits until it is due.
//
// Without it a retried delivery is held, unacknowledged, in the main window until its backoff is over: no copy is made,
// but it takes a slot of the window, acknowledgements behind it wait, and its attempts are forgotten with the process.
// Defaults to none.
//
// The topic belongs to this route of this app alone: no other route, and no other service, may use it. Choose one
// outside the route's filter. Inside it is possible where the route is not [Shared]: what arrives on it over the main
// connection is then acknowledged, counted and never handled. A retry topic needs a session that outlives the
// connection (Config.SessionExpiry). Before it is renamed it must be empty.
func RetryTo(topic string) RouteOption {
	return routeOptionFunc(func(s *routeSpec) { s.retryTo, s.set = topic, s.set|setRetryTo })
}

// Backoff sets how long a delivery waits after each failed attempt, unless the handler says so with [RetryAfter]. It
// serves holds and retry copies alike. Defaults to Exponential(time.Second, 5*time.Minute).
func Backoff(policy BackoffPolicy) RouteOption {
	return routeOptionFunc(func(s *routeSpec) { s.backoff, s.set = policy, s.set|setBackoff })
}

// MaxAttempts caps the attempts, the first delivery included: when the n-th fails the delivery goes to the dead-letter
// topic at once. n is at least 1. It needs [DeadLetterTo], or [DropExhausted] where what failed n times may be lost.
//
// Defaults to unlimited without a dead-letter topic and to 10 with one. With one, MaxAttempts(math.MaxInt) means
// unlimited. Without [RetryTo] attempts are counted in memory and begin anew with each process.
func MaxAttempts(n int) RouteOption {
	return routeOptionFunc(func(s *routeSpec) {
		if n < 1 {
			s.problem("MaxAttempts", n, "must be at least 1, the first delivery: leave it out for no limit, or for 10 with a dead-letter topic")
		}
		s.maxAttempts = n
	})
}

// DropExhausted says that a delivery whose attempts are used up may be dropped: it is acknowledged, counted as a drop,
// logged, and gone. It only makes sense with [MaxAttempts] and without [DeadLetterTo]; a route's own DeadLetterTo
// cancels a DropExhausted of Config.RouteDefaults.
func DropExhausted() RouteOption {
	return routeOptionFunc(func(s *routeSpec) { s.dropExhausted, s.set = true, s.set|setDropExhausted })
}

// DeadLetterTo sets the topic for what is rejected and for what has used up its attempts. A dead letter is published at
// QoS 1 and confirmed before its original is acknowledged; while the server does not confirm it, or answers that nobody
// subscribes to the topic, the original is held. So a session that subscribes to the topic must exist.
//
// It keeps the payload and the headers, has no expiry, and tells in its headers the reason, the attempts, the original
// topic and the route. Routes may share a dead-letter topic. No route of the app may match it that would send its own
// rejects back into the circle. Defaults to none: what is rejected is dropped, and the route is named in a warning at
// start.
func DeadLetterTo(topic string) RouteOption {
	return routeOptionFunc(func(s *routeSpec) {
		if !s.set.has(setDropExhausted) {
			s.dropExhausted = false
		}
		s.deadLetterTo, s.set = topic, s.set|setDeadLetterTo
	})
}

// Shared makes the subscription a shared one (MQTT 5 section 4.8.2): the server sends each message to one member of
// the group. The filter is written without "$share/group/", which the app adds. A retry topic is subscribed to in
// the same group.
//
// At QoS 1 and 2 it needs a session that outlives the connection (Config.SessionExpiry): what a member without one has
// not acknowledged when it dies is sent to nobody. A group has no '/', '+' or '#'. Defaults to none.
func Shared(group string) RouteOption {
	return routeOptionFunc(func(s *routeSpec) { s.group, s.set = group, s.set|setShared })
}

// BatchSize sets how many deliveries a batch holds at most. For [HandleBatch] only. At QoS 1 and 2 it cannot exceed
// Config.ReceiveMaximum, or no batch would ever fill; at QoS 0 not Config.QoS0Queue. Defaults to 64, or to
// ReceiveMaximum where that is less.
func BatchSize(n int) RouteOption {
	return routeOptionFunc(func(s *routeSpec) { s.batchSize, s.set = n, s.set|setBatchSize })
}

// Linger sets how long a batch that is not full waits for more, counted from its first delivery. For [HandleBatch]
// only. It is handed over earlier when it is full, or when nothing more can come because the window is full. 0 hands
// over what is there, without waiting. Defaults to 20 ms.
func Linger(d time.Duration) RouteOption {
	return routeOptionFunc(func(s *routeSpec) { s.linger, s.set = d, s.set|setLinger })
}

// OnDecodeFailure decides about a delivery whose payload could not be decoded: err is a *[DecodeError] with the
// delivery in it. In a batch the others go to the handler without it. Defaults to [Reject]: the dead letter keeps the
// raw bytes.
//
// Like all policies it must not block, runs on many goroutines at once, and is itself retried when it panics or returns
// the zero Outcome.
func OnDecodeFailure(policy func(err error) Outcome) RouteOption {
	return routeOptionFunc(func(s *routeSpec) { s.onDecode, s.set = policy, s.set|setOnDecode })
}

// OnPanic decides about a delivery whose handler or middleware panicked or called runtime.Goexit: err is a
// *[PanicError] with value and stack. Of a batch it is asked about every delivery. Defaults to [Retry].
func OnPanic(policy func(err error) Outcome) RouteOption {
	return routeOptionFunc(func(s *routeSpec) { s.onPanic, s.set = policy, s.set|setOnPanic })
}

// OnTimeout decides about a delivery whose handler took longer than [Timeout]: err is a *[TimeoutError], which matches
// [ErrHandlerTimeout]. Of a batch it is asked about every delivery. Defaults to [Retry].
func OnTimeout(policy func(err error) Outcome) RouteOption {
	return routeOptionFunc(func(s *routeSpec) { s.onTimeout, s.set = policy, s.set|setOnTimeout })
}

// OnOversize decides about a delivery whose payload exceeds Config.MaxPayload: err is an *[OversizeError]. The payload
// was read past and is not there. Defaults to [Reject]: the dead letter is a stub that says so.
func OnOversize(policy func(err error) Outcome) RouteOption {
	return routeOptionFunc(func(s *routeSpec) { s.onOversize, s.set = policy, s.set|setOnOversize })
}

// With adds middleware to the route, inside that of App.Use and after that of Config.RouteDefaults. The first one given
// is the outermost.
func With(middleware ...Middleware) RouteOption {
	return routeOptionFunc(func(s *routeSpec) {
		for _, m := range middleware {
			if m == nil {
				s.problem("With", nil, "a middleware is nil: leave it out")
				return
			}
		}
		s.middleware = slices.Concat(s.middleware, middleware)
	})
}

// AllowEmpty gives an empty payload to the handler as the zero T; without it an empty payload is a decode failure.
// Routes of raw bytes take empty payloads anyway.
func AllowEmpty() RouteOption {
	return routeOptionFunc(func(s *routeSpec) { s.allowEmpty = true })
}

// EncodingOption is what [Encoding] returns: an option of a route and of a publish.
type EncodingOption struct{ contentType string }

// Encoding names the codec, by its content type, that encodes and decodes where the message does not say.
//
// For a route: how to decode a payload that comes without a content type; the content type of a message goes before it.
// For a publish: how to encode the value; its content type is sent along, unless [ContentType] sets another. The codec
// must be one of Config.Codecs. Defaults to the first of them.
func Encoding(contentType string) EncodingOption { return EncodingOption{contentType} }

func (e EncodingOption) applyRoute(s *routeSpec) {
	s.encoding, s.set = e.contentType, s.set|setEncoding
}

func (e EncodingOption) applyMessage(m *message) { m.encoding, m.encodingSet = e.contentType, true }
