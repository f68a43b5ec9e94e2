package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"
)

// stream has frames of all the kinds that a Scanner treats differently under the limits of TestScanner.
func stream() (frames [][]byte, all []byte) {
	for _, b := range [][]byte{
		packet(0x20, []byte{0, 0}, props()),
		publish("a", props(prop(38, str("k"), str("v"))), "small"),
		packet(0xd0),
		publish("a/b", props(), strings.Repeat("m", 300)),
		publish("a/b", props(), strings.Repeat("x", 2000)),
		publish("a/b", props(), strings.Repeat("o", 5000)),
		packet(0x31, str("q0"), props(prop(2, []byte{0, 0, 0, 1})), []byte(strings.Repeat("o", 100_000))),
		packet(0x62, []byte{0, 7}),
		publish(strings.Repeat("t", 1000), props(prop(38, str("k"), str(strings.Repeat("v", 3000)))), "b"),
		packet(0xe0, []byte{0x8b}),
	} {
		frames = append(frames, b)
		all = append(all, b...)
	}
	return frames, all
}

var streamLimits = Limits{MaxPayload: 2000, MaxControl: 1500}

// ragged reads what r gives in pieces of random sizes.
type ragged struct {
	r   io.Reader
	rnd *rand.Rand
	max int
}

func (s *ragged) Read(p []byte) (int, error) {
	return s.r.Read(p[:min(len(p), s.rnd.IntN(s.max+1))]) // now and then nothing
}

func TestScanner(t *testing.T) {
	frames, all := stream()
	readers := map[string]func() io.Reader{
		"at once":       func() io.Reader { return bytes.NewReader(all) },
		"byte by byte":  func() io.Reader { return iotest.OneByteReader(bytes.NewReader(all)) },
		"half by half":  func() io.Reader { return iotest.HalfReader(bytes.NewReader(all)) },
		"data with EOF": func() io.Reader { return iotest.DataErrReader(bytes.NewReader(all)) },
	}
	for seed := range uint64(20) {
		readers[fmt.Sprint("random ", seed)] = func() io.Reader {
			return &ragged{bytes.NewReader(all), rand.New(rand.NewPCG(seed, 1)), 1 << (1 + seed%14)}
		}
	}
	for name, reader := range readers {
		for _, chunk := range []int{0, 1, 1000, 4096, 8192, 65536, 1 << 20} {
			t.Run(fmt.Sprint(name, " in chunks of ", chunk), func(t *testing.T) {
				l := streamLimits
				l.Chunk = chunk
				s := NewScanner(reader(), l)
				var got []Frame
				for {
					f, err := s.Next()
					if err == io.EOF {
						break
					}
					if err != nil {
						t.Fatalf("after %d frames: %v", len(got), err)
					}
					got = append(got, f)
				}
				checkStream(t, frames, got)
				if _, err := s.Next(); err != io.EOF {
					t.Errorf("after EOF: %v", err)
				}
				if s.Buffered() {
					t.Error("something is buffered after EOF")
				}
			})
		}
	}
}

// checkStream compares what came out, all of it at the end, so that a frame that was overwritten shows.
func checkStream(t *testing.T, sent [][]byte, got []Frame) {
	t.Helper()
	if len(got) != len(sent) {
		t.Fatalf("%d frames, want %d", len(got), len(sent))
	}
	for i, f := range got {
		header := 2
		if len(sent[i]) > 129 {
			header = 3
		}
		if len(sent[i]) > 16386 {
			header = 4
		}
		if f.Header != header {
			t.Errorf("frame %d: header of %d bytes, want %d", i, f.Header, header)
		}
		if cap(f.Bytes) != len(f.Bytes) {
			t.Errorf("frame %d: an append would write into the next one", i)
		}
		if f.Type() != Type(sent[i][0]>>4) {
			t.Errorf("frame %d: %v", i, f.Type())
		}
		want, oversize, bare := sent[i], 0, false
		switch i {
		case 5:
			oversize = 5000
		case 6:
			oversize = 100_000
		case 8: // 1 + 2+1 + 2+3000 bytes of properties, 1 of payload
			oversize, bare = 3007, true
		}
		if f.Oversize != oversize || f.Bare != bare {
			t.Errorf("frame %d: oversize %d, bare %t, want %d, %t", i, f.Oversize, f.Bare, oversize, bare)
		}
		if oversize > 0 {
			want = bytes.Clone(want[:len(want)-oversize])
			if bare {
				want = append(want[:len(want)-2], 0) // a property length of two bytes becomes 0
			}
			if n := len(f.Bytes) - digestSize; n < 0 || !bytes.Equal(f.Bytes[:n], want) {
				t.Errorf("frame %d: % x, want % x and a digest", i, f.Bytes, want)
			}
		} else if !bytes.Equal(f.Bytes, want) {
			t.Errorf("frame %d: % x, want % x", i, f.Bytes, want)
		}
	}
}

