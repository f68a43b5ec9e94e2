package broker

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

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
	if want := []string{"- connection", "> CONNECT", "> PINGREQ", "> DISCONNECT", "< PINGRESP", "- 2"}; !slices.Equal(lines, want) {
		t.Errorf("the wire log has %q, want %q", lines, want)
	}
	if _, there := b.Session("c"); there {
		t.Error("a script has made a session")
	}
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
