package sqlite

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// upper writes what values say in upper case, and cannot read some.
type upper struct{ failed []error }

func (u *upper) Record(_ context.Context, id string, r *record.Record) error {
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

// TestRecode changes all values of a database; what they were is gone from its files while it is open.
func TestRecode(t *testing.T) {
	dir := t.TempDir()
	const sessions, records, canary = 20, 50, "canary in lower case"
	write := func(s *Store, id, text string) {
		t.Helper()
		b := store.Batch{SessionID: id, Create: &store.NewSession{ID: id, CreatedAt: start, Metadata: `{"k":"` + text + `"}`}}
		for seq := range int64(records) {
			data := fmt.Appendf(nil, `"%s %d %s"`, text, seq+1, strings.Repeat("z", 2000*int(seq%4)))
			b.Records = append(b.Records, record.Record{Seq: seq + 1, TurnID: "t", Kind: record.KindEvent, Time: start, Data: data})
		}
		for i := range 3 {
			row := store.Row{Kind: store.RowTurn, SessionID: id, ID: fmt.Sprint(i), Seq: 1, CreatedAt: start, Data: []byte(text)}
			b.Rows = append(b.Rows, row)
			key := store.SharedValue{Scope: "app:" + id, Key: fmt.Sprint(i), Value: json.RawMessage(`"` + text + `"`)}
			b.Shared = append(b.Shared, key)
		}
		b.Key = &store.Key{Scope: "s", Name: id, Content: text, SessionID: id}
		if err := s.Append(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, dir)
	for i := range sessions {
		write(s, fmt.Sprintf("s%d", i), canary)
	}
	mustClose(t, s)
	s = open(t, dir)
	defer mustClose(t, s)
	if _, err := s.Shared(t.Context(), "app:s1"); err != nil { // which is kept in memory
		t.Fatal(err)
	}
	u, loud := &upper{}, strings.ToUpper(canary)
	const values = sessions*(records+3+3+1+1) - 1
	if n, err := s.Recode(t.Context(), u); n != values || err != nil || len(u.failed) != 1 {
		t.Fatalf("changed %d values, %v, %v, want %d and one failure", n, err, u.failed, values)
	}
	if n, err := s.Recode(t.Context(), u); n != 0 || err != nil || len(u.failed) != 2 {
		t.Fatalf("again: changed %d values, %v, %v", n, err, u.failed)
	}
	for i := range sessions {
		id := fmt.Sprintf("s%d", i)
		recs, err := s.Read(t.Context(), id, 0, records) // which compares the sums
		if err != nil || len(recs) != records {
			t.Fatalf("%d records of %s, %v", len(recs), id, err)
		}
		for _, r := range recs {
			if lower := bytes.Contains(r.Data, []byte(canary)); lower != (id == "s7" && r.Seq == 3) {
				t.Errorf("record %d of %s is %.40s", r.Seq, id, r.Data)
			}
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
	left := func() (n int) {
		files, err := filepath.Glob(filepath.Join(dir, "agentd.db*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			n += bytes.Count(data, []byte(canary))
		}
		return n
	}
	for end := time.Now().Add(20 * time.Second); left() > 1; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the files have the canary %d times, want once", left())
		}
	}
}