// Two oversize frames are Same only if what was read past is the same.
func TestScannerOversizeDigest(t *testing.T) {
	next := func(b []byte, control int) Frame {
		f, err := NewScanner(iotest.HalfReader(bytes.NewReader(b)), Limits{MaxPayload: 10, MaxControl: control, Chunk: 600}).Next()
		if err != nil || f.Oversize == 0 {
			t.Fatalf("got %+v, %v", f, err)
		}
		return f
	}
	payload := strings.Repeat("x", 3000)
	long := props(prop(38, str("k"), str(strings.Repeat("v", 200))))
	base := publish("a", long, payload)
	dup := bytes.Clone(base)
	dup[0] |= dupFlag
	for _, max := range []int{1000, 100} { // whole properties, and Bare
		f := next(base, max)
		if f.Bare != (max == 100) {
			t.Errorf("MaxControl %d: bare = %t", max, f.Bare)
		}
		if again := next(dup, max); !Same(f.Bytes, again.Bytes) || Digest(f.Bytes) != Digest(again.Bytes) {
			t.Error("the same with DUP is not the same")
		}
		for _, i := range []int{20, 100, len(base) - 2999, len(base) - 1} { // in the properties, in the payload
			other := bytes.Clone(base)
			other[i] ^= 1
			if Same(f.Bytes, next(other, max).Bytes) {
				t.Errorf("MaxControl %d: a change of byte %d goes unseen", max, i)
			}
		}
	}
}

func TestScannerLimits(t *testing.T) {
	head := func(payload, properties int) []byte {
		return publish("a", props(prop(38, str("k"), str(strings.Repeat("v", properties)))), strings.Repeat("x", payload))
	}
	tests := []struct {
		name     string
		bytes    []byte
		oversize int
		bare     bool
		code     byte
		reason   string
	}{
		{"payload at the limit", head(100, 10), 0, false, 0, ""},
		{"payload above it", head(101, 10), 101, false, 0, ""},
		{"long properties, no payload", head(0, 194), 0, false, 0, ""}, // 1+3+2+194 = 200
		{"longer properties, no payload", head(0, 195), 201, true, 0, ""},
		{"longer properties and a payload", head(9, 195), 210, true, 0, ""},
		{"longer topic, no payload", packet(0x30, str(strings.Repeat("t", 300)), props()), 0, false, 0, ""},
		{"control at the limit", packet(0x90, make([]byte, 197)), 0, false, 0, ""},
		{"control above it", packet(0x90, make([]byte, 198)), 0, false, 0x95, "SUBACK is larger than the client accepts"},
		{"control that claims the most", []byte{0x20, 0xff, 0xff, 0xff, 0x7f}, 0, false, 0x95, "CONNACK is larger than the client accepts"},
		{"remaining length of five bytes", []byte{0x30, 0xff, 0xff, 0xff, 0xff, 1}, 0, false, 0x81, "PUBLISH has a bad remaining length"},
		{"remaining length longer than its value needs", []byte{0xd0, 0x80, 0}, 0, false, 0x81, "PINGRESP has a bad remaining length"},
		{"long without properties", packet(0x32, str(strings.Repeat("t", 300)), []byte{0, 1}), 0, false, 0x81, "PUBLISH ends before its properties"},
		{"long with a topic beyond the end", packet(0x32, []byte{0xff, 0xff}, make([]byte, 300)), 0, false, 0x81, "PUBLISH ends before its properties"},
		{"long with half a property length", packet(0x30, str(strings.Repeat("t", 300)), []byte{0x80}), 0, false, 0x81, "PUBLISH ends before its properties"},
		{"long with a bad property length", packet(0x30, str("a"), []byte{0x80, 0x80, 0x80, 0x80, 1}, make([]byte, 300)), 0, false, 0x81, "PUBLISH has a bad property length"},
		{"long with properties beyond the end", packet(0x30, str("a"), []byte{0xff, 0xff, 0x7f}, make([]byte, 300)), 0, false, 0x81, "PUBLISH ends within its properties"},
	}
	for _, test := range tests {
		for _, chunk := range []int{0, 4096} {
			t.Run(fmt.Sprint(test.name, " in chunks of ", chunk), func(t *testing.T) {
				s := NewScanner(iotest.OneByteReader(io.MultiReader(bytes.NewReader(test.bytes), bytes.NewReader([]byte{0xd0, 0}))),
					Limits{MaxPayload: 100, MaxControl: 200, Chunk: chunk})
				f, err := s.Next()
				wantError(t, err, test.code, test.reason)
				if f.Oversize != test.oversize || f.Bare != test.bare {
					t.Errorf("oversize %d, bare %t", f.Oversize, f.Bare)
				}
				again, next := s.Next()
				switch {
				case err != nil && next != err:
					t.Errorf("the error is not for ever: %v", next)
				case err == nil && (next != nil || again.Type() != PINGRESP):
					t.Errorf("the next frame is %v, %v", again, next)
				}
			})
		}
	}
}

