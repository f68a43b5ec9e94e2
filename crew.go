package settle

import (
	"context"
	"sync"
)

// crew counts goroutines, or errands, that somebody waits for. Unlike a sync.WaitGroup it can be waited for with a context, and
// without a goroutine of its own.
type crew struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when n falls to zero, if somebody waits
}

func (c *crew) Add(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n += n
	if c.n == 0 && c.idle != nil {
		close(c.idle)
		c.idle = nil
	}
}

func (c *crew) Done() { c.Add(-1) }

func (c *crew) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

// wait returns nil when nobody is left, or the cause of ctx's end.
func (c *crew) wait(ctx context.Context) error {
	for {
		c.mu.Lock()
		if c.n == 0 {
			c.mu.Unlock()
			return nil
		}
		if c.idle == nil {
			c.idle = make(chan struct{})
		}
		idle := c.idle
		c.mu.Unlock()
		select {
		case <-idle:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
