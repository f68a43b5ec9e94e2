package settle

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// run is one call of a route's handler, with its middleware: for one delivery, or for a batch. It is the context that
// the handler gets, so that a call costs no allocation. The real context behind it is made when somebody first asks for it.
type run struct {
	lane      *lane        // nil in a context that a test made
	publisher Publisher    // of a test; with lane, the app is
	one       *Delivery    // of a single delivery
	batch     []*Delivery  // of a batch
	began     atomic.Int64 // when the handler was called, as time.Duration since the app's epoch, plus one; 0 before that

	claimed  atomic.Bool  // somebody settles its deliveries, or has
	deadline atomic.Int64 // since the app's epoch, as time.Duration; 0 before the handler's timeout has begun, and without one

	mu     sync.Mutex
	ctx    context.Context //nolint:containedctx // it is a context itself
	cancel context.CancelCauseFunc
	ended  error // why the context is done
}

type runKey struct{}

// runFrom is the run that ctx belongs to, or nil.
func runFrom(ctx context.Context) *run {
	r, _ := ctx.Value(runKey{}).(*run)
	return r
}

func (r *run) delivery() *Delivery {
	if r.one != nil {
		return r.one
	}
	return r.batch[0]
}

func (r *run) all() []*Delivery {
	if r.one != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.batch == nil {
			r.batch = []*Delivery{r.one}
		}
	}
	return r.batch
}

func (r *run) size() int {
	if r.one != nil {
		return 1
	}
	return len(r.batch)
}

// real is the context behind r. With it, children are cancelled as children of any context of the standard library are.
func (r *run) real() context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.realLocked()
}

func (r *run) realLocked() context.Context {
	if r.ctx == nil {
		r.ctx, r.cancel = context.WithCancelCause(r.lane.base())
		if r.ended != nil {
			r.cancel(r.ended)
		}
	}
	return r.ctx
}

// end cancels the context with a cause. The first one stays.
func (r *run) end(cause error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended == nil {
		r.ended = cause
	}
	if r.cancel != nil {
		r.cancel(cause)
	}
}

// Deadline is when the handler's timeout is over.
func (r *run) Deadline() (time.Time, bool) {
	if at := r.deadline.Load(); at != 0 {
		return r.lane.clock().Add(time.Duration(at)), true
	}
	return time.Time{}, false
}

func (r *run) Done() <-chan struct{} { return r.real().Done() }

func (r *run) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx == nil && r.ended == nil {
		return r.lane.base().Err()
	}
	return r.realLocked().Err()
}

func (r *run) Value(key any) any {
	if _, mine := key.(runKey); mine {
		return r
	}
	r.mu.Lock()
	ctx := r.ctx
	if r.ended != nil {
		ctx = r.realLocked()
	}
	r.mu.Unlock()
	if ctx == nil {
		ctx = r.lane.base()
	}
	return ctx.Value(key)
}

// errReturned ends the context of a handler that has returned.
var errReturned = context.Canceled

// decoded is what a batch handler sees of its batch: the deliveries whose payloads could be decoded.
type decoded struct{ deliveries []*Delivery }

type decodedKey struct{}