// Without limits even the largest is a frame, and CONNACK may be large.
func TestScannerZeroLimits(t *testing.T) {
	big := publish("a", props(), strings.Repeat("x", 3<<20))
	got := whole(t, big)
	if got.Oversize != 0 || cap(got.Bytes) != len(big) {
		t.Errorf("oversize %d, capacity %d of %d", got.Oversize, cap(got.Bytes), len(big))
	}
}

func TestScannerErrors(t *testing.T) {
	boom := errors.New("boom")
	one := publish("a", props(), strings.Repeat("x", 1000))
	tests := []struct {
		name   string
		reader io.Reader
		limits Limits
		frames int
		want   error
	}{
		{"nothing", strings.NewReader(""), Limits{}, 0, io.EOF},
		{"between frames", io.MultiReader(bytes.NewReader(one), iotest.ErrReader(boom)), Limits{Chunk: 4096}, 1, boom},
		{"with the last bytes", iotest.DataErrReader(bytes.NewReader(one)), Limits{Chunk: 4096}, 1, io.EOF},
		{"within a header", bytes.NewReader([]byte{0x30}), Limits{Chunk: 4096}, 0, io.ErrUnexpectedEOF},
		{"within a remaining length", bytes.NewReader([]byte{0x30, 0x80}), Limits{}, 0, io.ErrUnexpectedEOF},
		{"within a frame", bytes.NewReader(append(one[:len(one):len(one)], one[:500]...)), Limits{Chunk: 4096}, 1, io.ErrUnexpectedEOF},
		{"within a frame larger than a chunk", bytes.NewReader(one[:800]), Limits{Chunk: 512}, 0, io.ErrUnexpectedEOF},
		{"within an oversize topic", bytes.NewReader(one[:4]), Limits{MaxPayload: 9}, 0, io.ErrUnexpectedEOF},
		{"within an oversize payload", bytes.NewReader(one[:999]), Limits{MaxPayload: 9}, 0, io.ErrUnexpectedEOF},
		{"within oversize properties", bytes.NewReader(publish("a", props(prop(9, str(strings.Repeat("c", 300)))), "0123456789")[:100]), Limits{MaxPayload: 9}, 0, io.ErrUnexpectedEOF},
		{"another error within a payload", io.MultiReader(bytes.NewReader(one[:999]), iotest.ErrReader(boom)), Limits{MaxPayload: 9}, 0, boom},
		{"a reader that gives nothing", idle{}, Limits{Chunk: 4096}, 0, io.ErrNoProgress},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := NewScanner(test.reader, test.limits)
			for i := range test.frames {
				if _, err := s.Next(); err != nil {
					t.Fatalf("frame %d: %v", i, err)
				}
			}
			for range 2 {
				if f, err := s.Next(); err != test.want || f.Bytes != nil {
					t.Errorf("got %v, %v, want %v", f, err, test.want)
				}
			}
		})
	}
}

