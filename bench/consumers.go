package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"runtime/pprof"
	"syscall"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"
	"github.com/rs/zerolog"

	"github.com/settlemq/settle"
)

// meter counts deliveries and takes the time from the first to the last. It is for one goroutine at a time.
type meter struct {
	want, got int
	began     time.Time
	cpu       time.Duration
	mallocs   uint64
	done      chan result
}

func newMeter(want int) *meter { return &meter{want: want, done: make(chan result, 1)} }

func (m *meter) count() {
	if m.got == 0 {
		m.began, m.cpu, m.mallocs = time.Now(), userTime(), mallocs()
	}
	m.got++
	if m.got == m.want {
		m.done <- result{Messages: m.want, Took: time.Since(m.began), CPU: userTime() - m.cpu, Mallocs: mallocs() - m.mallocs}
	}
}

func userTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano())
}

func mallocs() uint64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.Mallocs
}

// decode is the work that every consumer does with a message.
func decode(payload []byte) error {
	var r report
	return json.Unmarshal(payload, &r)
}

// consume is one consumer, in a process of its own. It works off its backlog and makes sure that nothing is left of it.
func consume(name, server string, messages int, profile string) error {
	if profile != "" {
		f, err := os.Create(profile)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	consumers := map[string]func(context.Context, string, *meter) error{"paho": viaPaho, "settle": viaSettle, "loop": byHand}
	consumer, ok := consumers[name]
	if !ok {
		return fmt.Errorf("there is no consumer %q", name)
	}
	m := newMeter(messages)
	if err := consumer(ctx, server, m); err != nil {
		return err
	}
	left, err := leftOver(ctx, server, name)
	if err != nil {
		return err
	}
	if left {
		return errors.New("messages were left unacknowledged")
	}
	return json.NewEncoder(os.Stdout).Encode(<-m.done)
}

// viaPaho is paho.golang as it comes: it acknowledges by itself when the callback returns.
func viaPaho(ctx context.Context, server string, m *meter) error {
	finished := make(chan struct{})
	client, err := connect(ctx, server, clientIDOf("paho"), false, func(p paho.PublishReceived) (bool, error) {
		if err := decode(p.Packet.Payload); err != nil {
			panic(err)
		}
		if m.count(); m.got == m.want {
			close(finished)
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	select {
	case <-finished:
	case <-ctx.Done():
		return ctx.Err()
	}
	time.Sleep(100 * time.Millisecond) // its last acknowledgement is written after the callback, and cannot be waited for
	return client.Disconnect(&paho.Disconnect{})
}

// viaSettle is Settle as it comes, with one lane.
func viaSettle(ctx context.Context, server string, m *meter) error {
	finished := make(chan struct{})
	app, err := settle.New(
		settle.Config{ClientID: clientIDOf("settle"), Servers: []string{server}, ReceiveMaximum: receiveMaximum, Logger: zerolog.New(os.Stderr).Level(zerolog.ErrorLevel)},
		settle.Handle(topicOf("settle"), func(_ context.Context, _ report) settle.Outcome {
			if m.count(); m.got == m.want {
				close(finished)
			}
			return settle.Ack()
		}))
	if err != nil {
		return err
	}
	if err := app.Start(ctx); err != nil {
		return err
	}
	select {
	case <-finished:
	case <-ctx.Done():
		return ctx.Err()
	}
	return app.Stop(ctx)
}

// byHand is what somebody would write for this one case: read, decode, acknowledge what one read of the socket held, at once. It is
// the limit of what a library can reach.
func byHand(ctx context.Context, server string, m *meter) error {
	conn, err := dial(ctx, server)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	p := connectPacket(clientIDOf("loop"), false).Packet()
	p.ProtocolName, p.ProtocolVersion = "MQTT", 5
	if _, err := p.WriteTo(conn); err != nil {
		return err
	}
	in := bufio.NewReaderSize(conn, 64<<10)
	var acks []byte
	for m.got < m.want {
		if in.Buffered() < 5 && len(acks) > 0 {
			if _, err := conn.Write(acks); err != nil {
				return err
			}
			acks = acks[:0]
		}
		first, err := in.ReadByte()
		if err != nil {
			return err
		}
		remaining, err := binary.ReadUvarint(in) // it is encoded in the same way
		if err != nil {
			return err
		}
		length := int(remaining) //nolint:gosec // at most 268,435,455
		frame, err := in.Peek(length)
		if err != nil {
			return err
		}
		if first>>4 == packets.PUBLISH {
			topic := int(binary.BigEndian.Uint16(frame))
			id := frame[2+topic : 4+topic]
			properties, n := binary.Uvarint(frame[4+topic:])
			if err := decode(frame[4+topic+n+int(properties):]); err != nil { //nolint:gosec // shorter than its frame
				return err
			}
			m.count()
			acks = append(acks, packets.PUBACK<<4, 2, id[0], id[1])
		}
		if _, err := in.Discard(length); err != nil {
			return err
		}
	}
	if _, err := conn.Write(append(acks, packets.DISCONNECT<<4, 0)); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, in)
	return err
}

// leftOver says whether the server still has messages for the consumer.
func leftOver(ctx context.Context, server, name string) (bool, error) {
	arrived := make(chan struct{}, receiveMaximum)
	client, err := connect(ctx, server, clientIDOf(name), false, func(paho.PublishReceived) (bool, error) {
		select {
		case arrived <- struct{}{}:
		default:
		}
		return true, nil
	})
	if err != nil {
		return false, err
	}
	// What is left comes right behind CONNACK, so before the answer to anything that is asked now.
	if _, err := client.Subscribe(ctx, subscription(name)); err != nil {
		return false, err
	}
	return len(arrived) > 0, client.Disconnect(&paho.Disconnect{})
}

func dial(ctx context.Context, server string) (net.Conn, error) {
	host, err := hostOf(server)
	if err != nil {
		return nil, err
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", host)
}
