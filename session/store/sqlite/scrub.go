package sqlite

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"
)

// SQLite moves rows between pages and leaves copies of them in the unused parts of the pages that they came
// from, which secure_delete does not overwrite. After something was removed the writer scrubs the database:
// it walks all pages and overwrites what they do not use.
//
// That a scrub is owed is written in the transaction that removes something, as the database's
// user_version: scrubbed if none is owed, another value otherwise, which a database from before has too.
const (
	scrubbed   = 1
	unscrubbed = 0
)

const (
	// scrubReads and scrubWrites are the most pages that one transaction reads and writes, so that appends
	// wait for milliseconds. Once all pages that there were at first are scrubbed, and some were added or
	// written to meanwhile, each transaction takes twice as many of these as the last one, so that they
	// become fewer whatever else is written.
	scrubReads  = 256
	scrubWrites = 256
	// scrubRest is how many times as long as a transaction of the scrub took the writer does other things
	// before the next one, and as long as a whole scrub took before the next whole one.
	scrubRest = 2
	// scrubWait is the longest wait before the next whole scrub.
	scrubWait = time.Minute
	// scrubRetry is the wait after a transaction that failed and may succeed later.
	scrubRetry = time.Second
	// scrubAtStop is how long Close scrubs.
	scrubAtStop = 5 * time.Second
)

// scrubber is how far a scrub has come. Pages before next that are not in changed have nothing in their
// unused parts. Owned by the goroutine of run.
type scrubber struct {
	owed  bool        // as in the database
	timer *time.Timer // until the next transaction, nil if no scrub is due
	wait  time.Duration

	begun  time.Time
	next   uint32          // 0 before the scrub has begun
	first  uint32          // pages that there were when it began, 0 if that is not known yet
	again  int             // transactions that have scrubbed later pages, or those of changed
	broken int             // pages that make no sense, which are left as they are
	bad    map[uint32]bool // pages that cannot be read
	// changed are pages before next that were written to since. SQLite gives pages the numbers of others
	// when it balances a tree, so any of them may have copies again.
	changed map[uint32]struct{}
	salts   [8]byte // of the WAL that frames is of
	frames  int64   // of the WAL that have been looked at
}

// scrubs reports whether the database can be scrubbed. It needs the map of the pages, which a database
// without auto_vacuum does not have.
func (w *writer) scrubs() bool { return w.wal != "" && w.shrinks }

// owesScrub reads whether a scrub is owed and has the writer begin it.
func (w *writer) owesScrub() error {
	mark, err := w.number("PRAGMA user_version")
	if err != nil {
		return fmt.Errorf("read whether a scrub is owed: %w", err)
	}
	if w.scrub.owed = mark != scrubbed; w.scrub.owed {
		w.scrubLater(tidyDelay)
	}
	return nil
}

// oweScrub marks the database within the transaction that removes something.
func (w *writer) oweScrub() error {
	if w.scrub.owed || w.wal == "" {
		return nil
	}
	return w.exec(fmt.Sprintf("PRAGMA user_version = %d", unscrubbed))
}

// scrubLater has the writer scrub after a wait, unless that is due already.
func (w *writer) scrubLater(wait time.Duration) {
	if w.scrubs() && w.scrub.timer == nil {
		w.scrub.timer = time.NewTimer(wait)
	}
}

// scrubDue delivers when the writer has to scrub; nil for never.
func (w *writer) scrubDue() <-chan time.Time {
	if w.scrub.timer == nil {
		return nil
	}
	return w.scrub.timer.C
}

// scrubStep runs one transaction of the scrub and has the next one run later.
func (w *writer) scrubStep() {
	s := &w.scrub
	s.timer = nil
	if w.dead != nil || !s.owed {
		return
	}
	begun := time.Now()
	done, err := w.scrubSome()
	switch {
	case w.dead != nil || done:
	case err != nil:
		w.scrubLater(scrubRetry)
	case s.again > 0:
		w.scrubLater(time.Millisecond)
	default:
		w.scrubLater(max(time.Millisecond, scrubRest*time.Since(begun)))
	}
}

// scrubAll scrubs until nothing is owed or a time is over. It is the writer's last act.
func (w *writer) scrubAll(limit time.Duration) {
	s := &w.scrub
	if w.dead != nil || !s.owed || !w.scrubs() {
		return
	}
	for begun := time.Now(); time.Since(begun) < limit; {
		if done, err := w.scrubSome(); done || err != nil {
			break
		}
	}
	if s.owed {
		w.log.Warn("the database is not scrubbed: unused parts of its pages may hold copies of what was deleted; "+
			"the next start goes on",
			slog.Int64("bytes", w.size()), slog.Duration("limit", limit))
	}
}

