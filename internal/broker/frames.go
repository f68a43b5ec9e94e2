package broker

// splitFrame returns the first control packet in b and what stands behind it. It returns none where b ends within it; need is
// then how many bytes the packet has, as far as that is known, or 0.
func splitFrame(b []byte) (frame, rest []byte, need int, err *violation) {
	if len(b) < 2 {
		return nil, b, 0, nil
	}
	length, size := varint(b[1:])
	switch {
	case size < 0:
		return nil, nil, 0, malformed("a packet's Remaining Length is not one")
	case size == 0:
		return nil, b, 0, nil
	}
	need = 1 + size + int(length)
	if len(b) < need {
		return nil, b, need, nil
	}
	return b[:need], b[need:], need, nil
}

// frameBody is what follows the fixed header of a whole packet.
func frameBody(frame []byte) []byte {
	_, size := varint(frame[1:])
	return frame[1+size:]
}

// inbox is the read buffer of a connection. It begins small, because most connections of a test are idle, and grows with what has come, not with what a
// packet claims.
type inbox struct {
	buf        []byte
	start, end int
}

const (
	inboxMin = 512
	inboxMax = 32 << 10 // beyond it only for a packet that is larger
)

// space returns where the next bytes are to be read to.
func (i *inbox) space(need int) []byte {
	if i.start == i.end {
		full := i.end == len(i.buf)
		i.start, i.end = 0, 0
		switch {
		case len(i.buf) > inboxMax: // what a large packet took is not kept
			i.buf = nil
		case full && len(i.buf) > 0: // more came than fits
			i.buf = make([]byte, min(2*len(i.buf), inboxMax))
		}
	}
	switch {
	case i.buf == nil:
		i.buf = make([]byte, inboxMin)
	case i.end == len(i.buf):
		size := len(i.buf)
		if i.start < size/2 && (size < inboxMax || need > size-i.start) { // else there is room enough in front
			size = max(size, min(2*size, max(inboxMax, need)))
		}
		grown := i.buf
		if size > len(i.buf) {
			grown = make([]byte, size)
		}
		i.end = copy(grown, i.buf[i.start:i.end])
		i.start, i.buf = 0, grown
	}
	return i.buf[i.end:]
}

func (i *inbox) bytes() []byte { return i.buf[i.start:i.end] }

// rest gives up the buffer of a connection that has little to say.
func (i *inbox) rest() {
	if i.start == i.end && len(i.buf) == inboxMin {
		*i = inbox{}
	}
}
