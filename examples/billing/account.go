package main

// Account compares what the meters have sent with what has become of it.
type Account struct {
	Sent        int // reports that the server has confirmed to the meters
	Unconfirmed int // reports that the server may have or not, as no confirmation came
	Malformed   int // of Sent

	Billed     int   // reports in the ledger
	BilledWh   int64 // what they amount to
	Dead       int   // reports in the dead letters, and not in the ledger
	DeadPoison int   // of Dead, the malformed ones
	Both       int   // reports in the ledger of which there is a dead letter too: their last attempt was written, its answer lost

	Missing  int // confirmed reports that are nowhere
	Wrong    int // malformed reports in the ledger, and amounts that differ from what the meter has sent
	Strange  int // entries and dead letters that none of these meters has sent: of an earlier run, say. They prove nothing
}

// Balanced says that every report is in the ledger, once and with its amount, or in the dead letters.
func (a *Account) Balanced() bool { return a.Missing == 0 && a.Wrong == 0 }

// settleAccount makes the account. The ledger cannot have a report twice: it is its key. So what is to be shown is that
// none is missing, and that the amounts are those that were sent.
func settleAccount(sent map[string]Report, ledger map[string]int64, dead map[string]bool) Account {
	var a Account
	for id, r := range sent {
		wh, billed := ledger[id]
		if r.Confirmed {
			a.Sent++
			if r.Malformed {
				a.Malformed++
			}
		} else {
			a.Unconfirmed++
		}
		switch {
		case billed && (r.Malformed || wh != r.Wh):
			a.Wrong++
		case billed:
			a.Billed++
			a.BilledWh += wh
			if dead[id] {
				a.Both++
			}
		case dead[id]:
			a.Dead++
			if r.Malformed {
				a.DeadPoison++
			}
		case r.Confirmed:
			a.Missing++
		}
	}
	for id := range ledger {
		if _, known := sent[id]; !known {
			a.Strange++
		}
	}
	for id := range dead {
		if _, known := sent[id]; !known {
			a.Strange++
		}
	}
	return a
}
