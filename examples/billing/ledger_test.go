package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
)

func openLedger(t *testing.T, path string) *Ledger {
	t.Helper()
	l, err := OpenLedger(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func closeLedger(t *testing.T, l *Ledger) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

func TestLedgerHasEachReportOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a ledger?.db")
	l := openLedger(t, path)
	for i, p := range []Posting{{"a", "1", 10}, {"b", "1", 20}, {"a", "1", 10}} {
		fresh, err := l.Post(t.Context(), p)
		if err != nil || fresh != (i < 2) {
			t.Errorf("posting %d: fresh %t, %v", i, fresh, err)
		}
	}
	if l.Posted() != 2 || l.Again() != 1 {
		t.Errorf("%d posted, %d again", l.Posted(), l.Again())
	}
	closeLedger(t, l)

	// And knows it the next time.
	l = openLedger(t, path)
	defer closeLedger(t, l)
	if fresh, err := l.Post(t.Context(), Posting{"b", "1", 20}); fresh || err != nil {
		t.Errorf("after a restart: fresh %t, %v", fresh, err)
	}
	all, err := l.Postings(t.Context())
	if got := fmt.Sprint(all); err != nil || got != "map[a:10 b:20]" {
		t.Errorf("%s, %v", got, err)
	}
}

// Posts from everywhere at once, each report from two sides.
func TestLedgerTogether(t *testing.T) {
	l := openLedger(t, "")
	var (
		all   sync.WaitGroup
		fresh atomic.Int64
	)
	const reports = 500
	for range 2 {
		for i := range reports {
			all.Go(func() {
				first, err := l.Post(context.Background(), Posting{fmt.Sprint(i), "1", int64(i)})
				if err != nil {
					t.Error(err)
				}
				if first {
					fresh.Add(1)
				}
			})
		}
	}
	all.Wait()
	postings, err := l.Postings(t.Context())
	if err != nil || len(postings) != reports || fresh.Load() != reports || l.Again() != reports {
		t.Errorf("%d postings, %d fresh, %d again, %v; want %d each", len(postings), fresh.Load(), l.Again(), err, reports)
	}
	folder := l.folder
	closeLedger(t, l)
	if _, err := os.Stat(folder); !os.IsNotExist(err) {
		t.Errorf("the temporary folder: %v", err)
	}
	if _, err := l.Post(t.Context(), Posting{}); err == nil {
		t.Error("a ledger that is closed took a posting")
	}
}

func TestLedgerContext(t *testing.T) {
	l := openLedger(t, "")
	defer closeLedger(t, l)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 { // it may be written or not, but the caller does not wait
		if _, err := l.Post(ctx, Posting{"a", "1", 1}); err != nil {
			return
		}
	}
	t.Error("no post has minded its context")
}

// A ledger that another program has locked says so, and takes the posting later.
func TestLedgerLocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	mine, other := openLedger(t, path), openLedger(t, path)
	defer closeLedger(t, mine)
	defer closeLedger(t, other)
	mine.db.SetMaxOpenConns(1) // so that this holds for every transaction
	if _, err := mine.db.ExecContext(t.Context(), `PRAGMA busy_timeout = 1`); err != nil {
		t.Fatal(err)
	}
	tx, err := other.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(t.Context(), `DELETE FROM postings`); err != nil {
		t.Fatal(err)
	}
	if fresh, err := mine.Post(t.Context(), Posting{"a", "1", 10}); fresh || !errors.Is(err, errLocked) {
		t.Errorf("while another program writes: fresh %t, %v", fresh, err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if fresh, err := mine.Post(t.Context(), Posting{"a", "1", 10}); !fresh || err != nil {
		t.Errorf("afterwards: fresh %t, %v", fresh, err)
	}
}

func TestLedgerErrors(t *testing.T) {
	if _, err := OpenLedger(t.Context(), filepath.Join(t.TempDir(), "no", "such", "folder.db")); err == nil {
		t.Error("opened a ledger in a folder that is not there")
	}
	text := filepath.Join(t.TempDir(), "text.db")
	if err := os.WriteFile(text, []byte("this is no data base, whatever its name says"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenLedger(t.Context(), text); err == nil {
		t.Error("opened a text as a ledger")
	}
	l := openLedger(t, "")
	defer func() { _ = l.Close() }()
	if err := l.db.Close(); err != nil {
		t.Fatal(err)
	}
	if fresh, err := l.Post(t.Context(), Posting{"a", "1", 1}); fresh || err == nil {
		t.Errorf("without a data base: fresh %t, %v", fresh, err)
	}
}
