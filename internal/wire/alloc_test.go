package wire

import (
	"bytes"
	"strings"
	"testing"
)

// loop gives the same bytes for ever.
type loop struct {
	b  []byte
	at int
}

func (l *loop) Read(p []byte) (int, error) {
	n := copy(p, l.b[l.at:])
	l.at = (l.at + n) % len(l.b)
	return n, nil
}

// typical is a PUBLISH as a server sends it to a subscription with an identifier.
func typical() []byte {
	return publish("meters/12345678/usage", props(prop(11, vbi(70_000)), prop(3, str("application/json")),
		prop(38, str("partition-key"), str("12345678")), prop(38, str("message-id"), str("12345678-1"))), strings.Repeat("x", 512))
}

func TestParsePublishAllocatesNothing(t *testing.T) {
	f := whole(t, typical())
	var p Publish
	var sum int
	allocs := testing.AllocsPerRun(100, func() {
		if err := ParsePublish(f, &p); err != nil {
			t.Fatal(err)
		}
		for id := range p.SubscriptionIDs() {
			sum += int(id)
		}
		for name, value := range p.UserProperties() {
			sum += len(name) + len(value)
		}
		if value, ok := p.UserProperty("message-id"); ok {
			sum += len(value)
		}
		if Same(f.Bytes, p.Frame.Bytes) {
			sum += int(Digest(f.Bytes) & 1)
		}
	})
	if allocs != 0 || sum == 0 {
		t.Errorf("%v allocations, want 0", allocs)
	}
}

func TestAppendAllocatesNothing(t *testing.T) {
	dst := make([]byte, 0, 64)
	if allocs := testing.AllocsPerRun(100, func() {
		b := AppendPuback(dst, 1)
		b = AppendPubrec(b, 1)
		b = AppendPubcomp(b, 1, 0x92)
		b = AppendPingreq(b)
		b = AppendDisconnect(b, 0x82)
		if b = AppendDisconnectExpiry(b, 0, 0); len(b) != 27 {
			t.Fatalf("%d bytes", len(b))
		}
	}); allocs != 0 {
		t.Errorf("%v allocations, want 0", allocs)
	}
}

// Control frames on the reader's path are checked without allocating.
func TestCheckControlAllocatesNothing(t *testing.T) {
	frames := []Frame{whole(t, packet(0x62, []byte{0, 7})), whole(t, packet(0x40, []byte{0, 7, 0}, props(prop(31, str("r"))))), whole(t, packet(0xd0))}
	if allocs := testing.AllocsPerRun(100, func() {
		for _, f := range frames {
			if err := CheckControl(f); err != nil {
				t.Fatal(err)
			}
		}
		if _, _, err := ParsePubrel(frames[0]); err != nil {
			t.Fatal(err)
		}
	}); allocs != 0 {
		t.Errorf("%v allocations, want 0", allocs)
	}
}

// A Scanner allocates its chunks, one for the bytes of each, and nothing else; without chunks it
// allocates each frame, exactly.
func TestScannerAllocations(t *testing.T) {
	const frames = 1000
	b := typical()
	tests := []struct {
		name  string
		chunk int
		most  float64
	}{
		{"in chunks", 64 << 10, float64(frames*len(b))/(60<<10) + 1},
		{"each its own", 0, frames},
	}
	for _, test := range tests {
		s := NewScanner(&loop{b: bytes.Repeat(b, 7)}, Limits{MaxPayload: 1 << 20, MaxControl: 1 << 20, Chunk: test.chunk})
		if allocs := testing.AllocsPerRun(10, func() {
			for range frames {
				if _, err := s.Next(); err != nil {
					t.Fatal(err)
				}
			}
		}); allocs > test.most {
			t.Errorf("%s: %v allocations for %d frames, want at most %v", test.name, allocs, frames, test.most)
		}
	}
}

func BenchmarkParsePublish(b *testing.B) {
	for name, bytes := range map[string][]byte{"typical": typical(), "plain": publish("meters/12345678/usage", props(), strings.Repeat("x", 512))} {
		b.Run(name, func(b *testing.B) {
			f := whole(b, bytes)
			var p Publish
			b.ReportAllocs()
			for b.Loop() {
				if err := ParsePublish(f, &p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkScanner(b *testing.B) {
	for name, chunk := range map[string]int{"chunks": 64 << 10, "own": 0} {
		b.Run(name, func(b *testing.B) {
			frame := typical()
			s := NewScanner(&loop{b: bytes.Repeat(frame, 100)}, Limits{MaxPayload: 1 << 20, MaxControl: 1 << 20, Chunk: chunk})
			b.SetBytes(int64(len(frame)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Next(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkDigest(b *testing.B) {
	frame := typical()
	for b.Loop() {
		Digest(frame)
	}
}
