package wire

import (
	"bytes"
	"testing"
)

func TestAppend(t *testing.T) {
	dst := []byte{0xEE}
	tests := []struct {
		name string
		got  []byte
		want []byte
	}{
		{"PUBACK", AppendPuback(dst, 0x0102), []byte{0xEE, 0x40, 2, 1, 2}},
		{"PUBREC", AppendPubrec(dst, 0xFFFE), []byte{0xEE, 0x50, 2, 0xFF, 0xFE}},
		{"PUBCOMP", AppendPubcomp(dst, 1, 0), []byte{0xEE, 0x70, 2, 0, 1}},
		{"PUBCOMP not found", AppendPubcomp(dst, 1, 0x92), []byte{0xEE, 0x70, 3, 0, 1, 0x92}},
		{"PINGREQ", AppendPingreq(dst), []byte{0xEE, 0xC0, 0}},
		{"DISCONNECT", AppendDisconnect(dst, 0), []byte{0xEE, 0xE0, 0}},
		{"DISCONNECT protocol error", AppendDisconnect(dst, 0x82), []byte{0xEE, 0xE0, 1, 0x82}},
		{"DISCONNECT with expiry", AppendDisconnectExpiry(dst, 0, 0x01020304), []byte{0xEE, 0xE0, 7, 0, 5, 17, 1, 2, 3, 4}},
	}
	for _, test := range tests {
		if !bytes.Equal(test.got, test.want) {
			t.Errorf("%s: % x, want % x", test.name, test.got, test.want)
		}
	}
}

func TestSameAndDigest(t *testing.T) {
	base := publish("a", props(), "x")
	change := func(i int, mask byte) []byte {
		b := bytes.Clone(base)
		b[i] ^= mask
		return b
	}
	tests := []struct {
		name string
		b    []byte
		same bool
	}{
		{"itself", bytes.Clone(base), true},
		{"DUP", change(0, 0x08), true},
		{"retain", change(0, 0x01), false},
		{"QoS", change(0, 0x06), false},
		{"retain and DUP", change(0, 0x09), false},
		{"identifier", change(6, 1), false},
		{"payload", change(len(base)-1, 1), false},
		{"one byte more", append(bytes.Clone(base), 0), false},
		{"one byte less", base[:len(base)-1], false},
		{"nothing", nil, false},
	}
	for _, test := range tests {
		if got := Same(base, test.b); got != test.same {
			t.Errorf("%s: Same = %t", test.name, got)
		}
		if got := Digest(base) == Digest(test.b); got != test.same {
			t.Errorf("%s: equal digests = %t", test.name, got)
		}
	}
	if !Same(nil, []byte{}) || Digest(nil) != Digest([]byte{}) {
		t.Error("nothing is not the same as nothing")
	}
}
