package main

import (
	"context"
	"errors"
	"math/rand/v2"
)

// poster is what the service needs of a ledger.
type poster interface {
	Post(ctx context.Context, p Posting) (fresh bool, err error)
}

var (
	errDown   = errors.New("the ledger is down")
	errSilent = errors.New("the ledger has not answered")
)

// unreliable is a ledger that fails now and then, as what is behind a network does: half of the time it has not written the posting, and
// half of the time it has, but its answer is lost.
type unreliable struct {
	poster
	rate float64 // the part of posts that fail, 0 to 1
}

func (u unreliable) Post(ctx context.Context, p Posting) (fresh bool, err error) {
	luck := rand.Float64()
	if luck < u.rate/2 {
		return false, errDown
	}
	fresh, err = u.poster.Post(ctx, p)
	if luck < u.rate {
		return false, errSilent
	}
	return fresh, err
}
