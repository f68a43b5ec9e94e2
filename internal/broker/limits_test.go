package broker

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/eclipse/paho.golang/packets"
)

// Packets of all sizes, in pieces of all sizes.
func TestPacketsComeInPieces(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, piece := range []int{1, 7, 300, 5000, 100_000} {
		bubble(t, Options{}, func(t *testing.T, b *Broker) {
			s := subscribed(t, b, "s", "a")
			c, _ := connectAs(t, b, "c")
			var stream []byte
			var want []int
			for total := 0; total < min(40*piece, 300_000); {
				n := r.IntN(20 * min(piece, 10_000))
				if len(want)%5 == 4 {
					n = r.IntN(10)
				}
				want = append(want, n)
				stream = append(stream, encoded(pub("a", 0, 0, strings.Repeat("x", n)))...)
				total += n + 5
			}
			for len(stream) > 0 {
				n := min(len(stream), 1+r.IntN(piece))
				c.raw(stream[:n])
				stream = stream[n:]
			}
			for i, n := range want {
				if p := expect[*packets.Publish](s); len(p.Payload) != n {
					t.Fatalf("pieces of %d: message %d has %d bytes, want %d", piece, i, len(p.Payload), n)
				}
			}
		})
	}
}

// A client that claims much and sends little takes little; what a large packet took is given back.
func TestReadBufferGrowsWithWhatComes(t *testing.T) {
	var i inbox
	for range 10 {
		copy(i.space(16<<20), "x")
	}
	if len(i.buf) != inboxMin {
		t.Errorf("%d bytes for a claim", len(i.buf))
	}
	for i.end < 1<<20 {
		i.end += len(i.space(1 << 20))
		if len(i.buf) > max(2*i.end, inboxMax) {
			t.Fatalf("%d bytes for %d", len(i.buf), i.end)
		}
	}
	i.start = i.end
	if i.space(0); len(i.buf) > inboxMax {
		t.Errorf("%d bytes are kept", len(i.buf))
	}
}

// A client that asks and does not read the answers is cut before they fill the memory.
func TestAnswersToWhoDoesNotRead(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, b *Broker) {
		nc, err := b.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = nc.Close() }()
		_, _ = nc.Write(encoded(connecting("c")))
		pings := bytes.Repeat([]byte{PINGREQ << 4, 0}, 10_000)
		written := 0
		for err == nil && written < 10*outLimit {
			var n int
			n, err = nc.Write(pings)
			written += n
		}
		if err == nil || written < outLimit/2 {
			t.Errorf("%d bytes of PINGREQ: %v", written, err)
		}
	})
}

// Messages for a client that does not read stay in their queue, and the queue within its limit.
func TestMessagesForWhoDoesNotRead(t *testing.T) {
	bubble(t, Options{QueueLimit: 5}, func(t *testing.T, b *Broker) {
		nc, err := b.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = nc.Close() }()
		_, _ = nc.Write(encoded(connecting("s"), &packets.Subscribe{
			PacketID: 1, Properties: &packets.Properties{}, Subscriptions: []packets.SubOptions{{Topic: "#", QoS: 1}},
		}))
		synctest.Wait()
		payload := bytes.Repeat([]byte("x"), 30_000)
		for range 20 {
			_, _ = b.Publish(Message{Topic: "zero", Payload: payload})
			_, _ = b.Publish(Message{Topic: "one", QoS: 1, Payload: payload})
		}
		info, _ := b.Session("s")
		if info.Queued != 10 || info.Unwritten > 2*highWater || int(info.Dropped)+info.Queued+info.Unwritten/len(payload) != 40 {
			t.Errorf("%+v", info)
		}
		c := newClient(t, nc) // reads at last
		for range 2 {
			c.next()
		}
		got := map[string]int{}
		for range 40 - info.Dropped {
			p := expect[*packets.Publish](c)
			if got[p.Topic]++; p.QoS == 1 {
				c.puback(p.PacketID)
			}
		}
		c.silent()
		if got["zero"] < 5 || got["one"] < 5 {
			t.Error(got)
		}
	})
}

// The logs of clients that have come and gone do not add up.
func TestWireLogsAreBounded(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, b *Broker) {
		connectAs(t, b, "stays")
		for i := range 3 * maxLogs {
			c, _ := connectAs(t, b, fmt.Sprint("goes", i), expiry(0))
			_ = c.Close()
			synctest.Wait()
		}
		if n := len(b.logs.byClient); n > maxLogs+2 || n != len(b.logs.order) {
			t.Errorf("%d logs, %d in order", n, len(b.logs.order))
		}
		if b.WireLog("stays") == nil || b.WireLog(fmt.Sprint("goes", 3*maxLogs-1)) == nil || b.WireLog("goes0") != nil {
			t.Error("the wrong ones are kept")
		}
	})
}

// A line is made of any bytes.
func TestDescribeTakesAnything(t *testing.T) {
	for _, raw := range [][]byte{
		{}, {0x30}, {0x30, 0xFF}, {0x30, 0xFF, 0xFF, 0xFF, 0xFF}, {0x30, 9, 0, 9, 'a'}, {0x32, 3, 0, 1, 'a'}, {0x10, 4, 0, 4, 'M', 'Q'}, {0x20, 0}, {0x82, 3, 0, 1, 9},
		{0x82, 5, 0, 1, 0, 0, 9}, {0xE0, 3, 0x82, 9, 0x1F}, {0x40, 5, 0, 1, 0, 1, 0x7F}, {0xF0, 7, 0x18, 5, 0x16, 0, 2, 's', 's'}, connectBytes("MQTT", 4, 0xC6, "", "\x00\x01c"),
	} {
		if line := describe(raw, len(raw)); strings.Contains(line, "ss") && raw[0] == 0xF0 || line == "" {
			t.Errorf("%x: %q", raw, line)
		}
		if len(raw) > 0 {
			p := inspect(raw)
			_, _ = p.Decode()
		}
	}
}
