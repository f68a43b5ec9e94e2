package chaos

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

var zeroTime time.Time

// goodDay is a stream in which everything goes well, but for what handlers make of it.
func goodDay(t *testing.T) *script {
	t.Helper()
	s := newScript(t, "copies").connect(0).connectSecond(0)
	once, dead, hope := s.send(failsOnce), s.send(rejected), s.send(hopeless)
	s.handled(s.send(plain))
	s.shown(once, 0).called(once, 1, returnedRetry).copied(once, 1, 100).confirmed(100).acked(once)
	s.back(once, 2, 100, 0).called(once, 2, returnedAck).ackedCopy(once, 2, 100)
	s.shown(dead, 0).called(dead, 1, returnedReject).buried(dead, 1).confirmed(7000).acked(dead).came(dead, 1)
	s.shown(hope, 0).called(hope, 1, returnedRetry).copied(hope, 1, 200).confirmed(200).acked(hope)
	for attempt := uint8(2); attempt < maxAttempts; attempt++ {
		id := 200 + uint32(attempt)
		s.back(hope, attempt, id-2, 0).called(hope, attempt, returnedRetry).copied(hope, attempt, id-1).confirmed(uint16(id-1)).ackedCopy(hope, attempt, id-2)
	}
	s.back(hope, maxAttempts, 202, 0).called(hope, maxAttempts, returnedRetry).buried(hope, maxAttempts).confirmed(7000)
	return s.ackedCopy(hope, maxAttempts, 202).came(hope, maxAttempts)
}

func TestAGoodDay(t *testing.T) {
	a := goodDay(t).audit()
	expectFigures(t, a)
	if a.Messages != 4 || a.Retries != 4 || a.Copies != 4 || a.Dead != 2 || len(a.Twice) > 0 {
		t.Errorf("%+v", a)
	}
}

