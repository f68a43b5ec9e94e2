package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime/metrics"
	"slices"
	"strings"
	"testing"

	"github.com/eclipse/paho.golang/packets"

	"github.com/settlemq/settle/internal/hostile"
)

// lax has, by the end of our reason, what paho takes and we refuse: each a rule of the standard that
// paho does not hold a packet against.
var lax = []string{
	// paho reads any flags and any value of a field that is long enough.
	"has QoS 3",
	"has DUP at QoS 0",
	"has wrong flags",
	"has reserved flags",
	"has Packet Identifier 0",
	"has a topic that is not well-formed UTF-8",
	"has a topic with wildcards",
	"has neither a topic nor a topic alias",
	"has a topic alias, and none was granted",
	"has a property that is not well-formed UTF-8",
	"has a property that must be 0 or 1 and is neither",
	"has a property of 0 that must not be 0",
	"has a property twice",
	"has an unknown reason code",
	"has no reason code",
	"refuses and has Session Present",
	"has a Session Expiry Interval, which only a client sends",
	"received where a server may not send it",
	// paho takes Variable Byte Integers of any length, and property lengths beyond the end of the packet.
	"has a bad property length",
	"ends within its properties",
	// paho does not look whether it has read all of a packet.
	"goes on after its properties",
	"is not empty",
}

// laxSubscriptionID is taken by paho only in a Subscription Identifier, a Variable Byte Integer.
const laxSubscriptionID = "has a property that is unknown or cut short"

// checkRefusal fails the test if paho takes what we refuse for no known reason.
func checkRefusal(t *testing.T, frame []byte, ours, pahos error) {
	t.Helper()
	if pahos != nil {
		return
	}
	reason := ours.(*Error).Reason
	known := slices.ContainsFunc(lax, func(suffix string) bool { return strings.HasSuffix(reason, suffix) })
	if !known && !(strings.HasSuffix(reason, laxSubscriptionID) && bytes.IndexByte(frame, propSubscriptionID) >= 0) {
		t.Errorf("% x is refused and paho takes it: %v", frame, ours)
	}
}

// same fails the test if a field differs. What paho keeps behind a pointer is missing where that is nil.
func same[T comparable](t *testing.T, field string, ours, pahos T) {
	t.Helper()
	if ours != pahos {
		t.Errorf("%s: %v, and paho has %v", field, ours, pahos)
	}
}

// or is what p points to, or what a property that is missing means.
func or[T any](p *T, missing T) T {
	if p == nil {
		return missing
	}
	return *p
}

// The seeds are the packets of the table tests and a plain one. Long ones are left out: the fuzzer would
// spend its time on making them shorter.
func publishSeeds() [][]byte {
	seeds := [][]byte{publish("a/b", props(prop(11, vbi(70_000)), prop(38, str("k"), str("v"))), "{}")}
	for _, test := range publishRefusals() {
		seeds = append(seeds, test.bytes)
	}
	for _, test := range publishReadings() {
		seeds = append(seeds, test.bytes)
	}
	return slices.DeleteFunc(seeds, func(b []byte) bool { return len(b) > 200 })
}

func controlSeeds() (seeds [][]byte) {
	for _, test := range controlVerdicts() {
		seeds = append(seeds, test.bytes)
	}
	return seeds
}

// hostileSeeds are the PUBLISHes, or all else, that a hostile server sends, but for what is no frame and what is long.
func hostileSeeds(publishes bool) (seeds [][]byte) {
	for _, c := range hostile.Cases(hostile.Server, "a/b") {
		remaining, size := varint(c.Bytes[1:])
		if publishes == (c.Packet.Type == hostile.PUBLISH) && size > 0 && 1+size+remaining == len(c.Bytes) && len(c.Bytes) <= 200 {
			seeds = append(seeds, c.Bytes)
		}
	}
	return seeds
}

// afterHeader is a packet without its fixed header.
func afterHeader(b []byte) []byte {
	_, size := varint(b[1:])
	return b[1+size:]
}

// FuzzPublish holds ParsePublish against paho's decoder: what we take, paho reads as the same; what paho
// takes and we do not, we refuse for a reason that is known.
func FuzzPublish(f *testing.F) {
	for _, b := range append(publishSeeds(), hostileSeeds(true)...) {
		f.Add(b[0], afterHeader(b))
	}
	f.Fuzz(func(t *testing.T, first byte, body []byte) {
		if len(body) > maxVarint {
			t.Skip()
		}
		frame := packet(byte(PUBLISH)<<4|first&0x0F, body)
		cp, pahos := packets.ReadPacket(bytes.NewReader(frame))
		var p Publish
		if ours := ParsePublish(whole(t, frame), &p); ours != nil {
			checkRefusal(t, frame, ours, pahos)
			return
		}
		if pahos != nil {
			t.Fatalf("% x is taken and paho refuses it: %v", frame, pahos)
		}
		comparePublish(t, &p, cp.Content.(*packets.Publish))
	})
}

