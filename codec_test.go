package settle

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// fakeCodec stands for a content type and marks what it encoded.
type fakeCodec string

func (c fakeCodec) ContentType() string         { return string(c) }
func (c fakeCodec) Marshal(any) ([]byte, error) { return []byte(c), nil }
func (c fakeCodec) Unmarshal(_ []byte, v any) error {
	if s, ok := v.(*string); ok {
		*s = string(c)
	}
	return nil
}

type pointerCodec struct{ fakeCodec }

// halfCodec writes into the value before it fails.
type halfCodec struct{ fakeCodec }

func (halfCodec) Unmarshal(_ []byte, v any) error {
	*v.(*string) = "half"
	return errors.New("the other half is missing")
}

func TestForContent(t *testing.T) {
	three := newCodecs([]Codec{fakeCodec("application/cbor"), JSON(), fakeCodec("application/special+json")})
	cborAlone := newCodecs([]Codec{fakeCodec("application/cbor")})
	standard := newCodecs(nil)
	for _, c := range []struct {
		codecs                *codecs
		contentType, encoding string
		want                  string // "" for an error
	}{
		{&standard, "", "", "application/json"},
		{&standard, "application/json", "", "application/json"},
		{&standard, "APPLICATION/Json", "", "application/json"},
		{&standard, "application/json; charset=utf-8", "", "application/json"},
		{&standard, " application/json ;charset=utf-8", "", "application/json"},
		{&standard, "application/vnd.meter+json", "", "application/json"},
		{&standard, "application/vnd.meter+JSON;v=1", "", "application/json"},
		{&standard, "application/cbor", "", ""},
		{&standard, "text/plain", "application/json", ""}, // what the message says goes before what the route says
		{&standard, "json", "", ""},
		{&three, "", "", "application/cbor"},
		{&three, "", "application/json", "application/json"},
		{&three, "application/cbor", "application/json", "application/cbor"},
		{&three, "application/special+json", "", "application/special+json"},
		{&three, "application/other+json", "", "application/json"},
		{&cborAlone, "application/x+json", "", ""},
		{&cborAlone, "application/json", "", ""},
	} {
		codec, err := c.codecs.forContent(c.contentType, c.encoding)
		switch {
		case c.want == "" && (err == nil || !strings.Contains(err.Error(), "no codec for the content type")):
			t.Errorf("%q, %q: %v, %v", c.contentType, c.encoding, codec, err)
		case c.want != "" && (err != nil || codec.ContentType() != c.want):
			t.Errorf("%q, %q: %v, %v, want %s", c.contentType, c.encoding, codec, err, c.want)
		}
	}
}

type (
	reading struct{ Watts int }
	frame   []byte
	nibble  byte
	nibbles []nibble
)

// selfmade is a byte slice that unmarshals itself.
type selfmade []byte

func (s *selfmade) UnmarshalJSON([]byte) error  { *s = selfmade("unmarshalled"); return nil }
func (s selfmade) MarshalJSON() ([]byte, error) { return []byte(`"marshalled"`), nil }

func decoded1[T any](spec *routeSpec, contentType, payload string, list ...Codec) (T, error) {
	c := newCodecs(list)
	var value T
	err := decoderFor[T]()(&c, spec, bareDelivery("r", contentType, []byte(payload)), &value)
	return value, err
}

func TestDecode(t *testing.T) {
	plain, empty := new(routeSpec), &routeSpec{allowEmpty: true}

	if v, err := decoded1[reading](plain, "", `{"Watts":230}`); v.Watts != 230 || err != nil {
		t.Error(v, err)
	}
	if v, err := decoded1[*reading](plain, "", `{"Watts":230}`); v == nil || v.Watts != 230 || err != nil {
		t.Error(v, err)
	}
	if v, err := decoded1[reading](empty, "", ""); v.Watts != 0 || err != nil {
		t.Error(v, err)
	}
	if v, err := decoded1[*reading](empty, "unknown/type", ""); v != nil || err != nil {
		t.Error(v, err)
	}
	if v, err := decoded1[[]int](plain, "", "null"); v != nil || err != nil {
		t.Error("null is a slice", v, err)
	}
	if v, err := decoded1[string](&routeSpec{encoding: "a/b"}, "", "x", JSON(), fakeCodec("a/b")); v != "a/b" || err != nil {
		t.Error(v, err)
	}

	// Bytes are untouched, whatever the content type, and may be empty.
	if v, err := decoded1[[]byte](plain, "unknown/type", "{\x80"); string(v) != "{\x80" || err != nil {
		t.Error(v, err)
	}
	if v, err := decoded1[frame](plain, "application/json", "{\x80"); string(v) != "{\x80" || err != nil {
		t.Error(v, err)
	}
	if v, err := decoded1[frame](plain, "", ""); len(v) != 0 || err != nil {
		t.Error(v, err)
	}
	if v, err := decoded1[selfmade](plain, "", "{}"); string(v) != "unmarshalled" || err != nil {
		t.Error(v, err)
	}
	if v, err := decoded1[json.RawMessage](plain, "", `{"a": 1}`); string(v) != `{"a": 1}` || err != nil {
		t.Error(v, err)
	}
	if _, err := decoded1[json.RawMessage](plain, "", `{`); err == nil {
		t.Error("json.RawMessage is JSON, and its syntax is checked")
	}
	if v, err := decoded1[nibbles](plain, "", `[1,2]`); len(v) != 2 || err != nil {
		t.Error("a slice of a type made of byte is not raw", v, err)
	}
}

