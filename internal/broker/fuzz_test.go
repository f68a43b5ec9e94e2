package broker

import (
	"bytes"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"github.com/settlemq/settle/internal/hostile"
)

// FuzzServe sends arbitrary bytes, before CONNECT and behind one, to a server with a client that behaves. The server must neither panic nor leave
// anything behind, must answer in MQTT, must serve the other client as before, and must end a connection that it does not understand.
func FuzzServe(f *testing.F) {
	properties := &packets.Properties{}
	connect := encoded(connecting("c", withWill("a", 1)))
	for _, seed := range [][]byte{
		nil,
		{0xD0, 0},
		encoded(pub("a", 2, 1, "x"), &packets.Pubrel{PacketID: 1, Properties: properties}, pub("a", 1, 2, "y")),
		encoded(&packets.Subscribe{PacketID: 1, Subscriptions: []packets.SubOptions{{Topic: "#", QoS: 2}, {Topic: "$share/g/a", QoS: 1}}, Properties: properties}, pub("a", 2, 2, "x"), &packets.Pubrec{PacketID: 1, Properties: properties}, &packets.Pubcomp{PacketID: 1, Properties: properties}),
		encoded(&packets.Unsubscribe{PacketID: 1, Topics: []string{"#"}, Properties: properties}, &packets.Pingreq{}, &packets.Disconnect{}),
		publishBytes(3, "a", "\x00\x01", "\x01\x01\x02\x00\x00\x00\x01\x23\x00\x01\x26\x00\x01k\x00\x01v"),
		append(encoded(&packets.Disconnect{ReasonCode: 4}), connect...),
		{0x30, 0xFF, 0xFF, 0xFF, 0x7F, 0},
	} {
		f.Add(seed, true)
		f.Add(append(connect, seed...), false)
	}
	for i, c := range hostile.Cases(hostile.Client, "a") {
		if i%16 == 0 && len(c.Bytes) <= 200 { // some of them: internal/hostile sends all, and the fuzzer is to have time for others
			f.Add(c.Bytes, c.Packet.Type != CONNECT)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, connected bool) {
		synctest.Test(t, func(t *testing.T) {
			b := New(Options{TopicAliasMaximum: 2, MaxInflight: 3, QueueLimit: 10, MaximumPacketSize: 1 << 16})
			defer b.Close()
			good := subscribed(t, b, "good", "good")
			bad, err := b.Dial(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = bad.Close() }()
			var said bytes.Buffer
			heard := make(chan struct{})
			go func() {
				defer close(heard)
				_, _ = io.Copy(&said, bad)
			}()
			if connected {
				data = append(encoded(connecting("c", withWill("a", 1))), data...)
			}
			_ = bad.SetWriteDeadline(time.Now().Add(time.Hour))
			_, _ = bad.Write(data)
			synctest.Wait()
			b.WireLog("c")
			good.send(pub("good", 1, 1, "still here"))
			for range 2 { // the message and its PUBACK, among whatever else was published there
				for {
					cp := good.next()
					if cp == nil {
						t.Fatal("the other client was disconnected")
					}
					if p, ok := cp.Content.(*packets.Publish); !ok || string(p.Payload) == "still here" {
						break
					}
				}
			}
			_ = bad.Close()
			<-heard
			for said.Len() > 0 { // whatever it was, it is answered by whole packets
				if _, err := packets.ReadPacket(&said); err != nil {
					t.Fatalf("the server has said something that cannot be read: %v", err)
				}
			}
			synctest.Wait()
			for _, id := range b.Sessions() {
				if info, _ := b.Session(id); info.Connected && id != "good" {
					t.Errorf("%q is still connected: %+v", id, info)
				}
			}
		})
	})
}
