package storetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// row returns a row of a session that began with a record.
func row(kind store.RowKind, sessionID, id string, seq int64, status string) store.Row {
	return store.Row{
		Kind:      kind,
		SessionID: sessionID,
		ID:        id,
		TurnID:    "turn of " + id,
		Seq:       seq,
		CreatedAt: epoch.Add(time.Duration(seq) * time.Microsecond),
		Status:    status,
		Data:      fmt.Appendf(nil, `{"n":%d}`, seq),
	}
}

func wantRow(t testing.TB, s store.Store, want store.Row) {
	t.Helper()
	got, err := s.Row(t.Context(), want.Kind, want.SessionID, want.ID)
	if err != nil || !sameRow(got, want) {
		t.Fatalf("Row(%q, %q, %q) = %+v, %v, want %+v", want.Kind, want.SessionID, want.ID, got, err, want)
	}
}

func wantNoRow(t testing.TB, s store.Store, kind store.RowKind, sessionID, id string) {
	t.Helper()
	_, err := s.Row(t.Context(), kind, sessionID, id)
	wantNamed(t, fmt.Sprintf("Row(%q, %q, %q)", kind, sessionID, id), err, store.ErrNotFound)
}

// wantRows reads a list in pages of each size.
func wantRows(t testing.TB, s store.Store, q store.RowQuery, want ...store.Row) {
	t.Helper()
	for limit := range len(want) + 2 {
		q.Limit = limit + 1
		wantRowsInPages(t, s, q, want)
	}
}

// wantRowsInPages fails unless the pages of a query are these rows.
func wantRowsInPages(t testing.TB, s store.Store, q store.RowQuery, want []store.Row) {
	t.Helper()
	q.After = nil
	var got []store.Row
	for {
		page, err := s.Rows(t.Context(), q)
		if err != nil || len(page) > q.Limit {
			t.Fatalf("Rows(%+v) = %d rows, %v", q, len(page), err)
		}
		got = append(got, page...)
		if q.IsLast(page) {
			break
		}
		q.After = &page[len(page)-1]
	}
	if !slices.EqualFunc(got, want, sameRow) {
		t.Fatalf("Rows(%+v) in pages = %+v, want %+v", q, got, want)
	}
}

// withRows returns an append of one event with rows.
func withRows(id string, seq int64, rows ...store.Row) store.Batch {
	b := batch(id, events(seq-1, 1)...)
	b.Rows = rows
	return b
}

const turnRow, askRow = store.RowTurn, store.RowInteraction

