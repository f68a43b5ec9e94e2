package hostile_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/eclipse/paho.golang/packets"
	"go.uber.org/goleak"

	"github.com/settlemq/settle/internal/hostile"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Fifteen packets, each property and reason code in as many of them as the standard says (tables 2-1, 2-4 and 2-6).
func TestDefinitionsAreComplete(t *testing.T) {
	if len(hostile.AllPackets) != 15 || len(hostile.AllProperties) != 27 {
		t.Fatalf("%d packets and %d properties", len(hostile.AllPackets), len(hostile.AllProperties))
	}
	places := 0
	for i := range hostile.AllProperties {
		p := &hostile.AllProperties[i]
		if i > 0 && p.ID <= hostile.AllProperties[i-1].ID {
			t.Errorf("property %d is out of order", p.ID)
		}
		places += len(p.In)
		for place := byte(1); place < 16; place++ {
			ours := p.In[place] != 0 || place == hostile.CONNECT && p.In[hostile.Will] != 0
			if pahos := packets.ValidateID(place, p.ID); pahos != ours {
				t.Errorf("%s in packet type %d: %t, and paho has %t", p.Name, place, ours, pahos)
			}
		}
	}
	if places != 64 {
		t.Errorf("properties have %d places", places)
	}
	for i, def := range hostile.AllPackets {
		if int(def.Type) != i+1 {
			t.Errorf("%s is of type %d", def.Name, def.Type)
		}
	}
}

// Every case has a name of its own, and paho reads what is legal. What paho refuses, we have no business to call legal.
func TestLegalCasesCanBeRead(t *testing.T) {
	for _, from := range []hostile.Sender{hostile.Client, hostile.Server} {
		names := make(map[string]bool)
		legal, wrong := 0, 0
		for _, c := range hostile.Cases(from, "a/b") {
			if names[c.Name] {
				t.Errorf("two cases are called %q", c.Name)
			}
			names[c.Name] = true
			if !c.Legal() || c.Unfinished {
				wrong++
				continue
			}
			legal++
			if bytes.Equal(c.Bytes, []byte{packets.DISCONNECT << 4, 0}) || bytes.Equal(c.Bytes, []byte{packets.AUTH << 4, 0}) {
				continue // which paho does not read
			}
			r := bytes.NewReader(c.Bytes)
			if _, err := packets.ReadPacket(r); err != nil || r.Len() > 0 {
				t.Errorf("%s: %v, %d bytes left over of % x", c.Name, err, r.Len(), c.Bytes[:min(len(c.Bytes), 60)])
			}
		}
		t.Logf("sender %d: %d legal cases, %d others", from, legal, wrong)
	}
}

// tally counts cases by packet and phase.
type tally struct {
	phases []string
	counts map[[2]string]int
}

func (n *tally) add(packet, phase string) {
	if n.counts == nil {
		n.counts = make(map[[2]string]int)
	}
	if len(n.phases) == 0 || n.phases[len(n.phases)-1] != phase {
		n.phases = append(n.phases, phase)
	}
	n.counts[[2]string{packet, phase}]++
}

func (n *tally) String() string {
	var b strings.Builder
	names := []string{"type 0"}
	for _, def := range hostile.AllPackets {
		names = append(names, def.Name)
	}
	fmt.Fprintf(&b, "%-12s", "")
	for i := range n.phases {
		fmt.Fprintf(&b, "%7c", 'A'+i)
	}
	all, sums := 0, make([]int, len(n.phases))
	for _, name := range names {
		fmt.Fprintf(&b, "\n%-12s", name)
		for i, phase := range n.phases {
			count := n.counts[[2]string{name, phase}]
			fmt.Fprintf(&b, "%7d", count)
			sums[i] += count
			all += count
		}
	}
	fmt.Fprintf(&b, "\n%-12s", "all")
	for _, sum := range sums {
		fmt.Fprintf(&b, "%7d", sum)
	}
	for i, phase := range n.phases {
		fmt.Fprintf(&b, "\n%c: %s", 'A'+i, phase)
	}
	fmt.Fprintf(&b, "\n%d cases", all)
	return b.String()
}
