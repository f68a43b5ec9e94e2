package wire

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"
	"unsafe"
)

const (
	unknownProperty = "has a property that is unknown or cut short"
	strayProperty   = "has a property that does not belong there"
	twice           = "has a property twice"
	badUTF8Property = "has a property that is not well-formed UTF-8"
)

// verdict is a packet and the error that it is answered with; code 0: none.
type verdict struct {
	name   string
	bytes  []byte
	code   byte
	reason string
}

func publishRefusals() []verdict {
	id := []byte{0, 7}
	return []verdict{
		{"empty", []byte{0x30, 0}, 0x81, "ends within its topic"},
		{"half a topic length", []byte{0x30, 1, 0}, 0x81, "ends within its topic"},
		{"topic cut short", packet(0x30, []byte{0, 3, 'a', 'b'}), 0x81, "ends within its topic"},
		{"topic not UTF-8", packet(0x30, str("a\xff"), props()), 0x81, "has a topic that is not well-formed UTF-8"},
		{"topic with a surrogate", packet(0x30, str("a\xed\xa0\x80"), props()), 0x81, "has a topic that is not well-formed UTF-8"},
		{"topic with an overlong U+0000", packet(0x30, str("a\xc0\x80"), props()), 0x81, "has a topic that is not well-formed UTF-8"},
		{"topic with U+0000", packet(0x30, str("a\x00b"), props()), 0x81, "has a topic that is not well-formed UTF-8"},
		{"topic with #", packet(0x30, str("a/#"), props()), 0x82, "has a topic with wildcards"},
		{"topic with +", packet(0x30, str("a/+/b"), props()), 0x82, "has a topic with wildcards"},
		{"topic empty", packet(0x30, str(""), props()), 0x82, "has neither a topic nor a topic alias"},
		{"topic empty and an alias", packet(0x30, str(""), props(prop(35, id))), 0x94, "has a topic alias, and none was granted"},
		{"topic and an alias", packet(0x30, str("a"), props(prop(35, id))), 0x94, "has a topic alias, and none was granted"},
		{"alias 0", packet(0x30, str("a"), props(prop(35, []byte{0, 0}))), 0x94, "has a topic alias, and none was granted"},
		{"QoS 3", packet(0x36, str("a"), id, props()), 0x81, "has QoS 3"},
		{"DUP at QoS 0", packet(0x38, str("a"), props()), 0x82, "has DUP at QoS 0"},
		{"no identifier", packet(0x32, str("a")), 0x81, "ends within its Packet Identifier"},
		{"half an identifier", packet(0x34, str("a"), []byte{0}), 0x81, "ends within its Packet Identifier"},
		{"identifier 0", packet(0x32, str("a"), []byte{0, 0}, props()), 0x81, "has Packet Identifier 0"},
		{"no property length", packet(0x32, str("a"), id), 0x81, "has a bad property length"},
		{"half a property length", packet(0x32, str("a"), id, []byte{0x80}), 0x81, "has a bad property length"},
		{"property length too long for its value", packet(0x32, str("a"), id, []byte{0x80, 0}), 0x81, "has a bad property length"},
		{"property length of five bytes", packet(0x32, str("a"), id, []byte{0x80, 0x80, 0x80, 0x80, 1}), 0x81, "has a bad property length"},
		{"properties beyond the end", packet(0x32, str("a"), id, []byte{2, 1}), 0x81, "ends within its properties"},
		{"property 0", publish("a", props(prop(0)), ""), 0x81, unknownProperty},
		{"property 43", publish("a", props(prop(43, []byte{1})), ""), 0x81, unknownProperty},
		{"property 0xa6", publish("a", props(prop(0xa6, []byte{0})), ""), 0x81, unknownProperty},
		{"a client's property", publish("a", props(prop(24, []byte{0, 0, 0, 1})), ""), 0x81, unknownProperty},
		{"another packet's property", publish("a", props(prop(33, []byte{0, 1})), ""), 0x81, strayProperty},
		{"another packet's text", publish("a", props(prop(31, str("r"))), ""), 0x81, strayProperty},
		{"flag cut short", publish("a", props(prop(1)), ""), 0x81, unknownProperty},
		{"alias cut short", publish("a", props(prop(35, []byte{1})), ""), 0x81, unknownProperty},
		{"expiry cut short", publish("a", props(prop(2, []byte{0, 0, 1})), ""), 0x81, unknownProperty},
		{"text cut short", publish("a", props(prop(3, []byte{0, 2, 'x'})), ""), 0x81, unknownProperty},
		{"text without a length", publish("a", props(prop(3, []byte{0})), ""), 0x81, unknownProperty},
		{"pair without its value", publish("a", props(prop(38, str("k"))), ""), 0x81, unknownProperty},
		{"pair's value cut short", publish("a", props(prop(38, str("k"), []byte{0, 1})), ""), 0x81, unknownProperty},
		{"subscription identifier cut short", publish("a", props(prop(11, []byte{0x80})), ""), 0x81, unknownProperty},
		{"subscription identifier too long for its value", publish("a", props(prop(11, []byte{0x81, 0})), ""), 0x81, unknownProperty},
		{"subscription identifier of five bytes", publish("a", props(prop(11, []byte{0xff, 0xff, 0xff, 0xff, 1})), ""), 0x81, unknownProperty},
		{"subscription identifier 0", publish("a", props(prop(11, []byte{0})), ""), 0x82, "has a property of 0 that must not be 0"},
		{"payload format twice", publish("a", props(prop(1, []byte{1}), prop(1, []byte{1})), ""), 0x82, twice},
		{"expiry twice", publish("a", props(prop(2, []byte{0, 0, 0, 1}), prop(2, []byte{0, 0, 0, 1})), ""), 0x82, twice},
		{"content type twice", publish("a", props(prop(3, str("")), prop(3, str(""))), ""), 0x82, twice},
		{"response topic twice", publish("a", props(prop(8, str("b")), prop(8, str("c"))), ""), 0x82, twice},
		{"correlation data twice", publish("a", props(prop(9, str("")), prop(9, str("x"))), ""), 0x82, twice},
		{"content type not UTF-8", publish("a", props(prop(3, str("\xff"))), ""), 0x81, badUTF8Property},
		{"response topic with U+0000", publish("a", props(prop(8, str("b\x00"))), ""), 0x81, badUTF8Property},
		{"user property's name not UTF-8", publish("a", props(prop(38, str("\xc3"), str("v"))), ""), 0x81, badUTF8Property},
		{"user property's value not UTF-8", publish("a", props(prop(38, str("k"), str("\xf4\x90\x80\x80"))), ""), 0x81, badUTF8Property},
		{"another type", []byte{0xd0, 0}, 0x81, "expected and something else found"},
	}
}

