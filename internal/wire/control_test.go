package wire

import (
	"strings"
	"testing"
)

func controlVerdicts() []verdict {
	const (
		flags       = "has wrong flags"
		badLength   = "has a bad property length"
		beyond      = "ends within its properties"
		goesOn      = "goes on after its properties"
		unknownCode = "has an unknown reason code"
		zeroID      = "has Packet Identifier 0"
		noID        = "ends within its Packet Identifier"
		notAllowed  = "received where a server may not send it"
		neither     = "has a property that must be 0 or 1 and is neither"
		zero        = "has a property of 0 that must not be 0"
	)
	id, reason := []byte{0, 7}, prop(31, str("why"))
	user := prop(38, str("k"), str("v"))
	ok := []byte{0, 0}
	return []verdict{
		{"reserved type", []byte{0x00, 0}, 0x81, "received, which does not exist"},
		{"CONNECT", []byte{0x10, 0}, 0x82, notAllowed},
		{"SUBSCRIBE", []byte{0x82, 0}, 0x82, notAllowed},
		{"UNSUBSCRIBE", []byte{0xa2, 0}, 0x82, notAllowed},
		{"PINGREQ", []byte{0xc0, 0}, 0x82, notAllowed},
		{"PUBLISH", publish("a", props(), ""), 0x82, notAllowed},

		{"CONNACK", packet(0x20, ok, props()), 0, ""},
		{"CONNACK with the session", packet(0x20, []byte{1, 0}, props()), 0, ""},
		{"CONNACK that refuses", packet(0x20, []byte{0, 0x87}, props(reason)), 0, ""},
		{"CONNACK with a code of tomorrow", packet(0x20, []byte{0, 0xf0}, props()), 0, ""},
		{"CONNACK empty", packet(0x20), 0x81, "ends before its reason code"},
		{"CONNACK of MQTT 3", packet(0x20, []byte{0, 1}), 0x81, "has no properties: the server does not speak MQTT 5"},
		{"CONNACK flags", packet(0x21, ok, props()), 0x81, flags},
		{"CONNACK reserved flags", packet(0x20, []byte{2, 0}, props()), 0x81, "has reserved flags"},
		{"CONNACK unknown code", packet(0x20, []byte{0, 1}, props()), 0x82, unknownCode},
		{"CONNACK refuses with the session", packet(0x20, []byte{1, 0x87}, props()), 0x82, "refuses and has Session Present"},
		{"CONNACK bad property length", packet(0x20, ok, []byte{0x80}), 0x81, badLength},
		{"CONNACK properties beyond the end", packet(0x20, ok, []byte{5, 33}), 0x81, beyond},
		{"CONNACK goes on", packet(0x20, ok, props(), []byte{0}), 0x81, goesOn},
		{"CONNACK stray property", packet(0x20, ok, props(prop(1, []byte{1}))), 0x81, strayProperty},
		{"CONNACK unknown property", packet(0x20, ok, props(prop(99, []byte{1}))), 0x81, unknownProperty},
		{"CONNACK property twice", packet(0x20, ok, props(prop(36, []byte{1}), prop(36, []byte{1}))), 0x82, twice},
		{"CONNACK reason string twice", packet(0x20, ok, props(reason, reason)), 0x82, twice},
		{"CONNACK user property twice", packet(0x20, ok, props(user, user)), 0, ""},
		{"CONNACK Receive Maximum 0", packet(0x20, ok, props(prop(33, []byte{0, 0}))), 0x82, zero},
		{"CONNACK Maximum Packet Size 0", packet(0x20, ok, props(prop(39, []byte{0, 0, 0, 0}))), 0x82, zero},
		{"CONNACK Maximum QoS 2", packet(0x20, ok, props(prop(36, []byte{2}))), 0x82, neither},
		{"CONNACK Retain Available 2", packet(0x20, ok, props(prop(37, []byte{2}))), 0x82, neither},
		{"CONNACK wildcards 255", packet(0x20, ok, props(prop(40, []byte{255}))), 0x82, neither},
		{"CONNACK identifiers 2", packet(0x20, ok, props(prop(41, []byte{2}))), 0x82, neither},
		{"CONNACK shared 2", packet(0x20, ok, props(prop(42, []byte{2}))), 0x82, neither},
		{"CONNACK reason string not UTF-8", packet(0x20, ok, props(prop(31, str("\xff")))), 0x81, badUTF8Property},

		{"PUBACK", packet(0x40, id), 0, ""},
		{"PUBACK with a code", packet(0x40, id, []byte{0x10}), 0, ""},
		{"PUBACK with no properties", packet(0x40, id, []byte{0x97}, props()), 0, ""},
		{"PUBACK with properties", packet(0x40, id, []byte{0}, props(user, reason, user)), 0, ""},
		{"PUBACK empty", packet(0x40), 0x81, noID},
		{"PUBACK half an identifier", packet(0x40, []byte{1}), 0x81, noID},
		{"PUBACK identifier 0", packet(0x40, ok), 0x81, zeroID},
		{"PUBACK flags", packet(0x42, id), 0x81, flags},
		{"PUBACK unknown code", packet(0x40, id, []byte{1}), 0x82, unknownCode},
		{"PUBACK properties beyond the end", packet(0x40, id, []byte{0, 1}), 0x81, beyond},
		{"PUBACK stray property", packet(0x40, id, []byte{0}, props(prop(28, str("s")))), 0x81, strayProperty},
		{"PUBACK goes on", packet(0x40, id, []byte{0}, props(), []byte{0}), 0x81, goesOn},
		{"PUBREC", packet(0x50, id), 0, ""},
		{"PUBREC with a code", packet(0x50, id, []byte{0x10}), 0, ""},
		{"PUBREC flags", packet(0x52, id), 0x81, flags},
		{"PUBREL", packet(0x62, id), 0, ""},
		{"PUBREL not found", packet(0x62, id, []byte{0x92}, props(reason)), 0, ""},
		{"PUBREL unknown code", packet(0x62, id, []byte{0x10}), 0x82, unknownCode},
		{"PUBREL flags", packet(0x60, id), 0x81, flags},
		{"PUBREL other flags", packet(0x63, id), 0x81, flags},
		{"PUBREL identifier 0", packet(0x62, ok), 0x81, zeroID},
		{"PUBCOMP", packet(0x70, id), 0, ""},
		{"PUBCOMP not found", packet(0x70, id, []byte{0x92}), 0, ""},
		{"PUBCOMP unknown code", packet(0x70, id, []byte{0x10}), 0x82, unknownCode},

		{"SUBACK", packet(0x90, id, props(), []byte{1}), 0, ""},
		{"SUBACK of several", packet(0x90, id, props(reason, user), []byte{0, 1, 2, 0x87}), 0, ""},
		{"SUBACK unknown code", packet(0x90, id, props(), []byte{1, 3}), 0x82, unknownCode},
		{"SUBACK without codes", packet(0x90, id, props()), 0x82, "has no reason code"},
		{"SUBACK without properties", packet(0x90, id), 0x81, badLength},
		{"SUBACK identifier 0", packet(0x90, ok, props(), []byte{1}), 0x81, zeroID},
		{"SUBACK half an identifier", packet(0x90, []byte{1}), 0x81, noID},
		{"SUBACK properties beyond the end", packet(0x90, id, []byte{9, 1}), 0x81, beyond},
		{"SUBACK stray property", packet(0x90, id, props(prop(11, []byte{1})), []byte{1}), 0x81, strayProperty},
		{"SUBACK flags", packet(0x92, id, props(), []byte{1}), 0x81, flags},
		{"UNSUBACK", packet(0xb0, id, props(), []byte{0, 0x11, 0x80}), 0, ""},
		{"UNSUBACK unknown code", packet(0xb0, id, props(), []byte{1}), 0x82, unknownCode},
		{"UNSUBACK without codes", packet(0xb0, id, props()), 0x82, "has no reason code"},

		{"PINGRESP", packet(0xd0), 0, ""},
		{"PINGRESP that is not empty", packet(0xd0, []byte{0}), 0x81, "is not empty"},
		{"PINGRESP flags", packet(0xd1), 0x81, flags},

		{"DISCONNECT empty", packet(0xe0), 0, ""},
		{"DISCONNECT with a code", packet(0xe0, []byte{0x8e}), 0, ""},
		{"DISCONNECT with properties", packet(0xe0, []byte{0x9c}, props(prop(28, str("other")), reason, user)), 0, ""},
		{"DISCONNECT with an expiry", packet(0xe0, []byte{0}, props(prop(17, []byte{0, 0, 0, 1}))), 0x82, "has a Session Expiry Interval, which only a client sends"},
		{"DISCONNECT stray property", packet(0xe0, []byte{0}, props(prop(21, str("m")))), 0x81, strayProperty},
		{"DISCONNECT properties beyond the end", packet(0xe0, []byte{0, 1}), 0x81, beyond},
		{"DISCONNECT goes on", packet(0xe0, []byte{0, 0, 0}), 0x81, goesOn},
		{"DISCONNECT flags", packet(0xe1), 0x81, flags},

		{"AUTH empty", packet(0xf0), 0, ""},
		{"AUTH with a code", packet(0xf0, []byte{0x19}), 0, ""},
		{"AUTH continues", packet(0xf0, []byte{0x18}, props(prop(21, str("m")), prop(22, str("\xff")))), 0, ""},
		{"AUTH unknown code", packet(0xf0, []byte{0x17}), 0x82, unknownCode},
		{"AUTH goes on", packet(0xf0, []byte{0x18}, props(), []byte{1}), 0x81, goesOn},
		{"AUTH data cut short", packet(0xf0, []byte{0x18}, props(prop(22, []byte{0, 1}))), 0x81, unknownProperty},
		{"AUTH flags", packet(0xf1), 0x81, flags},
	}
}

