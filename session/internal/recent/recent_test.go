package recent_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"
	"pgregory.net/rapid"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/internal/recent"
	"github.com/apzuk3/agentd/session/record"
)

// decoded returns entries of records from one on, all of a turn, whose facts are texts.
func decoded(t rapid.TB, first, n int, turn, text string) (entries []*recent.Entry) {
	t.Helper()
	for i := range n {
		e := recent.Of(record.Record{Seq: int64(first + i), TurnID: turn, Data: []byte(text)})
		if _, err := e.Fact(func(rec record.Record) (any, error) { return string(rec.Data), nil }); err != nil {
			t.Fatal(err)
		}
		entries = append(entries, e)
	}
	return entries
}

// seqs returns the records that are kept after one, with a gap for none.
func seqs(l *recent.Log, after int64) (out []int64) {
	for {
		page := l.After(after, 3)
		if len(page) == 0 {
			return out
		}
		for _, e := range page {
			after = e.Record.Seq
			out = append(out, after)
		}
	}
}

// world is a log in a store, and what readers and writers of it are doing.
type world struct {
	kept    *recent.Log
	gone    []*recent.Log // of sessions that left memory
	store   []int         // the version of each record's data; a removal changes it
	turn    string
	taken   func() // of the removal under way
	reading []*reading
}

// reading is a reader in the middle of a log.
type reading struct {
	log     *recent.Log
	epoch   int64
	first   int
	version []int
}

// check fails if anything is kept that the store does not have.
func (w *world) check(t *rapid.T) {
	t.Helper()
	for _, l := range w.gone {
		for after := range int64(50) {
			if l.After(after, 1) != nil {
				t.Fatalf("record %d is kept of a session that is not in memory", after+1)
			}
		}
	}
	for after := range int64(50) {
		for _, e := range w.kept.After(after, 1000) {
			fact, err := e.Fact(func(record.Record) (any, error) { return nil, errors.New("it was decoded") })
			if err != nil {
				t.Fatal(err)
			}
			if w.taken != nil {
				t.Fatalf("record %d is kept while something is taken out", e.Record.Seq)
			}
			if at := int(e.Record.Seq) - 1; at >= len(w.store) || fact != fmt.Sprint(w.store[at]) {
				t.Fatalf("record %d is kept as %v, the store has %v", e.Record.Seq, fact, w.store)
			}
		}
	}
}

// In whatever order a log is appended to, read, shortened, erased and changed, nothing is kept that was taken out of it,
// also not by a reader who has begun before.
func TestNothingIsKeptThatWasTakenOut(t *testing.T) {
	hits := 0
	rapid.Check(t, func(t *rapid.T) {
		m := recent.New()
		worlds := []*world{{kept: m.Log(), turn: "a"}, {kept: m.Log(), turn: "b"}}
		var w *world
		pick := func(t *rapid.T) { w = rapid.SampledFrom(worlds).Draw(t, "log") }
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) { pick(t); w.store = append(w.store, 0) },
			"begin to read": func(t *rapid.T) {
				if pick(t); len(w.store) > 0 {
					r := &reading{log: w.kept, epoch: w.kept.Epoch(), first: rapid.IntRange(0, len(w.store)-1).Draw(t, "first")}
					w.reading = append(w.reading, r)
				}
			},
			"read": func(t *rapid.T) { // a page of what the store has now
				for _, w := range worlds {
					for _, r := range w.reading {
						if at := r.first + len(r.version); r.log == w.kept && at < len(w.store) {
							r.version = append(r.version, w.store[at])
						}
					}
				}
			},
			"end reading": func(t *rapid.T) {
				if pick(t); len(w.reading) == 0 {
					return
				}
				r := w.reading[0]
				w.reading = w.reading[1:]
				var entries []*recent.Entry
				for i, v := range r.version {
					entries = append(entries, decoded(t, r.first+i+1, 1, w.turn, fmt.Sprint(v))...)
				}
				r.log.Keep(r.epoch, entries)
			},
			"begin to take out": func(t *rapid.T) {
				if pick(t); w.taken == nil {
					w.taken = w.kept.Take()
				}
			},
			"take out": func(t *rapid.T) {
				if pick(t); w.taken != nil {
					for i := range w.store {
						w.store[i]++
					}
				}
			},
			"end taking out": func(t *rapid.T) {
				if pick(t); w.taken != nil {
					w.taken()
					w.taken = nil
				}
			},
			"purge or erase": func(t *rapid.T) { // readers of the session that was go on
				pick(t)
				w.kept.Close()
				w.gone = append(w.gone, w.kept)
				w.kept, w.store, w.taken = m.Log(), nil, nil
			},
			"": func(t *rapid.T) {
				for _, w := range worlds {
					w.check(t)
					hits += len(w.kept.After(0, 1000))
				}
			},
		})
		for _, w := range worlds {
			w.kept.Close()
		}
		if m.Weight() != 0 {
			t.Fatalf("%d bytes are kept of logs that are closed", m.Weight())
		}
	})
	if hits == 0 {
		t.Error("nothing was ever kept")
	}
}

