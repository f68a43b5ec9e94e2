package broker

import (
	"fmt"
	"slices"
	"time"
)

// logs are the wire logs of all clients, those of clients without a session bounded in number. Guarded by the broker's lock.
type logs struct {
	byClient map[string]*wireLog
	order    []*wireLog // of their making
}

// maxLogs is how many wire logs of clients that have no session are kept.
const maxLogs = 256

// wireLog is what passed between the server and one client, the last so many packets of it. A nil log takes nothing.
type wireLog struct {
	clientID string
	records  []record // a ring, once it is full
	next     int
}

type record struct {
	at        time.Time
	head      []byte // the beginning of the packet, or the text of what is no packet
	size      int
	direction Direction // 0 for text
	note      string
}

// headSize is how many bytes of a packet are kept.
const headSize = 512

// logOf returns a client's log.
func (b *Broker) logOf(clientID string) *wireLog {
	if b.opts.WireLog < 0 {
		return nil
	}
	l := b.logs.byClient[clientID]
	if l != nil {
		return l
	}
	l = &wireLog{clientID: clientID}
	b.logs.byClient[clientID] = l
	b.logs.order = append(b.logs.order, l)
	if len(b.logs.byClient) > len(b.sessions)+maxLogs {
		b.forgetLogs()
	}
	return l
}

// forgetLogs drops the older half of the logs of clients without a session.
func (b *Broker) forgetLogs() {
	kept, drop := b.logs.order[:0], maxLogs/2
	for _, l := range b.logs.order {
		if drop > 0 && b.sessions[l.clientID] == nil {
			delete(b.logs.byClient, l.clientID)
			drop--
			continue
		}
		kept = append(kept, l)
	}
	clear(b.logs.order[len(kept):])
	b.logs.order = kept
}

// add notes a packet, before it is handled or handed to Write.
func (l *wireLog) add(b *Broker, direction Direction, frame []byte, note string) {
	if l != nil {
		l.put(b, record{direction: direction, size: len(frame), note: note}, frame)
	}
}

// say notes what is no packet.
func (l *wireLog) say(b *Broker, format string, args ...any) {
	if l != nil {
		l.put(b, record{}, fmt.Appendf(nil, format, args...))
	}
}

// put uses the memory of the record that it overwrites.
func (l *wireLog) put(b *Broker, r record, bytes []byte) {
	r.at = time.Now()
	bytes = bytes[:min(len(bytes), headSize)]
	if len(l.records) < b.opts.WireLog {
		r.head = slices.Clone(bytes)
		l.records = append(l.records, r)
		return
	}
	r.head = l.records[l.next].head[:0]
	r.head = append(r.head, bytes...)
	l.records[l.next] = r
	l.next = (l.next + 1) % len(l.records)
}

// WireLog returns what passed between the server and a client, a line for each packet, as far back as Options.WireLog says:
// time since the server began, direction ('>' from the client), packet type, and what the packet holds, but no password and little of a
// payload. It outlives the session.
func (b *Broker) WireLog(clientID string) []string {
	b.mu.Lock()
	l := b.logs.byClient[clientID]
	if l == nil {
		b.unlock()
		return nil
	}
	records := make([]record, 0, len(l.records))
	records = append(records, l.records[l.next:]...)
	records = append(records, l.records[:l.next]...)
	for i := range records {
		records[i].head = slices.Clone(records[i].head)
	}
	b.unlock()
	lines := make([]string, len(records))
	for i, r := range records {
		lines[i] = r.line(b.start)
	}
	return lines
}

func (r record) line(start time.Time) string {
	at := fmt.Sprintf("%9.3fs", r.at.Sub(start).Seconds())
	if r.direction == 0 {
		return at + " - " + string(r.head)
	}
	line := fmt.Sprintf("%s %c %s", at, r.direction, describe(r.head, r.size))
	if r.note != "" {
		line += " (" + r.note + ")"
	}
	return line
}
