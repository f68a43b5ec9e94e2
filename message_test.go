package settle

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestMessageOptions(t *testing.T) {
	plain, err := newMessage("a/b", nil)
	if want := (message{topic: "a/b", qos: AtLeastOnce}); err != nil || !reflect.DeepEqual(plain, want) {
		t.Errorf("defaults: %+v, %v", plain, err)
	}

	data := []byte{1, 2}
	all, err := newMessage("a/b", []MessageOption{
		ExactlyOnce, Header("site", "north"), MessageID("1"), PartitionKey("k"), Header("site", "south"), Header("empty", ""), Retain(),
		Expiry(1500 * time.Millisecond), ContentType("text/plain"), ResponseTopic("answers/1"), CorrelationData(data), Encoding("application/json"), MessageID("2"),
	})
	data[0] = 9 // the caller's own again
	want := message{
		topic: "a/b", qos: ExactlyOnce, retain: true, expires: true, expiry: 2, contentType: "text/plain", responseTopic: "answers/1",
		correlation: []byte{1, 2}, encoding: "application/json", encodingSet: true,
		user: []userProperty{{"site", "north"}, {PartitionKeyHeader, "k"}, {"site", "south"}, {"empty", ""}, {MessageIDHeader, "2"}},
	}
	if err != nil || !reflect.DeepEqual(all, want) {
		t.Errorf("got  %+v, %v\nwant %+v", all, err, want)
	}
}

func TestInvalidMessages(t *testing.T) {
	long := strings.Repeat("x", 65_536)
	for name, c := range map[string]struct {
		topic  string
		option MessageOption
		reason string
	}{
		"no topic":          {"", AtLeastOnce, "the topic is empty"},
		"wildcard":          {"a/+", AtLeastOnce, "the topic contains a wildcard"},
		"topic not UTF-8":   {"a\xff", AtLeastOnce, "the topic is not valid UTF-8"},
		"nil option":        {"a", nil, "an option is nil"},
		"QoS":               {"a", QoS(3), "QoS(3)"},
		"own header":        {"a", Header("settle-attempt", "1"), `the header "settle-attempt" is one of ours`},
		"own header, upper": {"a", Header("Settle-Attempt", "1"), "is one of ours"},
		"no header name":    {"a", Header("", "1"), "a header has no name"},
		"header value":      {"a", Header("h", "a\x00"), "the header h contains U+0000"},
		"header name":       {"a", Header("h\xff", "a"), "a header's name is not valid UTF-8"},
		"long header":       {"a", Header("h", long), "the header h has 65536 bytes"},
		"key":               {"a", PartitionKey("\xff"), "the header partition-key is not valid UTF-8"},
		"message id":        {"a", MessageID("\x00"), "the header message-id contains U+0000"},
		"content type":      {"a", ContentType("\xff"), "the content type is not valid UTF-8"},
		"response topic":    {"a", ResponseTopic("a/#"), "the response topic contains a wildcard"},
		"no response topic": {"a", ResponseTopic(""), "the response topic is empty"},
		"correlation data":  {"a", CorrelationData([]byte(long)), "has 65536 bytes"},
		"no expiry":         {"a", Expiry(0), "an expiry of 0s"},
		"negative expiry":   {"a", Expiry(-time.Second), "an expiry of -1s"},
		"endless expiry":    {"a", Expiry(math.MaxUint32*time.Second + 1), "at most 4294967295 s"},
		"first fault is it": {"", QoS(3), "the topic is empty"},
	} {
		_, err := newMessage(c.topic, []MessageOption{c.option})
		var fault *EncodeError
		if !errors.As(err, &fault) || fault.Topic != c.topic || !strings.Contains(err.Error(), c.reason) || len(err.Error()) > 600 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := newMessage("a", []MessageOption{Header("settler", "1"), Header("settle", "1"), Expiry(math.MaxUint32 * time.Second)}); err != nil {
		t.Error(err)
	}
}

func TestMessageEncode(t *testing.T) {
	c := newCodecs([]Codec{JSON(), fakeCodec("application/cbor")})
	for name, e := range map[string]struct {
		value        any
		options      []MessageOption
		payload, typ string
	}{
		"default":                   {reading{1}, nil, `{"Watts":1}`, "application/json"},
		"content type finds codec":  {reading{1}, []MessageOption{ContentType("application/cbor")}, "application/cbor", "application/cbor"},
		"encoding":                  {reading{1}, []MessageOption{Encoding("application/cbor")}, "application/cbor", "application/cbor"},
		"encoding and content type": {reading{1}, []MessageOption{ContentType("x/y"), Encoding("application/json")}, `{"Watts":1}`, "x/y"},
		"bytes":                     {[]byte("b"), nil, "b", ""},
		"bytes with content type":   {[]byte("b"), []MessageOption{ContentType("x/y")}, "b", "x/y"},
	} {
		m, err := newMessage("t", e.options)
		if err != nil {
			t.Fatal(err)
		}
		payload, typ, err := m.encode(&c, e.value)
		if string(payload) != e.payload || typ != e.typ || err != nil {
			t.Errorf("%s: %q, %q, %v", name, payload, typ, err)
		}
	}

	m, _ := newMessage("t", nil)
	_, _, err := m.encode(&c, make(chan int))
	var fault *EncodeError
	if !errors.As(err, &fault) || fault.Topic != "t" || fault.Type != "chan int" || fault.Err == nil {
		t.Errorf("%#v", err)
	}
	m, _ = newMessage("t", []MessageOption{ContentType("text/csv")})
	if _, _, err = m.encode(&c, reading{1}); err == nil || !strings.Contains(err.Error(), `a settle.reading cannot be encoded: no codec for the content type "text/csv": name one of Config.Codecs`) {
		t.Error(err)
	}
}

func TestWholeSeconds(t *testing.T) {
	for _, c := range []struct {
		d    time.Duration
		want uint32
		ok   bool
	}{
		{0, 0, true}, {1, 1, true}, {time.Second, 1, true}, {time.Second + 1, 2, true}, {-1, 0, false},
		{math.MaxUint32 * time.Second, math.MaxUint32, true}, {math.MaxUint32*time.Second + 1, 0, false}, {math.MaxInt64, 0, false},
	} {
		if got, ok := wholeSeconds(c.d); got != c.want || ok != c.ok {
			t.Errorf("%s: %d, %v", c.d, got, ok)
		}
	}
}
