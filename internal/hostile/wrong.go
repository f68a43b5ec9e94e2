package hostile

import (
	"fmt"
	"slices"
)

// wrong adds the broken forms of a packet.
func (g *generator) wrong(def *Packet) {
	g.flags(def)
	for _, b := range g.bases(def) {
		g.lengths(b)
		g.identifiers(b)
		// Cut short and run on are the packet with something in its properties, so that there is an inside to be cut.
		full := b
		for i := range b.fields {
			if b.fields[i].Form == Properties {
				if propertyByID(PropertyUser).belongs(b.place(i), g.from) {
					full.packet = full.with(i, string([]byte{PropertyUser})+field("name")+field("value"))
				}
				g.brokenProperties(b, i)
			}
		}
		g.truncated(full)
		g.tooLong(full)
		g.unfinished(full)
	}
}

// flags adds every value of the lower half of the first byte (2.1.3, 3.3.1).
func (g *generator) flags(def *Packet) {
	for flags := range byte(16) {
		qos := flags >> 1 & 3
		switch {
		case def.Type == PUBLISH && qos == 3: // [MQTT-3.3.1-4]
			p := sample(def, g.topic, 2)
			p.first = PUBLISH<<4 | flags
			g.add(p, fmt.Sprintf("QoS 3, flags %04b", flags), malformed)
		case def.Type == PUBLISH && qos == 0 && flags&8 != 0: // [MQTT-3.3.1-2]
			p := sample(def, g.topic, 0)
			p.first = PUBLISH<<4 | flags
			g.add(p, fmt.Sprintf("DUP at QoS 0, flags %04b", flags), either)
		case def.Type == PUBLISH, flags == def.Flags:
		default: // [MQTT-2.1.3-1]
			p := sample(def, g.topic, 0)
			p.first = def.Type<<4 | flags
			g.add(p, fmt.Sprintf("flags %04b", flags), malformed)
		}
	}
}

// lengths adds Remaining Lengths that are not ones (1.5.5, 2.1.4).
func (g *generator) lengths(b base) {
	body := b.body()
	n := len(body)
	digits := func(count int) string { // n in so many bytes
		s, rest := make([]byte, count), n
		for i := range s {
			s[i] = byte(rest&0x7F) | 0x80
			rest >>= 7
		}
		s[count-1] &= 0x7F
		return string(s)
	}
	for count := len(varint(n)) + 1; count <= 5; count++ {
		wire := []byte(string([]byte{b.first}) + digits(count) + body)
		g.addBytes(b.packet, fmt.Sprintf("%sRemaining Length in %d bytes where %d will do", b.name, count, len(varint(n))), wire, malformed)
	}
	g.addBytes(b.packet, b.name+"Remaining Length of four bytes and no end", []byte(string([]byte{b.first})+"\xff\xff\xff\xff"), malformed)
	c := g.addBytes(b.packet, b.name+"Remaining Length 268435455", []byte(string([]byte{b.first})+"\xff\xff\xff\x7f"+body), []byte{CodeTooLarge})
	c.Tolerable, c.Unfinished = true, true
}

// identifiers adds Packet Identifier 0 (2.2.1).
func (g *generator) identifiers(b base) {
	if i := b.index(PacketID); i >= 0 {
		g.add(b.with(i, "\x00\x00"), b.name+"Packet Identifier 0", either)
	}
}

