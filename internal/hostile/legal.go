package hostile

import (
	"fmt"
	"strings"
)

// legal adds the odd forms of a packet, and on the way the wrong values in the places of odd ones.
func (g *generator) legal(def *Packet) {
	for _, base := range g.bases(def) {
		g.add(base.packet, base.name+"usual", nil)
		g.add(base.packet, base.name+"byte by byte", nil).Split = true
		g.shorter(base)
		for i := range base.fields {
			switch base.fields[i].Form {
			case ReasonCode:
				g.codes(base, i)
			case Codes:
				g.lists(base, i)
			case Properties:
				g.properties(base, i)
			case Text:
				g.texts(base, i)
			case Filters:
				g.filters(base, i)
			}
		}
	}
	switch def.Type {
	case CONNECT:
		g.connects(def)
	case CONNACK:
		g.present(def)
	case PUBLISH:
		g.publishes(def)
	}
	g.sizes(def)
}

// base is a packet that others are made of, and what their names begin with.
type base struct {
	packet
	name string
}

// bases are the packet as it is usually sent; of a PUBLISH one for each QoS.
func (g *generator) bases(def *Packet) []base {
	if def.Type != PUBLISH {
		return []base{{packet: sample(def, g.topic, 0)}}
	}
	var out []base
	for qos := range byte(3) {
		out = append(out, base{packet: sample(def, g.topic, qos), name: fmt.Sprintf("QoS %d, ", qos)})
	}
	return out
}

// shorter adds the packet ending where it may.
func (g *generator) shorter(b base) {
	for i := range b.fields {
		if b.fields[i].MayEnd {
			p := b.packet
			p.fields, p.parts = p.fields[:i], p.parts[:i]
			g.add(p, b.name+"without "+b.fields[i].Name, nil)
		}
	}
}

// codes adds every reason code, and those that there are also without properties behind them, where the packet may end there.
func (g *generator) codes(b base, i int) {
	for code := range 256 {
		var wrong []byte
		allowed := b.def.allows(byte(code), g.from)
		if !allowed {
			wrong = either
		}
		name := fmt.Sprintf("%sreason code 0x%02X", b.name, code)
		p := b.with(i, string([]byte{byte(code)}))
		// A code that is not known says failure all the same, and with a DISCONNECT it does not matter what it says.
		tolerable := !allowed && (code >= 0x80 || b.def.Type == DISCONNECT)
		g.add(p, name, wrong).Tolerable = tolerable
		if allowed && i+1 < len(p.fields) && p.fields[i+1].MayEnd {
			p.fields, p.parts = p.fields[:i+1], p.parts[:i+1]
			g.add(p, name+" and no properties", nil)
		}
	}
}

// lists adds every reason code of SUBACK or UNSUBACK, and lists of several and of none.
func (g *generator) lists(b base, i int) {
	for code := range 256 {
		var wrong []byte
		allowed := b.def.allows(byte(code), g.from)
		if !allowed {
			wrong = either
		}
		g.add(b.with(i, string([]byte{byte(code)})), fmt.Sprintf("reason code 0x%02X", code), wrong).Tolerable = !allowed && code >= 0x80
	}
	g.add(b.with(i, ""), "no reason code", either)
	g.add(b.with(i, b.parts[i]+b.parts[i]), "two reason codes", nil)
	g.add(b.with(i, strings.Repeat(b.parts[i], 1000)), "a thousand reason codes", nil)
}

