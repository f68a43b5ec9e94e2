package wire

// Type is the type of a control packet, the upper half of its first byte (2.1.2).
type Type byte

// The packets that a server may send.
const (
	CONNACK    Type = 2
	PUBLISH    Type = 3
	PUBACK     Type = 4
	PUBREC     Type = 5
	PUBREL     Type = 6
	PUBCOMP    Type = 7
	SUBACK     Type = 9
	UNSUBACK   Type = 11
	PINGRESP   Type = 13
	DISCONNECT Type = 14
	AUTH       Type = 15
)

var typeNames = [16]string{
	"packet of reserved type 0", "CONNECT", "CONNACK", "PUBLISH", "PUBACK", "PUBREC", "PUBREL", "PUBCOMP",
	"SUBSCRIBE", "SUBACK", "UNSUBSCRIBE", "UNSUBACK", "PINGREQ", "PINGRESP", "DISCONNECT", "AUTH",
}

// String is the name that the standard gives the type.
func (t Type) String() string { return typeNames[t&0x0F] }

// Frame is one control packet as it stood on the stream.
type Frame struct {
	// Bytes is the fixed header and all that follows it. The Scanner never writes to it again, and
	// neither may anybody else: a Publish and all that is made of it alias it for as long as they like.
	//
	// Of an oversize PUBLISH it is what stands before the payload, then 8 bytes of digest of what was
	// read past. Two such frames with equal bytes are the same message, as they are with whole frames.
	// The digest is seeded anew in each process.
	Bytes []byte
	// Header is the length of the fixed header: 2 to 5 bytes.
	Header int
	// Oversize is how many bytes of a PUBLISH were read past, 0 of a frame that is whole: the length
	// of its payload, and of its properties where Bare is set.
	Oversize int
	// Bare says of an oversize PUBLISH that its properties were longer than Limits.MaxControl and were
	// read past too. Bytes then holds a property length of 0 in their place, and the digest covers them.
	Bare bool
}

// Type returns the packet's type.
func (f Frame) Type() Type { return Type(f.Bytes[0] >> 4) }

// digestSize is the number of bytes that stand for the payload of an oversize PUBLISH.
const digestSize = 8

// body is what follows the fixed header, without the digest of an oversize PUBLISH. It is not ok in a
// frame that no Scanner made, being too short for what it claims.
func (f Frame) body() (b []byte, ok bool) {
	end := len(f.Bytes)
	if f.Oversize > 0 {
		end -= digestSize
	}
	if f.Header < 2 || f.Header > end {
		return nil, false
	}
	return f.Bytes[f.Header:end], true
}

// maxVarint is the largest Variable Byte Integer (1.5.5).
const maxVarint = 268_435_455

// varint decodes the Variable Byte Integer at the start of b (1.5.5) and returns its value and its size
// in bytes. Size 0 means that b ends within it, and -1 that it is malformed: it does not end with the
// fourth byte, or is longer than its value needs [MQTT-1.5.5-1].
func varint(b []byte) (value, size int) {
	for i := range min(len(b), 4) {
		c := b[i]
		value |= int(c&0x7F) << (7 * i)
		if c < 0x80 {
			if c == 0 && i > 0 {
				return 0, -1
			}
			return value, i + 1
		}
	}
	if len(b) >= 4 {
		return 0, -1
	}
	return 0, 0
}
