package hostile

// Sender is who sends a packet.
type Sender byte

// The two ends of a connection.
const (
	Client Sender = 1 << iota
	Server
	both = Client | Server
)

// Control packet types (2.1.2).
const (
	CONNECT     byte = 1
	CONNACK     byte = 2
	PUBLISH     byte = 3
	PUBACK      byte = 4
	PUBREC      byte = 5
	PUBREL      byte = 6
	PUBCOMP     byte = 7
	SUBSCRIBE   byte = 8
	SUBACK      byte = 9
	UNSUBSCRIBE byte = 10
	UNSUBACK    byte = 11
	PINGREQ     byte = 12
	PINGRESP    byte = 13
	DISCONNECT  byte = 14
	AUTH        byte = 15
)

// Reason codes (2.4) that answer what is wrong.
const (
	CodeMalformed     byte = 0x81
	CodeProtocol      byte = 0x82
	CodeUnsupported   byte = 0x84
	CodeBadAuthMethod byte = 0x8C
	CodeTopicInvalid  byte = 0x90
	CodeTopicAlias    byte = 0x94
	CodeTooLarge      byte = 0x95
)

// Packet is what the standard says of one control packet.
type Packet struct {
	Type    byte
	Name    string
	Section string
	From    Sender
	// Flags is what the lower half of the first byte has to be (2.1.3). Those of a PUBLISH say something.
	Flags byte
	// Fields stand behind the fixed header, in this order.
	Fields []Field
	// Codes are the reason codes (2.4), and who may send them. Packets without one have none.
	Codes []Code
}

// Code is a reason code and who may send it in a packet.
type Code struct {
	Value byte
	From  Sender
}

// Form is a data type (1.5), or a run of something that fills what is left of a packet.
type Form byte

// The forms of fields and properties.
const (
	Byte       Form = iota + 1
	Flag            // a byte of 0 or 1
	Uint16          // Two Byte Integer
	Uint32          // Four Byte Integer
	Varint          // Variable Byte Integer
	Text            // UTF-8 Encoded String
	Binary          // Binary Data
	Pair            // UTF-8 String Pair
	PacketID        // a Two Byte Integer that must not be 0 (2.2.1)
	Properties      // a length and properties (2.2.2)
	ReasonCode      // a byte of the packet's Codes
	Codes           // as many of them as there are filters
	Filters         // Topic Filters, each with its options in a SUBSCRIBE
	Payload         // the rest, whatever it is
)

// Field is one part of a packet.
type Field struct {
	Name string
	Form Form
	// MayEnd says that the packet may end before this field.
	MayEnd bool
	// Sample is what the field usually has, encoded.
	Sample string
	// Place is whose properties they are, in table 2-4. 0: the packet's.
	Place byte
	// NoWildcards says of a text that it is a Topic Name.
	NoWildcards bool
}

// Will stands for the Will Properties among the packet types.
const Will byte = 16

