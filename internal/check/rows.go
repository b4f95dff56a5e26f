package check

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"hash/maphash"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// rowKey names a row of a session.
type rowKey struct {
	kind store.RowKind
	id   string
}

// rowState is what the log says of a row: enough to tell that a stored one differs.
type rowState struct {
	turn    string
	seq     int64
	created int64 // microseconds
	status  string
	data    uint64 // a hash
	seen    bool   // the store has the row
}

func stateOf(row store.Row) rowState {
	return rowState{
		turn: row.TurnID, seq: row.Seq, created: row.CreatedAt.UnixMicro(), status: row.Status,
		data: maphash.Bytes(seed, row.Data),
	}
}

// note applies a record to the index.
func (s *subject) note(rec record.Record, fact any) {
	rows, err := s.index.Rows(s.info.ID, rec, fact)
	if err != nil {
		s.reportf(ruleLog, rec.Seq, "", "its rows cannot be made: %v", err)
	}
	for _, row := range rows {
		key, state := rowKey{row.Kind, row.ID}, stateOf(row)
		if before, ok := s.rows[key]; ok { // a later write does not change the two
			state.seq, state.created = before.seq, before.created
		}
		s.rows[key] = state
	}
}

// eachRow calls f with each row that the store has of the session.
func (s *subject) eachRow(ctx context.Context, f func(store.Row)) error {
	for _, kind := range []store.RowKind{store.RowTurn, store.RowInteraction, store.RowGoal} {
		q := store.RowQuery{Kind: kind, SessionID: s.info.ID, Limit: page}
		for {
			rows, err := s.db.Rows(ctx, q)
			if data(ctx, err) {
				s.reportf(ruleIndex, 0, "", "its rows cannot be read: %s", plain(err))
				break
			}
			if err != nil {
				return err
			}
			for _, row := range rows {
				f(row)
			}
			if q.IsLast(rows) {
				break
			}
			q.After = &rows[len(rows)-1]
		}
	}
	return nil
}

// compareRows compares the rows of the store with those of the log.
func (s *subject) compareRows(ctx context.Context) error {
	differ := map[rowKey]store.Row{}
	err := s.eachRow(ctx, func(row store.Row) {
		key := rowKey{row.Kind, row.ID}
		want, ok := s.rows[key]
		if !ok {
			s.reportf(ruleIndex, row.Seq, "none",
				"there is a row of %s %q, which the log does not have", row.Kind, row.ID)
			return
		}
		if have := stateOf(row); have != want && len(differ) <= mostFindings {
			differ[key] = row
		}
		want.seen = true
		s.rows[key] = want
	})
	if err != nil {
		return err
	}
	for _, key := range slices.SortedFunc(maps.Keys(s.rows), compareKeys) {
		if want := s.rows[key]; !want.seen {
			s.reportf(ruleIndex, want.seq, fmt.Sprintf("one with status %q", want.status),
				"the row of %s %q is missing", key.kind, key.id)
		}
	}
	if len(differ) == 0 {
		return nil
	}
	return s.explain(ctx, differ)
}

func compareKeys(a, b rowKey) int {
	if a.kind != b.kind {
		return strings.Compare(string(a.kind), string(b.kind))
	}
	return strings.Compare(a.id, b.id)
}

// explain reads the log again to say how rows differ from it.
func (s *subject) explain(ctx context.Context, differ map[rowKey]store.Row) error {
	want := map[rowKey]store.Row{}
	x := index.Index{Inherited: s.info.Inherited}
	for after := int64(0); ; {
		recs, err := s.db.Read(ctx, s.info.ID, after, page)
		if err != nil {
			return err
		}
		for _, rec := range recs {
			after = rec.Seq
			fact, err := rec.Decode(s.Decode)
			if err != nil {
				return err
			}
			rows, err := x.Rows(s.info.ID, rec, fact)
			if err != nil {
				return err
			}
			for _, row := range rows {
				key := rowKey{row.Kind, row.ID}
				if _, ok := differ[key]; ok {
					if before, ok := want[key]; ok {
						row.Seq, row.CreatedAt = before.Seq, before.CreatedAt
					}
					want[key] = row
				}
			}
		}
		if store.LastPage(recs, page) {
			break
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(differ), compareKeys) {
		s.compareRow(differ[key], want[key])
	}
	return nil
}

// compareRow reports how a row differs from that of the log.
func (s *subject) compareRow(have, want store.Row) {
	for _, f := range []struct{ what, have, want string }{
		{"turn", have.TurnID, want.TurnID},
		{"status", have.Status, want.Status},
		{"record", fmt.Sprint(have.Seq), fmt.Sprint(want.Seq)},
		{"time", stamp(have.CreatedAt), stamp(want.CreatedAt)},
	} {
		if f.have != f.want {
			s.reportf(ruleIndex, want.Seq, fmt.Sprintf("%q", f.want),
				"the row of %s %q has %s %q", have.Kind, have.ID, f.what, f.have)
		}
	}
	if bytes.Equal(have.Data, want.Data) {
		return
	}
	var stored, log map[string]json.RawMessage
	if err := json.Unmarshal(have.Data, &stored); err != nil {
		s.reportf(ruleIndex, want.Seq, "JSON", "the row of %s %q is no JSON: %v", have.Kind, have.ID, err)
		return
	}
	if err := json.Unmarshal(want.Data, &log); err != nil {
		s.reportf(ruleIndex, want.Seq, "JSON", "the log gives no JSON for %s %q: %v", have.Kind, have.ID, err)
		return
	}
	names := slices.Sorted(maps.Keys(log))
	for name := range stored {
		if _, ok := log[name]; !ok {
			names = append(names, name)
		}
	}
	for _, name := range names {
		if !sameValue(name, stored[name], log[name]) {
			s.reportf(ruleIndex, want.Seq, short(name, log[name]),
				"the row of %s %q has %s %s", have.Kind, have.ID, name, short(name, stored[name]))
		}
	}
}

// stamp is a time as a store has it.
func stamp(at time.Time) string { return at.UTC().Truncate(time.Microsecond).Format(time.RFC3339Nano) }

// sameValue compares a member of two rows.
func sameValue(name string, a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	if name == "usage" {
		var x, y record.Usage
		return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && sameUsage(x, y)
	}
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

// short is a member of a row for a line. What people and models have said is not shown.
func short(name string, v json.RawMessage) string {
	const most = 120
	said := name == "prompt" || name == "output" || name == "call" || name == "resolution" || name == "end"
	switch {
	case v == nil:
		return "nothing"
	case said || len(v) > most:
		return fmt.Sprintf("of %d bytes (%08x)", len(v), crc32.ChecksumIEEE(v))
	}
	return string(v)
}
