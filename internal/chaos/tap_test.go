package chaos

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"
)

func frameOf(t *testing.T, p packets.Packet) []byte {
	t.Helper()
	var b bytes.Buffer
	if _, err := p.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// tappedOf is a connection's ledger without the connection.
func tappedOf(second bool) (c *tapped, told func() []event) {
	var out bytes.Buffer
	c = &tapped{journal: &journal{out: &out, began: time.Now()}, number: 3, second: second, fresh: true, shown: make(map[uint16]parcel)}
	return c, func() []event {
		c.journal.flush()
		var all []event
		for b := out.Bytes(); len(b) > 0; b = b[eventSize:] {
			e := readEvent(b)
			e.at = 0
			all = append(all, e)
		}
		return all
	}
}

func copyOfMessage(topic string, id uint16, attempts string) *packets.Publish {
	return &packets.Publish{Topic: topic, QoS: 1, PacketID: id, Payload: payloadOf(70_000, 5), Properties: &packets.Properties{User: []packets.User{
		{Key: "partition-key", Value: "5"}, {Key: attemptHeader, Value: attempts}, {Key: copyHeader, Value: "abc"},
	}}}
}

func TestTheTapTellsWhatPasses(t *testing.T) {
	publish := &packets.Publish{Topic: "load/copies/5", QoS: 1, PacketID: 9, Payload: payloadOf(70_000, 5), Properties: &packets.Properties{}}
	again := *publish
	again.Duplicate = true
	c, told := tappedOf(false)
	c.came(frameOf(t, &packets.Connack{SessionPresent: true, Properties: &packets.Properties{}}))
	c.came(frameOf(t, publish))
	c.came(frameOf(t, &again))
	c.leaves(frameOf(t, copyOfMessage("retry/copies", 11, "1")))
	c.leaves(frameOf(t, copyOfMessage(deadTopic, 12, "4")))
	c.came(frameOf(t, &packets.Puback{PacketID: 11, ReasonCode: 0x10, Properties: &packets.Properties{}}))
	c.leaves(frameOf(t, &packets.Puback{PacketID: 9, Properties: &packets.Properties{}}))
	c.leaves(frameOf(t, &packets.Puback{PacketID: 10, Properties: &packets.Properties{}}))
	c.leaves(frameOf(t, &packets.Disconnect{Properties: &packets.Properties{}}))
	c.end(true)
	c.end(false)
	_, abc := copyOf([]byte("\x26\x00\x0esettle-copy-id\x00\x03abc"))
	want := []event{
		{kind: eventConnected, conn: 3, flags: flagPresent},
		{kind: eventShown, conn: 3, id: 9, unit: 70_000, attempt: 1, flags: flagFirst},
		{kind: eventShown, conn: 3, id: 9, unit: 70_000, attempt: 1, flags: flagDup},
		{kind: eventPublished, conn: 3, id: 11, unit: 70_000, attempt: 1, copy: abc},
		{kind: eventPublished, conn: 3, id: 12, unit: 70_000, attempt: 4, copy: abc, flags: flagDead},
		{kind: eventConfirmed, conn: 3, id: 11, code: 0x10},
		{kind: eventAcknowledged, conn: 3, id: 9, unit: 70_000, attempt: 1},
		{kind: eventAcknowledged, conn: 3, id: 10, flags: flagUnknown},
		{kind: eventParted, conn: 3},
		{kind: eventLost, conn: 3, flags: flagOrderly},
	}
	if got := told(); !slices.Equal(got, want) {
		t.Errorf("told\n%+v, want\n%+v", got, want)
	}
}

func TestTheTapKnowsCopiesAndMarkers(t *testing.T) {
	c, told := tappedOf(true)
	c.came(frameOf(t, copyOfMessage("retry/copies", 20, "2")))
	c.came(frameOf(t, &packets.Publish{Topic: "retry/copies", QoS: 1, PacketID: 21, Properties: &packets.Properties{}}))
	c.leaves(frameOf(t, &packets.Puback{PacketID: 20, Properties: &packets.Properties{}}))
	c.leaves(frameOf(t, &packets.Puback{PacketID: 21, Properties: &packets.Properties{}}))
	_, abc := copyOf([]byte("\x26\x00\x0esettle-copy-id\x00\x03abc"))
	want := []event{
		{kind: eventShown, conn: 3, id: 20, unit: 70_000, copy: abc, attempt: 3, flags: flagFirst},
		{kind: eventShown, conn: 3, id: 21, flags: flagForeign},
		{kind: eventAcknowledged, conn: 3, id: 20, unit: 70_000, copy: abc, attempt: 3},
	}
	if got := told(); !slices.Equal(got, want) {
		t.Errorf("told\n%+v, want\n%+v", got, want)
	}
}

func TestTheSplitterTakesAnyPieces(t *testing.T) {
	stream := slices.Concat(frameOf(t, copyOfMessage("a", 1, "1")), frameOf(t, &packets.Puback{PacketID: 1, Properties: &packets.Properties{}}), frameOf(t, copyOfMessage("b", 2, "1")))
	for size := 1; size <= len(stream); size++ {
		var s splitter
		var kinds []byte
		for piece := range slices.Chunk(stream, size) {
			s.split(piece, func(f []byte) { kinds = append(kinds, f[0]>>4) })
		}
		if !slices.Equal(kinds, []byte{packets.PUBLISH, packets.PUBACK, packets.PUBLISH}) {
			t.Fatalf("in pieces of %d: %v", size, kinds)
		}
	}
}

func TestEventsSurviveTheirWay(t *testing.T) {
	e := event{kind: eventShown, flags: 3, code: 'a', attempt: 4, conn: 65_535, id: 65_534, at: 1 << 31, unit: 1 << 30, copy: 1<<32 - 1}
	if got := readEvent(e.append(nil)); got != e {
		t.Errorf("%+v became %+v", e, got)
	}
}
