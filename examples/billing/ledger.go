package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"modernc.org/sqlite" // the driver "sqlite", in Go alone
	sqlite3 "modernc.org/sqlite/lib"
)

// Posting is one entry of the ledger.
type Posting struct {
	Report string // the report's message id; the ledger has each once
	Meter  string
	Wh     int64 // whole watt-hours: sums of floats would not balance
}

// Ledger is the book that bills are written from, in SQLite. Its methods may be called from any goroutine.
//
// Posts that come at the same time share one transaction, because what takes the time of a transaction is the disk's word that all is
// written.
type Ledger struct {
	db      *sql.DB
	path    string
	folder  string // to be removed in the end; empty where the ledger is to stay
	posts   chan post
	closing chan struct{}
	done    sync.WaitGroup

	posted, again atomic.Int64 // of this process
}

// post is one Posting on its way into a transaction.
type post struct {
	Posting
	fresh bool
	err   error
	ready chan *post
}

// groupSize bounds a transaction.
const groupSize = 256

const schema = `
CREATE TABLE IF NOT EXISTS postings (
	report TEXT PRIMARY KEY,
	meter  TEXT NOT NULL,
	wh     INTEGER NOT NULL
) WITHOUT ROWID, STRICT`

// OpenLedger opens the ledger in a file, and creates it where it does not exist. Without a path it makes a temporary one that Close removes.
func OpenLedger(ctx context.Context, path string) (*Ledger, error) {
	l := &Ledger{path: path, posts: make(chan post), closing: make(chan struct{})}
	if path == "" {
		folder, err := os.MkdirTemp("", "billing-")
		if err != nil {
			return nil, fmt.Errorf("a folder for the ledger: %w", err)
		}
		l.folder, l.path = folder, filepath.Join(folder, "ledger.db")
	}
	// What a transaction has committed survives the loss of power: only then may a report be acknowledged.
	const settings = "?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)"
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: l.path}).EscapedPath()}).String()+settings)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the ledger %s: %w", l.path, err), l.remove())
	}
	if _, err := db.ExecContext(ctx, schema); err != nil {
		return nil, errors.Join(fmt.Errorf("the ledger %s: %w", l.path, err), db.Close(), l.remove())
	}
	l.db = db
	l.done.Go(l.write)
	return l, nil
}

// errLocked says that another program has the ledger to itself, an audit or a backup, and has not let go of it in five seconds.
var errLocked = errors.New("the ledger is locked by another program")

// Post writes a posting, and returns when it is on the disk. fresh is false where the ledger has had that report before, and nothing was
// written. Where Post returns an error the posting may have been written all the same: post it again, it will not be there twice.
func (l *Ledger) Post(ctx context.Context, p Posting) (fresh bool, err error) {
	mine := post{Posting: p, ready: make(chan *post, 1)}
	select {
	case l.posts <- mine:
	case <-l.closing:
		return false, errors.New("the ledger is closed")
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	select {
	case written := <-mine.ready:
		return written.fresh, written.err
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// write is the one goroutine that writes.
func (l *Ledger) write() {
	group := make([]*post, 0, groupSize)
	for {
		select {
		case p := <-l.posts:
			group = append(group[:0], &p)
		case <-l.closing:
			return
		}
	more:
		for len(group) < groupSize {
			select {
			case p := <-l.posts:
				group = append(group, &p)
			default:
				break more
			}
		}
		if err := l.commit(group); err != nil {
			var failure *sqlite.Error
			if errors.As(err, &failure) && failure.Code()&0xFF == sqlite3.SQLITE_BUSY { // the rest of the code is what it was busy with
				err = errLocked
			}
			for _, p := range group {
				p.fresh, p.err = false, err
			}
		}
		for _, p := range group {
			p.ready <- p
		}
	}
}

func (l *Ledger) commit(group []*post) error {
	ctx := context.Background() // several callers wait for it, so none of their contexts may end it
	tx, err := l.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("the ledger: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // after Commit it does nothing
	for _, p := range group {
		result, err := tx.ExecContext(ctx, `INSERT INTO postings (report, meter, wh) VALUES (?, ?, ?) ON CONFLICT (report) DO NOTHING`,
			p.Report, p.Meter, p.Wh)
		if err != nil {
			return fmt.Errorf("the ledger: %w", err)
		}
		rows, err := result.RowsAffected()
		if err != nil {
			return fmt.Errorf("the ledger: %w", err)
		}
		p.fresh = rows == 1
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("the ledger: %w", err)
	}
	for _, p := range group {
		if p.fresh {
			l.posted.Add(1)
		} else {
			l.again.Add(1)
		}
	}
	return nil
}

// Posted is how many reports this process has written.
func (l *Ledger) Posted() int64 { return l.posted.Load() }

// Again is how many reports came to this process that the ledger had already, and were not written a second time.
func (l *Ledger) Again() int64 { return l.again.Load() }

// Postings returns the watt-hours of every report in the ledger.
func (l *Ledger) Postings(ctx context.Context) (map[string]int64, error) {
	rows, err := l.db.QueryContext(ctx, `SELECT report, wh FROM postings`)
	if err != nil {
		return nil, fmt.Errorf("the ledger: %w", err)
	}
	defer func() { _ = rows.Close() }()
	all := make(map[string]int64)
	for rows.Next() {
		var (
			report string
			wh     int64
		)
		if err := rows.Scan(&report, &wh); err != nil {
			return nil, fmt.Errorf("the ledger: %w", err)
		}
		all[report] = wh
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("the ledger: %w", err)
	}
	return all, nil
}

// Close closes the ledger; a temporary one is removed. Posts that are under way are written first.
func (l *Ledger) Close() error {
	close(l.closing)
	l.done.Wait()
	return errors.Join(l.db.Close(), l.remove())
}

func (l *Ledger) remove() error {
	if l.folder == "" {
		return nil
	}
	return os.RemoveAll(l.folder)
}

// String is where the ledger is.
func (l *Ledger) String() string {
	if l.folder != "" {
		return "SQLite in a temporary file"
	}
	return "SQLite in " + l.path
}
