package hostile

import (
	"encoding/binary"
	"slices"
)

// Case is one form of one packet.
type Case struct {
	Packet *Packet
	// Name says what is odd about it. No two cases of one sender have the same.
	Name string
	// Bytes is what is sent. It must not be written to: see [Case.WithID].
	Bytes []byte
	// IDAt is where its Packet Identifier stands, 0 where it has none.
	IDAt int
	// Wrong has the reason codes of which one answers it. It is empty where the form is legal.
	Wrong []byte
	// Tolerable says that a receiver may as well take it as if it were legal: what is wrong with it can hurt nobody.
	Tolerable bool
	// Unfinished says that more of the packet would have to come.
	Unfinished bool
	// Split says that each byte is sent by itself.
	Split bool
	// Code is its reason code, where it has one, or its first.
	Code byte
	// Property is what it carries alone, and Value its value, encoded; 0 where it carries none or several.
	Property byte
	Value    string
	// Message is what a PUBLISH that is legal says.
	Message *Message
}

// Message is what a receiver is to find in a PUBLISH.
type Message struct {
	Topic           string
	QoS             byte
	Dup, Retain     bool
	Payload         []byte
	ContentType     string
	ResponseTopic   string
	CorrelationData []byte
	User            [][2]string
}

// Legal says that the case breaks no rule that is a packet's own.
func (c *Case) Legal() bool { return len(c.Wrong) == 0 }

// WithID returns its bytes with another Packet Identifier.
func (c *Case) WithID(id uint16) []byte {
	if c.IDAt == 0 {
		return c.Bytes
	}
	b := slices.Clone(c.Bytes)
	binary.BigEndian.PutUint16(b[c.IDAt:], id)
	return b
}

// generator collects cases.
type generator struct {
	from  Sender
	topic string
	cases []Case
}

// Cases returns every case of a sender: of each of the fifteen packets, those included that it may not send at all, which are wrong
// in every form. topic is where PUBLISHes go.
func Cases(from Sender, topic string) []Case {
	var out []Case
	for _, def := range AllPackets {
		out = append(out, Of(def.Type, from, topic)...)
	}
	return append(out, reserved(from)...)
}

// Of returns the cases of one packet.
func Of(kind byte, from Sender, topic string) []Case {
	def := AllPackets[kind-1]
	g := &generator{from: from, topic: topic}
	if def.From&from == 0 {
		g.from = both &^ from
		g.alien(def)
		return g.cases
	}
	g.legal(def)
	g.wrong(def)
	return g.cases
}

// alien adds a packet that only the other end may send.
func (g *generator) alien(def *Packet) {
	for _, b := range g.bases(def) {
		g.add(b.packet, "from the wrong end", nil)
		g.add(b.packet, "from the wrong end, byte by byte", nil).Split = true
		g.flags(def)
		g.truncated(b)
		g.unfinished(b)
	}
	for i := range g.cases {
		g.cases[i].Wrong = either
	}
}

// add adds a case that a packet is encoded for.
func (g *generator) add(p packet, name string, wrong []byte) *Case {
	return g.addBytes(p, name, p.bytes(), wrong)
}

// addBytes adds a case whose bytes are not as the packet would be encoded. An identifier that has moved is left alone.
func (g *generator) addBytes(p packet, name string, b []byte, wrong []byte) *Case {
	c := Case{Packet: p.def, Name: p.def.Name + ": " + name, Bytes: b, Wrong: wrong}
	if at := p.idAt(); at > 0 && len(b) >= at+2 && binary.BigEndian.Uint16(b[at:]) == AnyID {
		c.IDAt = at
	}
	if i := p.index(ReasonCode); i >= 0 && len(p.parts[i]) == 1 {
		c.Code = p.parts[i][0]
	} else if i := p.index(Codes); i >= 0 && len(p.parts[i]) > 0 {
		c.Code = p.parts[i][0]
	}
	if p.def.Type == PUBLISH && len(wrong) == 0 {
		c.Message = message(p)
	}
	g.cases = append(g.cases, c)
	return &g.cases[len(g.cases)-1]
}
