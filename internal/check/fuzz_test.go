package check_test

import (
	"context"
	"slices"
	"testing"

	"github.com/apzuk3/agentd/adkbridge"
	"github.com/apzuk3/agentd/internal/check"
	"github.com/apzuk3/agentd/internal/test/logtext"
	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// oneLog is a store of one session, which has what follows from its log.
type oneLog struct {
	store.Store // nil: nothing else is called

	info store.Info
	recs []record.Record
	rows []store.Row
}

// newOneLog indexes a log as a store's owner does, as far as it decodes.
func newOneLog(recs []record.Record, event func([]byte) (*record.Event, error)) (db *oneLog, readable bool) {
	db = &oneLog{recs: recs, info: store.Info{Head: store.Head{ID: "s", LastSeq: int64(len(recs))}}}
	x := index.Index{}
	for _, rec := range recs {
		fact, err := rec.Decode(event)
		if err != nil {
			return db, false
		}
		rows, err := x.Rows("s", rec, fact)
		if err != nil {
			return db, false
		}
		switch {
		case rec.Kind == record.KindTurnStarted:
			db.info.OpenTurn = rec.TurnID
		case rec.Kind == record.KindTurnEnded && rec.TurnID == db.info.OpenTurn:
			db.info.OpenTurn = ""
		}
		for _, row := range rows {
			at := slices.IndexFunc(db.rows, func(r store.Row) bool { return r.Kind == row.Kind && r.ID == row.ID })
			if at < 0 {
				db.rows = append(db.rows, row)
				continue
			}
			row.Seq, row.CreatedAt = db.rows[at].Seq, db.rows[at].CreatedAt
			db.rows[at] = row
		}
	}
	db.info.LastTurn, db.info.LastStatus, db.info.Usage = x.Last, x.LastAs, x.Usage
	return db, true
}

func (s *oneLog) Info(context.Context, string) (store.Info, error) { return s.info, nil }

func (s *oneLog) Sessions(_ context.Context, q store.InfoQuery) ([]store.Info, error) {
	if q.After != nil {
		return nil, nil
	}
	return []store.Info{s.info}, nil
}

func (s *oneLog) Read(_ context.Context, _ string, after int64, limit int) ([]record.Record, error) {
	left := s.recs[min(after, int64(len(s.recs))):]
	return left[:min(limit, len(left))], nil
}

func (s *oneLog) Rows(_ context.Context, q store.RowQuery) (out []store.Row, _ error) {
	for _, row := range s.rows {
		if row.Kind == q.Kind && q.After == nil {
			out = append(out, row)
		}
	}
	return out, nil
}

func (*oneLog) Scopes(context.Context, string, int) ([]string, error) { return nil, nil }

// FuzzLog judges any log: twice alike, and one that does not decode has a finding. What was indexed of the log itself
// has none.
func FuzzLog(f *testing.F) {
	f.Add([]byte("t\tturn_queued\t{}\nt\tturn_dropped\t{}\n"), []byte{0, 0, 1})
	event := adkbridge.New(adkbridge.Config{}).Decode
	f.Fuzz(func(t *testing.T, text, edits []byte) {
		db, readable := newOneLog(logtext.Parse(text, edits), event)
		findings := func() (found []string) {
			_, err := check.Run(t.Context(), db, check.Config{Decode: event, Report: func(one check.Finding) {
				found = append(found, one.String())
				if readable && (one.Rule == "index" || one.Rule == "usage") {
					t.Error(one)
				}
			}})
			if err != nil {
				t.Fatal(err)
			}
			slices.Sort(found) // calls of a turn are judged in no order
			return found
		}
		found := findings()
		if again := findings(); !slices.Equal(found, again) {
			t.Fatalf("found %q, and then %q", found, again)
		}
		if !readable && len(found) == 0 || len(found) > 51 {
			t.Fatalf("%d findings of a log that decodes: %v", len(found), readable)
		}
	})
}