var rowTests = []test{
	{"Row/IsReplaced", func(t *testing.T, s store.Store) {
		create(t, s, "a", "b")
		first := row(turnRow, "a", "t", 1, "runs")
		first.CreatedAt = time.Date(2026, 1, 2, 3, 4, 5, 678901999, time.FixedZone("far east", 9*3600))
		other := row(askRow, "a", "t", 1, "asks")
		add(t, s, withRows("a", 1, first, other))
		add(t, s, withRows("b", 1, row(turnRow, "b", "t", 1, "else")))
		wantRow(t, s, first)
		second := row(turnRow, "a", "t", 7, "over")
		second.TurnID, second.Data = "u", nil
		add(t, s, withRows("a", 2, row(turnRow, "a", "t", 2, "soon over"), second))
		second.Seq, second.CreatedAt = first.Seq, first.CreatedAt
		wantRow(t, s, second)
		wantRow(t, s, other)
		wantRow(t, s, row(turnRow, "b", "t", 1, "else"))
		for _, name := range [][2]string{{"a", "T"}, {"a", ""}, {"c", "t"}} {
			wantNoRow(t, s, turnRow, name[0], name[1])
		}
		add(t, s, withRows("a", 1, first, other)) // a repeat
		wantRow(t, s, second)
		wantRows(t, s, store.RowQuery{Kind: turnRow, Statuses: []string{"runs", "soon over"}})
	}},
	{"Row/IsOpaque", func(t *testing.T, s store.Store) {
		create(t, s, "a")
		var rows []store.Row
		for i, text := range opaque {
			r := row(turnRow, "a", text, int64(i+1), opaque[len(opaque)-1-i])
			r.TurnID, r.Data = text, []byte("\x00\xff'"+text)
			rows = append(rows, r)
		}
		add(t, s, withRows("a", 1, rows...))
		for _, r := range rows {
			wantRow(t, s, r)
			wantRows(t, s, store.RowQuery{Kind: turnRow, Statuses: []string{r.Status}}, r)
			wantRows(t, s, store.RowQuery{Kind: turnRow, TurnID: r.TurnID}, r)
		}
	}},
	{"Row/GoesWithItsAppend", func(t *testing.T, s store.Store) {
		create(t, s, "a")
		add(t, s, withRows("a", 1, row(turnRow, "a", "t", 1, "runs")))
		late := withRows("a", 1, row(turnRow, "a", "t", 1, "over"), row(askRow, "a", "i", 1, "asks"))
		late.Records[0].Data = []byte(`"another"`)
		late.Usage, late.LastTurn = record.Usage{Total: 1}, "t"
		wantNamed(t, "Append of another record", s.Append(t.Context(), late), store.ErrConflict)
		wantRow(t, s, row(turnRow, "a", "t", 1, "runs"))
		wantNoRow(t, s, askRow, "a", "i")
		wantInfo(t, s, infoOf("a", func(i *store.Info) { i.LastSeq, i.UpdatedAt = 1, events(0, 1)[0].Time }))
	}},
	{"Row/Malformed", func(t *testing.T, s store.Store) {
		create(t, s, "a", "b")
		good := row(turnRow, "a", "t", 1, "runs")
		for what, change := range map[string]func(*store.Row){
			"of unknown kind":    func(r *store.Row) { r.Kind = "rumour" },
			"of no kind":         func(r *store.Row) { r.Kind = "" },
			"of another session": func(r *store.Row) { r.SessionID = "b" },
			"of no session":      func(r *store.Row) { r.SessionID = "" },
			"without an id":      func(r *store.Row) { r.ID = "" },
		} {
			bad := good
			bad.ID = "bad"
			change(&bad)
			rows := []store.Row{good, bad}
			wantRefused(t, "Append of a row "+what, s.Append(t.Context(), withRows("a", 1, rows...)))
			wantRefused(t, "Index of a row "+what, s.Index(t.Context(), store.Batch{SessionID: "a", Rows: rows}, 0))
			bad.SessionID = map[string]string{"a": "c"}[bad.SessionID]
			f := store.Fork{From: "a", Into: fresh("c"), Rows: []store.Row{bad}}
			wantRefused(t, "Fork with a row "+what, s.Fork(t.Context(), f))
			wantLog(t, s, "a", nil)
			wantNoRow(t, s, turnRow, "a", "t")
		}
	}},
	{"Rows/InOrder", func(t *testing.T, s store.Store) {
		// From the newest to the oldest; most are of the same time.
		at := func(r store.Row, minute int) store.Row {
			r.CreatedAt = epoch.Add(time.Duration(minute) * time.Minute)
			return r
		}
		all := []store.Row{
			at(row(turnRow, "a", "z", 1, "runs"), 9),
			at(row(turnRow, "c", "t2", 2, "over"), 5),
			at(row(turnRow, "c", "u", 1, "runs"), 5),
			at(row(turnRow, "c", "t", 1, "failed"), 5),
			at(row(turnRow, "b", "t", 4, "over"), 5),
			at(row(turnRow, "b", "u", 3, "runs"), 5),
			at(row(turnRow, "a", "t", 7, "over"), 5),
			at(row(turnRow, "c", "a", 9, "failed"), 1),
		}
		asks := at(row(askRow, "c", "t", 1, "runs"), 5)
		create(t, s, "a", "b", "c")
		seqs := map[string]int64{}
		for _, r := range append(slices.Clone(all), asks) {
			seqs[r.SessionID]++
			add(t, s, withRows(r.SessionID, seqs[r.SessionID], r))
		}
		pick := func(keep func(store.Row) bool) []store.Row {
			return slices.DeleteFunc(slices.Clone(all), func(r store.Row) bool { return !keep(r) })
		}
		turns := store.RowQuery{Kind: turnRow}
		wantRows(t, s, turns, all...)
		wantRows(t, s, store.RowQuery{Kind: askRow}, asks)
		for _, id := range []string{"a", "b", "c", "d"} {
			q := turns
			q.SessionID = id
			wantRows(t, s, q, pick(func(r store.Row) bool { return r.SessionID == id })...)
			q.Statuses = []string{"over", "failed", "over"}
			wantRows(t, s, q, pick(func(r store.Row) bool { return r.SessionID == id && r.Status != "runs" })...)
		}
		q := turns
		q.Statuses = []string{"runs"}
		wantRows(t, s, q, pick(func(r store.Row) bool { return r.Status == "runs" })...)
		q.Statuses = []string{"over", "runs", "unheard of", "over"}
		wantRows(t, s, q, pick(func(r store.Row) bool { return r.Status != "failed" })...)
		q = turns
		q.TurnID = "turn of t"
		wantRows(t, s, q, pick(func(r store.Row) bool { return r.ID == "t" })...)
		q = turns
		q.CreatedFrom, q.CreatedBefore = epoch.Add(5*time.Minute), epoch.Add(9*time.Minute)
		wantRows(t, s, q, all[1:7]...)
		q.CreatedFrom, q.CreatedBefore = time.Time{}, epoch.Add(5*time.Minute)
		wantRows(t, s, q, all[7])
		q.CreatedFrom, q.CreatedBefore = epoch.Add(5*time.Minute+time.Microsecond), time.Time{}
		wantRows(t, s, q, all[0])
		// A page goes on behind a row that there is no more.
		gone := all[3]
		gone.ID = "tt"
		got, err := s.Rows(t.Context(), store.RowQuery{Kind: turnRow, After: &gone, Limit: 1})
		if err != nil || len(got) != 1 || !sameRow(got[0], all[3]) {
			t.Fatalf("Rows after %+v = %+v, %v, want %+v", gone, got, err, all[3])
		}
		got, err = s.Rows(t.Context(), store.RowQuery{Kind: turnRow, SessionID: "b", After: &all[2], Limit: 9})
		if err != nil || !slices.EqualFunc(got, all[4:6], sameRow) {
			t.Fatalf("Rows of b after one of c = %+v, %v, want %+v", got, err, all[4:6])
		}
	}},
	{"Rows/Large", func(t *testing.T, s store.Store) {
		create(t, s, "a")
		all := make([]store.Row, 8)
		for i := range all {
			all[i] = row(turnRow, "a", fmt.Sprint(i), int64(i+1), "over")
			all[i].Data = []byte(strings.Repeat("x", store.ReadBytes/3))
			add(t, s, withRows("a", int64(i+1), all[i]))
		}
		slices.Reverse(all)
		for _, limit := range []int{1, 2, 9} { // of which the last does not fit into a page
			wantRowsInPages(t, s, store.RowQuery{Kind: turnRow, Limit: limit}, all)
		}
	}},
	{"Rows/Refused", func(t *testing.T, s store.Store) {
		for what, q := range map[string]store.RowQuery{
			"without a limit": {Kind: turnRow}, "with a limit below 0": {Kind: turnRow, Limit: -1},
			"of no kind": {Limit: 1}, "of unknown kind": {Kind: "rumour", Limit: 1},
		} {
			_, err := s.Rows(t.Context(), q)
			wantRefused(t, "Rows "+what, err)
		}
	}},
	{"Index/Replaces", func(t *testing.T, s store.Store) {
		create(t, s, "a", "b")
		add(t, s, withRows("a", 1, row(turnRow, "a", "t", 1, "runs"), row(askRow, "a", "i", 1, "asks")))
		add(t, s, withRows("b", 1, row(turnRow, "b", "t", 1, "runs")))
		b := store.Batch{SessionID: "a", Rows: []store.Row{
			row(turnRow, "a", "t", 5, "over"),
			row(turnRow, "a", "u", 2, "over"),
		}}
		b.Usage, b.LastTurn, b.LastStatus = record.Usage{Total: 3, Calls: 1}, "u", "over"
		for range 2 {
			if err := s.Index(t.Context(), b, 1); err != nil {
				t.Fatalf("Index: %v", err)
			}
		}
		wantRows(t, s, store.RowQuery{Kind: turnRow, SessionID: "a"}, b.Rows...)
		wantNoRow(t, s, askRow, "a", "i")
		wantRow(t, s, row(turnRow, "b", "t", 1, "runs"))
		wantInfo(t, s, infoOf("a", func(i *store.Info) {
			i.LastSeq, i.UpdatedAt, i.Usage, i.LastTurn, i.LastStatus = 1, events(0, 1)[0].Time, b.Usage, "u", "over"
		}))
		wantLog(t, s, "a", events(0, 1))
		wantNamed(t, "Index of a log that has moved on", s.Index(t.Context(), b, 0), store.ErrConflict)
		wantNamed(t, "Index of what is to come", s.Index(t.Context(), b, 2), store.ErrConflict)
		wantNamed(t, "Index of no session", s.Index(t.Context(), store.Batch{SessionID: "c"}, 0), store.ErrNoSession)
	}},
	{"Index/Refused", func(t *testing.T, s store.Store) {
		create(t, s, "a")
		add(t, s, withRows("a", 1, row(turnRow, "a", "t", 1, "runs")))
		for what, b := range map[string]store.Batch{
			"records":   {Records: events(1, 1)},
			"values":    {Shared: []store.SharedValue{{Scope: "app", Key: "k", Value: []byte(`1`)}}},
			"a session": {Create: new(fresh("a"))},
			"a key":     {Key: &store.Key{Scope: "s", Name: "k", SessionID: "a"}},
		} {
			b.SessionID = "a"
			wantRefused(t, "Index of "+what, s.Index(t.Context(), b, 1))
		}
		wantRow(t, s, row(turnRow, "a", "t", 1, "runs"))
	}},
	{"Unindexed/NoneThatWasMadeHere", func(t *testing.T, s store.Store) {
		create(t, s, "a", "b")
		add(t, s, batch("a", events(0, 3)...))
		if heads, err := s.Unindexed(t.Context(), "", 10); err != nil || len(heads) > 0 {
			t.Fatalf("Unindexed = %v, %v, want none", heads, err)
		}
		_, err := s.Unindexed(t.Context(), "", 0)
		wantRefused(t, "Unindexed without a limit", err)
	}},
	{"Purge/TakesTheRows", func(t *testing.T, s store.Store) {
		create(t, s, "a", "b")
		b := withRows("a", 1, row(turnRow, "a", "t", 1, "over"), row(askRow, "a", "i", 1, "asks"))
		b.Usage, b.LastTurn, b.LastStatus = record.Usage{Total: 3}, "t", "over"
		b.Key = &store.Key{Scope: "s", Name: "k", SessionID: "a", ID: "t"}
		add(t, s, b)
		add(t, s, withRows("b", 1, row(turnRow, "b", "t", 1, "over")))
		if _, err := s.Update(t.Context(), "a", store.Change{Labels: map[string]string{"k": "v"}}); err != nil {
			t.Fatalf("Update: %v", err)
		}
		if err := s.Purge(t.Context(), "a", 1); err != nil {
			t.Fatalf("Purge: %v", err)
		}
		wantInfo(t, s, infoOf("a", func(i *store.Info) {
			i.LastSeq, i.Purged, i.UpdatedAt = 1, 1, events(0, 1)[0].Time
			i.Version, i.Labels = 2, map[string]string{"k": "v"}
			i.Usage, i.LastTurn, i.LastStatus = b.Usage, "t", "over"
		}))
		wantRows(t, s, store.RowQuery{Kind: turnRow}, row(turnRow, "b", "t", 1, "over"))
		wantNoRow(t, s, askRow, "a", "i")
		wantKey(t, s, *b.Key)
	}},
}
