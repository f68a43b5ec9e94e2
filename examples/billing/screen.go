package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

// screen writes to a terminal, with colours where it is one.
type screen struct {
	out     io.Writer
	colours bool
	began   time.Time
	rows    int
}

func newScreen(out *os.File) *screen {
	info, err := out.Stat()
	colours := err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	return &screen{out: out, colours: colours, began: time.Now()}
}

// Styles, as parameters of the escape sequence that begins them.
const (
	plain  = ""
	bold   = "1"
	faint  = "2"
	red    = "1;31"
	green  = "1;32"
	yellow = "33"
)

func (s *screen) line(style, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if s.colours && style != plain {
		text = "\x1b[" + style + "m" + text + "\x1b[0m"
	}
	_, _ = fmt.Fprintln(s.out, text) // there is nobody to tell
}

// tick is what a line a second shows.
type tick struct {
	sent, billed, retried, dead, samples int64 // since the beginning
	billedNow, samplesNow                int64 // since the line before
	kilowatts                            float64
	window                               int64
}

const (
	headFormat = "%6s %10s %10s %7s %9s %6s %11s %7s %9s %7s"
	rowFormat  = "%5ds %10s %10s %7s %9s %6s %11s %7s %9.1f %7s"
	headEvery  = 20
)

func (s *screen) tick(t tick) {
	if s.rows%headEvery == 0 {
		s.line(bold, headFormat, "", "sent", "billed", "per s", "retried", "dead", "samples", "per s", "load kW", "window")
	}
	s.rows++
	s.line(plain, rowFormat, s.seconds(), count(t.sent), count(t.billed), count(t.billedNow), count(t.retried), count(t.dead),
		count(t.samples), count(t.samplesNow), t.kilowatts, count(t.window))
}

// event is a line between the others.
func (s *screen) event(style, format string, args ...any) {
	s.line(style, "%5ds   "+format, append([]any{s.seconds()}, args...)...)
}

func (s *screen) seconds() int { return int(time.Since(s.began).Round(time.Second).Seconds()) }

// Figures are what is worth knowing besides the account.
type Figures struct {
	Again            int64 // reports that the ledger had already
	Redelivered      int64 // reports that the server sent again after a cut
	Adopted          int64 // of these, those that the service still had in hand
	Sampled, Charted int64
}

// account is the last thing to be seen.
func (s *screen) account(a *Account, f Figures) {
	const (
		head = "  %-34s %12s %16s"
		row  = "  %-34s %12s %16s   %s"
	)
	put := func(style, what string, sum Sum, remark string) {
		s.line(style, "%s", strings.TrimRight(fmt.Sprintf(row, what, count(int64(sum.Reports)), kWh(sum.Wh), remark), " "))
	}
	s.line(plain, "")
	s.line(bold, head, "The account", "reports", "kWh")
	put(plain, "the meters sent", a.Sent, "")
	put(plain, "in the ledger", a.Ledger, "")
	remark := fmt.Sprintf("%d of them malformed", a.Malformed)
	switch a.Dead.Reports {
	case 0:
		remark = ""
	case a.Malformed:
		remark = "all of them malformed"
	}
	put(plain, "in the dead letters", a.Dead, remark)
	style := plain
	if !a.Balanced() {
		style = red
	}
	put(style, "missing", Sum{a.Missing, a.Sent.Wh - a.Ledger.Wh - a.Dead.Wh}, "")
	s.line(plain, "")
	const figure = "  %-34s %12s   %s"
	s.line(plain, figure, "posted once more", count(f.Again), "and not billed a second time: the ledger knew them by their message id")
	if f.Redelivered > 0 {
		s.line(plain, figure, "sent again by the server", count(f.Redelivered), count(f.Adopted)+" of them while the service had them still in hand")
	}
	if a.Both > 0 {
		s.line(plain, figure, "in the ledger and a dead letter", count(int64(a.Both)), "the last attempt was written, but its answer was lost")
	}
	if a.Wrong > 0 {
		s.line(red, figure, "billed with a wrong amount", count(int64(a.Wrong)), "")
	}
	if a.Strange > 0 {
		s.line(plain, figure, "of unknown origin", count(int64(a.Strange)), "of an earlier run, or from somebody else's meters")
	}
	s.line(plain, figure, "samples charted", count(f.Charted), "of "+count(f.Sampled)+" sent: at QoS 0 a cut may cost some")
	s.line(plain, "")
	if a.Balanced() {
		s.line(green, "  Balanced: every report is in the ledger, once, or in the dead letters.")
	} else {
		s.line(red, "  Not balanced.")
	}
}

func kWh(wh int64) string {
	sign := ""
	if wh < 0 {
		sign, wh = "-", -wh
	}
	return fmt.Sprintf("%s%s.%03d", sign, count(wh/1000), wh%1000)
}

// count writes a number with a comma at every third digit.
func count(n int64) string {
	s := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, s = s[:1], s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}
