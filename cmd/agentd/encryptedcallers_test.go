package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/apzuk3/agentd/internal/ledger"
	"github.com/apzuk3/agentd/internal/ledger/sqlledger"
	"github.com/apzuk3/agentd/session/store"
	"github.com/apzuk3/agentd/session/store/sqlite"
)

// callerCanaries are what callers have a server keep in TestEncryptedCallers.
var callerCanaries = []string{"canary-system", "canary-tool", "canary-agent-metadata", "canary-environment", "canary-title", "canary-session-metadata"}

// TestEncryptedCallers: agents, objects of a face and metadata of sessions are in no file of an encrypted database and in
// its export, as they are in the files of a clear one; all commands work, and find what is damaged.
func TestEncryptedCallers(t *testing.T) {
	t.Parallel()
	for _, encrypted := range []bool{true, false} {
		t.Run(fmt.Sprintf("encrypted=%t", encrypted), func(t *testing.T) {
			t.Parallel()
			dir, data := t.TempDir(), t.TempDir()
			env := map[string]string{"AGENTD_ADDR": "127.0.0.1:0", "AGENTD_DATA": data, "AGENTD_FACE": "managed-agents"}
			if encrypted {
				env["AGENTD_ENCRYPTION_KEYS"] = encryptionKey(t, dir, "", "main")
			}
			d := binary(t, env)
			agent := idOf(t, d, "/v1/agents", `{"name": "a", "model": {"id": "scripted/demo"}, "system": "canary-system",
				"tools": [{"type": "custom", "name": "t", "description": "canary-tool", "input_schema": {"type": "object"}}],
				"metadata": {"k": "canary-agent-metadata"}}`)
			place := idOf(t, d, "/v1/environments", `{"name": "e", "description": "canary-environment"}`)
			session := idOf(t, d, "/v1/sessions", `{"agent": "`+agent+`", "environment_id": "`+place+`", "title": "canary-title"}`)
			idOf(t, d, "/v1/sessions/"+session, `{"metadata": {"k": "canary-session-metadata"}}`)
			backup := filepath.Join(dir, "backup.db")
			say := func(args ...string) string {
				t.Helper()
				code, out, errs := command(t, env, args...)
				if code != exitOK {
					t.Fatalf("%q: %d, %s%s", args, code, out, errs)
				}
				return out + errs
			}
			say("backup", backup)
			d.signal(syscall.SIGTERM)
			if code := d.wait(); code != exitOK {
				t.Fatalf("exit code %d: %s", code, d.log)
			}
			has := strings.Join(append(found(t, callerCanaries, filepath.Join(data, "*")), found(t, callerCanaries, backup)...), " ")
			export := say("export", "--tenant=", "-")
			for _, text := range callerCanaries {
				if strings.Contains(has, text) == encrypted {
					t.Errorf("the files have of %s: %s", text, has)
				}
				if !strings.Contains(export, text) {
					t.Errorf("the export lacks %s", text)
				}
			}
			for _, args := range [][]string{{"check"}, {"check", backup}, {"restore", "--force", backup}, {"check"}} {
				if out := say(args...); args[0] == "check" && !strings.HasPrefix(out, "0 findings") {
					t.Errorf("%q: %s", args, out)
				}
			}
			if encrypted {
				for text, query := range map[string]string{
					"beside":  `UPDATE objects SET data = (SELECT content FROM agent_versions LIMIT 1)`,
					"session": `UPDATE sessions SET metadata = substr(metadata, 1, length(metadata) - 9) || 'AAAAAAAA='`,
				} {
					change(t, backup, query)
					if code, out, errs := command(t, env, "check", backup); code != exitError || !strings.Contains(out, text) {
						t.Errorf("check of a changed value: %d, %s%s", code, out, errs)
					}
				}
			}
			d = binary(t, env)
			env["AGENTD_URL"] = d.url
			if again := idOf(t, d, "/v1/sessions/"+session, `{}`); again != session {
				t.Errorf("the session is %s", again)
			}
			if out := say("erase", "--tenant=", "--yes"); !strings.HasPrefix(out, "erased 1 sessions") {
				t.Errorf("erase: %s", out)
			}
			if left := say("export", "--tenant=", "-"); strings.Contains(left, "canary-") {
				t.Errorf("the export after an erasure: %s", left)
			}
		})
	}
}

// idOf makes a request of Managed Agents and returns the id of the object.
func idOf(t *testing.T, d *served, path, body string) string {
	t.Helper()
	status, out := posted(t, d, path, body)
	if status != 200 || out.ID == "" {
		t.Fatalf("%s: %d %+v", path, status, out)
	}
	return out.ID
}