// size returns the bytes that the database has, 0 if they are not known.
func (w *writer) size() int64 {
	pages, err := w.number("PRAGMA page_count")
	if err != nil {
		return 0
	}
	size, err := w.number("PRAGMA page_size")
	if err != nil {
		return 0
	}
	return pages * size
}

// scrubSome scrubs some pages in one transaction and reports whether the scrub is complete. After an error
// the scrub begins anew.
func (w *writer) scrubSome() (done bool, err error) {
	s := &w.scrub
	if s.next == 0 {
		s.begun, s.next, s.first, s.again, s.broken, s.changed = time.Now(), 1, 0, 0, 0, map[uint32]struct{}{}
		if err := s.look(w.wal, false); err != nil {
			return false, w.scrubFailed("look at the WAL", err)
		}
	}
	if err := write(w.tx.begin); err != nil {
		return false, w.scrubFailed("begin", err)
	}
	if done, err = w.scrubPages(); err != nil {
		return false, w.scrubFailed("scrub", err)
	}
	if done {
		if err := w.exec(fmt.Sprintf("PRAGMA user_version = %d", scrubbed)); err != nil {
			return false, w.scrubFailed("scrub", err)
		}
	}
	if err := w.commit(func() error { return write(w.tx.commit) }); err != nil {
		return false, w.scrubFailed(inCommit, err)
	}
	if !done {
		before := s.frames
		if err := s.look(w.wal, false); err != nil {
			s.next = 0
			return false, err
		}
		if before > s.frames { // the WAL was begun anew
			before = 0
		}
		w.checkpoints.wrote(int(s.frames - before))
		return false, nil
	}
	if s.broken > 0 {
		w.log.Warn("pages that make no sense were not scrubbed: they may hold copies of what was deleted",
			slog.Int("pages", s.broken))
	}
	*s = scrubber{timer: s.timer, wait: min(scrubRest*time.Since(s.begun), scrubWait)}
	w.tidyLater(tidyDelay) // the WAL has the pages, and the database still has them as they were
	return true, nil
}

// scrubFailed undoes the transaction; the scrub begins anew.
func (w *writer) scrubFailed(where string, err error) error {
	s := &w.scrub
	s.next = 0
	if _, ok := errors.AsType[*os.PathError](err); ok { // of the WAL, before the transaction
		return err
	}
	if u, ok := errors.AsType[*unreadable](err); ok { // that one cannot be read is no reason to write no more
		if s.bad == nil {
			s.bad = map[uint32]bool{}
		}
		s.bad[u.page] = true
		_ = w.exec("ROLLBACK")
		return err
	}
	return w.failed(where, err)
}

// scrubPages scrubs some pages within a transaction and reports whether they were the last ones.
func (w *writer) scrubPages() (done bool, err error) {
	s := &w.scrub
	v, err := newPages(w.tx, s.bad)
	if err != nil {
		return false, err
	}
	if s.first == 0 {
		s.first = v.count
	}
	more := min(s.again, 20)
	if s.next > s.first {
		s.again++
	}
	for reads, writes := 0, 0; reads < scrubReads<<more && writes < scrubWrites<<more; reads++ {
		n := s.next
		if n <= v.count {
			s.next++
		} else {
			if n = anyOf(s.changed); n == 0 {
				return true, nil
			}
			delete(s.changed, n)
			if n > v.count { // it is no more
				continue
			}
		}
		page, fate, err := v.blank(n)
		if err != nil {
			return false, fmt.Errorf("page %d: %w", n, err)
		}
		switch fate {
		case clean:
		case blanked:
			writes++
			if err := write(w.tx.setPage, page, n); err != nil {
				return false, fmt.Errorf("write page %d: %w", n, err)
			}
		case senseless:
			s.broken++
		}
	}
	return false, nil
}

// anyOf returns a page of a set, 0 if there is none.
func anyOf(set map[uint32]struct{}) uint32 {
	for n := range set {
		return n
	}
	return 0
}

// lookForChanges notes which pages were written since it was last called; it is to be called behind each
// transaction that is not the scrub's own.
func (w *writer) lookForChanges() {
	if w.scrub.next == 0 {
		return
	}
	if err := w.scrub.look(w.wal, true); err != nil {
		w.scrub.next = 0 // it is not known which pages are scrubbed
	}
}

