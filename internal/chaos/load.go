package chaos

import (
	"encoding/binary"
	"hash/fnv"
	"strconv"
	"strings"
	"time"
)

// A stream is the messages of one route: who handles them, and how.
type stream struct {
	name      string
	consumers []string // client identifiers; more than one share the stream
	qos       byte
	batch     bool
	retryTo   string // "" where failures are held in memory
}

// streams are one of each kind that settles in a way of its own.
var streams = []stream{
	{name: "copies", consumers: []string{"copies"}, qos: 1, retryTo: "retry/copies"},
	{name: "holds", consumers: []string{"holds"}, qos: 2},
	{name: "batches", consumers: []string{"batches"}, qos: 1, batch: true, retryTo: "retry/batches"},
	{name: "group", consumers: []string{"group-a", "group-b"}, qos: 1, retryTo: "retry/group"},
}

func streamOf(name string) *stream {
	for i := range streams {
		if streams[i].name == name {
			return &streams[i]
		}
	}
	return nil
}

// consumers are the client identifiers of all.
func consumers() []string {
	var all []string
	for i := range streams {
		all = append(all, streams[i].consumers...)
	}
	return all
}

// held says that what fails waits in the consumer's memory, and counts its attempts there.
func (s *stream) held() bool { return s.retryTo == "" }

// What the routes of all streams have in common.
const (
	deadTopic      = "dead"
	keys           = 200 // of each stream
	maxAttempts    = 4
	receiveMaximum = 1000
	fullLoad       = 500 // messages that are kept with the server for a stream, at full load: acknowledgements that are lost or late come on top
	fullEnough     = 100 // where so many are in work on a connection, it is at full load
	thinLoad       = 30  // messages that are kept with the server otherwise
	lanes          = 8
	batchLanes     = 4
	batchSize      = 16
	handlerTimeout = 1500 * time.Millisecond
	backoff        = 200 * time.Millisecond
	work           = 7 * time.Millisecond   // what a handler takes: it is the slowest part, so that windows are full
	longWork       = 120 * time.Millisecond // what a slow one takes
)

// fate is what handlers make of a message.
type fate byte

const (
	plain      fate = iota
	slow            // acknowledged, but late
	failsOnce       // a Retry at the first attempt
	failsTwice      // and at the second
	panicsOnce      // a panic at the first attempt
	hangsOnce       // beyond its timeout at the first attempt, and Ack then
	rejected        // a Reject: a dead letter
	hopeless        // a Retry at each attempt: a dead letter in the end
)

var fateNames = [...]string{"plain", "slow", "fails once", "fails twice", "panics once", "hangs once", "rejected", "hopeless"}

func (f fate) String() string { return fateNames[f] }

// dies says that a message has to end as a dead letter.
func (f fate) dies() bool { return f == rejected || f == hopeless }

// fateOf is drawn from the seed and the message alone, so that each process that handles it makes the same of it.
func fateOf(seed uint64, s *stream, message uint32) fate {
	h := fnv.New64a()
	var b [12]byte
	binary.LittleEndian.PutUint64(b[:], seed)
	binary.LittleEndian.PutUint32(b[8:], message)
	_, _ = h.Write(b[:])
	_, _ = h.Write([]byte(s.name))
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	f := plain
	switch k := x % 10_000; { // what is slow holds up the acknowledgements behind it, and so the window: there is little of it
	case k < 60:
		f = failsOnce
	case k < 80:
		f = failsTwice
	case k < 100:
		f = panicsOnce
	case k < 101:
		f = hangsOnce
	case k < 120:
		f = rejected
	case k < 130:
		f = hopeless
	case k < 150:
		f = slow
	}
	if s.batch && (f == panicsOnce || f == hangsOnce) {
		f = failsOnce // or its batch would share its fate
	}
	return f
}

// What a handler does at one attempt.
type deed byte

const (
	acks deed = iota
	fails
	panics
	hangs
	rejects
)

// at is what a message's fate is at an attempt.
func (f fate) at(attempt int) deed {
	switch {
	case f == failsOnce && attempt < 2, f == failsTwice && attempt < 3, f == hopeless:
		return fails
	case f == panicsOnce && attempt < 2:
		return panics
	case f == hangsOnce && attempt < 2:
		return hangs
	case f == rejected:
		return rejects
	}
	return acks
}

// payloadOf is the number of the sending and that of the message, and what makes it as large as a small report.
func payloadOf(unit, message uint32) []byte {
	b := strconv.AppendUint(nil, uint64(unit), 10)
	b = append(b, ' ')
	b = strconv.AppendUint(b, uint64(message), 10)
	b = append(b, ' ')
	return append(b, filling...)
}

var filling = strings.Repeat("x", 60)

// numbersOf are the numbers that a payload begins with.
func numbersOf(payload []byte) (unit, message uint32, ok bool) {
	unit, rest, ok := number(payload)
	if !ok {
		return 0, 0, false
	}
	message, _, ok = number(rest)
	return unit, message, ok
}

func number(b []byte) (n uint32, rest []byte, ok bool) {
	for i, c := range b {
		if c < '0' || c > '9' {
			return n, b[min(i+1, len(b)):], i > 0 && c == ' '
		}
		n = n*10 + uint32(c-'0')
	}
	return 0, nil, false
}

func keyOf(message uint32) uint32 { return message % keys }
