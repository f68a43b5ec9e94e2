package settle

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/settlemq/settle/internal/broker"
)

// span is a time.Duration that is written as one says it.
type span time.Duration

func (s span) MarshalText() ([]byte, error) { return []byte(time.Duration(s).String()), nil }

func (s *span) UnmarshalText(b []byte) error {
	d, err := time.ParseDuration(string(b))
	*s = span(d)
	return err
}

// A schedule is all that happens in one simulation from outside of the app: how it and the server are set up, and the steps. The seed
// is spent when it is made; running it draws nothing.
type schedule struct {
	Seed  uint64 `json:"Seed"`
	Setup setup  `json:"Setup"`
	Steps []step `json:"Steps"`
}

type setup struct {
	MaxInflight    int // of the server
	ServerReceives int // its Receive Maximum
	Backlog        int
	Receive        int
	RetryReceive   int
	HandleAgain    bool `json:",omitempty"`
}

// A step is one thing that happens, and when: counted from the beginning, so that leaving out one leaves the others where they are.
type step struct {
	At span
	Op op

	// Of a publish.
	ID     int    `json:",omitempty"` // unique, and rising
	Kind   string `json:",omitempty"` // which routes it is for: the first level of its topic
	Key    int    `json:",omitempty"` // the second
	QoS    byte   `json:",omitempty"`
	Expiry span   `json:",omitempty"`
	Bad    bool   `json:",omitempty"` // does not decode
	Fates  []fate `json:",omitempty"` // of each attempt at each route; those that follow succeed

	// Of a fault.
	Client  string   `json:",omitempty"` // which connection
	Type    string   `json:",omitempty"` // of packet; "" for any
	Out     bool     `json:",omitempty"` // from the client, else to it
	Skip    int      `json:",omitempty"` // how many of these packets, or how many bytes, pass unharmed before
	Count   int      `json:",omitempty"` // how many are harmed
	Verdict *verdict `json:",omitempty"`
	For     span     `json:",omitempty"` // how long it lasts
	Keep    bool     `json:",omitempty"` // the sessions, by a server that restarts; the server's clock, by one that jumps
}

type op string

const (
	opPublish  op = "publish"
	opCut      op = "cut"      // the connection, now
	opSever    op = "sever"    // the connection, Skip bytes from now
	opMeddle   op = "meddle"   // Verdict on packets
	opLose     op = "lose"     // the session, by a clean start of somebody else
	opTakeover op = "takeover" // of the session, by somebody who acknowledges nothing and leaves after For
	opServer   op = "server"   // restarts
	opKill     op = "kill"     // the consumer; another begins after For
	opStop     op = "stop"     // the consumer, which has For; another begins at once
	opJump     op = "jump"     // the clock, by For
)

// verdict is a broker.Verdict that can be written down.
type verdict struct {
	Hold   span `json:",omitempty"`
	Late   span `json:",omitempty"`
	Drop   bool `json:",omitempty"`
	Cut    bool `json:",omitempty"`
	Again  bool `json:",omitempty"` // sent twice
	Refuse byte `json:",omitempty"`
}

// fate is what a handler does with one attempt.
type fate struct {
	Do   string // see handle
	Slow span   `json:",omitempty"` // before it
	For  span   `json:",omitempty"` // of "later" and "late"
}

func (s *schedule) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "{\"Seed\": %d, \"Setup\": %s, \"Steps\": [", s.Seed, inJSON(s.Setup))
	for i, st := range s.Steps {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString("\n\t" + inJSON(st))
	}
	b.WriteString("\n]}\n")
	return b.String()
}

func inJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// payload is that of a published message; no two have the same.
func (st step) payload() string {
	p := fmt.Sprintf("%q", fmt.Sprintf("%s%d", st.Kind, st.ID))
	if st.Bad {
		p = "{" + p
	}
	return p
}

// dice draws a schedule.
type dice struct{ *rand.Rand }

func (d dice) pick(n ...int) int       { return n[d.IntN(len(n))] }
func (d dice) word(w ...string) string { return w[d.IntN(len(w))] }
func (d dice) upTo(limit time.Duration) span {
	return span(d.Int64N(int64(limit/time.Millisecond)+1)) * span(time.Millisecond)
}
func (d dice) oneIn(n int) bool               { return d.IntN(n) == 0 }
func (d dice) client() string                 { return d.word("svc", "svc-retry") }
func (d dice) among(w []string, n int) string { return w[min(n, len(w)-1)] }