func TestParsePublishRefuses(t *testing.T) {
	for _, test := range publishRefusals() {
		t.Run(test.name, func(t *testing.T) {
			var p Publish
			wantError(t, ParsePublish(whole(t, test.bytes), &p), test.code, test.reason)
		})
	}
	t.Run("no bytes", func(t *testing.T) {
		var p Publish
		wantError(t, ParsePublish(Frame{}, &p), 0x81, "expected and something else found")
	})
}

// reading is a PUBLISH and what is read out of it.
type reading struct {
	name  string
	bytes []byte
	want  Publish
}

// publishReadings are legal but odd, or what publishers do wrong and servers pass on.
func publishReadings() []reading {
	return []reading{
		{"the least", packet(0x30, str("a"), props()), Publish{Topic: "a"}},
		{"retained at QoS 0", packet(0x31, str("a"), props(), []byte("x")), Publish{Topic: "a", Retain: true, Payload: []byte("x")}},
		{"QoS 1", publish("a/b", props(), "x"), Publish{Topic: "a/b", QoS: 1, PacketID: 7, Payload: []byte("x")}},
		{"QoS 2 again and retained", packet(0x3d, str("a"), []byte{0xff, 0xff}, props()), Publish{Topic: "a", QoS: 2, PacketID: 65535, Dup: true, Retain: true}},
		{"topic of a slash", publish("/", props(), ""), Publish{Topic: "/", QoS: 1, PacketID: 7}},
		{"topic with $, space, control and non-characters", publish("$SYS/ \x01\uFFFE\uFEFF", props(), ""), Publish{Topic: "$SYS/ \x01\uFFFE\uFEFF", QoS: 1, PacketID: 7}},
		{"topic of 65,535 bytes", publish(strings.Repeat("t", 65535), props(), ""), Publish{Topic: strings.Repeat("t", 65535), QoS: 1, PacketID: 7}},
		{"payload of NULs that is no UTF-8 and promises to be", publish("a", props(prop(1, []byte{1})), "\x00\xff"),
			Publish{Topic: "a", QoS: 1, PacketID: 7, PayloadFormat: 1, HasPayloadFormat: true, Payload: []byte("\x00\xff")}},
		{"payload format 0", publish("a", props(prop(1, []byte{0})), ""), Publish{Topic: "a", QoS: 1, PacketID: 7, HasPayloadFormat: true}},
		{"payload format 2", publish("a", props(prop(1, []byte{2})), ""), Publish{Topic: "a", QoS: 1, PacketID: 7}},
		{"expiry 0", publish("a", props(prop(2, []byte{0, 0, 0, 0})), ""), Publish{Topic: "a", QoS: 1, PacketID: 7, HasExpiry: true}},
		{"all properties", publish("a", props(
			prop(9, str("\x00\xff")), prop(8, str("r")), prop(3, str("text/plain")), prop(2, []byte{0, 1, 0, 2}), prop(1, []byte{1})), "p"),
			Publish{Topic: "a", QoS: 1, PacketID: 7, PayloadFormat: 1, HasPayloadFormat: true, Expiry: 65538, HasExpiry: true,
				ContentType: "text/plain", ResponseTopic: "r", CorrelationData: []byte("\x00\xff"), Payload: []byte("p")}},
		{"empty text and data", publish("a", props(prop(9, str("")), prop(8, str("")), prop(3, str(""))), ""),
			Publish{Topic: "a", QoS: 1, PacketID: 7, CorrelationData: []byte{}}},
		{"response topic with wildcards", publish("a", props(prop(8, str("r/+/#"))), ""), Publish{Topic: "a", QoS: 1, PacketID: 7, ResponseTopic: "r/+/#"}},
	}
}

