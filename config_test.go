package settle

import (
	"bytes"
	"math"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

func TestConfigDefaults(t *testing.T) {
	c := Config{}.withDefaults()
	for _, d := range []struct {
		field     string
		got, want any
	}{
		{"SessionExpiry", c.SessionExpiry, time.Hour},
		{"ReceiveMaximum", c.ReceiveMaximum, 1000},
		{"KeepAlive", c.KeepAlive, 30 * time.Second},
		{"MaxPayload", c.MaxPayload, 1 << 20},
		{"UnsettledBytes", c.UnsettledBytes, 256 << 20},
		{"QoS0Queue", c.QoS0Queue, 10_000},
		{"QoS0Bytes", c.QoS0Bytes, 16 << 20},
		{"RetryBacklog", c.RetryBacklog, 500},
		{"RetryReceiveMaximum", c.RetryReceiveMaximum, 65_535},
		{"DialTimeout", c.DialTimeout, 10 * time.Second},
		{"ShutdownTimeout", c.ShutdownTimeout, 10 * time.Second},
		{"Redelivery", c.Redelivery, Adopt},
		{"Codecs", len(c.Codecs), 1},
		{"Logger", c.Logger.GetLevel(), zerolog.WarnLevel},
	} {
		if d.got != d.want {
			t.Errorf("%s: %v, want %v", d.field, d.got, d.want)
		}
	}
	large := Config{MaxPayload: 268_435_455}.withDefaults()
	if large.QoS0Bytes != 268_435_455 || large.UnsettledBytes != 256<<20 {
		t.Errorf("bounds below the largest payload: %d, %d", large.QoS0Bytes, large.UnsettledBytes)
	}
}

func TestOwnLoggerIsKept(t *testing.T) {
	var out bytes.Buffer
	c := Config{Logger: zerolog.New(&out)}.withDefaults()
	c.Logger.Info().Msg("x")
	if out.Len() == 0 {
		t.Error("the logger was replaced")
	}
	if c := (Config{Logger: zerolog.Nop()}).withDefaults(); c.Logger.GetLevel() != zerolog.Disabled {
		t.Error("zerolog.Nop() is not silence")
	}
}

func TestConfigOnTheWire(t *testing.T) {
	for _, c := range []struct {
		expiry time.Duration
		want   uint32
		keeps  bool
	}{
		{-1, 0, false}, {0, 3600, true}, {time.Second, 1, true}, {1500 * time.Millisecond, 2, true}, {math.MaxUint32 * time.Second, math.MaxUint32, true},
	} {
		cfg := Config{SessionExpiry: c.expiry}.withDefaults()
		if got := cfg.sessionSeconds(); got != c.want || cfg.keepsSession() != c.keeps {
			t.Errorf("%s: %d, %v", c.expiry, got, cfg.keepsSession())
		}
	}
	for d, want := range map[time.Duration]uint16{0: 30, time.Second: 1, 1500 * time.Millisecond: 2, 65_535 * time.Second: 65_535} {
		cfg := Config{KeepAlive: d}.withDefaults()
		if got := cfg.keepAliveSeconds(); got != want {
			t.Errorf("KeepAlive %s: %d", d, got)
		}
	}
}

func TestServersAreParsedInOrder(t *testing.T) {
	cfg := Config{Servers: []string{"mqtt://a", "bad", "wss://b:444/mqtt"}}
	got := cfg.servers()
	if len(got) != 2 || got[0].Host != "a" || got[1].Host != "b:444" || got[1].Path != "/mqtt" {
		t.Errorf("%v", got)
	}
	cfg = Config{Servers: []string{"unix:///run/x.sock"}, Dial: noDial}
	if got := cfg.servers(); len(got) != 1 || got[0].Path != "/run/x.sock" {
		t.Errorf("%v", got)
	}
}

func TestRedeliveryString(t *testing.T) {
	if got := Adopt.String() + ", " + HandleAgain.String() + ", " + Redelivery(9).String(); got != "adopt, handle again, invalid" {
		t.Error(got)
	}
}
