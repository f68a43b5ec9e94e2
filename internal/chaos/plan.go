package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Kind is a kind of fault.
type Kind string

// The faults.
const (
	Reset     Kind = "reset"       // the connections of a consumer are reset
	Slow      Kind = "slow reset"  // they are reset while the network is slow, so that acknowledgements are under way
	Cut       Kind = "cut"         // they are closed
	Truncate  Kind = "truncate"    // they are closed behind so many bytes
	Early     Kind = "early reset" // they are reset, and the next ones again before everything has been shown again
	Stall     Kind = "stall"       // they go silent, as when a cable is pulled, for a while
	Delay     Kind = "delay"       // the network is slow for a while
	Refuse    Kind = "refuse"      // they are reset, and no new one is taken for a while
	Kill      Kind = "SIGKILL"     // of a consumer
	Terminate Kind = "SIGTERM"     // of a consumer
	Restart   Kind = "restart"     // of the server, which is stopped cleanly
)

// Kinds are all of them.
var Kinds = []Kind{Reset, Slow, Cut, Truncate, Early, Stall, Delay, Refuse, Kill, Terminate, Restart}

// cuts says that connections are lost while the process lives.
func (k Kind) cuts() bool {
	switch k {
	case Reset, Slow, Cut, Truncate, Early, Refuse:
		return true
	}
	return false
}

// Fault is one of a plan.
type Fault struct {
	At       time.Duration `json:"at"` // since the faults began, nanoseconds
	Kind     Kind          `json:"kind"`
	Consumer string        `json:"consumer,omitempty"`
	Bytes    int64         `json:"bytes,omitempty"`     // of Truncate and Early
	ToServer bool          `json:"to_server,omitempty"` // of Truncate: which direction the bytes are counted in
	For      time.Duration `json:"for,omitempty"`       // of Stall, Delay, Refuse and Slow, nanoseconds
}

func (f Fault) String() string {
	return fmt.Sprintf("%7.2f s  %-11s %s", f.At.Seconds(), f.Kind, f.Consumer)
}

// A minute of a run is at full load, but for its last fifth: there no more than a few messages wait, and cuts come early.
const (
	cycle = time.Minute
	full  = 4 * cycle / 5
)

// phase says whether a run of so long is at full load at a time.
func phase(at, duration time.Duration) (fullLoad bool) {
	c, f := cycle, full
	if duration < cycle {
		c, f = duration, 4*duration/5
	}
	return at%c < f
}

// Draw draws a plan from a seed: what happens, to whom and when. It is longer than the run's duration: a run goes on until it has handled as many
// messages as were asked for. Each consumer loses its connections about every two seconds; the server is restarted, and a consumer killed, a little more
// often than every five.
func Draw(seed uint64, duration time.Duration) []Fault {
	r := rand.New(rand.NewPCG(seed, 1))
	end := extension * duration
	var plan []Fault
	for _, c := range consumers() {
		for at := between(r, 1000, 2500); at < end; at += between(r, 1300, 2700) {
			plan = append(plan, wire(r, at, c, phase(at, duration)))
		}
	}
	for at := between(r, 3000, 4000); at < end; at += between(r, 4200, 5200) {
		plan = append(plan, Fault{At: at, Kind: Restart})
	}
	kinds := []Kind{Kill, Terminate}
	for i, at := 0, between(r, 2000, 3000); at < end; i, at = i+1, at+between(r, 3600, 4800) {
		all := consumers()
		plan = append(plan, Fault{At: at, Kind: kinds[i%2], Consumer: all[r.IntN(len(all))]})
	}
	slices.SortStableFunc(plan, func(a, b Fault) int { return int(a.At - b.At) })
	return plan
}

// extension is how many times as long as asked for a run may take to reach its number of messages.
const extension = 4

// wire is one fault of a consumer's network. Most are resets: connections that the server seems to close in good order, three in a row and each young,
// are taken for a fight over the client identifier, and waited out.
func wire(r *rand.Rand, at time.Duration, consumer string, fullLoad bool) Fault {
	f := Fault{At: at, Consumer: consumer}
	k := r.IntN(100)
	if !fullLoad && k < 60 { // what needs an idle network, or an early cut
		if k < 35 {
			f.Kind, f.For = Slow, between(r, 20, 60)
		} else {
			f.Kind, f.Bytes = Early, r.Int64N(3000)
		}
		return f
	}
	switch {
	case k < 30:
		f.Kind = Reset
	case k < 55:
		f.Kind, f.For = Slow, between(r, 5, 40)
	case k < 70:
		f.Kind = Cut
	case k < 88:
		f.Kind, f.Bytes, f.ToServer = Truncate, 1000+r.Int64N(60_000), r.IntN(2) == 0
		if f.ToServer {
			f.Bytes /= 20
		}
	case k < 91:
		f.Kind, f.For = Stall, between(r, 500, 2500)
	case k < 92:
		f.Kind, f.For = Stall, between(r, 5000, 6500) // it is noticed by the keep-alive
	case k < 96:
		f.Kind, f.For = Delay, between(r, 300, 900)
	default:
		f.Kind, f.For = Refuse, between(r, 200, 1200)
	}
	return f
}

func between(r *rand.Rand, low, high int) time.Duration {
	return time.Duration(low+r.IntN(high-low)) * time.Millisecond
}
