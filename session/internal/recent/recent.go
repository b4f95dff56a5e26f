// Package recent keeps the decoded records of logs that somebody has read a moment ago, and what was made of them, for
// who reads them next.
//
// All logs of a server share one bound. What was used last stays. The package must not know sessions, nor what
// records say, nor where they are stored: whoever takes something out of a log says so before and after.
package recent

import (
	"container/list"
	"slices"
	"sync"
)

// Bounds of what a server keeps, by [Entry] weight: all of it, and of one log.
const (
	Bytes    = 16 << 20
	logBytes = Bytes / 4
)

// Memory is what is kept of all logs. Its methods may be called from any goroutine.
type Memory struct {
	mu    sync.Mutex // protects the fields below, and those of logs; taken last
	bytes int64      // the weight of all runs
	logs  *list.List // of *Log with a run, the longest unused first
}

// New returns a Memory that keeps nothing yet.
func New() *Memory { return &Memory{logs: list.New()} }

// Weight returns about how many bytes are kept; it is at most [Bytes].
func (m *Memory) Weight() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bytes
}

// Log is what is kept of one log: a run of records without a gap. A nil Log keeps nothing. Its methods may be called
// from any goroutine.
type Log struct {
	m *Memory

	// The fields below are protected by Memory.mu.
	run    []*Entry
	bytes  int64 // the weight of run
	place  *list.Element
	epoch  int64 // rises when something is taken out of the log
	taking int   // how many are about to do that
	closed bool
}

// Log returns what is kept of a log, nothing yet. Whoever has it closes it.
func (m *Memory) Log() *Log { return &Log{m: m} }

// After returns the records after a sequence number that are kept, at most limit of them.
func (l *Log) After(seq int64, limit int) []*Entry {
	if l == nil {
		return nil
	}
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	if len(l.run) == 0 {
		return nil
	}
	from := seq + 1 - l.run[0].Record.Seq
	if from < 0 || from >= int64(len(l.run)) {
		return nil
	}
	l.m.logs.MoveToBack(l.place)
	rest := l.run[from:]
	return slices.Clip(rest[:min(limit, len(rest))])
}

// Epoch returns what [Log.Keep] is to be given for records that are read from now on.
func (l *Log) Epoch() int64 {
	if l == nil {
		return 0
	}
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	return l.epoch
}

// Keep keeps decoded records that follow each other, which were read since an epoch. It keeps none if something was
// taken out of the log since, or is about to be, and none that do not fit.
func (l *Log) Keep(epoch int64, entries []*Entry) {
	if l == nil || len(entries) == 0 {
		return
	}
	for _, e := range entries {
		e.weigh()
		e.log = l
	}
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	if l.closed || l.taking > 0 || l.epoch != epoch {
		return
	}
	run := join(l.run, entries)
	if weightOf(run) > logBytes {
		if n := len(l.run); n > 0 && l.run[n-1].Record.TurnID == entries[0].Record.TurnID {
			return // the beginning of a long turn stays
		}
		if run = entries; weightOf(run) > logBytes {
			return
		}
	}
	l.dropLocked()
	l.run, l.bytes = run, weightOf(run)
	l.place = l.m.logs.PushBack(l)
	l.m.bytes += l.bytes
	l.boundLocked()
}

// boundLocked drops what was not used for the longest time until the rest is within the bound; the caller holds
// Memory.mu.
func (l *Log) boundLocked() {
	for l.m.bytes > Bytes {
		l.m.logs.Front().Value.(*Log).dropLocked()
	}
}

// grow counts bytes more of an entry, and reports whether the log keeps it and has room for them.
func (l *Log) grow(e *Entry, bytes int64) bool {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	if len(l.run) == 0 || l.bytes+bytes > logBytes {
		return false
	}
	at := e.Record.Seq - l.run[0].Record.Seq
	if at < 0 || at >= int64(len(l.run)) || l.run[at] != e {
		return false
	}
	e.weight += bytes
	l.bytes += bytes
	l.m.bytes += bytes
	l.m.logs.MoveToBack(l.place)
	l.boundLocked()
	return true
}

// join returns the records of two runs; if there is a gap between them, those of the second one.
func join(a, b []*Entry) []*Entry {
	if len(a) == 0 {
		return slices.Clone(b)
	}
	first, last := b[0].Record.Seq, b[len(b)-1].Record.Seq
	if first > a[len(a)-1].Record.Seq+1 || last < a[0].Record.Seq-1 {
		return slices.Clone(b)
	}
	before := max(first-a[0].Record.Seq, 0)
	after := min(max(last+1-a[0].Record.Seq, 0), int64(len(a)))
	return slices.Concat(a[:before], b, a[after:])
}

// Take says that something is about to be taken out of the log: nothing of it is kept until taken is called, once.
// What was read before is not kept afterwards either.
func (l *Log) Take() (taken func()) {
	if l == nil {
		return func() {}
	}
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	l.dropLocked()
	l.taking++
	l.epoch++
	return func() {
		l.m.mu.Lock()
		defer l.m.mu.Unlock()
		l.taking--
		l.epoch++
	}
}

// Close drops what is kept, and keeps nothing from now on. It may be called again.
func (l *Log) Close() {
	if l == nil {
		return
	}
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	l.dropLocked()
	l.closed = true
}

// dropLocked keeps nothing of the log; the caller holds Memory.mu.
func (l *Log) dropLocked() {
	if l.place == nil {
		return
	}
	l.m.logs.Remove(l.place)
	l.m.bytes -= l.bytes
	l.run, l.bytes, l.place = nil, 0, nil
}