// F1 and F2: what does not decode is a DecodeError that carries the delivery, keeps its bytes to itself, and leaves the zero value.
func TestF1F2DecodeFailures(t *testing.T) {
	for name, c := range map[string]struct {
		decode func() (any, error)
		reason string
	}{
		"syntax":       {func() (any, error) { return decoded1[reading](new(routeSpec), "", `{"Watts": secret}`) }, "no JSON at byte 11"},
		"not UTF-8":    {func() (any, error) { return decoded1[reading](new(routeSpec), "", "\x80") }, "no JSON at byte 1"},
		"type":         {func() (any, error) { return decoded1[reading](new(routeSpec), "", `{"Watts":"secret"}`) }, "another JSON type than wanted at byte 17"},
		"trailing":     {func() (any, error) { return decoded1[reading](new(routeSpec), "", `{"Watts":1} secret`) }, "no JSON at byte 13"},
		"content type": {func() (any, error) { return decoded1[reading](new(routeSpec), "text/csv", `1,2`) }, `no codec for the content type "text/csv"`},
		"empty":        {func() (any, error) { return decoded1[reading](new(routeSpec), "", "") }, "the payload is empty: AllowEmpty"},
		"half":         {func() (any, error) { return decoded1[string](new(routeSpec), "", "x", halfCodec{"a/b"}) }, "does not decode as string"},
	} {
		t.Run(name, func(t *testing.T) {
			v, err := c.decode()
			var failure *DecodeError
			if !errors.As(err, &failure) || failure.Delivery.Route() != "r" || failure.Err == nil {
				t.Fatalf("%#v", err)
			}
			if !strings.Contains(err.Error(), c.reason) || strings.Contains(err.Error(), "secret") {
				t.Error(err)
			}
			if v != any(reading{}) && v != any("") {
				t.Errorf("not the zero value: %v", v)
			}
		})
	}
	if v, err := decoded1[*reading](new(routeSpec), "", "null"); v != nil || err == nil || !strings.Contains(err.Error(), "as JSON null does") {
		t.Error("null into a pointer:", v, err)
	}
}

// The path from a payload to the handler of bytes copies and allocates nothing.
func TestDecodingBytesAllocatesNothing(t *testing.T) {
	c := newCodecs(nil)
	spec := new(routeSpec)
	d := bareDelivery("r", "application/json", []byte("payload"))
	raw, named := decoderFor[[]byte](), decoderFor[frame]()
	var (
		r []byte
		f frame
	)
	if n := testing.AllocsPerRun(100, func() {
		if raw(&c, spec, d, &r) != nil || named(&c, spec, d, &f) != nil {
			panic("bytes did not decode")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if &r[0] != &d.Payload()[0] || &f[0] != &d.Payload()[0] {
		t.Error("the payload was copied")
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = c.forContent("application/json", "") }); n != 0 {
		t.Errorf("finding the codec: %v allocations", n)
	}
}

func TestEncodeValue(t *testing.T) {
	c := newCodecs([]Codec{JSON(), fakeCodec("application/cbor")})
	for name, e := range map[string]struct {
		value             any
		encoding          string
		payload, typ, err string
	}{
		"struct":           {reading{1}, "", `{"Watts":1}`, "application/json", ""},
		"pointer":          {&reading{1}, "", `{"Watts":1}`, "application/json", ""},
		"nil pointer":      {(*reading)(nil), "", "null", "application/json", ""},
		"string":           {"x", "", `"x"`, "application/json", ""},
		"nil":              {nil, "", "", "", ""},
		"bytes":            {[]byte("x"), "", "x", "", ""},
		"labelled bytes":   {[]byte("x"), "text/plain", "x", "text/plain", ""},
		"named bytes":      {frame("x"), "", "x", "", ""},
		"nil bytes":        {[]byte(nil), "", "", "", ""},
		"selfmade":         {selfmade("x"), "", `"marshalled"`, "application/json", ""},
		"raw JSON":         {json.RawMessage(`{"a":1}`), "", `{"a":1}`, "application/json", ""},
		"other codec":      {reading{1}, "application/cbor", "application/cbor", "application/cbor", ""},
		"suffix":           {reading{1}, "application/meter+json", `{"Watts":1}`, "application/meter+json", ""},
		"no such codec":    {reading{1}, "text/csv", "", "", `no codec for the content type "text/csv"`},
		"cannot be JSON":   {make(chan int), "", "", "", "unsupported type"},
		"array, not bytes": {[2]byte{1, 2}, "", "[1,2]", "application/json", ""},
	} {
		payload, typ, err := encodeValue(&c, e.encoding, e.value)
		if string(payload) != e.payload || typ != e.typ || (err == nil) != (e.err == "") || err != nil && !strings.Contains(err.Error(), e.err) {
			t.Errorf("%s: %q, %q, %v", name, payload, typ, err)
		}
	}
}