func TestCheckControl(t *testing.T) {
	for _, test := range controlVerdicts() {
		t.Run(test.name, func(t *testing.T) {
			wantError(t, CheckControl(whole(t, test.bytes)), test.code, test.reason)
		})
	}
	t.Run("no bytes", func(t *testing.T) {
		wantError(t, CheckControl(Frame{}), 0x81, "packet ends within its fixed header")
	})
}

// Every prefix of a packet whose length was made to fit, and every packet with one byte more, is refused
// or legal by itself, and never makes the checks panic.
func TestCheckControlTruncated(t *testing.T) {
	full := packet(0x20, []byte{0, 0}, props(prop(17, []byte{0, 0, 0, 1}), prop(18, str("id")), prop(38, str("k"), str("v")), prop(36, []byte{1})))
	for n := range full[2:] {
		if n == 0 {
			continue
		}
		if err := CheckControl(whole(t, packet(0x20, full[2:2+n]))); err == nil {
			t.Errorf("CONNACK cut to %d bytes passes", n)
		}
	}
	if err := CheckControl(whole(t, full)); err != nil {
		t.Error(err)
	}
}

func TestParseConnack(t *testing.T) {
	least := Connack{ReceiveMaximum: 65535, MaximumQoS: 2, RetainAvailable: true, WildcardAvailable: true, SubscriptionIDAvailable: true, SharedAvailable: true}
	present := least
	present.SessionPresent = true
	refused := least
	refused.Code, refused.Reason, refused.ServerReference = 0x9d, "gone", "elsewhere"
	tests := []struct {
		name  string
		bytes []byte
		want  Connack
	}{
		{"the least", packet(0x20, []byte{0, 0}, props()), least},
		{"session present", packet(0x20, []byte{1, 0}, props(prop(38, str("k"), str("v")), prop(22, str("d")), prop(26, str("i")))), present},
		{"refused", packet(0x20, []byte{0, 0x9d}, props(prop(31, str("gone")), prop(28, str("elsewhere")))), refused},
		{"everything", packet(0x20, []byte{0, 0}, props(
			prop(17, []byte{0, 0, 1, 0}), prop(33, []byte{0, 20}), prop(36, []byte{1}), prop(37, []byte{0}), prop(39, []byte{0, 1, 0, 0}),
			prop(18, str("id")), prop(34, []byte{0, 9}), prop(40, []byte{0}), prop(41, []byte{0}), prop(42, []byte{0}), prop(19, []byte{0, 60}), prop(21, str("m")))),
			Connack{SessionExpiry: 256, HasSessionExpiry: true, ReceiveMaximum: 20, MaximumQoS: 1, MaximumPacketSize: 65536, AssignedClientID: "id",
				TopicAliasMaximum: 9, ServerKeepAlive: 60, HasServerKeepAlive: true, AuthMethod: "m", HasAuthMethod: true}},
		{"everything there", packet(0x20, []byte{0, 0}, props(prop(37, []byte{1}), prop(40, []byte{1}), prop(41, []byte{1}), prop(42, []byte{1}))), least},
	}
	for _, test := range tests {
		got, err := ParseConnack(whole(t, test.bytes))
		if err != nil || got != test.want {
			t.Errorf("%s: got %+v, %v\nwant %+v", test.name, got, err, test.want)
		}
	}
	_, err := ParseConnack(whole(t, packet(0xd0)))
	wantError(t, err, 0x82, "PINGRESP received in place of CONNACK")
	_, err = ParseConnack(whole(t, packet(0x20, []byte{0, 0})))
	wantError(t, err, 0x81, "does not speak MQTT 5")
}

