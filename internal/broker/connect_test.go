package broker

import (
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eclipse/paho.golang/packets"
)

// connectBytes is a CONNECT of client "c" with its parts to be changed: flags, properties, payload.
func connectBytes(name string, version, flags byte, properties, payload string) []byte {
	body := appendText(nil, name)
	body = append(body, version, flags, 0, 0)
	body = append(appendVarint(body, len(properties)), properties...)
	return appendPacket(nil, CONNECT<<4, append(body, payload...))
}

func TestConnectIsHeldAgainstTheStandard(t *testing.T) {
	const id = "\x00\x01c"
	for _, c := range []struct {
		name string
		raw  []byte
		code int // -1: closed without an answer
	}{
		{"as it should be", connectBytes("MQTT", 5, 2, "", id), 0},
		{"another protocol", connectBytes("HTTP", 5, 2, "", id), -1},
		{"MQTT 3.1.1", connectBytes("MQTT", 4, 2, "", id), codeUnsupportedVersion},
		{"reserved flag", connectBytes("MQTT", 5, 3, "", id), codeMalformed},
		{"Will QoS 3", connectBytes("MQTT", 5, 0x1C, "", id+"\x00\x00\x01t\x00\x00"), codeMalformed},
		{"Will QoS without a will", connectBytes("MQTT", 5, 0x08, "", id), codeMalformed},
		{"Will Retain without a will", connectBytes("MQTT", 5, 0x20, "", id), codeMalformed},
		{"will", connectBytes("MQTT", 5, 0x04, "", id+"\x00\x00\x01t\x00\x00"), 0},
		{"will with a wildcard", connectBytes("MQTT", 5, 0x04, "", id+"\x00\x00\x01#\x00\x00"), codeTopicInvalid},
		{"will that is no UTF-8", connectBytes("MQTT", 5, 0x04, "", id+"\x02\x01\x01\x00\x01t\x00\x01\xff"), codePayloadInvalid},
		{"will cut short", connectBytes("MQTT", 5, 0x04, "", id+"\x00\x00\x01t\x00"), codeMalformed},
		{"a property of PUBLISH", connectBytes("MQTT", 5, 2, "\x23\x00\x01", id), codeMalformed},
		{"an unknown property", connectBytes("MQTT", 5, 2, "\x7f", id), codeMalformed},
		{"a property twice", connectBytes("MQTT", 5, 2, "\x11\x00\x00\x00\x01\x11\x00\x00\x00\x01", id), codeProtocolError},
		{"Receive Maximum 0", connectBytes("MQTT", 5, 2, "\x21\x00\x00", id), codeProtocolError},
		{"Maximum Packet Size 0", connectBytes("MQTT", 5, 2, "\x27\x00\x00\x00\x00", id), codeProtocolError},
		{"Request Problem Information 2", connectBytes("MQTT", 5, 2, "\x17\x02", id), codeProtocolError},
		{"authentication method", connectBytes("MQTT", 5, 2, "\x15\x00\x01m", id), codeBadAuthMethod},
		{"authentication data alone", connectBytes("MQTT", 5, 2, "\x16\x00\x01d", id), codeProtocolError},
		{"identifier that is no UTF-8", connectBytes("MQTT", 5, 2, "", "\x00\x01\xff"), codeMalformed},
		{"identifier with U+0000", connectBytes("MQTT", 5, 2, "", "\x00\x01\x00"), codeMalformed},
		{"bytes left over", connectBytes("MQTT", 5, 2, "", id+"x"), codeMalformed},
		{"no User Name where the flag says so", connectBytes("MQTT", 5, 0x82, "", id), codeMalformed},
		{"no password where the flag says so", connectBytes("MQTT", 5, 0x42, "", id), codeMalformed},
		{"not CONNECT", []byte{PINGREQ << 4, 0}, -1},
		{"reserved bits in the fixed header", append([]byte{CONNECT<<4 | 1}, connectBytes("MQTT", 5, 2, "", id)[1:]...), -1},
		{"a Remaining Length of five bytes", []byte{CONNECT << 4, 0xFF, 0xFF, 0xFF, 0xFF, 1}, codeMalformed},
		{"too large", []byte{CONNECT << 4, 0xFF, 0xFF, 0xFF, 0x7F}, codePacketTooLarge},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, Options{}, func(t *testing.T, b *Broker) {
				cl := dial(t, b)
				cl.raw(c.raw)
				if c.code < 0 {
					cl.expectEnd()
					return
				}
				ack := expect[*packets.Connack](cl)
				if int(ack.ReasonCode) != c.code {
					t.Fatalf("CONNACK 0x%02X %q, want 0x%02X", ack.ReasonCode, ack.Properties.ReasonString, c.code)
				}
				if c.code != 0 {
					cl.expectEnd()
				}
			})
		})
	}
}

