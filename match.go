package settle

import (
	"slices"
	"sync"

	"github.com/settlemq/settle/internal/topic"
)

// accept passes an arrival on the main connection to the routes that want it. Each gets it once.
func (in *inbound) accept(a *arrival) {
	app := in.app
	if len(app.retryRoutes) > 0 {
		if rt := app.retryRoutes[a.Publish.Topic]; rt != nil {
			// What is on a retry topic belongs to the second connection, which has it too.
			app.metrics.noRoute()
			app.drop(a)
			return
		}
	}
	if isForeignCopy(a) {
		app.metrics.noRoute()
		if app.noRoute.first(a.Publish.Topic) {
			app.spawn(func() {
				app.log.Info().Str("topic", clip(a.Publish.Topic)).
					Msg("another service's retry copies come through a filter of ours; they are acknowledged and not handled")
			})
		}
		app.drop(a)
		return
	}
	in.matched = app.match(a, in.matched[:0])
	if len(in.matched) == 0 {
		app.unmatched(a)
		return
	}
	in.dispatch(a, 1, in.matched...)
}

// match appends the routes that a message is for. Where it carries Subscription Identifiers that are ours they decide, checked
// against the topic: servers keep the identifier that a message was queued under, which may be an older release's. Where none
// fits, topics decide.
func (a *App) match(m *arrival, routes []*route) []*route {
	for id := range m.SubscriptionIDs() {
		for _, rt := range a.bySubID[id] {
			if topic.Match(rt.filter, m.Publish.Topic) && !slices.Contains(routes, rt) {
				routes = append(routes, rt)
			}
		}
	}
	if len(routes) == 0 {
		a.byTopic.Match(m.Publish.Topic, func(rt *route) {
			if !slices.Contains(routes, rt) {
				routes = append(routes, rt)
			}
		})
	}
	return routes
}

// dispatch stages an arrival for the lanes of its routes. in.mu is held, so they get it when the present run of frames is over.
func (in *inbound) dispatch(a *arrival, attempt int, routes ...*route) {
	a.left.Store(int32(len(routes))) //nolint:gosec // there are not so many routes
	for i, rt := range routes {
		d := &a.first
		if i > 0 {
			d = new(Delivery)
		}
		d.init(a, rt, attempt)
		rt.metrics.delivered(QoS(a.QoS), a.Dup)
		rt.handling(1)
		if o := rt.app.observer; o != nil {
			o.Queued(d)
		}
		in.stage(rt.queueFor(d), d)
	}
}

// drop acknowledges what is not to be handled.
func (a *App) drop(m *arrival) { m.in.finish(m) }

// unmatched acknowledges a message that no route wants.
func (a *App) unmatched(m *arrival) {
	a.metrics.noRoute()
	if a.noRoute.first(m.Publish.Topic) {
		a.spawn(func() {
			a.log.Warn().Str("topic", clip(m.Publish.Topic)).
				Msg("a message came that no route wants; it is acknowledged. Is a subscription of an earlier release still there? See Config.RetireFilters")
		})
	}
	a.drop(m)
}

// noRouteLog remembers which topics have been logged, up to a bound: a filter that no route has any more can have any number of them.
type noRouteLog struct {
	mu   sync.Mutex
	seen map[string]struct{}
}

const maxNoRoute = 100

func (l *noRouteLog) first(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, again := l.seen[name]; again || len(l.seen) >= maxNoRoute {
		return false
	}
	if l.seen == nil {
		l.seen = make(map[string]struct{})
	}
	l.seen[string([]byte(name))] = struct{}{} // a copy: the topic is part of a frame
	return true
}