func comparePublish(t *testing.T, p *Publish, q *packets.Publish) {
	t.Helper()
	same(t, "topic", p.Topic, q.Topic)
	same(t, "payload", string(p.Payload), string(q.Payload))
	same(t, "Packet Identifier", p.PacketID, q.PacketID)
	same(t, "QoS", p.QoS, q.QoS)
	same(t, "DUP", p.Dup, q.Duplicate)
	same(t, "retain", p.Retain, q.Retain)
	same(t, "expiry", p.Expiry, or(q.Properties.MessageExpiry, 0))
	same(t, "has expiry", p.HasExpiry, q.Properties.MessageExpiry != nil)
	if format := q.Properties.PayloadFormat; or(format, 0) > 1 {
		same(t, "has payload format", p.HasPayloadFormat, false)
	} else {
		same(t, "payload format", p.PayloadFormat, or(format, 0))
		same(t, "has payload format", p.HasPayloadFormat, format != nil)
	}
	same(t, "content type", p.ContentType, q.Properties.ContentType)
	same(t, "response topic", p.ResponseTopic, q.Properties.ResponseTopic)
	same(t, "correlation data", string(p.CorrelationData), string(q.Properties.CorrelationData))
	if q.Properties.TopicAlias != nil {
		t.Error("paho has a topic alias")
	}
	last := 0 // paho keeps one
	for id := range p.SubscriptionIDs() {
		last = int(id)
	}
	same(t, "last subscription identifier", last, or(q.Properties.SubscriptionIdentifier, 0))
	var users []packets.User
	first := map[string]string{}
	for name, value := range p.UserProperties() {
		users = append(users, packets.User{Key: name, Value: value})
		if _, again := first[name]; !again {
			first[name] = value
		}
	}
	if !slices.Equal(users, q.Properties.User) {
		t.Errorf("user properties %q, and paho has %q", users, q.Properties.User)
	}
	for name, want := range first {
		if value, ok := p.UserProperty(name); !ok || value != want {
			t.Errorf("UserProperty(%q) = %q, %t, want %q", name, value, ok, want)
		}
	}
}

// FuzzControl does the same for all other packets.
func FuzzControl(f *testing.F) {
	for _, b := range append(controlSeeds(), hostileSeeds(false)...) {
		f.Add(b[0], afterHeader(b))
	}
	f.Fuzz(func(t *testing.T, first byte, body []byte) {
		if Type(first>>4) == PUBLISH || len(body) > maxVarint {
			t.Skip()
		}
		frame := packet(first, body)
		fr := whole(t, frame)
		cp, pahos := packets.ReadPacket(bytes.NewReader(frame))
		if ours := CheckControl(fr); ours != nil {
			checkRefusal(t, frame, ours, pahos)
			return
		}
		if pahos != nil {
			// 3.14.2.1: a DISCONNECT may be empty, and paho does not know it.
			if fr.Type() == DISCONNECT && len(body) == 0 {
				return
			}
			t.Fatalf("% x is taken and paho refuses it: %v", frame, pahos)
		}
		compareControl(t, fr, cp)
	})
}

func compareControl(t *testing.T, f Frame, cp *packets.ControlPacket) {
	t.Helper()
	same(t, "type", f.Type(), Type(cp.Type))
	switch q := cp.Content.(type) {
	case *packets.Connack:
		c, err := ParseConnack(f)
		if err != nil {
			t.Fatal(err)
		}
		compareConnack(t, c, q)
	case *packets.Pubrel:
		id, code, err := ParsePubrel(f)
		if err != nil {
			t.Fatal(err)
		}
		same(t, "Packet Identifier", id, q.PacketID)
		same(t, "code", code, q.ReasonCode)
	case *packets.Disconnect:
		d, err := ParseDisconnect(f)
		if err != nil {
			t.Fatal(err)
		}
		same(t, "disconnect", d, Disconnect{q.ReasonCode, q.Properties.ReasonString, q.Properties.ServerReference})
	case *packets.Puback:
		compareAck(t, f, q.PacketID, q.ReasonCode)
	case *packets.Pubrec:
		compareAck(t, f, q.PacketID, q.ReasonCode)
	case *packets.Pubcomp:
		compareAck(t, f, q.PacketID, q.ReasonCode)
	case *packets.Suback:
		same(t, "any codes", len(q.Reasons) > 0, true)
		same(t, "codes", bytes.HasSuffix(f.Bytes, q.Reasons), true)
	case *packets.Unsuback:
		same(t, "any codes", len(q.Reasons) > 0, true)
		same(t, "codes", bytes.HasSuffix(f.Bytes, q.Reasons), true)
	}
}