// AllPackets are the fifteen, in the order of their types.
var AllPackets = []*Packet{
	{
		Type: CONNECT, Name: "CONNECT", Section: "3.1", From: Client,
		// Clean Start, a will at QoS 1, User Name and Password.
		Fields: []Field{
			{Name: "protocol name", Form: Binary, Sample: "\x00\x04MQTT"},
			{Name: "protocol version", Form: Byte, Sample: "\x05"},
			{Name: "connect flags", Form: Byte, Sample: "\xce"},
			{Name: "keep alive", Form: Uint16, Sample: "\x00\x3c"},
			{Name: "properties", Form: Properties},
			{Name: "client identifier", Form: Text, Sample: "\x00\x03bad"},
			{Name: "will properties", Form: Properties, Place: Will},
			{Name: "will topic", Form: Text, Sample: "\x00\x04will", NoWildcards: true},
			{Name: "will payload", Form: Binary, Sample: "\x00\x04gone"},
			{Name: "user name", Form: Text, Sample: "\x00\x04user"},
			{Name: "password", Form: Binary, Sample: "\x00\x02\x00\xff"},
		},
	},
	{
		Type: CONNACK, Name: "CONNACK", Section: "3.2", From: Server,
		Fields: []Field{
			{Name: "acknowledge flags", Form: Flag, Sample: "\x00"},
			{Name: "reason code", Form: ReasonCode, Sample: "\x00"},
			{Name: "properties", Form: Properties},
		},
		Codes: codes(Server, 0x00, 0x80, 0x81, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8A, 0x8C, 0x90, 0x95, 0x97, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9F),
	},
	{
		Type: PUBLISH, Name: "PUBLISH", Section: "3.3", From: both,
		Fields: []Field{
			{Name: "topic name", Form: Text, NoWildcards: true},
			{Name: "packet identifier", Form: PacketID}, // not at QoS 0
			{Name: "properties", Form: Properties},
			{Name: "payload", Form: Payload, MayEnd: true, Sample: "\x00\xffpayload"},
		},
	},
	{Type: PUBACK, Name: "PUBACK", Section: "3.4", From: both, Fields: answerFields, Codes: publishCodes},
	{Type: PUBREC, Name: "PUBREC", Section: "3.5", From: both, Fields: answerFields, Codes: publishCodes},
	{Type: PUBREL, Name: "PUBREL", Section: "3.6", From: both, Flags: 2, Fields: answerFields, Codes: codes(both, 0x00, 0x92)},
	{Type: PUBCOMP, Name: "PUBCOMP", Section: "3.7", From: both, Fields: answerFields, Codes: codes(both, 0x00, 0x92)},
	{
		Type: SUBSCRIBE, Name: "SUBSCRIBE", Section: "3.8", From: Client, Flags: 2,
		Fields: []Field{
			{Name: "packet identifier", Form: PacketID},
			{Name: "properties", Form: Properties},
			{Name: "filters", Form: Filters, Sample: "\x00\x03a/b\x01\x00\x03c/#\x02"},
		},
	},
	{
		Type: SUBACK, Name: "SUBACK", Section: "3.9", From: Server,
		Fields: []Field{
			{Name: "packet identifier", Form: PacketID},
			{Name: "properties", Form: Properties},
			{Name: "reason codes", Form: Codes, Sample: "\x01"},
		},
		Codes: codes(Server, 0x00, 0x01, 0x02, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2),
	},
	{
		Type: UNSUBSCRIBE, Name: "UNSUBSCRIBE", Section: "3.10", From: Client, Flags: 2,
		Fields: []Field{
			{Name: "packet identifier", Form: PacketID},
			{Name: "properties", Form: Properties},
			{Name: "filters", Form: Filters, Sample: "\x00\x03a/b\x00\x03c/#"},
		},
	},
	{
		Type: UNSUBACK, Name: "UNSUBACK", Section: "3.11", From: Server,
		Fields: []Field{
			{Name: "packet identifier", Form: PacketID},
			{Name: "properties", Form: Properties},
			{Name: "reason codes", Form: Codes, Sample: "\x00"},
		},
		Codes: codes(Server, 0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91),
	},
	{Type: PINGREQ, Name: "PINGREQ", Section: "3.12", From: Client},
	{Type: PINGRESP, Name: "PINGRESP", Section: "3.13", From: Server},
	{
		Type: DISCONNECT, Name: "DISCONNECT", Section: "3.14", From: both,
		Fields: []Field{
			{Name: "reason code", Form: ReasonCode, MayEnd: true, Sample: "\x00"},
			{Name: "properties", Form: Properties, MayEnd: true},
		},
		Codes: append(append(codes(both, 0x00, 0x80, 0x81, 0x82, 0x83, 0x90, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99), codes(Client, 0x04)...),
			codes(Server, 0x87, 0x89, 0x8B, 0x8D, 0x8E, 0x8F, 0x9A, 0x9B, 0x9C, 0x9D, 0x9E, 0x9F, 0xA0, 0xA1, 0xA2)...),
	},
	{
		Type: AUTH, Name: "AUTH", Section: "3.15", From: both,
		Fields: []Field{
			{Name: "reason code", Form: ReasonCode, MayEnd: true, Sample: "\x00"},
			{Name: "properties", Form: Properties, MayEnd: true},
		},
		Codes: append(append(codes(both, 0x18), codes(Server, 0x00)...), codes(Client, 0x19)...),
	},
}

// answerFields are those of PUBACK, PUBREC, PUBREL and PUBCOMP.
var answerFields = []Field{
	{Name: "packet identifier", Form: PacketID},
	{Name: "reason code", Form: ReasonCode, MayEnd: true, Sample: "\x00"},
	{Name: "properties", Form: Properties, MayEnd: true},
}

// publishCodes are those of PUBACK and PUBREC (3.4.2.1, 3.5.2.1).
var publishCodes = append(codes(both, 0x00, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99), codes(Server, 0x10)...)

func codes(from Sender, values ...byte) []Code {
	out := make([]Code, len(values))
	for i, v := range values {
		out[i] = Code{Value: v, From: from}
	}
	return out
}

// allows tells whether the packet may have a reason code.
func (p *Packet) allows(code byte, from Sender) bool {
	for _, c := range p.Codes {
		if c.Value == code {
			return c.From&from != 0
		}
	}
	return false
}