// A run grows by what follows or overlaps it; what does not touch it takes its place.
func TestRun(t *testing.T) {
	l := recent.New().Log()
	for _, step := range []struct {
		first, n int
		want     string
	}{
		{5, 3, "[5 6 7]"}, {8, 2, "[5 6 7 8 9]"}, {6, 2, "[5 6 7 8 9]"}, {3, 4, "[3 4 5 6 7 8 9]"}, {2, 1, "[2 3 4 5 6 7 8 9]"},
		{9, 3, "[2 3 4 5 6 7 8 9 10 11]"}, {20, 2, "[20 21]"}, {1, 2, "[1 2]"}, {1, 4, "[1 2 3 4]"},
	} {
		l.Keep(l.Epoch(), decoded(t, step.first, step.n, "t", "x"))
		first := int64(0)
		for first < 30 && len(l.After(first, 1)) == 0 {
			first++
		}
		if got := fmt.Sprint(seqs(l, first)); got != step.want {
			t.Errorf("after %d records from %d on: %s, want %s", step.n, step.first, got, step.want)
		}
		if got := l.After(30, 1); got != nil {
			t.Errorf("after the last one: %v", got)
		}
	}
}

// What is kept never takes more than the bound, nor that of one log; what was used last stays.
func TestBound(t *testing.T) {
	m := recent.New()
	text := strings.Repeat("x", 64<<10)
	var logs []*recent.Log
	for i := range 40 {
		l := m.Log()
		l.Keep(l.Epoch(), decoded(t, 1, 12, "t", text))
		if len(l.After(0, 100)) != 12 {
			t.Fatalf("log %d is not kept", i)
		}
		if logs = append(logs, l); logs[0].After(0, 1) == nil {
			t.Fatalf("the first log is used all the time, and gone after %d", i)
		}
		if m.Weight() > recent.Bytes {
			t.Fatalf("%d bytes are kept, at most %d may be", m.Weight(), recent.Bytes)
		}
	}
	if m.Weight() < recent.Bytes/2 {
		t.Errorf("only %d bytes are kept", m.Weight())
	}
	if logs[1].After(0, 1) != nil || logs[39].After(0, 1) == nil {
		t.Error("what was not used for long is kept, or what was used last is not")
	}
	l := m.Log()
	l.Keep(l.Epoch(), decoded(t, 1, 20, "t", text))
	before := m.Weight()
	l.Keep(l.Epoch(), decoded(t, 21, 40, "t", text))
	if n := len(l.After(0, 100)); n != 20 || m.Weight() != before {
		t.Errorf("%d records of a turn that is too long are kept, want the first 20", n)
	}
	l.Keep(l.Epoch(), decoded(t, 21, 25, "u", text))
	if n := len(l.After(20, 100)); n != 25 || l.After(0, 1) != nil {
		t.Errorf("%d records of the next turn are kept, want its 25 alone", n)
	}
	l.Keep(l.Epoch(), decoded(t, 100, 500, "v", text))
	if l.After(99, 1) != nil || m.Weight() > recent.Bytes {
		t.Error("more is kept of one log than may be")
	}
}