func TestParsePublishAccepts(t *testing.T) {
	for _, test := range publishReadings() {
		t.Run(test.name, func(t *testing.T) {
			f := whole(t, test.bytes)
			p := Publish{ContentType: "left over", Expiry: 1, HasExpiry: true, CorrelationData: []byte{1}, properties: []byte{38}}
			if err := ParsePublish(f, &p); err != nil {
				t.Fatal(err)
			}
			w := test.want
			if p.Topic != w.Topic || p.QoS != w.QoS || p.PacketID != w.PacketID || p.Dup != w.Dup || p.Retain != w.Retain ||
				p.PayloadFormat != w.PayloadFormat || p.HasPayloadFormat != w.HasPayloadFormat || p.Expiry != w.Expiry || p.HasExpiry != w.HasExpiry ||
				p.ContentType != w.ContentType || p.ResponseTopic != w.ResponseTopic || !bytes.Equal(p.Payload, w.Payload) ||
				!bytes.Equal(p.CorrelationData, w.CorrelationData) || (p.CorrelationData == nil) != (w.CorrelationData == nil) {
				t.Errorf("got %+v\nwant %+v", p, w)
			}
			if &p.Frame.Bytes[0] != &f.Bytes[0] {
				t.Error("the frame is not the one that was parsed")
			}
		})
	}
}

