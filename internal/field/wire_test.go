package field_test

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/settlemq/settle"
)

var (
	// A line of Wire, between its time and its size.
	wireLine = regexp.MustCompile(`^ *[0-9.]+s ([<>] .*) \d+B(?: \([a-z ]+\))?$`)
	// A PUBLISH in it.
	publishLine = regexp.MustCompile(`^([<>]) PUBLISH(?: id=(\d+))? qos=(\d) dup=(\d) retain=(\d) topic=("[^"]*").* payload=(".*)$`)
)

// brief shortens a PUBLISH: `< PUBLISH 7 q1 dup "a" "payload"`. Whatever identifier an app chooses is of no interest.
func brief(line string) string {
	p := publishLine.FindStringSubmatch(line)
	if p == nil {
		return line
	}
	line = p[1] + " PUBLISH "
	if p[1] == "<" && p[2] != "" {
		line += p[2] + " "
	}
	line += "q" + p[3] + " "
	if p[4] == "1" {
		line += "dup "
	}
	if p[5] == "1" {
		line += "retain "
	}
	return line + p[6] + " " + p[7]
}

// wire is what went between a client and the server, without times and sizes, as far as it begins like this: "> PUBACK", or "<".
func (s *service) wire(clientID, beginning string) []string {
	s.t.Helper()
	var lines []string
	of := ""
	for _, line := range s.Wire() {
		found := wireLine.FindStringSubmatch(line)
		switch {
		case strings.HasSuffix(line, ":") && !strings.Contains(line, " "):
			of = strings.TrimSuffix(line, ":")
		case of == clientID && found != nil:
			if line = brief(found[1]); strings.HasPrefix(line, beginning) {
				lines = append(lines, line)
			}
		}
	}
	return lines
}

// sent wants the client "svc" to have sent just these packets, of those that begin like this, over all of its connections.
func (s *service) sent(beginning string, want ...string) {
	s.t.Helper()
	s.sentBy("svc", beginning, want...)
}

func (s *service) sentBy(clientID, beginning string, want ...string) {
	s.t.Helper()
	if got := s.wire(clientID, "> "+beginning); !slices.Equal(got, prefixed("> ", want)) {
		s.t.Errorf("%s has sent %q, want %q", clientID, got, want)
	}
}

func prefixed(prefix string, all []string) []string {
	out := make([]string, 0, len(all))
	for _, s := range all {
		out = append(out, prefix+s)
	}
	return out
}

// acks are the answers to a delivery of a QoS whose outcome has been carried out.
func acks(qos settle.QoS, id int) []string {
	if qos == settle.ExactlyOnce {
		return []string{fmt.Sprintf("PUBREC id=%d 0x00", id), fmt.Sprintf("PUBCOMP id=%d 0x00", id)}
	}
	return []string{fmt.Sprintf("PUBACK id=%d 0x00", id)}
}

// pubacks are the PUBACKs for identifiers from first on.
func pubacks(first, n int) (all []string) {
	for id := first; id < first+n; id++ {
		all = append(all, acks(settle.AtLeastOnce, id)...)
	}
	return all
}

// epochs are what went between a client and the server, connection by connection.
func (s *service) epochs(clientID string) (all [][]string) {
	s.t.Helper()
	for _, line := range s.wire(clientID, "") {
		if strings.HasPrefix(line, "> CONNECT ") || len(all) == 0 {
			all = append(all, nil)
		}
		all[len(all)-1] = append(all[len(all)-1], line)
	}
	return all
}

// epoch is one of those connections, which there must be.
func (s *service) epoch(clientID string, i int) []string {
	s.t.Helper()
	all := s.epochs(clientID)
	if len(all) <= i {
		s.t.Fatalf("there were %d connections of %s", len(all), clientID)
	}
	return all[i]
}

// among are the lines that begin like this.
func among(lines []string, beginning string) (found []string) {
	for _, line := range lines {
		if strings.HasPrefix(line, beginning) {
			found = append(found, line)
		}
	}
	return found
}

// encoded are the bytes of a packet of paho's.
func encoded(t *testing.T, p interface {
	WriteTo(w io.Writer) (int64, error)
},
) []byte {
	t.Helper()
	var b bytes.Buffer
	if _, err := p.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// again are the bytes of a PUBLISH with the DUP flag.
func again(publish []byte) []byte {
	publish = slices.Clone(publish)
	publish[0] |= 8
	return publish
}
