package chaos

import "encoding/binary"

// eventKind is what an event of a consumer's journal says.
type eventKind byte

// What a consumer tells of its connections, packet by packet, and of its handlers, call by call.
const (
	eventConnected    eventKind = 'C' // CONNACK accepted a connection
	eventLost         eventKind = 'X' // a connection is at its end
	eventParted       eventKind = 'D' // DISCONNECT is handed to Write
	eventShown        eventKind = 'P' // a PUBLISH came
	eventAcknowledged eventKind = 'A' // its PUBACK or PUBREC is handed to Write
	eventPublished    eventKind = 'W' // the PUBLISH of a retry copy or a dead letter is handed to Write
	eventConfirmed    eventKind = 'K' // its PUBACK came
	eventBegun        eventKind = 'B' // a handler was called
	eventReturned     eventKind = 'E' // it is about to return
)

// Flags.
const (
	flagPresent byte = 1 // of C: the server had the session
	flagOrderly byte = 1 // of X: the stream had come to its end, nothing was cut off
	flagDup     byte = 1 // of P: DUP
	flagFirst   byte = 2 // of P: the first of its Read
	flagForeign byte = 4 // of P: nothing that a publisher has sent, but a marker of Settle's
	flagUnknown byte = 1 // of A: under an identifier that the connection has not shown
	flagDead    byte = 1 // of W: a dead letter
)

// What E says of the outcome, in its code.
const (
	returnedAck    byte = 'a'
	returnedRetry  byte = 'r' // Retry, or a panic
	returnedReject byte = 'd'
	returnedLate   byte = 'l' // its timeout is over, so the outcome has no effect
)

// event is one line of a consumer's journal. It holds no pointer: a long run has a hundred million.
type event struct {
	kind    eventKind
	flags   byte
	code    byte  // of E: the outcome; of K: the reason code
	attempt uint8 // that the handler would see; of W: the attempts made
	conn    uint16
	id      uint16 // Packet Identifier of P, A, W and K
	at      uint32 // since the run began, in units of 100 µs
	unit    uint32 // which sending of which message
	copy    uint32 // of a retry copy: a digest of its id; of C: 1 for the second connection
}

const eventSize = 20

func (e *event) append(b []byte) []byte {
	b = append(b, byte(e.kind), e.flags, e.code, e.attempt)
	b = binary.LittleEndian.AppendUint16(b, e.conn)
	b = binary.LittleEndian.AppendUint16(b, e.id)
	b = binary.LittleEndian.AppendUint32(b, e.at)
	b = binary.LittleEndian.AppendUint32(b, e.unit)
	return binary.LittleEndian.AppendUint32(b, e.copy)
}

func readEvent(b []byte) event {
	_ = b[eventSize-1]
	return event{
		kind: eventKind(b[0]), flags: b[1], code: b[2], attempt: b[3],
		conn: binary.LittleEndian.Uint16(b[4:]), id: binary.LittleEndian.Uint16(b[6:]),
		at: binary.LittleEndian.Uint32(b[8:]), unit: binary.LittleEndian.Uint32(b[12:]), copy: binary.LittleEndian.Uint32(b[16:]),
	}
}