// What is made of an entry is kept with it, counted and within the bounds, for as long as the entry is, and made by one.
func TestMade(t *testing.T) {
	m := recent.New()
	l := m.Log()
	entries := decoded(t, 1, 10, "t", "x")
	calls := 0
	of := func(e *recent.Entry, key, bytes int) any {
		return e.Made(key, func() (any, int) {
			calls++
			return new(int), bytes
		})
	}
	if of(entries[0], 1, 10) == of(entries[0], 1, 10) || calls != 2 || entries[0].Grow(1) {
		t.Error("something is kept of an entry that is not kept")
	}
	l.Keep(l.Epoch(), entries)
	before := m.Weight()
	first := of(entries[0], 1, 1000)
	if of(entries[0], 1, 1000) != first || of(entries[0], 2, 1000) == first || of(entries[1], 1, 1000) == first {
		t.Error("a key of an entry has more than one thing, or two keys have the same one")
	}
	if got := m.Weight() - before; got != 3000 {
		t.Errorf("3 things of 1,000 bytes weigh %d", got)
	}
	if before = m.Weight(); entries[2].Grow(recent.Bytes) || m.Weight() != before {
		t.Error("a log grows by more than may be kept of one")
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for key := range 1000 {
				entries[3].Made(key, func() (any, int) { return key, 10 })
			}
		})
	}
	wg.Wait()
	if got := m.Weight() - before; got <= 0 || got > 1000*10/2 {
		t.Errorf("the things made of one entry weigh %d more: their number has no bound", got)
	}
	for i := range 20 { // others that are larger, used later
		o := m.Log()
		kept := decoded(t, 1, 1, "t", "x")
		o.Keep(o.Epoch(), kept)
		if !kept[0].Grow(2<<20) || m.Weight() > recent.Bytes {
			t.Fatalf("log %d does not grow, or beyond the bound: %d", i, m.Weight())
		}
	}
	if l.After(0, 1) != nil || entries[0].Grow(1) {
		t.Error("what was not used for long grows")
	}
	if of(entries[0], 1, 10) != first {
		t.Error("who has an entry lost what was made of it")
	}
	l.Keep(l.Epoch(), decoded(t, 1, 10, "t", "x"))
	if entries[1].Grow(1) {
		t.Error("an entry grows in whose place another one is kept")
	}
	l.Close()
	if entries[1].Grow(1) {
		t.Error("an entry of a log that is closed grows")
	}
}

// An entry weighs at least what it takes in memory, whatever its fact is.
func TestWeight(t *testing.T) {
	deep := func() any {
		var v any = "x"
		for range 20 {
			v = map[string]any{"k": v, "l": []any{v == nil, "text"}}
		}
		return v
	}
	parts := func() any {
		s, err := structpb.NewStruct(map[string]any{"a": []any{1.5, "b", nil, true}, "c": map[string]any{}})
		if err != nil {
			t.Fatal(err)
		}
		var p record.Parts
		for range 5 {
			p = append(p, &agentdv1.Part{Content: &agentdv1.Part_Text{Text: strings.Repeat("y", 50)}})
		}
		return []any{&record.ToolResult{Parts: p}, s}
	}
	event := func() any {
		ev := &record.Event{Path: []string{"root"}, Text: strings.Repeat("z", 200)}
		for range 10 {
			ev.Calls = append(ev.Calls, record.ToolCall{ID: strings.Repeat("i", 9), Input: []byte(`{"a":1}`), Path: []string{"root"}})
		}
		return ev
	}
	wide := func() any {
		m := map[string]any{}
		for i := range 200 {
			m[fmt.Sprint(i)] = []any{}
		}
		return m
	}
	for name, fact := range map[string]func() any{"deep": deep, "parts": parts, "event": event, "wide": wide} {
		const n = 100
		live := func() uint64 {
			var s runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&s)
			return s.HeapAlloc
		}
		m := recent.New()
		l := m.Log()
		before := live()
		var entries []*recent.Entry
		for i := range n {
			e := recent.Of(record.Record{Seq: int64(i + 1), TurnID: "t", Data: []byte("{}")})
			if _, err := e.Fact(func(record.Record) (any, error) { return fact(), nil }); err != nil {
				t.Fatal(err)
			}
			entries = append(entries, e)
		}
		l.Keep(0, entries)
		clear(entries)
		took := int64(live() - before)
		if len(l.After(0, n)) != n {
			t.Fatalf("%s: nothing is kept of %d bytes", name, took)
		}
		if w := m.Weight(); w < took || w > 8*took {
			t.Errorf("%s: weighs %d, takes %d bytes", name, w, took)
		}
	}
}
