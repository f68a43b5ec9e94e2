package broker

import (
	"strings"
	"testing"

	"github.com/eclipse/paho.golang/packets"
)

// publishBytes is a PUBLISH of payload "x" with its parts to be changed.
func publishBytes(flags byte, topic, id, properties string) []byte {
	body := appendText(nil, topic)
	body = append(body, id...)
	body = append(appendVarint(body, len(properties)), properties...)
	return appendPacket(nil, PUBLISH<<4|flags, append(body, 'x'))
}

// What the standard forbids ends the connection with the code that the standard names.
func TestViolations(t *testing.T) {
	for _, c := range []struct {
		name string
		raw  []byte
		code byte
		o    Options
	}{
		{"second CONNECT", encoded(connecting("c")), codeProtocolError, Options{}},
		{"CONNACK", []byte{0x20, 3, 0, 0, 0}, codeProtocolError, Options{}},
		{"SUBACK", []byte{0x90, 4, 0, 1, 0, 0}, codeProtocolError, Options{}},
		{"PINGRESP", []byte{0xD0, 0}, codeProtocolError, Options{}},
		{"reserved type", []byte{0x00, 0}, codeProtocolError, Options{}},
		{"AUTH", []byte{0xF0, 0}, codeBadAuthMethod, Options{}},
		{"Remaining Length longer than it needs", []byte{0xC0, 0x80, 0}, codeMalformed, Options{}},
		{"Remaining Length of five bytes", []byte{0xC0, 0x80, 0x80, 0x80, 0x80}, codeMalformed, Options{}},
		{"larger than granted", []byte{0x30, 101}, codePacketTooLarge, Options{MaximumPacketSize: 100}},
		{"PINGREQ with flags", []byte{0xC1, 0}, codeMalformed, Options{}},
		{"PINGREQ with a body", []byte{0xC0, 1, 0}, codeMalformed, Options{}},
		{"PUBREL with flags 0", []byte{0x60, 2, 0, 1}, codeMalformed, Options{}},
		{"SUBSCRIBE with flags 0", []byte{0x80, 7, 0, 1, 0, 0, 1, 'a', 0}, codeMalformed, Options{}},
		{"PUBACK of one byte", []byte{0x40, 1, 0}, codeMalformed, Options{}},
		{"PUBACK for 0", []byte{0x40, 2, 0, 0}, codeProtocolError, Options{}},
		{"PUBACK with another's code", []byte{0x40, 3, 0, 1, 0x92}, codeProtocolError, Options{}},
		{"PUBACK with bytes left over", []byte{0x40, 5, 0, 1, 0, 0, 0}, codeMalformed, Options{}},
		{"PUBACK that nothing is waiting for", []byte{0x40, 2, 0, 1}, codeProtocolError, Options{}},
		{"DISCONNECT with a code of CONNACK", []byte{0xE0, 1, 0x18}, codeProtocolError, Options{}},
		{"DISCONNECT with bytes left over", []byte{0xE0, 3, 0, 0, 0}, codeMalformed, Options{}},

		{"QoS 3", publishBytes(6, "a", "\x00\x01", ""), codeMalformed, Options{}},
		{"DUP at QoS 0", publishBytes(8, "a", "", ""), codeProtocolError, Options{}},
		{"identifier 0", publishBytes(2, "a", "\x00\x00", ""), codeProtocolError, Options{}},
		{"topic with a wildcard", publishBytes(0, "a/#", "", ""), codeProtocolError, Options{}},
		{"topic that is no UTF-8", publishBytes(0, "\xff", "", ""), codeMalformed, Options{}},
		{"no topic", publishBytes(0, "", "", ""), codeProtocolError, Options{}},
		{"topic cut short", []byte{0x30, 3, 0, 9, 'a'}, codeMalformed, Options{}},
		{"properties cut short", []byte{0x30, 4, 0, 1, 'a', 9}, codeMalformed, Options{}},
		{"Subscription Identifier", publishBytes(0, "a", "", "\x0b\x01"), codeProtocolError, Options{}},
		{"payload format 2", publishBytes(0, "a", "", "\x01\x02"), codeProtocolError, Options{}},
		{"response topic with a wildcard", publishBytes(0, "a", "", "\x08\x00\x01#"), codeProtocolError, Options{}},
		{"a property of CONNECT", publishBytes(0, "a", "", "\x11\x00\x00\x00\x01"), codeMalformed, Options{}},
		{"a property twice", publishBytes(0, "a", "", "\x03\x00\x00\x03\x00\x00"), codeProtocolError, Options{}},
		{"topic alias without a grant", publishBytes(0, "a", "", "\x23\x00\x01"), codeTopicAliasInvalid, Options{}},
		{"topic alias 0", publishBytes(0, "a", "", "\x23\x00\x00"), codeTopicAliasInvalid, Options{TopicAliasMaximum: 3}},
		{"topic alias above the maximum", publishBytes(0, "a", "", "\x23\x00\x04"), codeTopicAliasInvalid, Options{TopicAliasMaximum: 3}},
		{"topic alias that stands for nothing", publishBytes(0, "", "", "\x23\x00\x03"), codeProtocolError, Options{TopicAliasMaximum: 3}},
		{"QoS above the maximum", publishBytes(4, "a", "\x00\x01", ""), codeQoSNotSupported, Options{MaximumQoS: ptr[byte](1)}},
		{"retained without a grant", publishBytes(1, "a", "", ""), codeRetainNotSupported, Options{NoRetain: true}},

		{"SUBSCRIBE without a filter", []byte{0x82, 3, 0, 1, 0}, codeProtocolError, Options{}},
		{"SUBSCRIBE with identifier 0", []byte{0x82, 7, 0, 0, 0, 0, 1, 'a', 0}, codeProtocolError, Options{}},
		{"SUBSCRIBE with reserved bits", []byte{0x82, 7, 0, 1, 0, 0, 1, 'a', 0x40}, codeMalformed, Options{}},
		{"SUBSCRIBE at QoS 3", []byte{0x82, 7, 0, 1, 0, 0, 1, 'a', 3}, codeProtocolError, Options{}},
		{"Retain Handling 3", []byte{0x82, 7, 0, 1, 0, 0, 1, 'a', 0x30}, codeProtocolError, Options{}},
		{"SUBSCRIBE cut short", []byte{0x82, 6, 0, 1, 0, 0, 1, 'a'}, codeMalformed, Options{}},
		{"Subscription Identifier 0", []byte{0x82, 9, 0, 1, 2, 0x0b, 0, 0, 1, 'a', 0}, codeProtocolError, Options{}},
		{"Subscription Identifier without a grant", []byte{0x82, 9, 0, 1, 2, 0x0b, 1, 0, 1, 'a', 0}, codeSubIDNotSupported, Options{NoSubscriptionIDs: true}},
		{"No Local on a shared subscription", encoded(&packets.Subscribe{PacketID: 1, Properties: &packets.Properties{}, Subscriptions: []packets.SubOptions{{Topic: "$share/g/a", NoLocal: true}}}), codeProtocolError, Options{}},
		{"UNSUBSCRIBE without a filter", []byte{0xA2, 3, 0, 1, 0}, codeProtocolError, Options{}},
		{"UNSUBSCRIBE cut short", []byte{0xA2, 5, 0, 1, 0, 0, 1}, codeMalformed, Options{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, c.o, func(t *testing.T, b *Broker) {
				cl, _ := connectAs(t, b, "c")
				cl.raw(c.raw)
				cl.expectDisconnect(c.code)
			})
		})
	}
}