func TestPublishIterators(t *testing.T) {
	f := whole(t, publish("a", props(
		prop(38, str("k"), str("1")), prop(11, vbi(1)), prop(38, str(""), str("")), prop(11, vbi(maxVarint)), prop(1, []byte{1}),
		prop(38, str("k"), str("2")), prop(38, str("o"), str("3")), prop(11, vbi(1))), "p"))
	var p Publish
	if err := ParsePublish(f, &p); err != nil {
		t.Fatal(err)
	}
	if got, want := slices.Collect(p.SubscriptionIDs()), []uint32{1, maxVarint, 1}; !slices.Equal(got, want) {
		t.Errorf("subscription identifiers %v, want %v", got, want)
	}
	for id := range p.SubscriptionIDs() { // ends early
		if id != 1 {
			t.Errorf("first subscription identifier %d, want 1", id)
		}
		break
	}
	var got []string
	for name, value := range p.UserProperties() {
		got = append(got, name+"="+value)
	}
	if want := []string{"k=1", "=", "k=2", "o=3"}; !slices.Equal(got, want) {
		t.Errorf("user properties %q, want %q", got, want)
	}
	for range p.UserProperties() {
		break
	}
	for _, test := range []struct {
		name, value string
		found       bool
	}{{"k", "1", true}, {"o", "3", true}, {"", "", true}, {"K", "", false}} {
		if value, found := p.UserProperty(test.name); value != test.value || found != test.found {
			t.Errorf("UserProperty(%q) = %q, %t", test.name, value, found)
		}
	}
	var none Publish
	if err := ParsePublish(whole(t, publish("a", props(), "")), &none); err != nil {
		t.Fatal(err)
	}
	for range none.SubscriptionIDs() {
		t.Error("a subscription identifier out of nothing")
	}
	if _, found := none.UserProperty("k"); found {
		t.Error("a user property out of nothing")
	}
}

// A view: what it gives out lies in the frame, and an append to it does not write there.
func TestPublishAliasesItsFrame(t *testing.T) {
	f := whole(t, publish("topic", props(prop(9, str("data")), prop(38, str("k"), str("v"))), "payload"))
	var p Publish
	if err := ParsePublish(f, &p); err != nil {
		t.Fatal(err)
	}
	within := func(what string, at *byte) {
		start, end := uintptr(unsafe.Pointer(&f.Bytes[0])), uintptr(unsafe.Pointer(&f.Bytes[len(f.Bytes)-1]))
		if a := uintptr(unsafe.Pointer(at)); a < start || a > end {
			t.Errorf("%s was copied", what)
		}
	}
	within("topic", unsafe.StringData(p.Topic))
	within("payload", &p.Payload[0])
	within("correlation data", &p.CorrelationData[0])
	value, _ := p.UserProperty("k")
	within("user property", unsafe.StringData(value))
	if cap(p.CorrelationData) != len(p.CorrelationData) || cap(p.Payload) != len(p.Payload) {
		t.Error("an append would write into the frame")
	}
}

func TestParsePublishOversize(t *testing.T) {
	next := func(b []byte, l Limits) Frame {
		f, err := NewScanner(strings.NewReader(string(b)), l).Next()
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	b := publish("a", props(prop(2, []byte{0, 0, 0, 9}), prop(38, str("k"), str("v"))), strings.Repeat("x", 100))
	var p Publish
	if err := ParsePublish(next(b, Limits{MaxPayload: 99}), &p); err != nil {
		t.Fatal(err)
	}
	if v, _ := p.UserProperty("k"); p.Topic != "a" || p.PacketID != 7 || p.Payload != nil || p.Expiry != 9 || !p.HasExpiry || v != "v" || p.Frame.Oversize != 100 || p.Frame.Bare {
		t.Errorf("got %+v", p)
	}
	if err := ParsePublish(next(b, Limits{MaxPayload: 99, MaxControl: 10}), &p); err != nil {
		t.Fatal(err)
	}
	if _, found := p.UserProperty("k"); p.Topic != "a" || p.PacketID != 7 || p.Payload != nil || p.Expiry != math.MaxUint32 || !p.HasExpiry || found || p.Frame.Oversize != 112 || !p.Frame.Bare {
		t.Errorf("got %+v", p)
	}
	f := next(b, Limits{MaxPayload: 99})
	f.Bytes = append(f.Bytes, 'x')
	wantError(t, ParsePublish(f, &p), 0x81, "is oversize and holds a payload")
	f.Bytes = f.Bytes[:f.Header+4]
	wantError(t, ParsePublish(f, &p), 0x81, "expected and something else found")
}