func TestConnackSaysWhatIsGranted(t *testing.T) {
	o := Options{
		ReceiveMaximum: 10, MaximumQoS: ptr[byte](1), MaximumPacketSize: 1000, ServerKeepAlive: 7, SessionExpiryMaximum: ptr[uint32](60),
		TopicAliasMaximum: 3, NoRetain: true, NoWildcards: true, NoSubscriptionIDs: true, NoShared: true,
	}
	bubble(t, o, func(t *testing.T, b *Broker) {
		_, ack := connectAs(t, b, "")
		p := ack.Properties
		if *p.ReceiveMaximum != 10 || *p.MaximumQOS != 1 || *p.MaximumPacketSize != 1000 || *p.ServerKeepAlive != 7 || *p.SessionExpiryInterval != 60 ||
			*p.TopicAliasMaximum != 3 || *p.RetainAvailable != 0 || *p.WildcardSubAvailable != 0 || *p.SubIDAvailable != 0 || *p.SharedSubAvailable != 0 || p.AssignedClientID == "" {
			t.Fatalf("%s", p)
		}
		if _, ok := b.Session(p.AssignedClientID); !ok {
			t.Fatal("no session under the Assigned Client Identifier")
		}
	})
	bubble(t, Options{}, func(t *testing.T, b *Broker) {
		_, ack := connectAs(t, b, "c")
		want := packets.Properties{MaximumPacketSize: ptr[uint32](16 << 20)}
		if ack.Properties.String() != want.String() {
			t.Fatalf("%s", ack.Properties)
		}
	})
}

func TestWillIsHeldAgainstTheGrants(t *testing.T) {
	for _, c := range []struct {
		name string
		o    Options
		code byte
	}{
		{"QoS", Options{MaximumQoS: ptr[byte](0)}, codeQoSNotSupported},
		{"retain", Options{NoRetain: true}, codeRetainNotSupported},
		{"granted", Options{}, 0},
	} {
		bubble(t, c.o, func(t *testing.T, b *Broker) {
			cl := dial(t, b)
			cl.send(connecting("c", withWill("w", 0), func(p *packets.Connect) { p.WillQOS, p.WillRetain = 1, true }))
			if ack := expect[*packets.Connack](cl); ack.ReasonCode != c.code {
				t.Errorf("%s: 0x%02X", c.name, ack.ReasonCode)
			}
		})
	}
}

func TestAuthenticate(t *testing.T) {
	o := Options{Authenticate: func(clientID, username string, password []byte) byte {
		if clientID == "c" && username == "u" && string(password) == "p" {
			return 0
		}
		return 0x86
	}}
	bubble(t, o, func(t *testing.T, b *Broker) {
		login := func(p *packets.Connect) {
			p.UsernameFlag, p.Username, p.PasswordFlag, p.Password = true, "u", true, []byte("p")
		}
		connectAs(t, b, "c", login)
		other := dial(t, b)
		other.send(connecting("d", login))
		if ack := expect[*packets.Connack](other); ack.ReasonCode != 0x86 {
			t.Fatalf("0x%02X", ack.ReasonCode)
		}
		other.expectEnd()
		for _, line := range b.WireLog("d") {
			if strings.Contains(line, `"p"`) || strings.Contains(line, `"u"`) {
				t.Errorf("a secret: %s", line)
			}
		}
	})
}

