package main

import (
	"strings"
	"testing"
)

func TestAccount(t *testing.T) {
	good := Report{Wh: 10, Confirmed: true}
	garbled := Report{Malformed: true, Confirmed: true}
	for name, test := range map[string]struct {
		sent     map[string]Report
		ledger   map[string]int64
		dead     map[string]bool
		want     Account
		balanced bool
	}{
		"nothing": {balanced: true},
		"all well": {
			sent:     map[string]Report{"a": good, "b": good, "c": garbled},
			ledger:   map[string]int64{"a": 10, "b": 10},
			dead:     map[string]bool{"c": true},
			want:     Account{Sent: Sum{3, 20}, Ledger: Sum{2, 20}, Dead: Sum{1, 0}, Malformed: 1},
			balanced: true,
		},
		"given up": {
			sent:     map[string]Report{"a": good},
			dead:     map[string]bool{"a": true},
			want:     Account{Sent: Sum{1, 10}, Dead: Sum{1, 10}},
			balanced: true,
		},
		"given up, and written all the same": {
			sent:     map[string]Report{"a": good},
			ledger:   map[string]int64{"a": 10},
			dead:     map[string]bool{"a": true},
			want:     Account{Sent: Sum{1, 10}, Ledger: Sum{1, 10}, Both: 1},
			balanced: true,
		},
		"without the server's word": {
			sent:     map[string]Report{"arrived": {Wh: 5}, "not": {Wh: 7}},
			ledger:   map[string]int64{"arrived": 5},
			want:     Account{Sent: Sum{1, 5}, Ledger: Sum{1, 5}},
			balanced: true,
		},
		"of an earlier run": {
			ledger:   map[string]int64{"x": 5},
			dead:     map[string]bool{"y": true},
			want:     Account{Strange: 2},
			balanced: true,
		},
		"lost": {
			sent:   map[string]Report{"a": good, "b": good},
			ledger: map[string]int64{"a": 10},
			want:   Account{Sent: Sum{2, 20}, Ledger: Sum{1, 10}, Missing: 1},
		},
		"a malformed one lost": {
			sent: map[string]Report{"c": garbled},
			want: Account{Sent: Sum{1, 0}, Missing: 1},
		},
		"a wrong amount": {
			sent:   map[string]Report{"a": good},
			ledger: map[string]int64{"a": 11},
			want:   Account{Sent: Sum{1, 10}, Ledger: Sum{1, 11}, Wrong: 1},
		},
		"a malformed one billed": {
			sent:   map[string]Report{"c": garbled},
			ledger: map[string]int64{"c": 0},
			want:   Account{Sent: Sum{1, 0}, Ledger: Sum{1, 0}, Wrong: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := settleAccount(test.sent, test.ledger, test.dead)
			if got != test.want || got.Balanced() != test.balanced {
				t.Errorf("balanced %t: %+v\nwant     %t: %+v", got.Balanced(), got, test.balanced, test.want)
			}
		})
	}
}

func TestScreen(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 7: "7", 999: "999", 1000: "1,000", 1234567: "1,234,567", -100: "-100", -1000: "-1,000"} {
		if got := count(n); got != want {
			t.Errorf("count(%d) is %s, want %s", n, got, want)
		}
	}
	for wh, want := range map[int64]string{0: "0.000", 5: "0.005", 1234567: "1,234.567", -5: "-0.005"} {
		if got := kWh(wh); got != want {
			t.Errorf("kWh(%d) is %s, want %s", wh, got, want)
		}
	}
	var out strings.Builder
	s := &screen{out: &out}
	s.account(&Account{Sent: Sum{2, 20}, Ledger: Sum{1, 10}, Missing: 1}, Figures{})
	for _, want := range []string{"the meters sent                               2            0.020\n", "missing                                       1            0.010\n", "Not balanced.\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Error("colours where there is no terminal")
	}
}

func TestFlags(t *testing.T) {
	for args, want := range map[string]string{
		"":                                     "",
		"-for 30s -cuts 3":                     "",
		"-for 30s -cuts 3 -server embedded":    "",
		"-for 30s -cuts 3 -server tcp://a:1":   "",
		"-cuts 3":                              "-cuts needs -for",
		"-for 30s -cuts 3 -server mqtts://a:1": "-cuts needs a server at mqtt://, not at mqtts://",
		"-for -1s":                             "-for -1s: must not be negative",
		"-cuts -1":                             "-cuts -1: must not be negative",
		"-meters 0":                            "-meters 0: there must be one at least",
		"-fail 2":                              "-fail 2: must be from 0 to 1",
		"stray":                                `"stray" is no flag`,
		"-server %zz":                          "-server is no URL",
		"-log loud":                            `invalid value "loud" for flag -log: Unknown Level String: 'loud', defaulting to NoLevel`,
	} {
		_, err := parseFlags(strings.Fields(args), new(strings.Builder))
		if got := errorText(err); got != want {
			t.Errorf("%s: %q, want %q", args, got, want)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