type idle struct{}

func (idle) Read([]byte) (int, error) { return 0, nil }

// steps gives one piece a Read and fails the test when it is asked for more than there is.
type steps struct {
	t      *testing.T
	pieces [][]byte
	space  []int // of each Read
}

func (s *steps) Read(p []byte) (int, error) {
	if len(s.pieces) == 0 {
		s.t.Error("Next touched the reader though a frame was buffered")
		return 0, io.EOF
	}
	s.space = append(s.space, len(p))
	n := copy(p, s.pieces[0])
	if s.pieces[0] = s.pieces[0][n:]; len(s.pieces[0]) == 0 {
		s.pieces = s.pieces[1:]
	}
	return n, nil
}

func TestScannerBuffered(t *testing.T) {
	ping, oversize := packet(0xd0), publish("a", props(), strings.Repeat("x", 200))
	for _, chunk := range []int{0, 4096} {
		r := &steps{t: t, pieces: [][]byte{bytes.Join([][]byte{ping, ping, oversize, ping, oversize[:50]}, nil), append(oversize[50:], 0x20, 0xff, 0xff, 0x7f)}}
		s := NewScanner(r, Limits{MaxPayload: 100, MaxControl: 100, Chunk: chunk})
		if s.Buffered() {
			t.Error("buffered before the first read")
		}
		for i, want := range []bool{true, true, true, false} {
			if _, err := s.Next(); err != nil {
				t.Fatal(err)
			}
			if got := s.Buffered(); got != want {
				t.Errorf("chunk %d, after frame %d: Buffered = %t", chunk, i, got)
			}
		}
		if f, err := s.Next(); err != nil || f.Oversize != 200 {
			t.Fatalf("got %v, %v", f, err)
		}
		// What follows may still be unread: an oversize payload is read no further than its end.
		for len(r.pieces) > 0 && !s.Buffered() {
			if err := s.fill(); err != nil {
				t.Fatal(err)
			}
		}
		if !s.Buffered() {
			t.Error("a frame that is too large needs no more of the reader to be refused")
		}
		_, err := s.Next()
		wantError(t, err, 0x95, "CONNACK is larger than the client accepts")
		if s.Buffered() {
			t.Error("buffered after an error")
		}
	}
}

// A read has 4 KiB of space at least, whatever is left of a chunk.
func TestScannerGivesReadsRoom(t *testing.T) {
	r := &steps{t: t}
	for range 2000 {
		r.pieces = append(r.pieces, publish("a", props(), strings.Repeat("x", 600))[:300], publish("a", props(), strings.Repeat("x", 600))[300:])
	}
	for _, chunk := range []int{0, 16 << 10, 64 << 10} {
		r := &steps{t: t, pieces: append([][]byte(nil), r.pieces...)}
		s := NewScanner(r, Limits{Chunk: chunk})
		for range 2000 {
			if _, err := s.Next(); err != nil {
				t.Fatal(err)
			}
		}
		for i, space := range r.space {
			if space < maxRoom {
				t.Fatalf("chunk %d: read %d had %d bytes of space", chunk, i, space)
			}
		}
	}
}

func TestVarint(t *testing.T) {
	for _, n := range []int{0, 1, 127, 128, 16383, 16384, 2097151, 2097152, maxVarint} {
		b := vbi(n)
		if value, size := varint(append(b, 0xff)); value != n || size != len(b) {
			t.Errorf("%d: got %d of %d bytes", n, value, size)
		}
		for i := range b {
			if _, size := varint(b[:i]); size != 0 {
				t.Errorf("%d cut to %d bytes: size %d", n, i, size)
			}
		}
	}
	if _, size := varint([]byte{0x80, 0x80, 0x80, 0x80}); size != -1 {
		t.Error("five bytes are not refused with the fourth")
	}
}
