package migrate

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// comparePage is how many sessions are listed, and how many records are read, at once.
const comparePage = 512

// compare reads both stores and fails at the first difference.
func (r *run) compare(ctx context.Context) error {
	for i := range tables {
		t := &tables[i]
		var err error
		var rows int64
		if t.to == "records" {
			rows, err = r.compareLogs(ctx)
		} else {
			rows, err = r.compareTable(ctx, t)
		}
		if err != nil {
			return fmt.Errorf("compare %s: %w", t.to, err)
		}
		fmt.Fprintf(r.all, "%s %d\n", t.to, rows)
		r.counted(t, rows)
	}
	return nil
}

// differs is the error of something that is not the same in both.
func differs(format string, args ...any) error {
	return fmt.Errorf("the target differs from the source in "+format+
		": it stays closed; drop it, make an empty one, and begin anew", args...)
}

// compareTable compares a table row by row, in the order of its key.
func (r *run) compareTable(ctx context.Context, t *table) (rows int64, err error) {
	text := "SELECT %s FROM %s ORDER BY " + strings.Join(t.key, ", ")
	target := fmt.Sprintf(text, strings.Join(t.targets(), ", "), t.to)
	copied, err := r.dst.Pool().Query(ctx, target) //nolint:sqlclosecheck // below
	if err != nil {
		return 0, err
	}
	defer copied.Close()
	err = r.src.View(ctx, func(ctx context.Context, c *sql.Conn) error {
		return rowsOf(ctx, c, fmt.Sprintf(text, strings.Join(t.columns, ", "), t.from), nil, func(values []any) error {
			if !copied.Next() {
				if err := copied.Err(); err != nil {
					return err
				}
				return differs("row %d, which is missing", rows+1)
			}
			there, err := copied.Values()
			if err != nil {
				return err
			}
			want := canonical(values)
			if !bytes.Equal(canonical(there), want) {
				return differs("row %d, of %.100v", rows+1, there[0])
			}
			r.all.Write(want)
			if rows++; rows%comparePage == 0 {
				r.cfg.Progress("compared "+t.to+" up to", rows, 0)
			}
			return nil
		})
	})
	if err == nil && copied.Next() {
		err = differs("row %d, which is too much", rows+1)
	}
	if err == nil {
		err = copied.Err()
	}
	return rows, err
}

// logSum is what the records of a session come to.
type logSum struct {
	records int64
	sum     [sha256.Size]byte
}

// compareLogs compares the records of each session, as a server reads them.
func (r *run) compareLogs(ctx context.Context) (records int64, err error) {
	for after := ""; ; {
		ids, err := r.src.IDs(ctx, after, comparePage)
		if err != nil {
			return records, err
		}
		for _, id := range ids {
			after = id
			want, err := sumLog(ctx, r.src, id)
			if err != nil {
				return records, fmt.Errorf("the source: %w", err)
			}
			have, err := sumLog(ctx, r.dst, id)
			if err != nil {
				return records, fmt.Errorf("the target: %w", err)
			}
			if have != want {
				return records, differs("the log of session %q: %d records, want %d", id, have.records, want.records)
			}
			r.all.Write(want.sum[:])
			records += want.records
			r.cfg.Progress("compared", records, 0)
		}
		if len(ids) < comparePage {
			break
		}
	}
	// There is none that no session has.
	for what, count := range map[string]func(context.Context) (int64, error){
		"source": r.sourceRecords, "target": r.targetRecords,
	} {
		n, err := count(ctx)
		if err == nil && n != records {
			err = fmt.Errorf("the %s has %d records, the logs of its sessions %d: agentd check says more",
				what, n, records)
		}
		if err != nil {
			return records, err
		}
	}
	return records, nil
}

func (r *run) sourceRecords(ctx context.Context) (n int64, err error) {
	err = r.src.View(ctx, func(ctx context.Context, c *sql.Conn) error {
		return c.QueryRowContext(ctx, `SELECT count(*) FROM records`).Scan(&n)
	})
	return n, err
}

func (r *run) targetRecords(ctx context.Context) (n int64, err error) {
	err = r.dst.Pool().QueryRow(ctx, `SELECT count(*) FROM records`).Scan(&n)
	return n, err
}

// sumLog reads a log from its first record to its last.
func sumLog(ctx context.Context, db store.Store, id string) (out logSum, err error) {
	sum := sha256.New()
	for after := int64(0); ; {
		recs, err := db.Read(ctx, id, after, comparePage)
		if err != nil {
			return out, err
		}
		for i := range recs {
			sum.Write(recordBytes(&recs[i]))
			after = recs[i].Seq
		}
		out.records += int64(len(recs))
		if store.LastPage(recs, comparePage) {
			break
		}
	}
	sum.Sum(out.sum[:0])
	return out, nil
}

// recordBytes is all that a record has.
func recordBytes(r *record.Record) []byte {
	out := binary.LittleEndian.AppendUint64(nil, uint64(r.Seq))
	out = binary.LittleEndian.AppendUint64(out, uint64(r.Time.UnixMicro()))
	return append(out, canonical([]any{r.TurnID, string(r.Kind), r.Data})...)
}
