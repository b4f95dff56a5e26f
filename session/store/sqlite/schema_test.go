package sqlite

import (
	"database/sql"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestSchema checks that the schema's script and the migrations make the same of an empty database: the same
// tables, columns and indexes, and the same rows.
func TestSchema(t *testing.T) {
	t.Parallel()
	migrated := contentsOf(t, &options{migrations: known(t)})
	scripted := contentsOf(t, &options{migrations: known(t), schema: schema})
	if diff := cmp.Diff(migrated, scripted); diff != "" {
		t.Errorf("schema.sql and the migrations differ (-migrations +schema.sql):\n%s", diff)
	}
	if len(migrated["goose_db_version"]) != len(known(t))+1 || len(migrated["probe"]) != 1 {
		t.Errorf("the comparison saw no rows: %v", migrated)
	}
}

// TestScriptAlone checks that migrations that the schema's script has are not run.
func TestScriptAlone(t *testing.T) {
	t.Parallel()
	dir := known(t)
	for _, file := range dir {
		file.Data = []byte("-- +goose Up\nSELECT no_such_function();\n")
	}
	contentsOf(t, &options{migrations: dir, schema: schema})
}

// TestLaterMigration checks that a migration that the schema's script lacks is run after it.
func TestLaterMigration(t *testing.T) {
	t.Parallel()
	got := contentsOf(t, &options{migrations: later(t), schema: schema})
	want := contentsOf(t, &options{migrations: later(t)})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-migrations +schema.sql and the last migration:\n%s", diff)
	}
}

// contentsOf makes a database and returns the statements of its schema under "", and the rows of each table
// under its name.
func contentsOf(t *testing.T, o *options) map[string][]string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agentd.db")
	db, err := sql.Open("sqlite", dsn(path, pragmas("journal_mode(WAL)")))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	o.log = slog.New(slog.DiscardHandler)
	if err := migrate(t.Context(), db, path, o); err != nil {
		t.Fatal(err)
	}
	list := func(query string) (all []string) {
		rows, err := db.QueryContext(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var s string
			if err := rows.Scan(&s); err != nil {
				t.Fatal(err)
			}
			all = append(all, s)
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
		return all
	}
	contents := map[string][]string{}
	for _, statement := range list("SELECT type || ' ' || tbl_name || ': ' || coalesce(sql, name) FROM sqlite_schema ORDER BY type, name") {
		contents[""] = append(contents[""], plainStatement(statement))
	}
	for _, table := range list("SELECT name FROM sqlite_schema WHERE type = 'table'") {
		columns := list("SELECT 'quote(' || name || ')' FROM pragma_table_info('" + table + "') WHERE name <> 'tstamp'")
		contents[table] = list("SELECT " + strings.Join(columns, " || ', ' || ") + " FROM " + table + " ORDER BY 1")
	}
	return contents
}
