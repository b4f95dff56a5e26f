package storetest

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

var appendTests = []test{
	{"Append/OneByOne", func(t *testing.T, s store.Store) {
		create(t, s, "a", "b")
		for i := range 5 {
			add(t, s, batch("a", events(int64(i), 1)...))
		}
		wantLog(t, s, "a", events(0, 5))
		wantLog(t, s, "b", nil)
	}},
	{"Append/SeveralAtOnce", func(t *testing.T, s store.Store) {
		create(t, s, "a")
		add(t, s, batch("a", events(0, 100)...))
		add(t, s, batch("a", events(100, 1)...))
		add(t, s, batch("a", events(101, 400)...))
		wantLog(t, s, "a", events(0, 501))
	}},
	{"Append/EveryKind", func(t *testing.T, s store.Store) {
		create(t, s, "a")
		kinds := record.Kinds()
		recs := events(0, len(kinds))
		for i, kind := range kinds {
			recs[i].Kind = kind
		}
		add(t, s, batch("a", recs...))
		wantLog(t, s, "a", recs)
	}},
	{"Append/DataIsOpaque", func(t *testing.T, s store.Store) {
		every := make([]byte, 256)
		for i := range every {
			every[i] = byte(i)
		}
		create(t, s, "a")
		recs := events(0, 8)
		for i, data := range [][]byte{
			nil, {}, {0}, every, []byte("{\"k\":\"\u00e9\u65e5\U0001F600\\u0000\"}"),
			[]byte(`{"b":1, "a":1.0,"a":2}`), []byte("\xff\xfe not UTF-8"), []byte("'; DROP TABLE records; --"),
		} {
			recs[i].Data = data
		}
		add(t, s, batch("a", recs...))
		wantLog(t, s, "a", recs)
	}},
	{"Append/TurnIDsAreOpaque", func(t *testing.T, s store.Store) {
		create(t, s, "a")
		recs := events(0, 4)
		for i, id := range []string{"", "turn 1", "日本\U0001F600", "a'b\"c%_\n"} {
			recs[i].TurnID = id
		}
		add(t, s, batch("a", recs...))
		wantLog(t, s, "a", recs)
	}},
	{"Append/TimePrecision", func(t *testing.T, s store.Store) {
		create(t, s, "a")
		var recs []record.Record
		for _, at := range times(time.FixedZone("far west", -11*3600)) {
			r := events(int64(len(recs)), 1)[0]
			r.Time = at
			recs = append(recs, r)
		}
		add(t, s, batch("a", recs...))
		wantLog(t, s, "a", recs)
	}},
	{"Append/LargeRecords", func(t *testing.T, s store.Store) {
		create(t, s, "a")
		recs := events(0, 5)
		for i := range recs {
			recs[i].Data = bytes.Repeat([]byte{byte(i), 0, 0xff, '"'}, 1<<18+i)
		}
		add(t, s, batch("a", recs[0]))
		add(t, s, batch("a", recs[1:]...))
		wantLog(t, s, "a", recs)
	}},
	{"Append/CallerKeepsItsSlices", func(t *testing.T, s store.Store) {
		create(t, s, "a")
		recs := events(0, 3)
		mine := slices.Clone(recs)
		values := []store.SharedValue{{Scope: "app", Key: "k", Value: []byte(`1`)}}
		rows, key := []store.Row{row(turnRow, "a", "t", 1, "runs")}, &store.Key{Scope: "s", Name: "k", SessionID: "a"}
		b := batch("a", mine...)
		b.Shared, b.Rows, b.Key = values, rows, key
		add(t, s, b)
		clear(mine)
		clear(values)
		clear(rows)
		*key = store.Key{}
		wantRow(t, s, row(turnRow, "a", "t", 1, "runs"))
		wantKey(t, s, store.Key{Scope: "s", Name: "k", SessionID: "a"})
		wantLog(t, s, "a", recs)
		wantShared(t, s, "app", map[string]string{"k": `1`})
	}},
}