// properties adds every property alone with every value, where it belongs and where it does not, twice, and all at once.
func (g *generator) properties(b base, i int) {
	place, all, reversed := b.place(i), "", ""
	prefix := b.name + prefixOf(b.fields[i])
	for k := range AllProperties {
		def := &AllProperties[k]
		one := string([]byte{def.ID}) + typical(def)
		if !def.belongs(place, g.from) {
			g.add(b.with(i, one), prefix+def.Name+" does not belong", misplaced(place, def.ID))
			continue
		}
		for _, v := range values(def.Form) {
			g.property(b, i, def, v, prefix)
		}
		twice := judge(def, place, g.from, typical(def))
		if !def.repeats(place) {
			twice = append([]byte{CodeProtocol}, twice...)
		}
		g.add(b.with(i, one+one), prefix+def.Name+" twice", twice)
		if def.repeats(place) {
			g.add(b.with(i, strings.Repeat(one, 200)), prefix+def.Name+" 200 times", nil)
		}
		if len(judge(def, place, g.from, typical(def))) == 0 && def.ID != PropertyMaximumQoS {
			all, reversed = all+one, one+reversed
		}
	}
	g.add(b.with(i, all), prefix+"all properties", nil)
	g.add(b.with(i, reversed), prefix+"all properties, reversed", nil)
	two := func(name, value string) string { return string([]byte{PropertyUser}) + field(name) + field(value) }
	if propertyByID(PropertyUser).belongs(place, g.from) {
		g.add(b.with(i, two("a", "1")+two("b", "")+two("a", "2")+two("", "")), prefix+"user properties in an order", nil)
	}
}

func prefixOf(f Field) string {
	if f.Place == Will {
		return "will, "
	}
	return ""
}

// property adds a packet with one property.
func (g *generator) property(b base, i int, def *Property, v value, prefix string) {
	wrong := v.wrong
	if len(wrong) == 0 {
		wrong = judge(def, b.place(i), g.from, v.raw)
	}
	c := g.add(b.with(i, string([]byte{def.ID})+v.raw), prefix+def.Name+" "+v.name, wrong)
	c.Property, c.Value = def.ID, v.raw
	// What a publisher has done wrong and a server has passed on would come again on every connection.
	passedOn := def.ID == propertyPayloadFormat || def.ID == propertyResponseTopic && len(v.wrong) == 0
	c.Tolerable = len(wrong) > 0 && g.from == Server && passedOn || def.ID == PropertyAuthData
	if c.Tolerable && b.def.Type == PUBLISH {
		c.Message = message(b.with(i, string([]byte{def.ID})+v.raw))
	}
}

// judge returns what is wrong with a value that its form allows.
func judge(def *Property, place byte, from Sender, raw string) []byte {
	switch {
	case def.ID == PropertyTopicAlias: // 0, or above the Topic Alias Maximum, which is 0 unless somebody says otherwise (3.3.2.3.4)
		return []byte{CodeTopicAlias}
	case def.Nonzero && strings.Trim(raw, "\x00") == "":
		return protocol
	case def.ID == propertyResponseTopic && raw == field(""): // [MQTT-4.7.3-1]
		return append([]byte{CodeTopicInvalid}, either...)
	case (def.ID == PropertyAuthMethod || def.ID == PropertyAuthData) && place != AUTH && from == Server: // [MQTT-4.12.0-6]
		return []byte{CodeBadAuthMethod, CodeProtocol}
	case def.ID == PropertyAuthMethod || def.ID == PropertyAuthData:
		return []byte{CodeBadAuthMethod, CodeProtocol}
	}
	return nil
}

// misplaced is how a property is answered that does not belong (2.2.2.2), unless its own section says otherwise.
func misplaced(place, id byte) []byte {
	if place == PUBLISH && id == PropertySubscriptionID || place == DISCONNECT && id == PropertySessionExpiry { // [MQTT-3.3.4-6], [MQTT-3.14.2-2]
		return either
	}
	return malformed
}

// texts adds every text in the place of one. A topic keeps its first levels, so that it has its way.
func (g *generator) texts(b base, i int) {
	f := b.fields[i]
	for _, v := range texts {
		s := v.raw[2:]
		if b.def.Type == PUBLISH {
			s = g.topic + "/" + s
			s = s[:min(len(s), 65535)]
		}
		wrong := v.wrong
		if s == "" && f.NoWildcards { // [MQTT-4.7.3-1]
			wrong = append([]byte{CodeTopicInvalid}, either...)
		}
		g.add(b.with(i, field(s)), b.name+f.Name+" "+v.name, wrong)
	}
	if !f.NoWildcards {
		return
	}
	for _, s := range []string{"#", "+", g.topic + "/#", g.topic + "/+", g.topic + "/+/x", g.topic + "#", "a+b"} { // [MQTT-3.3.2-2]
		g.add(b.with(i, field(s)), b.name+f.Name+" "+s, append([]byte{CodeTopicInvalid}, either...))
	}
	if b.def.Type == PUBLISH {
		g.add(b.with(i, field("")), b.name+"no topic and no alias", append([]byte{CodeTopicInvalid, CodeTopicAlias}, protocol...))
		for _, s := range []string{"/", "//", "$SYS/x", "nobody/wants/it", g.topic + "//", g.topic + "/" + strings.Repeat("/", 1000)} {
			g.add(b.with(i, field(s)), b.name+f.Name+" "+clip(s), nil)
		}
	}
}

