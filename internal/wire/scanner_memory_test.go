package wire

import (
	"bytes"
	"io"
	"runtime"
	"strings"
	"testing"
)

// A claim costs no memory: a peer that claims 256 MiB and sends little makes a Scanner allocate little.
func TestScannerDoesNotTrustLengths(t *testing.T) {
	const most = "\xff\xff\xff\x7f"
	little := strings.Repeat("x", 1000)
	tests := map[string]struct {
		bytes  string
		limits Limits
	}{
		"PUBLISH":                     {"\x30" + most + "\x00\x01a\x00" + little, Limits{}},
		"PUBLISH in chunks":           {"\x30" + most + "\x00\x01a\x00" + little, Limits{Chunk: 65536}},
		"oversize PUBLISH":            {"\x30" + most + "\x00\x01a\x00" + little, Limits{MaxPayload: 1 << 20, MaxControl: 1 << 20}},
		"oversize properties":         {"\x30" + most + "\x00\x01a\xf0\xff\xff\x7f" + little, Limits{MaxPayload: 1 << 20, MaxControl: 1 << 20}},
		"properties below MaxControl": {"\x30" + most + "\x00\x01a\xf0\xff\xff\x7f" + little, Limits{MaxPayload: 1 << 20}},
		"CONNACK":                     {"\x20" + most + little, Limits{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := NewScanner(strings.NewReader(test.bytes), test.limits).Next()
			runtime.ReadMemStats(&after)
			if err != io.ErrUnexpectedEOF {
				t.Errorf("got %v", err)
			}
			if n := after.TotalAlloc - before.TotalAlloc; n > 256<<10 {
				t.Errorf("%d bytes allocated", n)
			}
		})
	}
}

// An oversize payload of 64 MiB is read past in the memory of a buffer.
func TestScannerReadsPastInBoundedMemory(t *testing.T) {
	const size = 64 << 20
	for _, chunk := range []int{0, 4096, 65536} {
		var before, after runtime.MemStats
		r := io.MultiReader(bytes.NewReader(packet(0x30, str("a"), props())[:1]), bytes.NewReader(vbi(4+size)), strings.NewReader("\x00\x01a\x00"), io.LimitReader(zeros{}, size), bytes.NewReader(packet(0xd0)))
		s := NewScanner(r, Limits{MaxPayload: 1 << 20, MaxControl: 1 << 20, Chunk: chunk})
		runtime.ReadMemStats(&before)
		f, err := s.Next()
		runtime.ReadMemStats(&after)
		if err != nil || f.Oversize != size {
			t.Fatalf("got oversize %d, %v", f.Oversize, err)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 256<<10 {
			t.Errorf("chunk %d: %d bytes allocated", chunk, n)
		}
		if f, err := s.Next(); err != nil || f.Type() != PINGRESP {
			t.Errorf("the next frame is %v, %v", f, err)
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
