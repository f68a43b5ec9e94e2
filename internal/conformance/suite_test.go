package conformance

import (
	"slices"
	"testing"
)

func TestJudge(t *testing.T) {
	declared := &Deviation{Check: "C", Seen: "PUBACK 0x00", Reason: "why"}
	for _, test := range []struct {
		name, failure string
		declared      *Deviation
		want          string
	}{
		{"passes", "", nil, ""},
		{"fails, undeclared", "f.go:1: PUBACK 0x00", nil, "f.go:1: PUBACK 0x00"},
		{"fails as declared", "f.go:1: PUBACK 0x00, want 0x10", declared, ""},
		{"passes, declared", "", declared, "passes, but a deviation is declared: why"},
		{"fails in another way", "f.go:1: nothing has come", declared, "f.go:1: nothing has come\na deviation is declared, but another one: \"PUBACK 0x00\""},
		{"fails, with nothing seen declared", "x", &Deviation{Check: "C"}, "x\na deviation is declared, but another one: \"\""},
	} {
		if got := judge(test.failure, test.declared); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

// A deviation is declared by the check's name, so there may be one of each.
func TestNames(t *testing.T) {
	seen := make(map[string]bool)
	for _, c := range checks() {
		if seen[c.name] || c.section == "" || c.run == nil {
			t.Errorf("%q: twice, or without a section", c.name)
		}
		seen[c.name] = true
	}
	declared := make(map[string]bool)
	for _, d := range Mosquitto2 {
		if declared[d.Check] || !seen[d.Check] || d.Seen == "" || d.Reason == "" {
			t.Errorf("%q is declared twice, or of no check, or without what is seen and why", d.Check)
		}
		declared[d.Check] = true
	}
}

func TestSubscriptionIDs(t *testing.T) {
	const properties = "\x01\x01\x02\x00\x00\x00\x05\x0b\x07\x03\x00\x01x\x08\x00\x01r\x09\x00\x01c\x26\x00\x01k\x00\x01v\x0b\x80\x01\x0b\x07"
	for flags, id := range map[byte]string{0: "", 2: "\x00\x01", 4: "\x00\x01"} {
		if got := subscriptionIDs(publishFrame(flags, "a", id, properties)); !slices.Equal(got, []int{7, 128, 7}) {
			t.Errorf("flags %x: %v", flags, got)
		}
	}
}