var conflictTests = []test{
	{"Conflict/LogHasMovedOn", func(t *testing.T, s store.Store) {
		create(t, s, "a")
		add(t, s, batch("a", events(0, 3)...))
		late := events(2, 1)
		late[0].Data = []byte(`"another"`)
		wantNamed(t, "Append of another record 3", s.Append(t.Context(), batch("a", late...)), store.ErrConflict)
		wantLog(t, s, "a", events(0, 3))
	}},
	{"Conflict/LogIsNotThereYet", func(t *testing.T, s store.Store) {
		create(t, s, "a")
		early := batch("a", events(1, 1)...)
		wantNamed(t, "Append after 1 to an empty log", s.Append(t.Context(), early), store.ErrConflict)
		add(t, s, batch("a", events(0, 3)...))
		wantNamed(t, "Append after 4 of 3", s.Append(t.Context(), batch("a", events(4, 2)...)), store.ErrConflict)
		wantLog(t, s, "a", events(0, 3))
	}},
	{"Conflict/NothingIsWritten", func(t *testing.T, s store.Store) {
		create(t, s, "a")
		add(t, s, batch("a", events(0, 3)...))
		b := batch("a", events(2, 3)...) // record 3 is the same, 4 and 5 are new
		b.Shared = []store.SharedValue{{Scope: "app", Key: "k", Value: []byte(`1`)}}
		wantNamed(t, "Append that repeats and goes on", s.Append(t.Context(), b), store.ErrConflict)
		b = batch("a", append(events(5, 1), started(7, "turn"))...)
		b.Shared = []store.SharedValue{{Scope: "app", Key: "k", Value: []byte(`1`)}}
		wantNamed(t, "Append at a distance", s.Append(t.Context(), b), store.ErrConflict)
		wantLog(t, s, "a", events(0, 3))
		wantShared(t, s, "app", nil)
		wantOpen(t, s, "", 10)
	}},
	{"Conflict/EachFieldCounts", func(t *testing.T, s store.Store) {
		create(t, s, "a")
		add(t, s, batch("a", events(0, 3)...))
		for what, change := range map[string]func(*record.Record){
			"turn":       func(r *record.Record) { r.TurnID += "x" },
			"kind":       func(r *record.Record) { r.Kind = record.KindToolResult },
			"time":       func(r *record.Record) { r.Time = r.Time.Add(time.Microsecond) },
			"data":       func(r *record.Record) { r.Data = []byte(`{"n":4}`) },
			"no data":    func(r *record.Record) { r.Data = nil },
			"longer":     func(r *record.Record) { r.Data = append(slices.Clone(r.Data), ' ') },
			"start turn": func(r *record.Record) { r.Kind = record.KindTurnStarted },
		} {
			for i := range 3 {
				recs := events(0, 3)
				change(&recs[i])
				err := s.Append(t.Context(), batch("a", recs...))
				wantErr(t, "repeat with another "+what, err, store.ErrConflict)
			}
		}
		wantLog(t, s, "a", events(0, 3))
	}},
	{"Repeat/Succeeds", func(t *testing.T, s store.Store) {
		create(t, s, "a")
		first := batch("a", append([]record.Record{started(1, "turn")}, events(1, 2)...)...)
		second := batch("a", append(events(3, 1), ended(5, "turn"))...)
		add(t, s, first)
		add(t, s, first) // the log ends here
		add(t, s, second)
		add(t, s, second)
		add(t, s, first) // the log has gone on, the turn has ended
		wantLog(t, s, "a", slices.Concat(first.Records, second.Records))
	}},
	{"Repeat/TimeToTheMicrosecond", func(t *testing.T, s store.Store) {
		create(t, s, "a")
		recs := events(0, 1)
		recs[0].Time = epoch.Add(999)
		add(t, s, batch("a", recs...))
		recs[0].Time = epoch.In(time.FixedZone("far east", 9*3600))
		add(t, s, batch("a", recs...))
		wantLog(t, s, "a", recs)
	}},
	{"Repeat/LeavesSharedAlone", func(t *testing.T, s store.Store) {
		create(t, s, "a")
		first, second := batch("a", events(0, 1)...), batch("a", events(1, 1)...)
		first.Shared = []store.SharedValue{{Scope: "app", Key: "k", Value: []byte(`1`)}}
		second.Shared = []store.SharedValue{{Scope: "app", Key: "k", Value: []byte(`2`)}}
		add(t, s, first)
		add(t, s, second)
		add(t, s, first)
		wantShared(t, s, "app", map[string]string{"k": `2`})
	}},
}

var malformedTests = []test{
	{"Malformed", func(t *testing.T, s store.Store) {
		create(t, s, "a")
		add(t, s, batch("a", events(0, 2)...))
		change := func(f func(b *store.Batch)) store.Batch {
			b := batch("a", events(2, 3)...)
			b.Shared = []store.SharedValue{{Scope: "app", Key: "k", Value: []byte(`1`)}}
			f(&b)
			return b
		}
		for what, b := range map[string]store.Batch{
			"no records":        change(func(b *store.Batch) { b.Records = nil }),
			"gap at the start":  change(func(b *store.Batch) { b.Records = events(3, 3) }),
			"starts too early":  change(func(b *store.Batch) { b.Records = events(1, 3) }),
			"gap inside":        change(func(b *store.Batch) { b.Records[2].Seq = 6 }),
			"number twice":      change(func(b *store.Batch) { b.Records[2].Seq = 4 }),
			"wrong order":       change(func(b *store.Batch) { slices.Reverse(b.Records) }),
			"unnumbered":        change(func(b *store.Batch) { b.Records[2].Seq = 0 }),
			"unknown kind":      change(func(b *store.Batch) { b.Records[2].Kind = "rumour" }),
			"no kind":           change(func(b *store.Batch) { b.Records[2].Kind = "" }),
			"below the log":     change(func(b *store.Batch) { b.After, b.Records = -1, events(-1, 3) }),
			"turn has no id":    change(func(b *store.Batch) { b.Records[2] = started(5, "") }),
			"shared: no JSON":   change(func(b *store.Batch) { b.Shared[0].Value = []byte(`{`) }),
			"shared: no value":  change(func(b *store.Batch) { b.Shared[0].Value = []byte{} }),
			"shared: no scope":  change(func(b *store.Batch) { b.Shared[0].Scope = "" }),
			"end without start": change(func(b *store.Batch) { b.Records[2] = ended(5, "turn") }),
			"second start": change(func(b *store.Batch) {
				b.Records[0], b.Records[2] = started(3, "t"), started(5, "u")
			}),
			"same turn twice": change(func(b *store.Batch) {
				b.Records[0], b.Records[2] = started(3, "t"), started(5, "t")
			}),
			"end of another": change(func(b *store.Batch) {
				b.Records[0], b.Records[2] = started(3, "t"), ended(5, "u")
			}),
			"second end": change(func(b *store.Batch) {
				b.Records = []record.Record{started(3, "t"), ended(4, "t"), ended(5, "t")}
			}),
		} {
			wantRefused(t, what, s.Append(t.Context(), b))
			wantLog(t, s, "a", events(0, 2))
			wantShared(t, s, "app", nil)
			wantOpen(t, s, "", 10)
		}
		add(t, s, batch("a", events(2, 3)...))
		wantLog(t, s, "a", events(0, 5))
	}},
	{"Malformed/NoSessionID", func(t *testing.T, s store.Store) {
		wantRefused(t, "Create of a session without an id", s.Create(t.Context(), fresh(""), nil))
	}},
}