// brokenProperties adds properties that are none (2.2.2).
func (g *generator) brokenProperties(b base, i int) {
	place, prefix := b.place(i), b.name+prefixOf(b.fields[i])
	for id := range 256 {
		// One packet is asked about all of them, the others about those next to what there is.
		next := id < 255 && propertyByID(byte(id+1)) != nil || id > 0 && propertyByID(byte(id-1)) != nil || id >= 254
		if propertyByID(byte(id)) == nil && (next || b.def.Type == PUBLISH && b.first&6 == 2) {
			g.add(b.with(i, string([]byte{byte(id), 0, 0, 0, 0})), fmt.Sprintf("%sproperty 0x%02X, which there is not", prefix, id), malformed)
		}
	}
	for k := range AllProperties {
		def := &AllProperties[k]
		if !def.belongs(place, g.from) {
			continue
		}
		one := string([]byte{def.ID}) + typical(def)
		for cut := 1; cut < len(one); cut++ {
			g.add(b.with(i, one[:cut]), fmt.Sprintf("%s%s cut to %d bytes", prefix, def.Name, cut), malformed)
		}
		g.add(b.with(i, string([]byte{def.ID | 0x80, 0})+typical(def)), prefix+def.Name+" with its identifier in two bytes", malformed)
	}
	user := string([]byte{PropertyUser}) + field("name") + field("value")
	long := string([]byte{varint(len(user))[0] | 0x80}) // the first byte of a length that goes on
	if !propertyByID(PropertyUser).belongs(place, g.from) {
		return
	}
	before, behind := "", ""
	for j := range b.parts {
		switch {
		case j < i:
			before += b.encoded(j)
		case j > i:
			behind += b.encoded(j)
		}
	}
	for _, wrong := range []struct{ name, raw string }{
		{"length one too small", varint(len(user)-1) + user},
		{"length one too large", varint(len(user)+1) + user},
		{"length 268435455", "\xff\xff\xff\x7f" + user},
		{"length in two bytes where one will do", long + "\x00" + user},
		{"length in four bytes where one will do", long + "\x80\x80\x00" + user},
		{"length in five bytes", long + "\x80\x80\x80\x00" + user},
	} {
		g.addBytes(b.packet, prefix+"property "+wrong.name, frame(b.first, before+wrong.raw+behind), malformed)
	}
}

// truncated adds the packet ending at each byte where it may not.
func (g *generator) truncated(b base) {
	body := b.body()
	for n := range body {
		if b.mayEndAt(n) {
			continue
		}
		wrong := malformed
		if last := len(b.fields) - 1; n == b.start(last) && (b.fields[last].Form == Codes || b.fields[last].Form == Filters) {
			wrong = either // a list that is empty
		}
		g.addBytes(b.packet, fmt.Sprintf("%scut to %d of %d bytes", b.name, n, len(body)), frame(b.first, body[:n]), wrong)
	}
}

// mayEndAt tells whether the body may end after n bytes.
func (p packet) mayEndAt(n int) bool {
	for i := range p.fields {
		from := p.start(i)
		switch {
		case n == from && p.fields[i].MayEnd:
			return true
		case n <= from || n >= from+len(p.encoded(i)):
		case p.fields[i].Form == Payload, p.fields[i].Form == Codes:
			return true
		case p.fields[i].Form == Filters:
			return slices.Contains(filterEnds(p.parts[i], p.def.Type == SUBSCRIBE), n-from)
		}
	}
	return false
}

// tooLong adds the packet with something behind it.
func (g *generator) tooLong(b base) {
	if len(b.fields) > 0 {
		switch b.fields[len(b.fields)-1].Form {
		case Payload, Codes, Filters: // it would belong there
			return
		}
	}
	for _, more := range []string{"\x00", "\x01", "\xff", "\x00\x00", "\x26\x00\x00\x00\x00", string(b.bytes())} {
		g.addBytes(b.packet, fmt.Sprintf("%s% x behind its end", b.name, more), frame(b.first, b.body()+more), malformed)
	}
}

// unfinished adds the packet cut off at each byte: the rest does not come.
func (g *generator) unfinished(b base) {
	whole := b.bytes()
	for n := 1; n < len(whole); n++ {
		c := g.addBytes(b.packet, fmt.Sprintf("%sthe first %d of %d bytes", b.name, n, len(whole)), whole[:n], nil)
		c.Unfinished, c.Message = true, nil
	}
}

// reserved are packets of the type that does not exist (2.1.2).
func reserved(from Sender) []Case {
	g := &generator{from: from}
	for flags := range byte(16) {
		for _, body := range []string{"", "\x00\x01", "\x00\x01\x00"} {
			g.addBytes(packet{def: none, first: flags}, fmt.Sprintf("flags %04b, % x", flags, body), frame(flags, body), either)
		}
	}
	return g.cases
}

// none is the packet type that there is not.
var none = &Packet{Name: "type 0", Section: "2.1.2"}
