package postgres

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/apzuk3/agentd/internal/test/pgserver"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// upper writes what values say in upper case, and cannot read some.
type upper struct {
	failed []error
	// between is called with each record before it is changed.
	between func(id string, r *record.Record)
}

func (u *upper) Record(_ context.Context, id string, r *record.Record) error {
	if u.between != nil {
		u.between(id, r)
	}
	if id == "s7" && r.Seq == 3 {
		return errors.New("this one stays")
	}
	r.Data = bytes.ToUpper(r.Data)
	return nil
}

func (*upper) Row(_ context.Context, r *store.Row) error {
	r.Data = bytes.ToUpper(r.Data)
	return nil
}

func (*upper) Shared(_ context.Context, v *store.SharedValue) error {
	v.Value = bytes.ToUpper(v.Value)
	return nil
}

func (*upper) Key(_ context.Context, k *store.Key) error {
	k.Content = strings.ToUpper(k.Content)
	return nil
}

func (*upper) Info(_ context.Context, i *store.Info) error {
	i.Metadata = strings.ToUpper(i.Metadata)
	return nil
}

func (u *upper) Failed(err error) error {
	u.failed = append(u.failed, err)
	return nil
}

// TestRecode changes all values of a database, but for one that is removed meanwhile and one that cannot be read.
func TestRecode(t *testing.T) {
	t.Parallel()
	const sessions, records, text, loud = 12, 30, "naïve in lower case", "NAÏVE IN LOWER CASE"
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s := openAt(t, pgserver.URL(t))
	defer mustClose(t, s)
	for i := range sessions {
		id := fmt.Sprintf("s%d", i)
		b := store.Batch{SessionID: id, Create: &store.NewSession{ID: id, CreatedAt: start, Metadata: `{"k":"` + text + `"}`}}
		for seq := range int64(records) {
			data := fmt.Appendf(nil, `"%s %d %s"`, text, seq+1, strings.Repeat("z", 9000*int(seq%4)))
			b.Records = append(b.Records, record.Record{Seq: seq + 1, TurnID: "t", Kind: record.KindEvent, Time: start, Data: data})
		}
		for j := range 3 {
			row := store.Row{Kind: store.RowTurn, SessionID: id, ID: fmt.Sprint(j), Seq: 1, CreatedAt: start, Data: []byte(text)}
			b.Rows = append(b.Rows, row)
			b.Shared = append(b.Shared, store.SharedValue{
				Scope: "app:" + id, Key: fmt.Sprint(j), Value: json.RawMessage(`"` + text + `"`),
			})
		}
		b.Key = &store.Key{Scope: "s", Name: id, Content: text, SessionID: id}
		if err := s.Append(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	removed := false
	u := &upper{between: func(id string, _ *record.Record) {
		if id == "s9" && !removed {
			removed = true
			if err := s.Delete(t.Context(), id, records); err != nil {
				t.Error(err)
			}
		}
	}}
	const values = (sessions-1)*(records+3+1+1) + sessions*3 - 1 // shared values stay
	if n, err := s.Recode(t.Context(), u); n != values || err != nil || len(u.failed) != 1 {
		t.Fatalf("changed %d values, %v, %v, want %d and one failure", n, err, u.failed, values)
	}
	if n, err := s.Recode(t.Context(), u); n != 0 || err != nil || len(u.failed) != 2 {
		t.Fatalf("again: changed %d values, %v, %v", n, err, u.failed)
	}
	for i := range sessions {
		id := fmt.Sprintf("s%d", i)
		recs, err := s.Read(t.Context(), id, 0, records)
		if id == "s9" {
			if !errors.Is(err, store.ErrNoSession) {
				t.Errorf("the one that was removed: %d records, %v", len(recs), err)
			}
			continue
		}
		for last := int64(0); err == nil && last < records; recs, err = s.Read(t.Context(), id, last, records) {
			for _, r := range recs {
				last = r.Seq
				if changed := bytes.Contains(r.Data, []byte(loud)); changed == (id == "s7" && r.Seq == 3) {
					t.Errorf("record %d of %s is %.40s", r.Seq, id, r.Data)
				}
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		row, err := s.Row(t.Context(), store.RowTurn, id, "2")
		if err != nil || string(row.Data) != loud {
			t.Errorf("row of %s: %s, %v", id, row.Data, err)
		}
		shared, err := s.Shared(t.Context(), "app:"+id)
		if err != nil || string(shared["2"]) != `"`+loud+`"` {
			t.Errorf("shared values of %s: %s, %v", id, shared, err)
		}
		key, err := s.Key(t.Context(), "s", id)
		if err != nil || key.Content != loud {
			t.Errorf("key of %s: %+v, %v", id, key, err)
		}
		info, err := s.Info(t.Context(), id)
		if err != nil || !strings.Contains(info.Metadata, loud) {
			t.Errorf("metadata of %s: %s, %v", id, info.Metadata, err)
		}
	}
}