// expectFigures wants these figures to be failures, once each, and no others.
func expectFigures(t *testing.T, a *Account, want ...string) {
	t.Helper()
	var got []string
	for _, f := range a.mustBeZero() {
		if f.N == 1 {
			got = append(got, f.What)
		} else if f.N != 0 {
			t.Errorf("%s: %d times", f.What, f.N)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("failures %q, want %q; %s", got, want, strings.Join(a.Examples, "\n"))
	}
}

const (
	lost       = "lost"
	left       = "not acknowledged in the end"
	early      = "acknowledged too early"
	unexcused  = "handled again: no reason found"
	deadAbsent = "dead letters missing"
)

// An auditor that cannot find anything wrong proves nothing: each kind of wrong is made up here, and has to be found.
func TestWhatIsWrongIsFound(t *testing.T) {
	for name, test := range map[string]struct {
		stream string
		do     func(s *script)
		want   []string
	}{
		"never delivered": {do: func(s *script) { s.send(plain) }, want: []string{lost}},
		"acknowledged and never handled": {do: func(s *script) {
			u := s.send(plain)
			s.shown(u, 0).acked(u)
		}, want: []string{lost, early}},
		"its handler never returned": {do: func(s *script) {
			u := s.send(plain)
			s.shown(u, 0).begun(u, 1)
		}, want: []string{lost, left}},
		"handled and never acknowledged": {do: func(s *script) {
			u := s.send(plain)
			s.shown(u, 0).called(u, 1, returnedAck)
		}, want: []string{left}},
		"handled twice": {do: func(s *script) {
			u := s.send(plain)
			s.handled(u).called(u, 1, returnedAck)
		}, want: []string{unexcused}},
		"handled again though its redelivery could be joined": {do: func(s *script) {
			u, v := s.send(plain), s.send(plain)
			s.shown(u, 0).called(u, 1, returnedAck).shown(v, 0).lost(0)
			s.connect(flagPresent).shown(u, flagDup).shown(v, flagDup).called(u, 1, returnedAck).acked(u).called(v, 1, returnedAck).acked(v)
		}, want: []string{unexcused}},
		"handled again at QoS 2, after PUBREC, in one process": {stream: "holds", do: func(s *script) {
			u := s.send(plain)
			s.handled(u).lost(0).connect(flagPresent).shown(u, flagDup).called(u, 1, returnedAck).acked(u)
		}, want: []string{unexcused}},
		"handled again by the next process though it had been acknowledged in good order": {do: func(s *script) {
			u := s.send(plain)
			s.handled(u).ends(Terminate).add(event{kind: eventParted, conn: s.conn}).lost(flagOrderly)
			s.start("copies").connect(flagPresent).shown(u, flagDup).called(u, 1, returnedAck).acked(u)
		}, want: []string{unexcused}},
		"handled again though work behind it proved it old": {do: func(s *script) {
			u, v, w := s.send(plain), s.send(plain), s.send(plain)
			s.handled(u).shown(v, 0).shown(w, 0).lost(0)
			s.connect(flagPresent).shown(u, flagDup).shown(v, flagDup).shown(w, flagDup).called(u, 1, returnedAck).acked(u)
			s.called(v, 1, returnedAck).acked(v).called(w, 1, returnedAck).acked(w)
		}, want: []string{"handled again: acknowledged on a connection that was lost, work behind it"}},
		"overtaken in its key": {do: func(s *script) {
			u, v := s.sendTwoOfAKey()
			s.shown(u, 0).shown(v, 0).called(v, 1, returnedAck).called(u, 1, returnedAck).acked(u).acked(v)
		}, want: []string{"out of order within a key"}},
		"two of a key at once": {do: func(s *script) {
			u, v := s.sendTwoOfAKey()
			s.shown(u, 0).shown(v, 0).begun(u, 1).begun(v, 1).returned(u, 1, returnedAck).returned(v, 1, returnedAck).acked(u).acked(v)
		}, want: []string{"at once with another of their key"}},
		"acknowledged while its handler ran": {do: func(s *script) {
			u := s.send(plain)
			s.shown(u, 0).begun(u, 1).acked(u).returned(u, 1, returnedAck)
		}, want: []string{early}},
		"acknowledged before its copy was confirmed": {do: func(s *script) {
			u := s.send(failsOnce)
			s.shown(u, 0).called(u, 1, returnedRetry).copied(u, 1, 100).acked(u).confirmed(100)
			s.back(u, 2, 100, 0).called(u, 2, returnedAck).ackedCopy(u, 2, 100)
		}, want: []string{early}},
		"acknowledged though its copy went nowhere": {do: func(s *script) {
			u := s.send(failsOnce)
			s.shown(u, 0).called(u, 1, returnedRetry).copied(u, 1, 100).add(event{kind: eventConfirmed, conn: s.conn, id: 100, code: 0x10}).acked(u)
		}, want: []string{lost, early}},
		"acknowledged out of turn": {do: func(s *script) {
			u, v := s.send(plain), s.send(plain)
			s.shown(u, 0).shown(v, 0).called(u, 1, returnedAck).called(v, 1, returnedAck).acked(v).acked(u)
		}, want: []string{"acknowledged out of turn"}},
		"acknowledged on another connection": {do: func(s *script) {
			s.handled(s.send(plain)).lost(0).connect(flagPresent).add(event{kind: eventAcknowledged, conn: s.conn, id: 1, flags: flagUnknown})
		}, want: []string{"acknowledged on another connection"}},
		"a copy that was confirmed never comes": {do: func(s *script) {
			u := s.send(failsOnce)
			s.shown(u, 0).called(u, 1, returnedRetry).copied(u, 1, 100).confirmed(100).acked(u)
		}, want: []string{lost, "retry copies lost"}},
		"a copy of what was acknowledged": {do: func(s *script) {
			u := s.send(plain)
			s.handled(u).copied(u, 1, 100)
		}, want: []string{"copies or dead letters of what had not failed"}},
		"two copies of one failure": {do: func(s *script) {
			u := s.send(failsOnce)
			s.shown(u, 0).called(u, 1, returnedRetry).copied(u, 1, 100).confirmed(100).copied(u, 1, 101).acked(u)
			s.back(u, 2, 100, 0).called(u, 2, returnedAck).ackedCopy(u, 2, 100)
		}, want: []string{"copies or dead letters of what had not failed"}},
		"a dead letter that is missing": {do: func(s *script) {
			u := s.send(rejected)
			s.shown(u, 0).called(u, 1, returnedReject).buried(u, 1).confirmed(7000).acked(u)
		}, want: []string{lost, deadAbsent}},
		"rejected, and acknowledged as if it were nothing": {do: func(s *script) {
			u := s.send(rejected)
			s.shown(u, 0).called(u, 1, returnedAck).acked(u)
		}, want: []string{deadAbsent}},
		"a dead letter of what was acknowledged": {do: func(s *script) {
			u := s.send(plain)
			s.handled(u).came(u, 1)
		}, want: []string{"dead letters of what should have none"}},
		"a dead letter more than were published": {do: func(s *script) {
			u := s.send(rejected)
			s.shown(u, 0).called(u, 1, returnedReject).buried(u, 1).confirmed(7000).acked(u).came(u, 1).came(u, 1)
		}, want: []string{"dead letters that nobody published"}},
	} {
		t.Run(name, func(t *testing.T) {
			stream := test.stream
			if stream == "" {
				stream = "copies"
			}
			s := newScript(t, stream).connect(0)
			if !s.page.stream.held() {
				s.connectSecond(0)
			}
			test.do(s)
			expectFigures(t, s.audit(), test.want...)
		})
	}
}

// What cannot be avoided is told by its kind, and is no failure.
func TestWhatIsHandledAgainHasAReason(t *testing.T) {
	for name, test := range map[string]struct {
		stream string
		do     func(s *script)
		want   Reason
	}{
		"killed": {do: func(s *script) {
			u := s.send(plain)
			s.shown(u, 0).called(u, 1, returnedAck).ends(Kill)
			s.start("copies").connect(flagPresent).shown(u, flagDup).called(u, 1, returnedAck).acked(u)
		}, want: ProcessKilled},
		"stopped behind another": {do: func(s *script) {
			u, v := s.send(plain), s.send(plain)
			s.shown(u, 0).shown(v, 0).called(v, 1, returnedAck).ends(Terminate).add(event{kind: eventParted, conn: s.conn}).lost(flagOrderly)
			s.start("copies").connect(flagPresent).shown(u, flagDup).shown(v, flagDup)
			s.called(u, 1, returnedAck).called(v, 1, returnedAck).acked(u).acked(v)
		}, want: ProcessStopped},
		"stopped without a connection": {do: func(s *script) {
			u := s.send(plain)
			s.shown(u, 0).called(u, 1, returnedAck).lost(0).ends(Terminate)
			s.start("copies").connect(flagPresent).shown(u, flagDup).called(u, 1, returnedAck).acked(u)
		}, want: ProcessStopped},
		"acknowledged, nothing behind it": {do: func(s *script) {
			u := s.send(plain)
			s.handled(u).lost(0).connect(flagPresent).shown(u, flagDup).called(u, 1, returnedAck).acked(u)
		}, want: AckOnLostWire},
		"an early second cut": {do: func(s *script) {
			u, v := s.send(plain), s.send(plain)
			s.shown(u, 0).called(u, 1, returnedAck).shown(v, 0).lost(0).connect(flagPresent).lost(0)
			s.connect(flagPresent).shown(u, flagDup).called(u, 1, returnedAck).acked(u).shown(v, flagDup).called(v, 1, returnedAck).acked(v)
		}, want: EarlySecondCut},
		"the session was lost": {do: func(s *script) {
			u := s.send(plain)
			s.shown(u, 0).called(u, 1, returnedAck).lost(0).connect(0).shown(u, 0).called(u, 1, returnedAck).acked(u)
		}, want: SessionLost},
		"redelivered out of order": {do: func(s *script) {
			u, v, w := s.send(plain), s.send(plain), s.send(plain)
			s.shown(u, 0).shown(v, 0).called(v, 1, returnedAck).shown(w, 0).lost(0)
			s.connect(flagPresent).shown(v, flagDup).called(v, 1, returnedAck).acked(v)
			s.shown(u, flagDup).called(u, 1, returnedAck).acked(u).shown(w, flagDup).called(w, 1, returnedAck).acked(w)
		}, want: Misfit},
		"redelivered after PUBREC, to another process": {stream: "holds", do: func(s *script) {
			u := s.send(plain)
			s.handled(u).add(event{kind: eventParted, conn: s.conn}).lost(flagOrderly).ends(Terminate)
			s.start("holds").connect(flagPresent).shown(u, flagDup).called(u, 1, returnedAck).acked(u)
		}, want: ServerRepeated},
		"its copy was published twice": {do: func(s *script) {
			u := s.send(failsOnce)
			s.shown(u, 0).called(u, 1, returnedRetry).copied(u, 1, 100).copied(u, 1, 100).confirmed(100).acked(u)
			s.back(u, 2, 100, 0).called(u, 2, returnedAck).ackedCopy(u, 2, 100)
			s.add(event{kind: eventShown, conn: s.conn + 1, id: 101, unit: u, attempt: 2, copy: 100, flags: flagFirst}).called(u, 2, returnedAck)
			s.add(event{kind: eventAcknowledged, conn: s.conn + 1, id: 101, unit: u, attempt: 2, copy: 100})
		}, want: CopySentTwice},
	} {
		t.Run(name, func(t *testing.T) {
			stream := test.stream
			if stream == "" {
				stream = "copies"
			}
			s := newScript(t, stream).connect(0)
			if !s.page.stream.held() {
				s.connectSecond(0)
			}
			test.do(s)
			a := s.audit()
			expectFigures(t, a)
			if want := map[Reason]int{test.want: 1}; !maps.Equal(a.Twice, want) {
				t.Errorf("handled again: %v, want %v; %s", a.Twice, want, strings.Join(a.Examples, "\n"))
			}
		})
	}
}

// A message whose first attempt was handled twice has two copies, and both are handled.
func TestACallMayFollowAnother(t *testing.T) {
	s := newScript(t, "copies").connect(0).connectSecond(0)
	u := s.send(failsOnce)
	s.shown(u, 0).called(u, 1, returnedRetry).copied(u, 1, 100).confirmed(100).ends(Kill)
	s.start("copies").connect(flagPresent).connectSecond(flagPresent).shown(u, flagDup).called(u, 1, returnedRetry).copied(u, 1, 101).confirmed(101).acked(u)
	s.back(u, 2, 100, 0).called(u, 2, returnedAck).ackedCopy(u, 2, 100).back(u, 2, 101, 0).called(u, 2, returnedAck).ackedCopy(u, 2, 101)
	a := s.audit()
	expectFigures(t, a)
	if want := map[Reason]int{ProcessKilled: 1, FollowsAnother: 1}; !maps.Equal(a.Twice, want) {
		t.Errorf("handled again: %v, want %v", a.Twice, want)
	}
}

// What is handled again because of a cut counts as at full load by what was in work when the connection was lost.
func TestFullLoadIsToldByWhatWasInWork(t *testing.T) {
	for _, inWork := range []int{fullEnough - 1, fullEnough} {
		s := newScript(t, "copies").connect(0)
		u := s.send(plain)
		units := make([]uint32, inWork-1)
		s.shown(u, 0)
		for i := range units {
			units[i] = s.send(plain)
			s.shown(units[i], 0)
		}
		s.called(u, 1, returnedAck).lost(0).connect(flagPresent).lost(0).connect(flagPresent).shown(u, flagDup).called(u, 1, returnedAck).acked(u)
		a := s.audit()
		if want := inWork / fullEnough; a.FullLoad.Twice != want || a.OtherLoad.Twice != 1-want || a.FullLoad.Messages != want {
			t.Errorf("%d in work: %+v and %+v", inWork, a.FullLoad, a.OtherLoad)
		}
	}
}
