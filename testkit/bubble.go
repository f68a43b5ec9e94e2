package testkit

import (
	"bytes"
	"runtime"
)

// inBubble says that the caller runs in a testing/synctest bubble, where waiting costs nothing. The standard library tells it in the
// first line of a stack trace and nowhere else; TestPatienceInABubble holds it to that.
func inBubble() bool {
	var trace [256]byte
	head, _, _ := bytes.Cut(trace[:runtime.Stack(trace[:], false)], []byte{'\n'})
	return bytes.Contains(head, []byte("synctest bubble"))
}