func TestParsePubrel(t *testing.T) {
	for _, test := range []struct {
		bytes []byte
		id    uint16
		code  byte
	}{
		{packet(0x62, []byte{1, 2}), 0x102, 0},
		{packet(0x62, []byte{1, 2, 0x92}), 0x102, 0x92},
		{packet(0x62, []byte{1, 2, 0x92, 0}), 0x102, 0x92},
	} {
		id, code, err := ParsePubrel(whole(t, test.bytes))
		if id != test.id || code != test.code || err != nil {
			t.Errorf("% x: got %d, %#x, %v", test.bytes, id, code, err)
		}
	}
	_, _, err := ParsePubrel(whole(t, packet(0x40, []byte{1, 2})))
	wantError(t, err, 0x82, "PUBACK received in place of PUBREL")
	_, _, err = ParsePubrel(whole(t, packet(0x62, []byte{0, 0})))
	wantError(t, err, 0x81, "has Packet Identifier 0")
	_, _, err = ParsePubrel(whole(t, packet(0x60, []byte{0, 1})))
	wantError(t, err, 0x81, "has wrong flags")
}

func TestParseDisconnect(t *testing.T) {
	for _, test := range []struct {
		bytes []byte
		want  Disconnect
	}{
		{packet(0xe0), Disconnect{}},
		{packet(0xe0, []byte{0x8e}), Disconnect{Code: 0x8e}},
		{packet(0xe0, []byte{0x9c}, props(prop(31, str("r")), prop(28, str("s")))), Disconnect{Code: 0x9c, Reason: "r", ServerReference: "s"}},
	} {
		if got, err := ParseDisconnect(whole(t, test.bytes)); got != test.want || err != nil {
			t.Errorf("% x: got %+v, %v", test.bytes, got, err)
		}
	}
	_, err := ParseDisconnect(whole(t, packet(0xd0)))
	wantError(t, err, 0x82, "PINGRESP received in place of DISCONNECT")
	_, err = ParseDisconnect(whole(t, packet(0xe0, []byte{0, 1})))
	wantError(t, err, 0x81, "ends within its properties")
}

func TestErrorText(t *testing.T) {
	err := CheckControl(whole(t, packet(0x20, []byte{0, 0}, props(prop(31, str("secret\xff"))))))
	if want := "mqtt: server broke the protocol: CONNACK has a property that is not well-formed UTF-8 (reason code 0x81)"; err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
	if strings.Contains(err.Error(), "secret") {
		t.Error("the error quotes the packet")
	}
}

func TestTypeString(t *testing.T) {
	for typ, want := range map[Type]string{0: "packet of reserved type 0", CONNACK: "CONNACK", PUBREL: "PUBREL", UNSUBACK: "UNSUBACK", AUTH: "AUTH"} {
		if got := typ.String(); got != want {
			t.Errorf("Type(%d) is %q, want %q", typ, got, want)
		}
	}
}