func TestTakeover(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, b *Broker) {
		first := subscribed(t, b, "c", "a")
		publishAs(t, b, "a", 1, 1, 1)
		first.expectPublish("m1", 1, false)
		second, ack := connectAs(t, b, "c")
		first.expectDisconnect(codeTakenOver)
		if !ack.SessionPresent {
			t.Fatal("no Session Present")
		}
		second.expectPublish("m1", 1, true)

		third, ack := connectAs(t, b, "c", cleanStart)
		second.expectDisconnect(codeTakenOver)
		if ack.SessionPresent {
			t.Fatal("Session Present after Clean Start")
		}
		publishAs(t, b, "a", 1, 2, 2)
		third.silent()
	})
}

// A client that does not read is taken over without anybody waiting for it.
func TestTakeoverOfAStalledClient(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, b *Broker) {
		stalled, err := b.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = stalled.Close() }()
		_, _ = stalled.Write(encoded(connecting("c")))
		synctest.Wait()
		begin := time.Now()
		_, ack := connectAs(t, b, "c")
		if !ack.SessionPresent || time.Since(begin) != 0 {
			t.Fatalf("present %t after %s", ack.SessionPresent, time.Since(begin))
		}
		pass(2 * closePatience)
		if _, err := stalled.Write([]byte{0}); err != io.ErrClosedPipe {
			t.Fatalf("the stalled connection was not closed: %v", err)
		}
	})
}

func TestSessionExpiry(t *testing.T) {
	for _, c := range []struct {
		name       string
		connect    uint32
		disconnect *uint32
		maximum    *uint32
		after      time.Duration
		present    bool
	}{
		{name: "ends with the connection", connect: 0, present: false},
		{name: "before it is over", connect: 10, after: 9 * time.Second, present: true},
		{name: "after it is over", connect: 10, after: 11 * time.Second, present: false},
		{name: "never", connect: never, after: 20 * 365 * 24 * time.Hour, present: true},
		{name: "shortened by DISCONNECT", connect: 10, disconnect: ptr[uint32](1), after: 2 * time.Second, present: false},
		{name: "ended by DISCONNECT", connect: 10, disconnect: ptr[uint32](0), present: false},
		{name: "lengthened by DISCONNECT", connect: 10, disconnect: ptr[uint32](20), after: 15 * time.Second, present: true},
		{name: "no longer than granted", connect: 100, maximum: ptr[uint32](10), after: 11 * time.Second, present: false},
		{name: "no longer than granted, by DISCONNECT", connect: 1, disconnect: ptr[uint32](100), maximum: ptr[uint32](10), after: 11 * time.Second, present: false},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, Options{SessionExpiryMaximum: c.maximum}, func(t *testing.T, b *Broker) {
				cl, _ := connectAs(t, b, "c", expiry(c.connect))
				if c.disconnect != nil {
					cl.send(&packets.Disconnect{Properties: &packets.Properties{SessionExpiryInterval: c.disconnect}})
				} else {
					_ = cl.Close()
				}
				cl.expectEnd()
				synctest.Wait()
				pass(c.after)
				if _, ok := b.Session("c"); ok != c.present {
					t.Errorf("the session is there: %t", ok)
				}
				if _, ack := connectAs(t, b, "c"); ack.SessionPresent != c.present {
					t.Errorf("Session Present %t", ack.SessionPresent)
				}
			})
		})
	}
	bubble(t, Options{}, func(t *testing.T, b *Broker) {
		cl, _ := connectAs(t, b, "c", expiry(0))
		cl.send(&packets.Disconnect{Properties: &packets.Properties{SessionExpiryInterval: ptr[uint32](5)}})
		cl.expectDisconnect(codeProtocolError)
	})
}

