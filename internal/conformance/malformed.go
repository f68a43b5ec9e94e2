package conformance

import "github.com/eclipse/paho.golang/packets"

// malformedChecks are what the standard forbids. DISCONNECT has to say what it was: 0x81 for a Malformed Packet, 0x82 for a Protocol Error
// (4.13.1). Where the standard calls it both, or says neither clearly, either will do.
func malformedChecks() []check {
	var all []check
	for _, m := range []struct {
		section, name string
		raw           []byte
		codes         []byte
	}{
		{"2.1.4", "ARemainingLengthOfFiveBytes", []byte{0xC0, 0x80, 0x80, 0x80, 0x80, 0x01}, []byte{0x81}},
		{"2.1.2", "TheReservedPacketType", []byte{0x00, 0}, []byte{0x81, 0x82}},
		{"2.1.3", "PINGREQWithFlags", []byte{0xC1, 0}, []byte{0x81}},
		{"2.1.3", "PUBRELWithFlags0", frame(0x60, 0, 1), []byte{0x81}},
		{"3.8.1", "SUBSCRIBEWithFlags0", frame(0x80, 0, 1, 0, 0, 1, 'a', 0), []byte{0x81}},
		{"3.10.1", "UNSUBSCRIBEWithFlags0", frame(0xA0, 0, 1, 0, 0, 1, 'a'), []byte{0x81}},
		{"3.3.1.2", "PUBLISHWithQoS3", publishFrame(6, "a", "\x00\x01", ""), []byte{0x81}},
		{"3.3.2.1", "PUBLISHToATopicWithWildcards", publishFrame(0, "a/#", "", ""), []byte{0x81, 0x82, 0x90}},
		{"1.5.4", "PUBLISHToATopicThatIsNoUTF8", publishFrame(0, "\xff", "", ""), []byte{0x81}},
		{"1.5.4", "PUBLISHToATopicWithU0000", publishFrame(0, "a\x00", "", ""), []byte{0x81, 0x82}},
		{"3.3.2.1", "PUBLISHWithoutATopic", publishFrame(0, "", "", ""), []byte{0x82, 0x81}},
		{"2.2.1", "PUBLISHWithIdentifier0", publishFrame(2, "a", "\x00\x00", ""), []byte{0x82, 0x81}},
		{"3.3.2.3.8", "PUBLISHWithASubscriptionIdentifier", publishFrame(0, "a", "", "\x0b\x01"), []byte{0x82, 0x81}},
		{"3.3.2.3.3", "PUBLISHWithAPropertyTwice", publishFrame(0, "a", "", "\x02\x00\x00\x00\x09\x02\x00\x00\x00\x09"), []byte{0x82}},
		{"2.2.2.2", "PUBLISHWithAPropertyOfCONNECT", publishFrame(0, "a", "", "\x11\x00\x00\x00\x01"), []byte{0x81, 0x82}},
		{"2.2.2.2", "PUBLISHWithAnUnknownProperty", publishFrame(0, "a", "", "\x7f\x01"), []byte{0x81}},
		{"3.3.2.3.5", "PUBLISHWithAResponseTopicWithWildcards", publishFrame(0, "a", "", "\x08\x00\x01#"), []byte{0x82, 0x81}},
		{"3.3.2", "PUBLISHWithPropertiesBeyondItsEnd", []byte{0x30, 4, 0, 1, 'a', 9}, []byte{0x81}},
		{"3.8.3", "SUBSCRIBEWithoutAFilter", frame(0x82, 0, 1, 0), []byte{0x82, 0x81}},
		{"3.8.3.1", "SUBSCRIBEWithReservedBits", frame(0x82, 0, 1, 0, 0, 1, 'a', 0x40), []byte{0x81, 0x82}},
		{"3.8.3.1", "SUBSCRIBEWithQoS3", frame(0x82, 0, 1, 0, 0, 1, 'a', 3), []byte{0x82, 0x81}},
		{"3.8.3.1", "SUBSCRIBEWithRetainHandling3", frame(0x82, 0, 1, 0, 0, 1, 'a', 0x30), []byte{0x82, 0x81}},
		{"3.8.2.1.2", "SUBSCRIBEWithSubscriptionIdentifier0", frame(0x82, 0, 1, 2, 0x0B, 0, 0, 1, 'a', 0), []byte{0x82, 0x81}},
		{"2.2.1", "SUBSCRIBEWithIdentifier0", frame(0x82, 0, 0, 0, 0, 1, 'a', 0), []byte{0x82, 0x81}},
		{"3.10.3", "UNSUBSCRIBEWithoutAFilter", frame(0xA2, 0, 1, 0), []byte{0x82, 0x81}},
		{"3.4.2", "PUBACKOfOneByte", frame(0x40, 0), []byte{0x81}},
		{"4.12", "AUTHWithoutAMethod", frame(0xF0, 0x18, 0), []byte{0x82, 0x8C}},
		{"4.13", "SUBACKFromAClient", frame(0x90, 0, 1, 0, 0), []byte{0x82}},
	} {
		all = append(all, check{m.section, m.name, func(p *probe) {
			c := p.connect("c", cleanStart)
			c.raw(m.raw)
			c.expectRefusal(m.codes...)
		}})
	}
	return append(all, check{"4.13", "ViolationsEndTheConnection", func(p *probe) { // whatever is said of them
		for _, raw := range [][]byte{
			{0xC0, 0x80, 0x80, 0x80, 0x80, 0x01}, publishFrame(6, "a", "\x00\x01", ""), publishFrame(0, "\xff", "", ""), frame(0x82, 0, 1, 0),
		} {
			c := p.connect("c", cleanStart)
			c.raw(raw)
			for _, got := range c.end() {
				if got.Type != packets.DISCONNECT {
					p.failf("% x was answered by %v", raw, got)
				}
			}
		}
	}})
}
