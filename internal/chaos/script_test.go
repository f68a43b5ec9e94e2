package chaos

import "testing"

const testSeed = 1

// script makes up what a run of one stream would have written down, for the auditor to read. A millisecond passes with each line.
type script struct {
	t    *testing.T
	page *page
	life *life
	conn uint16
	now  uint32
	next [len(fateNames)]uint32 // where to look for the next message of a fate
}

func newScript(t *testing.T, stream string) *script {
	t.Helper()
	s := &script{t: t, page: &page{stream: streamOf(stream)}}
	s.start(s.page.stream.consumers[0])
	return s
}

// audit closes the books.
func (s *script) audit() *Account {
	b := newBook(zeroTime)
	b.pages[s.page.stream.name] = s.page
	a := b.audit(testSeed)
	return &a
}

// start begins a process.
func (s *script) start(consumer string) *script {
	s.life = &life{consumer: consumer, number: len(s.page.lives)}
	s.page.lives = append(s.page.lives, s.life)
	return s
}

// ends says how the process ended.
func (s *script) ends(kind Kind) *script {
	s.life.ended, s.life.told = kind, s.now
	return s
}

// send has the server accept a message of a fate, and returns its sending.
func (s *script) send(f fate) uint32 {
	s.t.Helper()
	for n := range uint32(1_000_000) {
		if n >= s.next[f] && fateOf(testSeed, s.page.stream, n) == f {
			s.next[f] = n + 1
			return s.sendMessage(n)
		}
	}
	s.t.Fatalf("no message of %s %s", s.page.stream.name, f)
	return 0
}

func (s *script) sendMessage(n uint32) uint32 {
	s.page.units = append(s.page.units, unit{message: n, state: accepted, at: s.now})
	return uint32(len(s.page.units) - 1)
}

// sendTwoOfAKey sends two plain messages of one key.
func (s *script) sendTwoOfAKey() (first, second uint32) {
	s.t.Helper()
	for n := range uint32(1_000_000) {
		if fateOf(testSeed, s.page.stream, n) == plain && fateOf(testSeed, s.page.stream, n+keys) == plain {
			return s.sendMessage(n), s.sendMessage(n + keys)
		}
	}
	s.t.Fatal("no two of a key")
	return 0, 0
}

func (s *script) add(e event) *script {
	s.now += 10
	e.at = s.now
	s.life.events = append(s.life.events, e)
	return s
}

// connect accepts a main connection, which the lines that follow are of.
func (s *script) connect(flags byte) *script {
	s.conn += 2
	return s.add(event{kind: eventConnected, conn: s.conn, flags: flags})
}

// connectSecond accepts a second connection beside it.
func (s *script) connectSecond(flags byte) *script {
	return s.add(event{kind: eventConnected, conn: s.conn + 1, flags: flags, copy: 1})
}

func (s *script) shown(unit uint32, flags byte) *script {
	return s.add(event{kind: eventShown, conn: s.conn, id: uint16(unit + 1), unit: unit, attempt: 1, flags: flags | flagFirst})
}

func (s *script) acked(unit uint32) *script {
	return s.add(event{kind: eventAcknowledged, conn: s.conn, id: uint16(unit + 1), unit: unit, attempt: 1})
}

func (s *script) lost(flags byte) *script {
	return s.add(event{kind: eventLost, conn: s.conn, flags: flags})
}

func (s *script) begun(unit uint32, attempt uint8) *script {
	return s.add(event{kind: eventBegun, unit: unit, attempt: attempt})
}

func (s *script) returned(unit uint32, attempt uint8, code byte) *script {
	return s.add(event{kind: eventReturned, unit: unit, attempt: attempt, code: code})
}

// called is a whole call.
func (s *script) called(unit uint32, attempt uint8, code byte) *script {
	return s.begun(unit, attempt).returned(unit, attempt, code)
}

// handled is all that becomes of a plain message on a good day.
func (s *script) handled(unit uint32) *script {
	return s.shown(unit, 0).called(unit, 1, returnedAck).acked(unit)
}

// copied publishes a retry copy after so many attempts.
func (s *script) copied(unit uint32, attempts uint8, id uint32) *script {
	return s.add(event{kind: eventPublished, conn: s.conn, id: uint16(id), unit: unit, attempt: attempts, copy: id})
}

// buried publishes a dead letter.
func (s *script) buried(unit uint32, attempts uint8) *script {
	return s.add(event{kind: eventPublished, conn: s.conn, id: 7000, unit: unit, attempt: attempts, flags: flagDead})
}

func (s *script) confirmed(id uint16) *script {
	return s.add(event{kind: eventConfirmed, conn: s.conn, id: id})
}

func (s *script) came(unit uint32, attempts uint8) *script {
	s.page.letters = append(s.page.letters, letter{unit: unit, attempt: attempts})
	return s
}

// back shows a copy on the second connection.
func (s *script) back(unit uint32, attempt uint8, id uint32, flags byte) *script {
	return s.add(event{kind: eventShown, conn: s.conn + 1, id: uint16(id), unit: unit, attempt: attempt, copy: id, flags: flags | flagFirst})
}

func (s *script) ackedCopy(unit uint32, attempt uint8, id uint32) *script {
	return s.add(event{kind: eventAcknowledged, conn: s.conn + 1, id: uint16(id), unit: unit, attempt: attempt, copy: id})
}
