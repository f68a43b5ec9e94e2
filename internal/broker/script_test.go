package broker

import (
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eclipse/paho.golang/packets"
)

func TestScript(t *testing.T) {
	b := New(Options{})
	defer b.Close()
	client, s := b.Script()
	defer func() { _ = client.Close() }()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		first := encoded(connecting("c"))
		_, _ = client.Write(append(first, PINGREQ<<4, 0, DISCONNECT<<4)) // the last one in part
		_, _ = client.Write([]byte{0})
		_, _ = client.Write([]byte{PINGREQ << 4})
		_ = client.(interface{ CloseWrite() error }).CloseWrite()
	}()
	if id := s.ClientID(); id != "" {
		t.Errorf("%q before CONNECT", id)
	}
	for _, want := range []byte{CONNECT, PINGREQ, DISCONNECT} {
		p, err := s.Next()
		if err != nil || p.Type != want {
			t.Fatalf("%s, %v; want %s", TypeName(p.Type), err, TypeName(want))
		}
		if cp, err := p.Decode(); err != nil || cp.Type != want {
			t.Errorf("%v, %v", cp, err)
		}
	}
	if _, err := s.Next(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("within a packet: %v", err)
	}
	<-sent
	if id := s.ClientID(); id != "c" {
		t.Errorf("the Client Identifier is %q", id)
	}
	read := make(chan []byte)
	go func() {
		got := make([]byte, 100)
		n, _ := client.Read(got)
		read <- got[:n]
	}()
	raw := append(encoded(&packets.Pingresp{}), 0xFF, 0xFF)
	if err := s.Send(raw); err != nil {
		t.Error(err)
	}
	if got := <-read; !slices.Equal(got, raw) {
		t.Errorf("%x, want %x in one segment", got, raw)
	}
	var lines []string
	for _, line := range b.WireLog("c") {
		_, line, _ = strings.Cut(line, "s ")
		word, _, _ := strings.Cut(line[2:], " ")
		lines = append(lines, line[:2]+word)
	}
	if want := []string{"- connection", "> CONNECT", "> PINGREQ", "> DISCONNECT", "- reading", "< PINGRESP", "- 2"}; !slices.Equal(lines, want) {
		t.Errorf("the wire log has %q, want %q", lines, want)
	}
	if _, there := b.Session("c"); there {
		t.Error("a script has made a session")
	}
}

// A script that stops reading stops to the byte: a client whose one Write has more than the packet that was asked for is held up.
func TestScriptReadsNoFurther(t *testing.T) {
	for _, size := range []int{0, 100, 1000, 100_000} {
		synctest.Test(t, func(t *testing.T) {
			b := New(Options{})
			defer b.Close()
			client, s := b.Script()
			packet := encoded(pub("a", 1, 1, strings.Repeat("x", size)))
			wrote := make(chan error, 1)
			go func() {
				_, err := client.Write(slices.Concat(packet, packet, encoded(&packets.Pingreq{}), []byte{PINGREQ << 4}))
				wrote <- err
			}()
			for _, want := range []int{len(packet), len(packet), 2} {
				if p, err := s.Next(); err != nil || len(p.Bytes) != want {
					t.Fatalf("%d bytes, %v; want %d", len(p.Bytes), err, want)
				}
				synctest.Wait()
				if len(wrote) != 0 {
					t.Fatal("a Write has ended of which something was not asked for")
				}
			}
			_ = s.SetReadDeadline(time.Now().Add(time.Second))
			if _, err := s.Next(); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%v for a packet that does not come to its end", err)
			}
			if err := <-wrote; err != nil {
				t.Error(err)
			}
			_ = s.SetReadDeadline(time.Time{})
			go func() {
				_, err := client.Write([]byte{0, PINGREQ << 4})
				wrote <- err
			}()
			if p, err := s.Next(); err != nil || p.Type != PINGREQ {
				t.Errorf("%s, %v: what a deadline cuts short is not lost", TypeName(p.Type), err)
			}
			synctest.Wait()
			if len(wrote) != 0 {
				t.Error("the end of a packet brought the beginning of another")
			}
			_ = client.Close()
		})
	}
}

// A script is one connection of a server that serves others.
func TestScriptBesideService(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, b *Broker) {
		client, s := b.Script()
		go func() { _, _ = client.Write(encoded(connecting("scripted"))) }()
		if p, err := s.Next(); err != nil || p.Type != CONNECT {
			t.Fatalf("%s, %v", TypeName(p.Type), err)
		}
		c := subscribed(t, b, "served", "a")
		publishAs(t, b, "a", 1, 1, 1)
		c.expectPublish("m1", 1, false)
		if got := b.Sessions(); slices.Contains(got, "scripted") || !slices.Contains(got, "served") {
			t.Errorf("the server has the sessions %q", got)
		}
		_ = s.SetWriteDeadline(time.Now().Add(time.Second))
		if err := s.Send(encoded(&packets.Pingresp{})); !errors.Is(err, os.ErrDeadlineExceeded) { // nobody reads it
			t.Error(err)
		}
		_ = s.Close()
		_ = s.Close()
		log := b.WireLog("scripted")
		for i, want := range []string{"connection opened, served by a script", "> CONNECT", "< PINGRESP", "0 of 2 bytes were written", "closed by the script"} {
			if i >= len(log) || !strings.Contains(log[i], want) {
				t.Fatalf("the wire log has no %q at line %d:\n%s", want, i, strings.Join(log, "\n"))
			}
		}
		if len(log) != 5 {
			t.Errorf("%d lines:\n%s", len(log), strings.Join(log, "\n"))
		}
	})
}

func TestScriptOfWhatIsNoPacket(t *testing.T) {
	b := New(Options{})
	defer b.Close()
	client, s := b.Script()
	go func() { _, _ = client.Write([]byte{PUBLISH << 4, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}) }()
	if _, err := s.Next(); err == nil || !strings.Contains(err.Error(), "Remaining Length") {
		t.Errorf("%v", err)
	}
	_ = s.Close()
}
