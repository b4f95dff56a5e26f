package migrate

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

const (
	// pieceRows and pieceBytes are how much one transaction copies at most, but for one large row.
	pieceRows  = 5000
	pieceBytes = 4 << 20
)

// place is how far a copy has come: all tables before one, and of that the rows up to a key, in JSON, "" for none.
type place struct {
	step int
	key  string
}

// copy copies all tables behind the place.
func (r *run) copy(ctx context.Context) error {
	for r.at.step < len(tables) {
		t := &tables[r.at.step]
		total := int64(0)
		err := r.src.View(ctx, func(ctx context.Context, c *sql.Conn) error {
			return c.QueryRowContext(ctx, "SELECT count(*) FROM "+t.from).Scan(&total)
		})
		for done := int64(0); err == nil; {
			var rows [][]any
			if rows, err = r.piece(ctx, t); err == nil {
				err = r.write(ctx, t, rows)
			}
			if len(rows) == 0 {
				break
			}
			done += int64(len(rows))
			r.cfg.Progress("copied "+t.to, done, total)
		}
		if err != nil {
			return fmt.Errorf("copy %s behind %s: %w", t.to, r.at.key, err)
		}
	}
	return nil
}

// piece reads the rows of the source behind the place.
func (r *run) piece(ctx context.Context, t *table) (rows [][]any, err error) {
	behind, args := "", []any{}
	if r.at.key != "" {
		if args, err = keyOf(r.at.key); err != nil {
			return nil, err
		}
		behind = fmt.Sprintf(" WHERE (%s) > (?%s)", strings.Join(t.key, ", "), strings.Repeat(", ?", len(t.key)-1))
	}
	text := fmt.Sprintf("SELECT %s FROM %s%s ORDER BY %s LIMIT %d",
		strings.Join(t.columns, ", "), t.from, behind, strings.Join(t.key, ", "), pieceRows)
	size := 0
	err = r.src.View(ctx, func(ctx context.Context, c *sql.Conn) error {
		return rowsOf(ctx, c, text, args, func(values []any) error {
			for _, v := range values {
				size += sizeOf(v)
			}
			if rows = append(rows, values); size >= pieceBytes {
				return errEnough
			}
			return nil
		})
	})
	return rows, err
}

// write writes rows and the place behind them; without rows it goes to the next table.
func (r *run) write(ctx context.Context, t *table, rows [][]any) error {
	next := place{r.at.step + 1, ""}
	if len(rows) > 0 {
		key := make([]any, len(t.key))
		for i, name := range t.key {
			for j, column := range t.columns {
				if column == name {
					key[i] = rows[len(rows)-1][j]
				}
			}
		}
		text, err := json.Marshal(key)
		if err != nil {
			return err
		}
		next = place{r.at.step, string(text)}
	}
	columns := t.columns
	if t.epoch {
		columns = append(append([]string{}, columns...), "epoch")
	}
	for _, row := range rows {
		for i, column := range t.columns {
			if t.isFlag(column) {
				row[i] = row[i].(int64) != 0
			}
		}
	}
	err := pgx.BeginFunc(ctx, r.dst.Pool(), func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `UPDATE agentd_migration SET step = $1, place = $2 WHERE step = $3 AND place = $4`,
			next.step, next.key, r.at.step, r.at.key)
		if err == nil && tag.RowsAffected() != 1 {
			err = errors.New("another migration goes on with this copy")
		}
		if err != nil || len(rows) == 0 {
			return err
		}
		source := pgx.CopyFromSlice(len(rows), func(i int) ([]any, error) {
			if t.epoch {
				return append(rows[i], int64(0)), nil
			}
			return rows[i], nil
		})
		_, err = tx.CopyFrom(ctx, pgx.Identifier{t.to}, columns, source)
		return err
	})
	if err == nil {
		r.at = next
	}
	return err
}

// keyOf reads a key from JSON.
func keyOf(text string) (key []any, err error) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&key); err != nil {
		return nil, fmt.Errorf("the place of the copy: %w", err)
	}
	for i, v := range key {
		if n, ok := v.(json.Number); ok {
			if key[i], err = n.Int64(); err != nil {
				return nil, fmt.Errorf("the place of the copy: %w", err)
			}
		}
	}
	return key, nil
}

// errEnough ends the reading of rows, and is no error.
var errEnough = errors.New("enough")

// rowsOf calls each with the rows of a query of SQLite: texts, numbers, and bytes, which each may keep.
func rowsOf(ctx context.Context, c *sql.Conn, text string, args []any, each func([]any) error) (err error) {
	rows, err := c.QueryContext(ctx, text, args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	for rows.Next() {
		values, into := make([]any, len(columns)), make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			return err
		}
		for i, v := range values {
			if b, isBytes := v.([]byte); v == nil || isBytes && b == nil { // no column that is copied is NULL
				values[i] = []byte{}
			}
		}
		if err := each(values); errors.Is(err, errEnough) {
			return nil
		} else if err != nil {
			return err
		}
	}
	return rows.Err()
}

// sizeOf is about how many bytes a value takes.
func sizeOf(v any) int {
	switch v := v.(type) {
	case string:
		return len(v)
	case []byte:
		return len(v)
	default:
		return 8
	}
}

// canonical are the bytes by which rows are compared: types, lengths and values.
func canonical(values []any) []byte {
	var out bytes.Buffer
	for _, v := range values {
		switch v := v.(type) {
		case string:
			fmt.Fprintf(&out, "t%d:%s", len(v), v)
		case []byte:
			fmt.Fprintf(&out, "b%d:%s", len(v), v)
		case bool:
			n := 0
			if v {
				n = 1
			}
			fmt.Fprintf(&out, "n%d;", n)
		default:
			fmt.Fprintf(&out, "n%d;", v)
		}
	}
	return out.Bytes()
}