func compareAck(t *testing.T, f Frame, id uint16, code byte) {
	t.Helper()
	same(t, "Packet Identifier", binary.BigEndian.Uint16(f.Bytes[f.Header:]), id)
	if len(f.Bytes) > f.Header+2 {
		same(t, "code", f.Bytes[f.Header+2], code)
	} else {
		same(t, "code", 0, code)
	}
}

func compareConnack(t *testing.T, c Connack, q *packets.Connack) {
	t.Helper()
	p := q.Properties
	same(t, "CONNACK", c, Connack{
		SessionPresent: q.SessionPresent, Code: q.ReasonCode,
		SessionExpiry: or(p.SessionExpiryInterval, 0), HasSessionExpiry: p.SessionExpiryInterval != nil,
		ReceiveMaximum: or(p.ReceiveMaximum, 65535), MaximumQoS: or(p.MaximumQOS, 2), MaximumPacketSize: or(p.MaximumPacketSize, 0),
		TopicAliasMaximum: or(p.TopicAliasMaximum, 0), ServerKeepAlive: or(p.ServerKeepAlive, 0), HasServerKeepAlive: p.ServerKeepAlive != nil,
		RetainAvailable: or(p.RetainAvailable, 1) == 1, WildcardAvailable: or(p.WildcardSubAvailable, 1) == 1,
		SubscriptionIDAvailable: or(p.SubIDAvailable, 1) == 1, SharedAvailable: or(p.SharedSubAvailable, 1) == 1,
		AssignedClientID: p.AssignedClientID, AuthMethod: p.AuthMethod,
		HasAuthMethod: p.AuthMethod != "" || c.HasAuthMethod, // paho does not tell one that is empty from none
		Reason:        p.ReasonString, ServerReference: p.ServerReference,
	})
}

// All fuzz tests are to be run with -fuzzminimizetime=1s or so: at its default the fuzzer shortens each
// interesting input for a minute.

// FuzzScanner holds the Scanner, fed in any pieces into chunks of any size, against the plain reading of
// the whole in reference_test.go: the same frames, the same error, and no memory beyond what has come.
func FuzzScanner(f *testing.F) {
	_, all := stream()
	f.Add(all[:400], uint64(1), uint16(0), uint16(100), uint16(100))
	f.Add(all[:3000], uint64(2), uint16(512), uint16(300), uint16(200))
	f.Add([]byte("\x30\xff\xff\xff\x7f\x00\x01a\x00x"), uint64(3), uint16(512), uint16(0), uint16(0))
	f.Add([]byte("\x20\xff\xff\xff\x7f"), uint64(4), uint16(0), uint16(0), uint16(0))
	f.Add([]byte("\xd0\x00\xd0\x80\x00"), uint64(5), uint16(1), uint16(5), uint16(5))
	for i, b := range append(publishSeeds(), controlSeeds()...) {
		f.Add(append(b, b...), uint64(i), uint16(i%3*700), uint16(i%20), uint16(i%30))
	}
	f.Fuzz(func(t *testing.T, data []byte, seed uint64, chunk, maxPayload, maxControl uint16) {
		l := Limits{MaxPayload: int(maxPayload), MaxControl: int(maxControl), Chunk: int(chunk)}
		want, wantErr := reference(data, l)
		rnd := rand.New(rand.NewPCG(seed, 0))
		s := NewScanner(&ragged{bytes.NewReader(data), rnd, 1 << (1 + seed%12)}, l)
		before := allocated()
		var got []Frame
		var err error
		for err == nil {
			var f Frame
			if f, err = s.Next(); err == nil {
				got = append(got, f)
			}
		}
		if n := allocated() - before; n > uint64(4<<20+16*len(data)) {
			t.Errorf("%d bytes allocated for %d", n, len(data))
		}
		if fmt.Sprint(err) != fmt.Sprint(wantErr) {
			t.Errorf("ends with %v, want %v", err, wantErr)
		}
		if len(got) != len(want) {
			t.Fatalf("%d frames, want %d", len(got), len(want))
		}
		for i := range got {
			if !bytes.Equal(got[i].Bytes, want[i].Bytes) || got[i].Header != want[i].Header || got[i].Oversize != want[i].Oversize || got[i].Bare != want[i].Bare {
				t.Errorf("frame %d: got %+v, want %+v", i, got[i], want[i])
			}
			use(got[i])
		}
	})
}

// use reads all that a frame can be asked for, which must not panic.
func use(f Frame) {
	var p Publish
	if ParsePublish(f, &p) == nil {
		p.SubscriptionIDs()(func(uint32) bool { return true })
		p.UserProperties()(func(string, string) bool { return true })
	}
	_ = CheckControl(f)
	_, _ = ParseConnack(f)
	_, _ = ParseDisconnect(f)
	_, _, _ = ParsePubrel(f)
}

// allocated is the number of bytes that this process has allocated so far.
func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
