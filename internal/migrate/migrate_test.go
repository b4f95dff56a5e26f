package migrate

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/apzuk3/agentd/internal/test/pgserver"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
	"github.com/apzuk3/agentd/session/store/postgres"
	"github.com/apzuk3/agentd/session/store/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// strange are bytes that are no text.
var strange = []byte{0, 0xff, 0xfe, '\n', '"', 0}

// filled is a store with rows in every table, and in some more than one piece has.
func filled(t *testing.T) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "agentd.db")
	s, err := sqlite.Open(t.Context(), file, sqlite.Config{})
	if err != nil {
		t.Fatal(err)
	}
	at := time.UnixMicro(1_800_000_000_000_001)
	for i, id := range []string{"a", "acme/ä", "acme/z", "a%2Fb/long"} {
		b := store.Batch{
			SessionID: id, Create: &store.NewSession{
				ID: id, CreatedAt: at, Creator: "ann", Labels: map[string]string{"k": id}, Metadata: `{"a": 1}`,
				Budget: record.Budget{ModelCalls: 3}, DropToolPayloads: i == 1, Agent: "x@1", ClientRef: "ref",
			},
			Rows:  []store.Row{{Kind: "turn", SessionID: id, ID: "t", TurnID: "t", Seq: 1, CreatedAt: at, Status: "RUNNING", Data: strange}},
			Usage: record.Usage{}, LastTurn: "t", LastStatus: "RUNNING", Key: &store.Key{Scope: "s", Name: id, Content: "c", SessionID: id, ID: "t"},
			Shared: []store.SharedValue{{Scope: "app:" + id, Key: "k", Value: []byte(`{"b":  2}`)}},
		}
		for seq := range int64(3) {
			kind := record.KindEvent
			if seq == 0 {
				kind = record.KindTurnStarted
			}
			b.Records = append(b.Records, record.Record{Seq: seq + 1, TurnID: "t", Kind: kind, Time: at, Data: append([]byte{byte(i)}, strange...)})
		}
		if id == "a%2Fb/long" {
			b.Records[2].Data = bytes.Repeat(strange, pieceBytes/4)
		}
		if err := s.Append(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	err = s.Transact(t.Context(), func(ctx context.Context, c *sql.Conn) error {
		for _, text := range []string{
			`INSERT INTO spent VALUES ('', 20000, 5, 6), ('acme', 20001, 7, 8)`,
			`INSERT INTO api_keys VALUES ('k1', x'00ff', 'key', 'acme', 'ann', 'caller', '', 'note', 'm', 'v', 1, 2, 3)`,
			`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 12000)
				INSERT INTO audit SELECT i, i, '', 'ann', 'caller', '', '', 'act', '', '', '', 'ok' FROM n`,
			`DELETE FROM audit WHERE seq > 11990`,
			`INSERT INTO erasures VALUES (7, 'acme', 'ann', 1, 5, 0, '')`,
			`INSERT INTO data_keys VALUES (3, 'main', x'0102', x'', 9, 1)`,
			`INSERT INTO sealings VALUES (2, 3, 1, 0, '')`,
			`INSERT INTO agents VALUES ('', 'a', 2, 1, 0), ('acme', 'a', 1, 1, 0)`,
			`INSERT INTO agent_versions VALUES ('', 'a', 1, 'h', x'00', 'ann', 1), ('', 'a', 2, 'h', x'', 'ann', 1)`,
			`INSERT INTO objects VALUES ('', 'f', 'k', 'i', 1, x'ff00', 'ann')`,
			`INSERT INTO notices VALUES ('m', 'h', 'turn.ended', 's', 'acme', 't', '', 3, 1, 0, 2, 5, 1, '', 'away')`,
			`INSERT INTO schedules VALUES ('acme', 'nightly', 'ann', 's', '{"every":1}', 1, 2, 2, 0, '', '', 0)`,
			`INSERT INTO gestalt_sessions VALUES ('g', 's', 'k', 'c', x'00', 1, 2, 3)`,
			`INSERT INTO gestalt_turns VALUES ('t', 'g', 's', 'k', 'c', x'', '', x'01', 'running', '', 1, 2, 0, 4)`,
			`INSERT INTO gestalt_grants VALUES ('t', 'secret')`,
			`INSERT INTO gestalt_events VALUES ('t', 1, '', x'00'), ('t', 2, 'm', x'')`,
			`INSERT INTO agent_eventlog VALUES
				(3, 'agentd', 'ann', 's', 's#1', '', 'user', '2026-01-05 09:30:00.000120+00:00', 't', '{}'),
				(7, 'agentd', 'ann', 's:sub:a', 's#2', 'a', 'x', '2026-01-05 09:30:01.000000+00:00', 't', '{"turn": 1}')`,
		} {
			if _, err := c.ExecContext(ctx, text); err != nil {
				return fmt.Errorf("%s: %w", text, err)
			}
		}
		return nil
	})
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	return file
}

// do runs statements on the database of a URL.
func do(t *testing.T, url string, texts ...string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	for _, text := range texts {
		if _, err := conn.Exec(t.Context(), text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
}

// number is what a query of the database of a URL returns.
func number(t *testing.T, url, text string) (n int64) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err == nil {
		err = errors.Join(conn.QueryRow(t.Context(), text).Scan(&n), conn.Close(t.Context()))
	}
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return n
}

// opens says whether a server would open a target.
func opens(t *testing.T, url string) error {
	t.Helper()
	s, err := postgres.Open(t.Context(), url, postgres.Config{})
	if err == nil {
		err = s.Close()
	}
	return err
}

// TestRun ends a copy at each of its steps, and goes on with it. While it is not over nobody opens the target; then all
// is there, the next run changes nothing, and one of a source that has changed is refused.
func TestRun(t *testing.T) {
	t.Parallel()
	file, url := filled(t), pgserver.URL(t)
	var steps []string
	for over, last := false, ""; !over; {
		ctx, cancel := context.WithCancel(t.Context())
		result, err := Run(ctx, Config{From: file, To: url, Progress: func(what string, _, _ int64) {
			if what != last && !slices.Contains(steps, what) {
				steps = append(steps, what)
				last = what
				cancel()
			}
		}})
		cancel()
		switch over = err == nil; {
		case !over && !errors.Is(err, context.Canceled):
			t.Fatal(err)
		case !over:
			if err := opens(t, url); err == nil || !strings.Contains(err.Error(), "has not finished") {
				t.Errorf("half a copy, behind %q, is opened: %v", last, err)
			}
		case result.Sessions != 4 || result.Records != 12 || result.SHA256 == "":
			t.Errorf("copied %+v", result)
		}
	}
	if len(steps) < len(tables)+2 {
		t.Errorf("ended at %q alone", steps)
	}
	for text, want := range map[string]int64{
		`SELECT count(*) FROM heads WHERE due_at <= now() AND owner IS NULL`:                 4,
		`SELECT count(*) FROM audit WHERE time > 0`:                                          11990,
		`SELECT octet_length(data) FROM records WHERE session_id = 'a%2Fb/long' AND seq = 3`: int64(pieceBytes / 4 * len(strange)),
		`SELECT count(*) FROM sessions WHERE drop_payloads`:                                  1,
		`WITH a AS (INSERT INTO audit (time, tenant, principal, role, via, origin, action, session_id, turn_id, subject, outcome)
			VALUES (0, '', '', '', '', '', '', '', '', '', '') RETURNING seq) SELECT seq FROM a`: 12001,
	} {
		if got := number(t, url, text); got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
	}
	if err := opens(t, url); err != nil {
		t.Error(err)
	}
	again, err := Run(t.Context(), Config{From: file, To: url})
	if err != nil || again.Earlier.IsZero() || again.Records != 12 || number(t, url, `SELECT count(*) FROM audit`) != 11991 {
		t.Errorf("a second run: %+v, %v", again, err)
	}
	change(t, file)
	if _, err := Run(t.Context(), Config{From: file, To: url}); !errors.Is(err, errOther) {
		t.Errorf("a source that has changed: %v", err)
	}
}

// change has the source get another label.
func change(t *testing.T, file string) {
	t.Helper()
	s, err := sqlite.Open(t.Context(), file, sqlite.Config{})
	if err == nil {
		_, err = s.Update(t.Context(), "a", store.Change{Labels: map[string]string{"k": "new"}})
		err = errors.Join(err, s.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestDiffers: what the target does not have as the source does ends the copy, and keeps the target closed.
func TestDiffers(t *testing.T) {
	t.Parallel()
	for what, trigger := range map[string]string{
		`the log of session "acme/z": 3 records, want 3`: `BEFORE INSERT ON records FOR EACH ROW
			WHEN (NEW.session_id = 'acme/z' AND NEW.seq = 2) EXECUTE FUNCTION spoil()`,
		"compare shared: ": `BEFORE INSERT ON shared FOR EACH ROW WHEN (NEW.scope = 'app:acme/z') EXECUTE FUNCTION drop_it()`,
		"compare labels: ": `AFTER INSERT ON labels FOR EACH ROW WHEN (NEW.session_id = 'a') EXECUTE FUNCTION add_one()`,
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			file, url := filled(t), pgserver.URL(t)
			if err := opens(t, url); err != nil {
				t.Fatal(err)
			}
			do(t, url, `CREATE FUNCTION spoil() RETURNS trigger LANGUAGE plpgsql AS
				$$ BEGIN NEW.data = NEW.data || '\x00'; RETURN NEW; END $$`,
				`CREATE FUNCTION drop_it() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$`,
				`CREATE FUNCTION add_one() RETURNS trigger LANGUAGE plpgsql AS
				$$ BEGIN INSERT INTO labels VALUES ('zz', 'k', 'v', 1); RETURN NULL; END $$`,
				`CREATE TRIGGER t `+trigger)
			for range 2 {
				if _, err := Run(t.Context(), Config{From: file, To: url}); err == nil || !strings.Contains(err.Error(), what) {
					t.Errorf("%v, want %q", err, what)
				}
				if err := opens(t, url); err == nil {
					t.Error("the target is opened")
				}
			}
		})
	}
}

// TestRefusals: what is wrong is said, and nothing is written.
func TestRefusals(t *testing.T) {
	t.Parallel()
	refused := func(file, url, want string) {
		t.Helper()
		_, err := Run(t.Context(), Config{From: file, To: url})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	url := pgserver.URL(t)
	refused(filepath.Join(t.TempDir(), "agentd.db"), url, "there is no database in")
	used := filled(t)
	s, err := sqlite.Open(t.Context(), used, sqlite.Config{})
	if err != nil {
		t.Fatal(err)
	}
	refused(used, url, "database is in use")
	if err := s.Transact(t.Context(), func(ctx context.Context, c *sql.Conn) error {
		_, err := c.ExecContext(ctx, `UPDATE sessions SET indexed = 0 WHERE id = 'a'`)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	refused(used, url, "1 sessions have no index yet")
	for version, want := range map[string]string{
		"version_id - 1": "an older agentd has written the database", "version_id + 1": "a newer agentd has written the database",
	} {
		file := filled(t)
		db, err := sql.Open("sqlite", file)
		if err == nil {
			_, err = db.ExecContext(t.Context(), `UPDATE goose_db_version SET version_id = `+version+`
				WHERE id = (SELECT max(id) FROM goose_db_version)`)
			err = errors.Join(err, db.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
		refused(file, url, want)
	}
	file := filled(t)
	if n := number(t, url, `SELECT count(*) FROM pg_tables WHERE schemaname = 'public'`); n != 0 {
		t.Errorf("a refused target has %d tables", n)
	}
	server, err := postgres.Open(t.Context(), url, postgres.Config{Together: true})
	if err != nil {
		t.Fatal(err)
	}
	refused(file, url, "has the target open")
	if err := server.SetShared(t.Context(), []store.SharedValue{{Scope: "app:", Key: "k", Value: []byte("1")}}); err != nil {
		t.Fatal(err)
	}
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	refused(file, url, "there are rows in shared")
}

// TestTables: no column of SQLite is left behind, and none of PostgreSQL is without a value.
func TestTables(t *testing.T) {
	t.Parallel()
	url := pgserver.URL(t)
	if err := opens(t, url); err != nil {
		t.Fatal(err)
	}
	left := map[string]bool{ // what is not copied, and why
		"records.sum":      true, // PostgreSQL has checksums of its own
		"sessions.indexed": true, // all are
	}
	copied, filled := map[string]bool{}, map[string]bool{}
	for i := range tables {
		for _, column := range tables[i].columns {
			copied[tables[i].from+"."+column] = true
			filled[tables[i].to+"."+column] = true
		}
	}
	s, err := sqlite.Open(t.Context(), sqlite.Memory, sqlite.Config{})
	if err != nil {
		t.Fatal(err)
	}
	err = s.View(t.Context(), func(ctx context.Context, c *sql.Conn) error {
		return rowsOf(ctx, c, `SELECT m.name, p.name FROM sqlite_schema m, pragma_table_info(m.name) p
			WHERE m.type = 'table' AND m.name NOT IN ('probe', 'goose_db_version') AND m.name NOT LIKE 'sqlite%'`, nil,
			func(values []any) error {
				if name := values[0].(string) + "." + values[1].(string); !copied[name] && !left[name] {
					t.Errorf("%s is not copied", name)
				}
				return nil
			})
	})
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := conn.Query(t.Context(), `SELECT table_name || '.' || column_name FROM information_schema.columns
		WHERE table_schema = 'public' AND table_name = ANY ($1) AND is_generated = 'NEVER' AND column_default IS NULL
			AND is_nullable = 'NO'`, func() (names []string) {
		for i := range tables {
			names = append(names, tables[i].to)
		}
		return names
	}())
	names, err2 := pgx.CollectRows(rows, pgx.RowTo[string])
	if err := errors.Join(err, err2, conn.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if !filled[name] && name != "records.epoch" {
			t.Errorf("%s gets no value", name)
		}
	}
}