// expand makes the schedule of a seed.
func expand(seed uint64) *schedule {
	d := dice{rand.New(rand.NewPCG(seed, 7))}
	s := &schedule{Seed: seed, Setup: setup{
		MaxInflight: d.pick(0, 0, 3, 20), ServerReceives: d.pick(1, 20, 65535),
		Backlog: d.pick(1, 2, 10, 500), Receive: d.pick(1, 5, 50, 1000), RetryReceive: d.pick(2, 20, 65535),
		HandleAgain: d.oneIn(5),
	}}
	// What can happen to this one, so that some have much of a thing and others none.
	var faults []op
	for _, o := range []op{opCut, opCut, opSever, opMeddle, opMeddle, opMeddle, opLose, opTakeover, opServer, opKill, opStop} {
		if d.oneIn(2) {
			faults = append(faults, o)
		}
	}
	jump := d.IntN(500) // hours take long to simulate: the app looks around each second
	id, at := 0, span(0)
	often := d.pick(1, 1, 2, 4)
	for round := range 60 {
		if round == jump {
			s.Steps = append(s.Steps, d.fault(at, opJump, false))
		}
		for range d.IntN(8) {
			id++
			s.Steps = append(s.Steps, d.publish(at, id))
		}
		at += d.upTo(time.Duration(d.pick(20, 500, 5000)) * time.Millisecond)
		if len(faults) > 0 && d.oneIn(often) {
			s.Steps = append(s.Steps, d.fault(at, faults[d.IntN(len(faults))], s.Setup.ServerReceives == 65535))
		}
	}
	return s
}

func (d dice) publish(at span, id int) step {
	st := step{At: at, Op: opPublish, ID: id, Kind: d.word("a", "a", "b", "b", "c", "c", "z", "y"), Key: d.IntN(4), QoS: byte(1 + d.IntN(2)), Bad: d.oneIn(20)}
	if d.oneIn(6) {
		st.Expiry = span(100_000 * time.Second)
	}
	attempts := 0
	switch n := d.IntN(20); {
	case n < 6:
		attempts = 1
	case n < 9:
		attempts = 1 + d.IntN(5)
	case n < 10:
		attempts = 7 // a poison message
	}
	for i := range attempts {
		st.Fates = append(st.Fates, d.fate(attempts == 7, i))
	}
	return st
}

func (d dice) fate(poison bool, i int) fate {
	f := fate{Do: "retry"}
	if d.oneIn(3) {
		f.Slow = d.upTo(300 * time.Millisecond)
	}
	switch n := d.IntN(40); {
	case poison && i > 0 || n < 16:
	case n < 21:
		f.Do, f.For = "later", d.upTo(time.Minute)
	case n < 24:
		f.Do = "reject"
	case n < 26:
		f.Do = "zero"
	case n < 29:
		f.Do = "panic"
	case n < 31:
		f.Do = "goexit"
	case n < 33:
		f.Do = "hang"
	case n < 34:
		f.Do, f.For = "late", d.upTo(5*time.Second)
	default:
		f.Do = "ack"
	}
	return f
}

func (d dice) fault(at span, o op, withholds bool) step {
	st := step{At: at, Op: o}
	switch o {
	case opCut:
		st.Client = d.client()
	case opSever:
		st.Client, st.Out, st.Skip = d.client(), d.oneIn(2), d.IntN(d.pick(10, 300, 3000))
	case opMeddle:
		d.meddle(&st, withholds)
	case opLose:
		st.Client = d.client()
	case opTakeover:
		st.Client, st.For = d.client(), d.upTo(time.Second)
	case opServer:
		st.Keep = !d.oneIn(3)
	case opKill:
		st.For = d.upTo(time.Duration(d.pick(1, 1000, 20_000)) * time.Millisecond)
	case opStop:
		st.For = span(d.pick(1, 100, 4000, 60_000)) * span(time.Millisecond)
	case opJump:
		st.For, st.Keep = span(time.Hour)+d.upTo(time.Hour), d.oneIn(2)
	case opPublish:
	}
	return st
}

// meddle makes a step of trouble with packets: cut at one, late, refused, withheld, or sent twice.
func (d dice) meddle(st *step, withholds bool) {
	st.Client, st.Out, st.Skip, st.Count = d.client(), d.oneIn(2), d.IntN(d.pick(1, 10, 40)), 1
	v := &verdict{}
	st.Verdict = v
	st.Type = d.among([]string{"PUBLISH", "PUBACK", "PUBREC", ""}, d.IntN(6))
	switch n := d.IntN(7); {
	case n == 0:
		v.Cut = true
	case n == 1:
		v.Drop, v.Cut = true, true
	case n == 2:
		v.Hold, st.Count = d.upTo(50*time.Millisecond), 1+d.IntN(20)
	case n == 3:
		st.Type, st.Out, st.Count, v.Refuse = "PUBLISH", true, 1+d.IntN(20), 0x97
	case n == 4 && withholds:
		st.Type, st.Out, st.Count, v.Drop = "PUBACK", false, 1+d.IntN(5), true
	case n == 5:
		st.Type, st.Out, st.Count, v.Late = "PUBACK", false, 1+d.IntN(5), d.upTo(15*time.Second)
	default:
		st.Type, st.Out, st.Count, v.Again = "PUBACK", false, 1+d.IntN(5), true
	}
}

// of makes a broker's verdict on one packet.
func (v *verdict) of(p broker.Packet) broker.Verdict {
	out := broker.Verdict{Hold: time.Duration(v.Hold), Late: time.Duration(v.Late), Drop: v.Drop, Cut: v.Cut, Refuse: v.Refuse}
	if v.Again {
		out.Send = append([]byte(nil), p.Bytes...)
	}
	return out
}