func TestKeepAlive(t *testing.T) {
	for _, c := range []struct {
		client, server uint16
		want           time.Duration
	}{{10, 0, 15 * time.Second}, {10, 4, 6 * time.Second}, {0, 4, 6 * time.Second}} {
		bubble(t, Options{ServerKeepAlive: c.server}, func(t *testing.T, b *Broker) {
			cl, _ := connectAs(t, b, "c", func(p *packets.Connect) { p.KeepAlive = c.client })
			for range 5 { // a packet in time keeps it alive
				pass(c.want - time.Second)
				cl.send(&packets.Pingreq{})
				expect[*packets.Pingresp](cl)
			}
			begin := time.Now()
			cl.expectDisconnect(codeKeepAliveTimeout)
			if got := time.Since(begin); got != c.want {
				t.Errorf("after %s, want %s", got, c.want)
			}
		})
	}
	bubble(t, Options{}, func(t *testing.T, b *Broker) {
		cl, _ := connectAs(t, b, "c")
		pass(24 * time.Hour)
		cl.silent()
	})
}

func TestConnectIsDue(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, b *Broker) {
		begin := time.Now()
		dial(t, b).expectEnd()
		if got := time.Since(begin); got != connectPatience {
			t.Fatal(got)
		}
	})
}

func withWill(topic string, delay uint32) func(*packets.Connect) {
	return func(p *packets.Connect) {
		p.WillFlag, p.WillTopic, p.WillMessage = true, topic, []byte("will")
		p.WillProperties = &packets.Properties{WillDelayInterval: &delay}
	}
}

func TestWill(t *testing.T) {
	for _, c := range []struct {
		name  string
		delay uint32
		end   func(b *Broker, cl *client)
		after time.Duration // -1: not at all
	}{
		{"connection lost", 0, func(b *Broker, _ *client) { b.Cut("c") }, 0},
		{"DISCONNECT 0x00", 0, func(_ *Broker, cl *client) { cl.send(&packets.Disconnect{}) }, -1},
		{"DISCONNECT 0x04", 0, func(_ *Broker, cl *client) { cl.send(&packets.Disconnect{ReasonCode: 4}) }, 0},
		{"protocol error", 0, func(_ *Broker, cl *client) { cl.send(&packets.Connack{}) }, 0},
		{"delayed", 5, func(b *Broker, _ *client) { b.Cut("c") }, 5 * time.Second},
		{"delayed, session over before", 5000, func(b *Broker, _ *client) { b.Cut("c") }, 3600 * time.Second},
		{"delayed, resumed in time", 5, func(b *Broker, cl *client) { b.Cut("c"); connectAs(cl.t, b, "c") }, -1},
		{"delayed, clean start", 5, func(b *Broker, cl *client) { b.Cut("c"); connectAs(cl.t, b, "c", cleanStart) }, 0},
		{"taken over", 0, func(b *Broker, cl *client) { connectAs(cl.t, b, "c") }, 0},
		{"taken over, delayed", 5, func(b *Broker, cl *client) { connectAs(cl.t, b, "c") }, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, Options{}, func(t *testing.T, b *Broker) {
				w := subscribed(t, b, "w", "will/#")
				cl, _ := connectAs(t, b, "c", withWill("will/c", c.delay))
				begin := time.Now()
				c.end(b, cl)
				if c.after < 0 {
					pass(2 * time.Hour)
					w.silent()
					return
				}
				pass(c.after)
				synctest.Wait()
				if len(w.read) != 1 || time.Since(begin) != c.after {
					t.Fatalf("%d messages after %s", len(w.read), time.Since(begin))
				}
				w.expectPublish("will", 0, false)
			})
		})
	}
}

// Everything in CONNECT's will reaches its subscribers: this one is written by hand, since paho does not write it.
func TestWillProperties(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, b *Broker) {
		w := subscribed(t, b, "w", "t")
		cl := dial(t, b)
		properties := "\x02\x00\x00\x00\x09\x03\x00\x01x\x26\x00\x01k\x00\x01v"
		cl.raw(connectBytes("MQTT", 5, 0x2C, "", "\x00\x01c"+string(rune(len(properties)))+properties+"\x00\x01t\x00\x02hi"))
		expect[*packets.Connack](cl)
		_ = cl.Close()
		p := w.expectPublish("hi", 1, false)
		if *p.Properties.MessageExpiry != 9 || p.Properties.ContentType != "x" || len(p.Properties.User) != 1 || p.Properties.User[0] != (packets.User{Key: "k", Value: "v"}) {
			t.Fatalf("%s", p.Properties)
		}
	})
}