func clip(s string) string {
	if len(s) > 100 {
		return fmt.Sprintf("%s… of %d bytes", s[:20], len(s))
	}
	return s
}

// publishes adds the flags and payloads of a PUBLISH.
func (g *generator) publishes(def *Packet) {
	for _, b := range g.bases(def) {
		qos := b.first >> 1 & 3
		retain := b.packet
		retain.first |= 1
		g.add(retain, b.name+"RETAIN", nil)
		last := len(b.parts) - 1
		g.add(b.with(last, ""), b.name+"empty payload", nil)
		g.add(retain.with(last, ""), b.name+"RETAIN, empty payload", nil)
		dup := b.packet
		dup.first |= 8
		if qos > 0 {
			g.add(dup, b.name+"DUP", nil)
			dup.first |= 1
			g.add(dup, b.name+"DUP and RETAIN", nil)
		}
	}
}

// present adds the flags of CONNACK (3.2.2.1).
func (g *generator) present(def *Packet) {
	p := sample(def, "", 0)
	g.add(p.with(0, "\x01"), "session present", nil)
	for bit := range 7 {
		g.add(p.with(0, string([]byte{2 << bit})), fmt.Sprintf("acknowledge flags %08b", 2<<bit), malformed)
		g.add(p.with(0, string([]byte{2<<bit | 1})), fmt.Sprintf("acknowledge flags %08b", 2<<bit|1), malformed)
	}
	for _, c := range def.Codes {
		if c.Value != 0 { // [MQTT-3.2.2-6]
			g.add(p.with(0, "\x01").with(1, string([]byte{c.Value})), fmt.Sprintf("session present and reason code 0x%02X", c.Value), either)
		}
	}
}

// sizes adds the packet at the ends of the lengths that a Remaining Length can have.
func (g *generator) sizes(def *Packet) {
	for _, size := range []int{127, 128, 16383, 16384, 2_097_151, 2_097_152} {
		if def.Type == PUBLISH {
			p := sample(def, g.topic, 1)
			last := len(p.parts) - 1
			g.add(p.with(last, strings.Repeat("p", size-len(p.with(last, "").body()))), fmt.Sprintf("Remaining Length %d", size), nil)
			continue
		}
		p := sample(def, g.topic, 0)
		i := p.index(Properties)
		if i < 0 || size == 2_097_151 { // one such is enough
			continue
		}
		properties := padding(spaceIn(p, i, size))
		c := g.add(p.with(i, properties), fmt.Sprintf("Remaining Length %d", size), nil)
		if size > 200_000 { // a receiver need not keep what has no end; it may say so beforehand, or when it comes
			c.Wrong, c.Tolerable = []byte{CodeTooLarge}, true
		}
	}
}

// spaceIn is how long the properties of a packet have to be for its body to have a size.
func spaceIn(p packet, i, size int) int {
	left := size - (len(p.with(i, "").body()) - 1)
	for digits := 1; ; digits++ {
		if n := left - digits; len(varint(n)) <= digits {
			return n
		}
	}
}

// padding are user properties of n bytes together, as few as will do.
func padding(n int) string {
	const empty, most = 5, 60_000
	var s strings.Builder
	for n > 0 {
		one := min(n, most)
		if left := n - one; left > 0 && left < empty {
			one -= empty
		}
		s.WriteString(string([]byte{PropertyUser}) + field("") + field(strings.Repeat("v", one-empty)))
		n -= one
	}
	return s.String()
}