// look reads the numbers of the pages that were committed to the WAL since it was last called, and notes
// those that had been scrubbed, if it is to. Between two calls SQLite may begin the WAL anew, but no more
// than one transaction may run.
func (s *scrubber) look(wal string, note bool) error {
	f, err := os.Open(wal)
	if errors.Is(err, os.ErrNotExist) {
		s.salts, s.frames = [8]byte{}, 0
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	var header [32]byte // magic, version, size of pages, checkpoints, salts, checksum
	if err := readAt(f, header[:], 0); errors.Is(err, io.EOF) {
		s.salts, s.frames = [8]byte{}, 0
		return nil
	} else if err != nil {
		return err
	}
	if salts := [8]byte(header[16:24]); salts != s.salts {
		s.salts, s.frames = salts, 0
	}
	stride := 24 + int64(binary.BigEndian.Uint32(header[8:]))
	var pages []uint32
	for i := s.frames; ; i++ {
		var frame [16]byte // page, pages of the database if it is a commit, salts
		err := readAt(f, frame[:], int64(len(header))+i*stride)
		if errors.Is(err, io.EOF) || err == nil && [8]byte(frame[8:]) != s.salts {
			return nil
		}
		if err != nil {
			return err
		}
		pages = append(pages, binary.BigEndian.Uint32(frame[:]))
		if binary.BigEndian.Uint32(frame[4:]) == 0 {
			continue
		}
		s.frames = i + 1
		for _, n := range pages {
			if note && n < s.next {
				s.changed[n] = struct{}{}
			}
		}
		pages = pages[:0]
	}
}

// readAt fills b, or returns io.EOF if the file ends before.
func readAt(f *os.File, b []byte, at int64) error {
	n, err := f.ReadAt(b, at)
	if n == len(b) {
		return nil
	}
	return err
}

// fate is what has become of a page.
type fate int

const (
	clean     fate = iota // it had nothing in its unused parts
	blanked               // it is to be written
	senseless             // it is not as SQLite writes them, and was not changed
)

// Types of pages in the map of a database with auto_vacuum.
const (
	mapRoot = iota + 1
	mapFree
	mapOverflowFirst
	mapOverflowNext
	mapTree
)

// pages are those of a database as a transaction sees them.
type pages struct {
	tx     *tx
	count  uint32
	size   int
	usable int
	maps   map[uint32][]byte // pages of the map that were read
	trunks map[uint32]bool   // of the list of free pages; nil before it was read
	bad    map[uint32]bool   // pages that are not to be read
}

// unreadable is the error of a page that cannot be read.
type unreadable struct {
	page uint32
	err  error
}

func (u *unreadable) Error() string { return fmt.Sprintf("read page %d: %v", u.page, u.err) }

func (u *unreadable) Unwrap() error { return u.err }

// errBad is that of a page which could not be read before.
var errBad = errors.New("it could not be read before")

// errNoMap says that the database has no map of its pages.
var errNoMap = errors.New("the database has no auto_vacuum")

func newPages(t *tx, bad map[uint32]bool) (*pages, error) {
	v := &pages{tx: t, maps: map[uint32][]byte{}, bad: bad}
	first, err := v.read(1)
	if err != nil {
		return nil, err
	}
	if len(first) < 512 || binary.BigEndian.Uint32(first[52:]) == 0 {
		return nil, errNoMap
	}
	v.size = len(first)
	v.usable = v.size - int(first[20])
	if err := t.countPages.QueryRowContext(context.Background()).Scan(&v.count); err != nil {
		return nil, err
	}
	return v, nil
}

func (v *pages) read(n uint32) (page []byte, err error) {
	if v.bad[n] && n != 1 {
		return nil, errBad
	}
	err = v.tx.getPage.QueryRowContext(context.Background(), n).Scan(&page)
	if err != nil {
		return nil, &unreadable{n, err}
	}
	return page, nil
}

// lockPage is never written: SQLite locks its bytes.
func (v *pages) lockPage() uint32 { return uint32(1<<30/v.size) + 1 } // a page has 512 bytes at least

// mapPage returns the page of the map that has the entry of a page; it is the page itself for one of the
// map.
func (v *pages) mapPage(n uint32) uint32 {
	each := uint32(v.usable/5) + 1 // a page has 64 KiB at most
	m := (n-2)/each*each + 2
	if m == v.lockPage() {
		m++
	}
	return m
}

// entry returns the type of a page and the page that it belongs to, 0 for a page that has none.
func (v *pages) entry(n uint32) (kind byte, parent uint32, err error) {
	if n < 2 || n > v.count || n == v.lockPage() {
		return 0, 0, nil
	}
	at := v.mapPage(n)
	if n <= at {
		return 0, 0, nil
	}
	m := v.maps[at]
	if m == nil {
		if m, err = v.read(at); err != nil {
			return 0, 0, err
		}
		v.maps[at] = m
	}
	i := 5 * int(n-at-1)
	if i+5 > len(m) {
		return 0, 0, nil
	}
	return m[i], binary.BigEndian.Uint32(m[i+1:]), nil
}

// blank returns a page without what it does not use.
func (v *pages) blank(n uint32) (page []byte, f fate, err error) {
	if page, f, err = v.tryBlank(n); errors.Is(err, errBad) {
		return nil, senseless, nil
	}
	return page, f, err
}

func (v *pages) tryBlank(n uint32) (page []byte, f fate, err error) {
	if n == v.lockPage() || n > 1 && n == v.mapPage(n) {
		return nil, clean, nil
	}
	kind, parent, err := v.entry(n)
	if err != nil {
		return nil, 0, err
	}
	if page, err = v.read(n); err != nil {
		return nil, 0, err
	}
	if len(page) != v.size {
		return nil, senseless, nil
	}
	changed, ok := false, false
	switch {
	case n == 1:
		changed, ok = blankTree(page, 100, v.usable)
	case kind == mapRoot, kind == mapTree:
		changed, ok = blankTree(page, 0, v.usable)
	case kind == mapFree:
		changed, ok, err = v.blankFree(n, page)
	case kind == mapOverflowFirst, kind == mapOverflowNext:
		changed, ok, err = v.blankOverflow(n, page, kind, parent)
	}
	switch {
	case err != nil:
		return nil, 0, err
	case !ok:
		return nil, senseless, nil
	case changed:
		return page, blanked, nil
	}
	return nil, clean, nil
}

// blankFree blanks a free page, but for what one holds that lists others.
func (v *pages) blankFree(n uint32, page []byte) (changed, ok bool, err error) {
	if blank, err := v.isBlankFree(page); blank || err != nil {
		return false, err == nil, err
	}
	if v.trunks == nil {
		if v.trunks, err = v.readTrunks(); err != nil {
			return false, false, err
		}
	}
	if !v.trunks[n] {
		return zero(page[:v.usable]), !v.trunks[0], nil
	}
	end := 8 + 4*int64(binary.BigEndian.Uint32(page[4:]))
	if end > int64(v.usable) {
		return false, false, nil
	}
	return zero(page[end:v.usable]), true, nil
}

// isBlankFree reports whether a free page has nothing but zeros, or a list of free pages and zeros.
func (v *pages) isBlankFree(page []byte) (bool, error) {
	n := int64(binary.BigEndian.Uint32(page[4:]))
	if 8+4*n > int64(v.usable) {
		return false, nil
	}
	for i := range n {
		kind, _, err := v.entry(binary.BigEndian.Uint32(page[8+4*i:]))
		if kind != mapFree || err != nil {
			return false, err
		}
	}
	next := binary.BigEndian.Uint32(page)
	if kind, _, err := v.entry(next); next != 0 && kind != mapFree || err != nil {
		return false, err
	}
	for _, b := range page[8+4*n : v.usable] {
		if b != 0 {
			return false, nil
		}
	}
	return true, nil
}

// readTrunks returns the pages that list free pages. 0 is one of them if the list makes no sense.
func (v *pages) readTrunks() (map[uint32]bool, error) {
	trunks := map[uint32]bool{}
	page, err := v.read(1)
	if err != nil {
		return nil, err
	}
	for n := binary.BigEndian.Uint32(page[32:]); n != 0; n = binary.BigEndian.Uint32(page) {
		kind, _, err := v.entry(n)
		if err != nil {
			return nil, err
		}
		if kind != mapFree || trunks[n] {
			trunks[0] = true
			return trunks, nil
		}
		trunks[n] = true
		if page, err = v.read(n); err != nil {
			return nil, err
		}
	}
	return trunks, nil
}

// blankOverflow blanks what the last overflow page of a payload has behind it.
func (v *pages) blankOverflow(n uint32, page []byte, kind byte, parent uint32) (changed, ok bool, err error) {
	if binary.BigEndian.Uint32(page) != 0 { // it is not the last, and full
		return false, true, nil
	}
	before := 0 // pages of the payload
	for ; kind == mapOverflowNext && before < int(v.count); before++ {
		n = parent
		if kind, parent, err = v.entry(n); err != nil {
			return false, false, err
		}
	}
	if kind != mapOverflowFirst || parent == 0 || parent > v.count {
		return false, false, nil
	}
	tree, err := v.read(parent)
	if err != nil {
		return false, false, err
	}
	at := 0
	if parent == 1 {
		at = 100
	}
	rest, ok := restOf(tree, at, v.usable, n)
	rest -= before * (v.usable - 4)
	if !ok || rest <= 0 || rest > v.usable-4 {
		return false, false, nil
	}
	return zero(page[4+rest : v.usable]), true, nil
}