func TestReceiveMaximumOfTheServer(t *testing.T) {
	bubble(t, Options{ReceiveMaximum: 2}, func(t *testing.T, b *Broker) {
		c, _ := connectAs(t, b, "c")
		c.send(pub("a", 2, 1, ""), pub("a", 2, 2, ""))
		c.expectAnswer(PUBREC, 1, codeNoSubscribers)
		c.expectAnswer(PUBREC, 2, codeNoSubscribers)
		c.send(pub("a", 0, 0, "")) // is not counted
		c.send(&packets.Pubrel{PacketID: 1, Properties: &packets.Properties{}})
		c.expectAnswer(PUBCOMP, 1, 0)
		c.send(pub("a", 1, 3, "")) // the freed one
		c.expectAnswer(PUBACK, 3, codeNoSubscribers)
		c.send(pub("a", 2, 4, ""))
		c.expectAnswer(PUBREC, 4, codeNoSubscribers)
		c.send(pub("a", 1, 5, ""))
		c.expectDisconnect(codeReceiveMaximum)
	})
}

func TestIdentifierInUse(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, b *Broker) {
		c, _ := connectAs(t, b, "c")
		c.send(pub("a", 2, 1, ""))
		c.expectAnswer(PUBREC, 1, codeNoSubscribers)
		if codes := func() []byte {
			c.send(&packets.Subscribe{PacketID: 1, Properties: &packets.Properties{}, Subscriptions: []packets.SubOptions{{Topic: "a"}}})
			return expect[*packets.Suback](c).Reasons
		}(); codes[0] != codeIDInUse {
			t.Errorf("SUBACK %x", codes)
		}
		c.send(pub("a", 2, 1, "")) // DUP 0
		c.expectAnswer(PUBREC, 1, codeIDInUse)
		c.send(pub("a", 1, 1, ""))
		c.expectDisconnect(codeProtocolError)
	})
}

func TestReasonStrings(t *testing.T) {
	for _, c := range []struct {
		name    string
		change  func(*packets.Connect)
		present bool
	}{
		{"wanted", func(*packets.Connect) {}, true},
		{"too large for the client", func(p *packets.Connect) { p.Properties.MaximumPacketSize = ptr[uint32](25) }, false},
	} {
		bubble(t, Options{}, func(t *testing.T, b *Broker) {
			cl, _ := connectAs(t, b, "c", c.change)
			cl.raw([]byte{0xD0, 0})
			d := expect[*packets.Disconnect](cl)
			if got := strings.Contains(d.Properties.ReasonString, "PINGRESP"); got != c.present {
				t.Errorf("%s: %q", c.name, d.Properties.ReasonString)
			}
		})
	}
	for _, wanted := range []byte{0, 1} {
		bubble(t, Options{}, func(t *testing.T, b *Broker) {
			cl, _ := connectAs(t, b, "c", func(p *packets.Connect) { p.Properties.RequestProblemInfo = &wanted })
			p := pub("a", 1, 1, "\xff")
			p.Properties.PayloadFormat = ptr[byte](1)
			cl.send(p)
			if ack := expect[*packets.Puback](cl); ack.ReasonCode != codePayloadInvalid || (ack.Properties.ReasonString != "") != (wanted == 1) {
				t.Errorf("%v", ack)
			}
		})
	}
}
