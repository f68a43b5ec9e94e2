package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// vbi encodes a Variable Byte Integer.
func vbi(n int) []byte {
	var b []byte
	for {
		c := byte(n & 0x7F)
		if n >>= 7; n == 0 {
			return append(b, c)
		}
		b = append(b, c|0x80)
	}
}

// str encodes a string or binary data with its length.
func str(s string) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(s))), s...)
}

// prop encodes one property.
func prop(id byte, value ...[]byte) []byte {
	return append([]byte{id}, slices.Concat(value...)...)
}

// props encodes properties and their length.
func props(each ...[]byte) []byte {
	all := slices.Concat(each...)
	return append(vbi(len(all)), all...)
}

// packet encodes a packet of any kind.
func packet(first byte, body ...[]byte) []byte {
	all := slices.Concat(body...)
	return slices.Concat([]byte{first}, vbi(len(all)), all)
}

// publish encodes a PUBLISH at QoS 1 with Packet Identifier 7.
func publish(topic string, properties []byte, payload string) []byte {
	return packet(0x32, str(topic), []byte{0, 7}, properties, []byte(payload))
}

// whole makes a frame of bytes that are one.
func whole(t testing.TB, b []byte) Frame {
	t.Helper()
	f, err := NewScanner(bytes.NewReader(b), Limits{}).Next()
	if err != nil {
		t.Fatalf("not a frame: % x: %v", b, err)
	}
	if !bytes.Equal(f.Bytes, b) {
		t.Fatalf("not one frame: % x", b)
	}
	return f
}

// wantError checks that err is an *Error with this code and this end of its reason; code 0: that it is nil.
func wantError(t *testing.T, err error, code byte, reason string) {
	t.Helper()
	if code == 0 {
		if err != nil {
			t.Errorf("got %v, want no error", err)
		}
		return
	}
	var wrong *Error
	if !errors.As(err, &wrong) {
		t.Errorf("got %v, want an *Error with code %#x", err, code)
		return
	}
	if wrong.Code != code || !strings.HasSuffix(wrong.Reason, reason) {
		t.Errorf("got %#x %q, want %#x %q", wrong.Code, wrong.Reason, code, reason)
	}
}
