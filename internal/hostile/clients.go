package hostile

import (
	"fmt"
	"strings"
)

// connects adds what only a CONNECT has: its name, version and flags (3.1.2).
func (g *generator) connects(def *Packet) {
	p := sample(def, "", 0)
	for _, name := range []string{"", "mqtt", "MQTT\x00", "MQIsdp", "HTTP", "MQT", "\xff\xff\xff\xff"} { // [MQTT-3.1.2-1]
		g.add(p.with(0, field(name)), fmt.Sprintf("protocol name %q", name), []byte{CodeUnsupported, CodeMalformed})
	}
	for version := range 256 { // [MQTT-3.1.2-2]
		if version != 5 {
			g.add(p.with(1, string([]byte{byte(version)})), fmt.Sprintf("protocol version %d", version), []byte{CodeUnsupported})
		}
	}
	for flags := range 256 {
		g.add(connectWith(def, byte(flags)), fmt.Sprintf("connect flags %08b", flags), connectFlags(byte(flags)))
	}
	for _, v := range values(Uint16) {
		g.add(p.with(3, v.raw), "keep alive "+v.name, nil)
	}
}

// connectWith is a CONNECT that has what its flags say.
func connectWith(def *Packet, flags byte) packet {
	p := sample(def, "", 0)
	p.fields, p.parts = nil, nil
	for i, f := range def.Fields {
		switch {
		case i >= 6 && i <= 8 && flags&4 == 0, i == 9 && flags&0x80 == 0, i == 10 && flags&0x40 == 0:
			continue
		}
		part := f.Sample
		if f.Name == "connect flags" {
			part = string([]byte{flags})
		}
		p.fields, p.parts = append(p.fields, f), append(p.parts, part)
	}
	return p
}

// connectFlags is what is wrong with connect flags (3.1.2.3).
func connectFlags(flags byte) []byte {
	willQoS, retain := flags>>3&3, flags&0x20 != 0
	switch {
	case flags&1 != 0, willQoS == 3, flags&4 == 0 && (willQoS != 0 || retain): // [MQTT-3.1.2-3], -11, -12, -13
		return either
	}
	return nil
}

// filters adds the lists of SUBSCRIBE and UNSUBSCRIBE (3.8.3, 3.10.3).
func (g *generator) filters(b base, i int) {
	asks := b.def.Type == SUBSCRIBE
	one := func(filter string, options byte) string {
		if asks {
			return field(filter) + string([]byte{options})
		}
		return field(filter)
	}
	g.add(b.with(i, ""), "no filter", either) // [MQTT-3.8.3-2], [MQTT-3.10.3-2]
	for _, v := range texts {
		wrong := v.wrong
		if v.raw == field("") {
			wrong = append([]byte{0x8F}, either...)
		}
		g.add(b.with(i, one(v.raw[2:], 1)), "filter "+v.name, wrong).Tolerable = len(v.wrong) == 0 && len(wrong) > 0
	}
	for _, s := range []string{"a/#/b", "a#", "#a", "a+", "+a/b", "a/+b/c", "$share", "$share/", "$share/g", "$share/g/", "$share//a", "$share/g+/a", "$share/#/a"} {
		g.add(b.with(i, one(s, 1)), "filter "+s+", which is none", append([]byte{0x8F}, either...)).Tolerable = true
	}
	for _, s := range []string{"#", "+", "+/+", "/", "//#", "$SYS/#", "$share/g/a/b", "$share/g/#"} {
		g.add(b.with(i, one(s, 1)), "filter "+s, nil)
	}
	var list strings.Builder
	for n := range 300 {
		list.WriteString(one(fmt.Sprintf("many/%d", n), byte(n%3)))
	}
	g.add(b.with(i, list.String()), "300 filters", nil)
	g.add(b.with(i, one("a", 0)+one("a", 1)+one("a", 2)), "one filter three times", nil)
	if !asks {
		return
	}
	for options := range 256 {
		var wrong []byte
		if options&0xC0 != 0 || options&3 == 3 || options>>4&3 == 3 { // [MQTT-3.8.3-5]
			wrong = either
		}
		g.add(b.with(i, one("a", byte(options))), fmt.Sprintf("options %08b", options), wrong)
	}
	g.add(b.with(i, one("$share/g/a", 4)), "No Local on a shared subscription", protocol) // [MQTT-3.8.3-4]
}

// filterEnds are where in a list of filters one ends.
func filterEnds(list string, options bool) []int {
	var ends []int
	at := 0
	for rest := list; len(rest) > 0; {
		value, behind := cut(rest)
		at += 2 + len(value)
		if options {
			at++
			behind = behind[1:]
		}
		ends = append(ends, at)
		rest = behind
	}
	return ends
}
