package chaos

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
)

// String is an event as a line.
func (e *event) String() string {
	text := fmt.Sprintf("%9.1f ms %c", float64(e.at)/10, e.kind)
	switch e.kind {
	case eventConnected, eventLost, eventParted:
		return fmt.Sprintf("%s conn %d second %d flags %d", text, e.conn, e.copy, e.flags)
	case eventConfirmed:
		return fmt.Sprintf("%s conn %d id %d code 0x%02X", text, e.conn, e.id, e.code)
	case eventBegun:
		return fmt.Sprintf("%s unit %d attempt %d", text, e.unit, e.attempt)
	case eventReturned:
		return fmt.Sprintf("%s unit %d attempt %d %c", text, e.unit, e.attempt, e.code)
	}
	return fmt.Sprintf("%s unit %d attempt %d conn %d id %d copy %08x flags %d", text, e.unit, e.attempt, e.conn, e.id, e.copy, e.flags)
}

// keep writes the consumers' journals into a folder, a file a process.
func (b *book) keep(dir string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	for _, p := range b.pages {
		for _, l := range p.lives {
			if err := l.write(filepath.Join(dir, fmt.Sprintf("%s-%d.txt", l.consumer, l.number))); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *life) write(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	_, _ = fmt.Fprintf(w, "%s, process %d, ended by %q, unclean %t\n", l.consumer, l.number, l.ended, l.unclean)
	for i := range l.events {
		_, _ = fmt.Fprintln(w, &l.events[i])
	}
	if err := w.Flush(); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}
