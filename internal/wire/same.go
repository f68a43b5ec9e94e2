package wire

import (
	"bytes"
	"hash/maphash"
)

// dupFlag is the bit of a PUBLISH's first byte that alone differs when it is sent again (3.3.1.1).
const dupFlag = 1 << 3

// seed is one for the process, so that digests can be compared with each other and their collisions
// cannot be prepared by a publisher.
var seed = maphash.MakeSeed()

// Same reports whether two PUBLISH frames are the same byte for byte, apart from DUP.
func Same(a, b []byte) bool {
	if len(a) != len(b) {
		return false
	}
	if len(a) == 0 {
		return true
	}
	return (a[0]^b[0])&^dupFlag == 0 && bytes.Equal(a[1:], b[1:])
}

// Digest is a 64-bit hash of a PUBLISH frame with DUP cleared: frames that are the Same have one digest.
// It means nothing outside this process.
func Digest(frame []byte) uint64 {
	if len(frame) == 0 {
		return 0
	}
	// The first byte is mixed in apart, because the frame may not be written to. The factor is odd, so
	// frames that differ in their first byte alone never have one digest.
	return maphash.Bytes(seed, frame[1:]) ^ uint64(frame[0]&^dupFlag)*0x9E3779B97F4A7C15
}
