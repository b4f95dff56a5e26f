package storetest

import (
	"testing"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

var rewriteTests = []test{
	{"Rewrites", func(t *testing.T, s store.Store) {
		create(t, s, "a", "b")
		add(t, s, batch("a", events(0, 3)...))
		add(t, s, batch("b", events(0, 3)...))
		b := batch("a", events(3, 1)...)
		b.Rewrites = rewritten(events(1, 2))
		for range 2 { // a repeat is the same append
			add(t, s, b)
		}
		want := events(0, 4)
		copy(want[1:], rewritten(events(1, 2)))
		wantRecords(t, all(t, s, "a"), want)
		wantRecords(t, all(t, s, "b"), events(0, 3))
	}},
	{"Rewrites/Refused", func(t *testing.T, s store.Store) {
		create(t, s, "a")
		add(t, s, batch("a", events(0, 2)...))
		for name, change := range map[string]func(r *record.Record){
			"no record":    func(r *record.Record) { r.Seq = 0 },
			"the new one":  func(r *record.Record) { r.Seq = 3 },
			"another turn": func(r *record.Record) { r.TurnID = "other" },
			"another kind": func(r *record.Record) { r.Kind = record.KindToolCall },
			"another time": func(r *record.Record) { r.Time = r.Time.Add(1000) },
		} {
			b := batch("a", events(2, 1)...)
			b.Rewrites = rewritten(events(0, 2))
			change(&b.Rewrites[1])
			wantErr(t, name, s.Append(t.Context(), b), store.ErrMalformed)
		}
		wantRecords(t, all(t, s, "a"), events(0, 2))
	}},
}

// rewritten are records with other data.
func rewritten(recs []record.Record) []record.Record {
	for i := range recs {
		recs[i].Data = []byte(`{"dropped":true}`)
	}
	return recs
}
