package daemon_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	_ "github.com/jackc/pgx/v5/stdlib" // programs that read the event log
	_ "modernc.org/sqlite"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/internal/test/pgserver"
	"github.com/apzuk3/agentd/session"
)

// looks is a script that calls a tool and then says something.
const looks = `answers:
  - {when: {step: 1, has_tool: look}, text: canary-text, calls: [{name: look, args: {what: canary-args}}]}
  - {when: {}, text: canary-end}`

// askLooks runs a turn of a session whose agents have the tool look.
func askLooks(t *testing.T, d *daemon.Daemon, sessionID, prompt string, opts ...client.Option) {
	t.Helper()
	cl := client.New(d.URL(), opts...)
	defer cl.CloseIdleConnections()
	err := client.AddTool(cl, "look", "looks", func(context.Context, struct {
		What string `json:"what"`
	}) (string, error) {
		return "canary-output", nil
	})
	if err != nil {
		t.Fatal(err)
	}
	agent := client.Sequential("both", client.LLM("a", "scripted/looks", client.Tools("look")), client.LLM("b", "scripted/looks"))
	_, err = client.Collect(cl.Run(t.Context(), agent, prompt, client.WithSessionID(sessionID)))
	if err != nil {
		t.Fatal(err)
	}
}

// rowsOf are the rows of a query, their columns with spaces between.
func rowsOf(t *testing.T, db *sql.DB, query string, args ...any) (out []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), query, args...)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		values, into := make([]any, len(columns)), make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			t.Fatal(err)
		}
		out = append(out, strings.TrimSuffix(fmt.Sprintln(values...), "\n"))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// reader opens a database as another program does.
func reader(t *testing.T, cfg *daemon.Config) *sql.DB {
	t.Helper()
	driver, dsn := "sqlite", "file:"+filepath.Join(cfg.DataDir, "agentd.db")+"?mode=ro"
	if cfg.StoreURL != "" {
		driver, dsn = "pgx", string(cfg.StoreURL)
	}
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// TestEventLog: with EventLog the table has the events of all that is appended, for programs that read it with SQL
// beside the daemon; nothing of what was said; and what is deleted is gone from it.
func TestEventLog(t *testing.T) {
	t.Parallel()
	keys := filepath.Join(t.TempDir(), "keys")
	line, err := daemon.NewEncryptionKey("k1")
	if err == nil {
		err = os.WriteFile(keys, []byte(line+"\n"), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, cfg := range map[string]daemon.Config{
		"SQLite":     {DataDir: t.TempDir()},
		"encrypted":  {DataDir: t.TempDir(), Encryption: daemon.Encryption{KeysFile: keys}},
		"PostgreSQL": {StoreURL: session.Secret(pgserver.URL(t))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg.EventLog, cfg.CreateSessions, cfg.Scripts = true, true, map[string]string{"looks": looks}
			eventLog(t, &cfg)
		})
	}
}

func eventLog(t *testing.T, cfg *daemon.Config) {
	d := start(t, *cfg)
	askLooks(t, d, "s", "canary-prompt")
	askLooks(t, d, "s:sub:bg.x", "canary-prompt")
	db := reader(t, cfg)
	const all = `SELECT event_id, session_id, branch, author FROM agent_eventlog WHERE seq > $1 ORDER BY seq`
	want := []string{
		"s#1 s  user", "s#3 s  a", "s#5 s  a", "s#6 s  a", "s#8 s  b",
		"s:sub:bg.x#1 s:sub:bg.x bg.x user", "s:sub:bg.x#3 s:sub:bg.x bg.x a", "s:sub:bg.x#5 s:sub:bg.x bg.x a",
		"s:sub:bg.x#6 s:sub:bg.x bg.x a", "s:sub:bg.x#8 s:sub:bg.x bg.x b",
	}
	if diff := cmp.Diff(want, rowsOf(t, db, all, 0)); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	for query, want := range map[string]string{
		`SELECT count(*) FROM agent_eventlog WHERE branch LIKE 'bg.%'`:                                  "5",
		`SELECT count(*) FROM agent_eventlog WHERE session_id = 's' OR session_id LIKE 's:sub:%'`:       "10",
		`SELECT DISTINCT app_name, user_id FROM agent_eventlog`:                                         "agentd local",
		`SELECT count(DISTINCT invocation_id) FROM agent_eventlog WHERE timestamp > '2020-01-01'`:       "2",
		`SELECT author, count(*) FROM agent_eventlog WHERE session_id = 's' GROUP BY author ORDER BY 1`: "a 3,b 1,user 1",
		`SELECT count(*) FROM agent_eventlog WHERE metadata ->> 'turn' IS NULL AND invocation_id <> ''`: "10",
	} {
		if got := strings.Join(rowsOf(t, db, query), ","); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	for _, query := range documented(t) {
		rowsOf(t, db, query)
	}
	for _, row := range rowsOf(t, db, `SELECT * FROM agent_eventlog`) {
		if strings.Contains(row, "canary") {
			t.Errorf("a row says what was said: %s", row)
		}
	}

	// Whoever goes on behind the last number sees all that follows, also of the next process.
	last := rowsOf(t, db, `SELECT max(seq) FROM agent_eventlog`)[0]
	stop(t, d)
	next := start(t, *cfg)
	askLooks(t, next, "s", "more")
	more := rowsOf(t, db, all, last)
	if len(more) != 5 || more[0] != "s#10 s  user" {
		t.Errorf("behind %s there are %q", last, more)
	}
	cl := client.New(next.URL())
	defer cl.CloseIdleConnections()
	if err := cl.Session("s").Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want[5:], rowsOf(t, db, all, 0)); diff != "" {
		t.Errorf("after the session was deleted (-want +got):\n%s", diff)
	}
	result, err := daemon.Erase(t.Context(), *cfg, daemon.Erasure{User: "local"})
	if left := rowsOf(t, db, all, 0); err != nil || len(left) > 0 {
		t.Errorf("Erase: %s, %v; what is left is %q", result, err, left)
	}
}

// documented are the queries of docs/eventlog.md.
func documented(t *testing.T) (queries []string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/eventlog.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```sql\n")
	block, _, _ := strings.Cut(rest, "```")
	for query := range strings.SplitSeq(block, ";") {
		if query = strings.TrimSpace(query); query != "" {
			queries = append(queries, query)
		}
	}
	if len(queries) < 5 {
		t.Errorf("the page has the queries %q", queries)
	}
	return queries
}

// TestNoEventLog: without EventLog nothing is written, and a store that keeps no events is refused.
func TestNoEventLog(t *testing.T) {
	t.Parallel()
	cfg := &daemon.Config{DataDir: t.TempDir(), CreateSessions: true, Scripts: map[string]string{"looks": looks}}
	d := start(t, *cfg)
	askLooks(t, d, "s", "hello")
	if rows := rowsOf(t, reader(t, cfg), `SELECT * FROM agent_eventlog`); len(rows) > 0 {
		t.Errorf("the table has %q", rows)
	}
}
