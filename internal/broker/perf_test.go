package broker

import (
	"bufio"
	"fmt"
	"net"
	"runtime"
	"testing"

	"github.com/eclipse/paho.golang/packets"
)

// BenchmarkQoS1 is a publisher, the server and a subscriber that acknowledges each message, over unbuffered pipes.
func BenchmarkQoS1(b *testing.B) {
	server := New(Options{QueueLimit: 10_000_000})
	defer server.Close()
	dial := func(id string) net.Conn {
		nc, err := server.Dial(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		_, _ = connecting(id).WriteTo(nc)
		if _, err := packets.ReadPacket(nc); err != nil {
			b.Fatal(err)
		}
		return nc
	}
	sub, pubc := dial("s"), dial("p")
	defer func() { _, _ = sub.Close(), pubc.Close() }()
	_, _ = (&packets.Subscribe{PacketID: 1, Subscriptions: []packets.SubOptions{{Topic: "a/b", QoS: 1}}, Properties: &packets.Properties{}}).WriteTo(sub)
	if _, err := packets.ReadPacket(sub); err != nil {
		b.Fatal(err)
	}
	payload := make([]byte, 512)
	b.ResetTimer()
	go func() { // acknowledgements of the publisher are read and ignored
		buf := make([]byte, 64<<10)
		for {
			if _, err := pubc.Read(buf); err != nil {
				return
			}
		}
	}()
	go func() {
		var batch []byte
		id := uint16(0)
		for i := range b.N {
			if id++; id == 60_000 {
				id = 1
			}
			batch = appendPublish(batch, &message{topic: "a/b", payload: payload}, 1, false, false, id, nil, server.start)
			if len(batch) > 16<<10 || i == b.N-1 {
				if _, err := pubc.Write(batch); err != nil {
					return
				}
				batch = batch[:0]
			}
		}
	}()
	r := bufio.NewReaderSize(sub, 64<<10)
	acks := make(chan []byte, 1000)
	go func() {
		for a := range acks {
			for more := true; more; {
				select {
				case next, ok := <-acks:
					if ok {
						a = append(a, next...)
					} else {
						more = false
					}
				default:
					more = false
				}
			}
			_, _ = sub.Write(a)
		}
	}()
	var run []byte
	frame := make([]byte, 2048)
	for range b.N {
		n := 0
		for n < 3 {
			frame[n], _ = r.ReadByte()
			n++
		}
		length, _ := varint(frame[1:3])
		for read := 0; read < int(length); {
			k, err := r.Read(frame[3+read : 3+int(length)])
			if err != nil {
				b.Error(err)
				return
			}
			read += k
		}
		at := 3 + 2 + 3
		run = append(run, PUBACK<<4, 2, frame[at], frame[at+1])
		if r.Buffered() == 0 {
			acks <- run
			run = nil
		}
	}
	if run != nil {
		acks <- run
	}
	close(acks)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
}

// Ten thousand idle clients, connected, with a subscription each, in less than 50 MB.
func TestIdleMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("not with -short: ten thousand connections")
	}
	const n, limit = 10_000, 50 << 20
	b := New(Options{})
	defer b.Close()
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	conns := make([]net.Conn, n)
	var buf [256]byte
	for i := range conns {
		nc, err := b.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		conns[i] = nc
		_, _ = nc.Write(encoded(connecting(fmt.Sprintf("client-%d", i), expiry(60))))
		_, _ = nc.Read(buf[:])
		_, _ = nc.Write(encoded(&packets.Subscribe{PacketID: 1, Subscriptions: []packets.SubOptions{{Topic: "a/" + fmt.Sprintf("client-%d", i), QoS: 1}}, Properties: &packets.Properties{}}))
		_, _ = nc.Read(buf[:])
	}
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&after)
	used := int64(after.HeapInuse+after.StackInuse) - int64(before.HeapInuse+before.StackInuse)
	t.Logf("%d idle clients: %d MB, heap %d, stacks %d bytes a client", n, used>>20,
		(int64(after.HeapInuse)-int64(before.HeapInuse))/n, (int64(after.StackInuse)-int64(before.StackInuse))/n)
	if used > limit {
		t.Errorf("%d bytes", used)
	}
	for _, nc := range conns {
		_ = nc.Close()
	}
}
