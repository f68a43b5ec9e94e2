package chaos

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"text/tabwriter"
	"time"
)

// Least are the faults and messages that a result has to have.
type Least struct {
	Messages, Cuts, Restarts, Kills int
}

// Minute is what a run of a minute or more has to have; a shorter one, in proportion.
func Minute(messages int, d time.Duration) Least {
	part := min(1, d.Minutes())
	of := func(n int) int { return int(part * float64(n)) }
	return Least{Messages: messages, Cuts: of(100), Restarts: of(10), Kills: of(10)}
}

// At full load one message in so many may be handled again because of a cut.
const oneIn = 10_000

// Shortfalls are what a result lacks; a run that is right has none.
func (r *Result) Shortfalls(least Least) []string {
	a := &r.Account
	short := slices.Clone(r.Failures)
	must := func(right bool, format string, args ...any) {
		if !right {
			short = append(short, fmt.Sprintf(format, args...))
		}
	}
	must(a.Messages >= least.Messages, "%d messages, and not %d", a.Messages, least.Messages)
	must(r.Cuts >= least.Cuts, "%d cuts, and not %d", r.Cuts, least.Cuts)
	must(r.Restarts >= least.Restarts, "%d restarts of the server, and not %d", r.Restarts, least.Restarts)
	must(r.Kills >= least.Kills, "%d consumers killed, and not %d", r.Kills, least.Kills)
	for _, f := range a.mustBeZero() {
		must(f.N == 0, "%s: %d", f.What, f.N)
	}
	must(a.FullLoad.Twice == 0 || a.FullLoad.Twice*oneIn < a.FullLoad.Messages,
		"at full load %d of %d messages were handled again because of a cut: not fewer than one in %d", a.FullLoad.Twice, a.FullLoad.Messages, oneIn)
	return short
}

// Table prints a result for people.
func (r *Result) Table(out io.Writer, server string) {
	a := &r.Account
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(what string, value any) { _, _ = fmt.Fprintf(w, "%s\t%v\n", what, value) }
	row("seed", r.Seed)
	row("machine", fmt.Sprintf("%d processors, %s, %s, %s", runtime.NumCPU(), runtime.GOARCH, runtime.Version(), server))
	row("time", fmt.Sprintf("%s with faults, %s altogether", r.Faulty.Round(time.Second), r.Took.Round(time.Second)))
	for _, kind := range Kinds {
		row("fault: "+string(kind), r.Faults[kind])
	}
	row("fault: skipped, as the one before took long", r.Skipped)
	row("cuts, and connections that they broke", fmt.Sprintf("%d, %d", r.Cuts, r.Broken))
	row("messages", a.Messages)
	row("sent again, as the server's answer was lost", fmt.Sprintf("%d, of which %d it had already", r.Repeats-a.Nowhere, a.TwiceBySend))
	row("sent again, as it had refused them", a.Nowhere)
	row("out of order within a key as the server sent them", a.Disorder)
	row("calls of handlers", fmt.Sprintf("%d, of which %d beyond the first attempt", a.Calls, a.Retries))
	row("acknowledgements", a.Acks)
	row("unacknowledged at once", a.Unacked)
	row("retry copies", a.Copies)
	row("dead letters", fmt.Sprintf("%d messages, and %d letters again", a.Dead, a.DeadAgain))
	for _, f := range a.mustBeZero() {
		row(f.What, f.N)
	}
	for why := ProcessKilled; why < AckWithWorkBehind; why++ {
		row("handled again: "+why.String(), a.Twice[why])
	}
	share := func(what string, s Share) {
		row(what, fmt.Sprintf("%d of %d", s.Twice, s.Messages))
		for why := ProcessKilled; why < reasons; why++ {
			if s.By[why] > 0 {
				row("  "+why.String(), s.By[why])
			}
		}
	}
	share("handled again by a cut while the process lived, at full load", a.FullLoad)
	share("handled again by a cut while the process lived, otherwise", a.OtherLoad)
	_ = w.Flush()
}