// change changes a database that nobody has open.
func change(t *testing.T, path, query string) {
	t.Helper()
	s, err := sqlite.Open(t.Context(), path, sqlite.Config{})
	if err != nil {
		t.Fatal(err)
	}
	err = s.Transact(t.Context(), func(ctx context.Context, c *sql.Conn) error {
		_, err := c.ExecContext(ctx, query)
		return err
	})
	if err = errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestKilledResealOfCallers kills who encrypts what callers have had a server keep, in the middle of it: it is sealed at
// last, says what it said, and nothing clear is in the files.
func TestKilledResealOfCallers(t *testing.T) {
	t.Parallel()
	dir, data := t.TempDir(), t.TempDir()
	path := filepath.Join(data, "agentd.db")
	const each = 1500
	s, err := sqlite.Open(t.Context(), path, sqlite.Config{})
	if err != nil {
		t.Fatal(err)
	}
	l, at := sqlledger.New(s), time.Date(2031, 2, 3, 4, 5, 6, 0, time.UTC)
	for i := range each {
		text := fmt.Sprintf(`{"agent":{"name":"canary-bulk %d %s"}}`, i, strings.Repeat("x", 500))
		id := fmt.Sprintf("x%04d", i)
		_, _, err := l.AddAgent(t.Context(), ledger.Agent{Name: id, Hash: id, Content: []byte(text), Created: at}, ledger.AnyVersion, each, each)
		if err == nil {
			_, err = l.PutObject(t.Context(), ledger.Object{Face: "f", Kind: "k", ID: id, Data: []byte(text)}, each)
		}
		if err == nil {
			err = s.Create(t.Context(), store.NewSession{ID: id, CreatedAt: at, Metadata: text}, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"AGENTD_DATA": data, "AGENTD_ENCRYPTION_KEYS": encryptionKey(t, dir, "", "first")}
	export := func(env map[string]string) string {
		t.Helper()
		code, out, errs := command(t, env, "export", "--data", data, "--tenant=", "-")
		if code != exitOK {
			t.Fatalf("export: %d, %s", code, errs)
		}
		out, _, _ = strings.Cut(out, `{"kind":"audit"`)
		return out
	}
	want := export(nil)
	halfway := map[string]bool{}
	for _, table := range []string{"sessions", "agent_versions", "objects"} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "encryption", "reseal")
		cmd.Env = []string{asMain + "=1", "GORACE=atexit_sleep_ms=0"}
		for k, v := range env {
			cmd.Env = append(cmd.Env, k+"="+v)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(time.Minute); sealedIn(t, path, table) == 0 && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
		if n := sealedIn(t, path, table); n > 0 && n < each {
			halfway[table] = true
		}
		if got := export(env); got != want {
			t.Fatalf("the export is another one after a kill within %s", table)
		}
	}
	if len(halfway) == 0 {
		t.Error("no kill was halfway")
	}
	t.Logf("killed within %v", halfway)
	code, out, errs := command(t, env, "encryption", "reseal", "--json")
	if code != exitOK || !strings.Contains(out, "sealed ") {
		t.Fatalf("reseal: %d, %s%s", code, out, errs)
	}
	if code, out, errs = command(t, env, "encryption", "reseal", "--json"); !strings.Contains(out, fmt.Sprintf("sealed %d values, removed 1 old", 3*each)) {
		t.Fatalf("reseal once more: %d, %s%s", code, out, errs)
	}
	if has := found(t, []string{"canary-bulk"}, filepath.Join(data, "*")); len(has) > 0 {
		t.Errorf("%q", has)
	}
	if got := export(env); got != want {
		t.Error("the export is another one")
	}
}

// sealedIn counts the values of a table that are sealed.
func sealedIn(t *testing.T, path, table string) (n int) {
	t.Helper()
	query := map[string]string{
		"sessions":       `SELECT count(*) FROM sessions WHERE metadata LIKE 'agentd-sealed-1:%'`,
		"agent_versions": `SELECT count(*) FROM agent_versions WHERE substr(content, 1, 1) = x'00'`,
		"objects":        `SELECT count(*) FROM objects WHERE substr(data, 1, 1) = x'00'`,
	}[table]
	s, err := sqlite.Open(t.Context(), path, sqlite.Config{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	err = s.View(t.Context(), func(ctx context.Context, c *sql.Conn) error { return c.QueryRowContext(ctx, query).Scan(&n) })
	if err = errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	return n
}
