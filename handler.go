package settle

import (
	"context"
	"reflect"
	"runtime/debug"
)

// Handle registers a function for the messages that match a topic filter (MQTT 5, 4.7). T is what a payload is decoded
// into: by the codec of its content type, JSON by default, or not at all where T is []byte.
//
// The filter is written without "$share"; a shared subscription is an option, [Shared]. The handler's context carries
// the delivery, see [DeliveryFrom]; it ends when the route's [Timeout] is over, with [ErrHandlerTimeout] as its cause,
// when the app's shutdown time is, with [ErrStopping], and when the handler returns.
//
// Handlers are called by the route's lanes: one at a time by default, in the order of arrival, and by as many at once as [Workers]
// says. What is wrong with the arguments is found by [New].
func Handle[T any](filter string, handler func(context.Context, T) Outcome, options ...RouteOption) Route {
	spec := newRouteSpec(filter, reflect.TypeFor[T](), false, handler == nil, options)
	if raw, ok := any(handler).(func(context.Context, []byte) Outcome); ok {
		// Bytes need no decoding, and no variable that would have to be allocated for a decoder to fill.
		spec.one = func(ctx context.Context, r *run) (Outcome, error) {
			if o := r.app().observer; o != nil {
				o.Decoded(r.one, r.one.Payload())
			}
			r.begin()
			return raw(ctx, r.one.Payload()), nil
		}
		return Route{spec: spec}
	}
	decode := decoderFor[T]()
	spec.one = func(ctx context.Context, r *run) (Outcome, error) {
		var value T
		if err := decode(&r.app().codecs, r.route().routeSpec, r.one, &value); err != nil {
			return Outcome{}, err
		}
		if o := r.app().observer; o != nil {
			o.Decoded(r.one, value)
		}
		r.begin()
		return handler(ctx, value), nil
	}
	return Route{spec: spec}
}

// HandleBatch registers a function that handles many messages at once. A lane assembles a batch until it has
// [BatchSize] elements, until [Linger] is over since the first of them, or until the server may send no more before something
// is acknowledged. Each element has an outcome of its own: return [Each] with one for every element, or [Every].
//
// All else is as for [Handle]. A payload that cannot be decoded is not in the slice and does not disturb the others.
func HandleBatch[T any](filter string, handler func(context.Context, []T) Outcomes, options ...RouteOption) Route {
	spec := newRouteSpec(filter, reflect.TypeFor[T](), true, handler == nil, options)
	decode := decoderFor[T]()
	spec.many = func(ctx context.Context, r *run, view *decoded, faults []error) Outcomes {
		values := make([]T, 0, len(r.batch))
		for i, d := range r.batch {
			if faults[i] != nil {
				continue
			}
			var value T
			if faults[i] = undisturbed(d, func() error { return decode(&r.app().codecs, r.route().routeSpec, d, &value) }); faults[i] != nil {
				continue
			}
			if o := r.app().observer; o != nil {
				o.Decoded(d, value)
			}
			values = append(values, value)
			view.deliveries = append(view.deliveries, d)
		}
		if len(values) == 0 {
			return Outcomes{}
		}
		r.begin()
		return handler(context.WithValue(ctx, decodedKey{}, view), values)
	}
	return Route{spec: spec}
}

// undisturbed decodes one element of a batch. A decoder that panics spoils that element alone: what else is in the batch would
// meet it again with each attempt.
func undisturbed(d *Delivery, decode func() error) (err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if v := recover(); v != nil { // else it is runtime.Goexit, which the lane sees
			err = &PanicError{Delivery: d, Value: v, Stack: debug.Stack()}
		}
	}()
	err = decode()
	returned = true
	return err
}
