package sqlite

import (
	"context"
	"database/sql"
	_ "embed"
	"fmt"
	"strings"
)

// schema makes what the migrations make of an empty database, and says so to goose, which runs those that it
// lacks.
//
//go:embed schema.sql
var schema string

var spaces = strings.NewReplacer(" ,", ",", "( ", "(", " )", ")")

// plainStatement returns a statement of a schema with the white space that counts. SQLite keeps that of the
// author, and writes a column that a migration adds behind the others, on their line.
func plainStatement(text string) string {
	return spaces.Replace(strings.Join(strings.Fields(text), " "))
}

// create runs the schema's script on an empty database, in one transaction: a process that is killed leaves the
// database empty. It changes no database that has a table. It reports whether it made the schema.
func create(ctx context.Context, db *sql.DB, script string) (made bool, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	var tables int
	if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema").Scan(&tables); err != nil {
		return false, fmt.Errorf("count the tables: %w", err)
	}
	if tables > 0 {
		return false, nil
	}
	if _, err := tx.ExecContext(ctx, script); err != nil {
		return false, fmt.Errorf("make the schema: %w", err)
	}
	return true, tx.Commit()
}
