package link

import (
	"errors"
	"math/rand/v2"
	"time"
)

const (
	minBackoff  = 100 * time.Millisecond
	maxBackoff  = 30 * time.Second
	longBackoff = 30 * time.Second // after a takeover, or where an administrator has sent us away
	settled     = time.Minute      // a connection that lasted as long was a good one, even if nothing was delivered

	// A server that closes young connections one after the other, without a word, is probably serving two clients of one
	// identifier in turn: Mosquitto 2.0.11 sends no DISCONNECT at a takeover.
	suspectAge   = 5 * time.Second
	suspectCount = 3
)

// outcome is what came of one attempt to connect.
type outcome struct {
	err       error         // why it ended
	accepted  bool          // CONNACK accepted it
	granted   bool          // SUBACK granted everything
	delivered bool          // a PUBLISH came
	lasted    time.Duration // since CONNACK
}

// policy decides when and where to dial again.
type policy struct {
	servers  int
	server   int  // the index of the one to dial next
	tried    int  // servers in this round
	attempts int  // rounds without success, the exponent
	closed   int  // young connections that were closed without a word, in a row
	accepted bool // a server has accepted us before
}

// verdict is what follows an outcome.
type verdict struct {
	fatal     bool
	suspected bool // it looks as if another process used our client identifier
	wait      time.Duration
}

// judge takes an outcome in. It is the one place that decides what is fatal, how long to wait, and which server is next.
func (p *policy) judge(o outcome) verdict {
	kind := classify(o.err, p.accepted)
	p.accepted = p.accepted || o.accepted
	if kind == fatal {
		return verdict{fatal: true}
	}
	// A connection begins a new round, unless it was young and its server sends us on: two such would have us run in
	// circles without a pause.
	if o.lasted >= settled || o.accepted && kind != elsewhere {
		p.tried = 0
	}
	if p.success(o) {
		p.attempts = 0
	}
	if o.accepted && o.lasted < suspectAge && errors.Is(o.err, errServerClosed) {
		p.closed++
	} else {
		p.closed = 0
	}
	v := verdict{suspected: p.closed >= suspectCount}

	// A connection that was good is dialled again at the same server, which has the session. What failed goes round.
	if !o.accepted || kind == elsewhere {
		p.server = (p.server + 1) % p.servers
		p.tried++
	}
	switch {
	case kind == takenOver, kind == banned, v.suspected:
		v.wait = jitter(longBackoff)
	case p.tried > 0 && p.tried < p.servers:
		// The next server at once: the round is not over.
	default:
		p.tried = 0
		v.wait = jitter(backoff(p.attempts))
		p.attempts++
	}
	return v
}

// success reports whether the backoff starts anew: when something was delivered, which with a session present comes before
// SUBACK. A server that breaks the protocol, or does not grant what we ask for, will perhaps do so again at once, whatever
// it delivered before.
func (p *policy) success(o outcome) bool {
	return o.lasted >= settled || o.delivered && (o.granted || !isUngranted(o.err)) && !isViolation(o.err)
}

// isUngranted says that we ended a connection because its subscriptions were not granted.
func isUngranted(err error) bool {
	var refused *SubscribeError
	return errors.As(err, &refused) || errors.Is(err, errNoSuback)
}

// backoff doubles with each attempt.
func backoff(attempts int) time.Duration {
	if attempts > 8 { // 100 ms << 9 is more than 30 s
		return maxBackoff
	}
	return min(minBackoff<<attempts, maxBackoff)
}

// jitter spreads by a fifth to either side, so that clients that a server lost together do not come back together.
func jitter(d time.Duration) time.Duration {
	return d*4/5 + rand.N(d*2/5+1)
}
