package window

import (
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/settlemq/settle/internal/wire"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// What fails is printed in full: no files are left in the tree.
	if err := flag.Set("rapid.nofailfile", "true"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	goleak.VerifyTestMain(m)
}

// brief says that there is no time for everything. The race detector makes an exploration ten times slower.
func brief() bool { return testing.Short() || raceEnabled }

// content is all that a frame shows of a message: two messages of one content cannot be told apart.
type content struct {
	id      uint16
	qos     byte
	text    byte
	dup     bool
	expires bool
}

var parsed = map[content]wire.Publish{}

// publish is the PUBLISH of that content, as the parser sees it.
func publish(c content) wire.Publish {
	if p, ok := parsed[c]; ok {
		return p
	}
	first := byte(wire.PUBLISH)<<4 | c.qos<<1
	if c.dup {
		first |= 8
	}
	body := binary.BigEndian.AppendUint16([]byte{0, 1, 't'}, c.id)
	if c.expires {
		body = append(body, 5, 2, 0, 0, 0, 60)
	} else {
		body = append(body, 0)
	}
	body = append(body, c.text)
	b := append([]byte{first, byte(len(body))}, body...)
	var p wire.Publish
	if err := wire.ParsePublish(wire.Frame{Bytes: b, Header: 2}, &p); err != nil {
		panic(err)
	}
	parsed[c] = p
	return p
}

// audit checks that what the window keeps in several places agrees. Identifiers above maxID must not be in use.
func audit(w *Window, maxID uint16) error {
	listed, parkedNow, settledNow, receivedNow, owned := map[*Entry]bool{}, 0, 0, 0, 0
	for q := 1; q <= 2; q++ {
		certain := 0
		for _, l := range []*list{&w.live[q], &w.unseen[q]} {
			n, prev := 0, (*Entry)(nil)
			for e := l.head; e != nil; prev, e = e, e.next {
				n++
				s := w.slot(e.PacketID)
				switch {
				case listed[e]:
					return fmt.Errorf("an entry with identifier %d stands in two lists", e.PacketID)
				case e.prev != prev:
					return fmt.Errorf("identifier %d: prev is wrong", e.PacketID)
				case int(e.QoS) != q:
					return fmt.Errorf("identifier %d of QoS %d stands in the list of QoS %d", e.PacketID, e.QoS, q)
				case s.memory != entered || s.entry != e:
					return fmt.Errorf("identifier %d: its slot is not its entry's", e.PacketID)
				case (s.epoch == w.epoch) != (l == &w.live[q]) && w.epoch > 0:
					return fmt.Errorf("identifier %d: slot of epoch %d at %d, in the other list", e.PacketID, s.epoch, w.epoch)
				case e.state == gone:
					return fmt.Errorf("identifier %d: gone and listed", e.PacketID)
				case e.state == parked && (q != 1 || l != &w.live[q]):
					return fmt.Errorf("identifier %d: parked where nothing parks", e.PacketID)
				case l == &w.unseen[q] && !e.HasExpiry:
					certain++
				}
				if e.state == parked {
					parkedNow++
				}
				if e.state == settled && l == &w.live[1] {
					settledNow++
				}
				listed[e] = true
				owned++
			}
			if n != l.len || prev != l.tail {
				return fmt.Errorf("QoS %d: a list of %d says %d", q, n, l.len)
			}
		}
		if certain != w.certain[q] {
			return fmt.Errorf("QoS %d: certain = %d, and there are %d", q, w.certain[q], certain)
		}
	}
	for id := uint16(1); id <= maxID; id++ {
		s := w.slot(id)
		switch s.memory {
		case entered:
			owned--
		case received:
			if s.epoch == w.epoch {
				receivedNow++
			}
		}
		if (s.memory == entered) != (s.entry != nil) {
			return fmt.Errorf("identifier %d: memory %d with entry %v", id, s.memory, s.entry != nil)
		}
	}
	switch {
	case owned != 0:
		return fmt.Errorf("slots and lists differ by %d", owned)
	case parkedNow != w.parked:
		return fmt.Errorf("parked = %d, and there are %d", w.parked, parkedNow)
	case settledNow != w.settled:
		return fmt.Errorf("settled = %d, and there are %d", w.settled, settledNow)
	case receivedNow != w.receivedNow:
		return fmt.Errorf("receivedNow = %d, and there are %d", w.receivedNow, receivedNow)
	}
	return nil
}
