package main

// Account compares what the meters have sent with what has become of it.
type Account struct {
	Sent   Sum // reports that the server has confirmed to the meters, and those without its word that have arrived all the same
	Ledger Sum // of these, those in the ledger
	Dead   Sum // of these, those in the dead letters, and not in the ledger

	Malformed int // of Dead, those that a meter had garbled
	Both      int // of Ledger, those that have a dead letter too: the last attempt was written, and its answer was lost
	Missing   int // of Sent, those that are nowhere
	Wrong     int // of Ledger, those whose amount is not what the meter has sent
	Strange   int // entries and dead letters that no meter of this run has sent: of an earlier run, as a rule
}

// Sum is a number of reports, and what the well-formed ones among them amount to.
type Sum struct {
	Reports int
	Wh      int64
}

func (s *Sum) add(wh int64) {
	s.Reports++
	s.Wh += wh
}

// Balanced says that every report is in the ledger, once and with its amount, or in the dead letters.
func (a *Account) Balanced() bool {
	return a.Missing == 0 && a.Wrong == 0 && a.Sent.Wh == a.Ledger.Wh+a.Dead.Wh
}

// settleAccount makes the account. That no report is in the ledger twice is for the ledger's key to say.
func settleAccount(sent map[string]Report, ledger map[string]int64, dead map[string]bool) Account {
	var a Account
	for id, r := range sent {
		wh, billed := ledger[id]
		if !r.Confirmed && !billed && !dead[id] {
			continue // the meter knows that it may not have arrived
		}
		a.Sent.add(r.Wh)
		switch {
		case billed:
			a.Ledger.add(wh)
			if wh != r.Wh || r.Malformed {
				a.Wrong++
			}
			if dead[id] {
				a.Both++
			}
		case dead[id]:
			a.Dead.add(r.Wh)
			if r.Malformed {
				a.Malformed++
			}
		default:
			a.Missing++
		}
	}
	a.Strange = strange(sent, ledger) + strange(sent, dead)
	return a
}

// strange counts what has arrived and was not sent.
func strange[V any](sent map[string]Report, arrived map[string]V) int {
	n := 0
	for id := range arrived {
		if _, known := sent[id]; !known {
			n++
		}
	}
	return n
}
