package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/apzuk3/agentd/internal/sealed"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
	"github.com/apzuk3/agentd/session/store/sqlite"
)

// sealedCanaries are what callers and models say in TestEncryption, each in a place of its own.
var sealedCanaries = []string{
	"canary-prompt", "canary-argument", "canary-result", "canary-says", "canary-own-state", "canary-output", "canary-shared",
	"canary-question", "canary-answer",
}

// encryptionKey makes a file with new keys, the first of which wraps.
func encryptionKey(t *testing.T, dir string, before string, id string) string {
	t.Helper()
	code, line, errs := agentd(t, "encryption", "new-key", id)
	if code != exitOK {
		t.Fatalf("new-key: %d, %s", code, errs)
	}
	if before != "" {
		old, err := os.ReadFile(before)
		if err != nil {
			t.Fatal(err)
		}
		line += string(old)
	}
	name := filepath.Join(dir, id+".keys")
	if err := os.WriteFile(name, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// found returns which canaries files have.
func found(t *testing.T, canaries []string, pattern string) (in []string) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %v, %v", pattern, files, err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range canaries {
			if bytes.Contains(data, []byte(text)) {
				in = append(in, filepath.Base(name)+" has "+text)
			}
		}
	}
	return in
}

// TestEncryption has a daemon take a turn with canaries everywhere: encrypted, none of them is in its files or in a
// backup; clear, each of them is. All commands that read the database work with the key, and none does without it.
func TestEncryption(t *testing.T) {
	t.Parallel()
	for _, encrypted := range []bool{true, false} {
		t.Run(fmt.Sprintf("encrypted=%t", encrypted), func(t *testing.T) {
			t.Parallel()
			dir, data, scripts := t.TempDir(), t.TempDir(), t.TempDir()
			env := map[string]string{"AGENTD_ADDR": "127.0.0.1:0", "AGENTD_DATA": data, "AGENTD_SCRIPTS": scripts}
			if encrypted {
				env["AGENTD_ENCRYPTION_KEYS"] = encryptionKey(t, dir, "", "main")
			}
			script := `answers: [{calls: [{name: look, args: {at: canary-argument}}, {name: ask, args: {q: canary-question}}]}, {text: canary-says}, {text: more}]`
			if err := os.WriteFile(filepath.Join(scripts, "say.yaml"), []byte(script), 0o600); err != nil {
				t.Fatal(err)
			}
			agentFile := file(t, `agent: {name: a, llm: {model: scripted/say, tool_names: [look, ask], output_key: canary-output}}
tools:
  - name: look
    description: looks
    command: [sed, "s/.*/canary-result/"]
  - name: ask
    description: asks
    command: [sed, "s/.*/canary-answer/"]
`)
			d := binary(t, env)
			env["AGENTD_URL"] = d.url
			say := func(args ...string) string {
				t.Helper()
				code, out, errs := command(t, env, args...)
				if code != exitOK {
					t.Fatalf("%q: %d, %s%s", args, code, out, errs)
				}
				return out + errs
			}
			out := say("run", agentFile, "canary-prompt", "--state", "k=canary-own-state")
			session := sessionOf(t, out)
			say("state", "set", "app:k", `"canary-shared"`)
			backup := filepath.Join(dir, "backup.db")
			say("backup", backup)
			inClear := append(found(t, sealedCanaries, filepath.Join(data, "agentd.db*")), found(t, sealedCanaries, backup)...)
			if encrypted && len(inClear) > 0 {
				t.Errorf("clear: %q", inClear)
			}
			for _, text := range sealedCanaries {
				if !encrypted && !strings.Contains(strings.Join(inClear, " "), text) {
					t.Errorf("no file of a clear database has %s", text)
				}
			}
			export := say("export", "--tenant=", "-")
			for _, text := range sealedCanaries {
				if !strings.Contains(export, text) {
					t.Errorf("the export lacks %s", text)
				}
			}
			d.signal(syscall.SIGTERM)
			if code := d.wait(); code != exitOK {
				t.Fatalf("exit code %d: %s", code, d.log)
			}
			if encrypted {
				if has := found(t, sealedCanaries, filepath.Join(data, "*")); len(has) > 0 {
					t.Errorf("clear after the end: %q", has)
				}
				if text := d.log.String(); strings.Contains(text, "canary-") {
					t.Errorf("the log has a canary: %s", text)
				}
			}
			for _, args := range [][]string{
				{"check"}, {"check", backup}, {"replay", session}, {"export", "--tenant=", "-"}, {"restore", "--force", backup}, {"check"},
				{"backup", "--force", filepath.Join(dir, "again.db")},
			} {
				if out := say(args...); args[0] == "check" && !strings.HasPrefix(out, "0 findings") {
					t.Errorf("%q: %s", args, out)
				}
				without := maps.Clone(env)
				delete(without, "AGENTD_ENCRYPTION_KEYS")
				code, out, errs := command(t, without, args...)
				if encrypted && (code == exitOK || !strings.Contains(errs, `"main" (--encryption-keys)`)) {
					t.Errorf("%q without the key: %d, %s%s", args, code, out, errs)
				}
			}
			if encrypted {
				code, _, errs := command(t, map[string]string{"AGENTD_ADDR": "127.0.0.1:0", "AGENTD_DATA": data, "AGENTD_ADMIN_ADDR": "off",
					"AGENTD_ENCRYPTION_KEYS": encryptionKey(t, dir, "", "other")}, "serve")
				if code != exitError || !strings.Contains(errs, `"main" (--encryption-keys)`) {
					t.Errorf("serve with another key: %d, %s", code, errs)
				}
			}
			if encrypted {
				damage(t, backup)
				code, out, errs := command(t, env, "check", backup)
				if code != exitError || !strings.Contains(out, "it was changed or moved") {
					t.Errorf("check of a value that was moved: %d, %s%s", code, out, errs)
				}
			}
			again := binary(t, env)
			env["AGENTD_URL"] = again.url
			if out := say("run", "--session", session, "say it again"); !strings.Contains(out, session) {
				t.Errorf("the session does not continue: %s", out)
			}
			if out := say("erase", "--tenant=", "--yes"); !strings.HasPrefix(out, "erased 1 sessions, 1 shared keys") {
				t.Errorf("erase: %s", out)
			}
		})
	}
}

// damage puts the data of a record in the place of that of a row.
func damage(t *testing.T, path string) {
	t.Helper()
	s, err := sqlite.Open(t.Context(), path, sqlite.Config{})
	if err != nil {
		t.Fatal(err)
	}
	err = s.Transact(t.Context(), func(ctx context.Context, c *sql.Conn) error {
		_, err := c.ExecContext(ctx, `UPDATE entries SET data = (SELECT data FROM records LIMIT 1)`)
		return err
	})
	if err = errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestKilledReseal kills who encrypts a database anew, a command and a daemon, in the middle of it. At last everything is
// encrypted, by the new key alone, says what it said before, and nothing clear is in the files.
func TestKilledReseal(t *testing.T) {
	t.Parallel()
	dir, data := t.TempDir(), t.TempDir()
	path := filepath.Join(data, "agentd.db")
	const sessions, records = 20, 400
	bulk(t, path, sessions, records)
	if len(found(t, []string{"canary-bulk"}, path)) == 0 {
		t.Fatal("the database does not have the canary")
	}
	export := func(env map[string]string) string {
		t.Helper()
		code, out, errs := command(t, env, "export", "--data", data, "--tenant=", "-")
		if code != exitOK {
			t.Fatalf("export: %d, %s", code, errs)
		}
		out, _, _ = strings.Cut(out, `{"kind":"audit"`) // which says that the database was sealed
		return out
	}
	want := export(nil)
	first := encryptionKey(t, dir, "", "first")
	env := map[string]string{"AGENTD_ADDR": "127.0.0.1:0", "AGENTD_DATA": data, "AGENTD_ENCRYPTION_KEYS": first}
	halfway := 0
	killed := func(kill func() bool, wait func()) {
		t.Helper()
		before := sealedRecords(t, path)
		for end := time.Now().Add(time.Minute); sealedRecords(t, path) == before && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		kill()
		wait()
		if n := sealedRecords(t, path); n > 0 && n < sessions*records {
			halfway++
		}
		if got := export(env); got != want {
			t.Fatal("the export is another one after a kill")
		}
	}
	for range 3 {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "encryption", "reseal")
		cmd.Env = []string{asMain + "=1", "GORACE=atexit_sleep_ms=0", "AGENTD_DATA=" + data, "AGENTD_ENCRYPTION_KEYS=" + first}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		killed(func() bool { return cmd.Process.Kill() == nil }, func() { _ = cmd.Wait() })
	}
	d := binary(t, env) // which finds what it was asked
	killed(func() bool { d.signal(syscall.SIGKILL); return true }, func() { d.wait() })
	if halfway == 0 {
		t.Error("no kill was halfway")
	}
	d = binary(t, env)
	reseal := func() string {
		t.Helper()
		code, out, errs := command(t, env, "encryption", "reseal", "--json")
		if code != exitOK {
			t.Fatalf("reseal: %d, %s%s", code, out, errs)
		}
		return out
	}
	if out := reseal(); !strings.Contains(out, fmt.Sprintf("sealed %d values, removed 1 old", sessions*records)) {
		t.Errorf("reseal by a daemon: %s", out)
	}
	for end := time.Now().Add(30 * time.Second); len(found(t, []string{"canary-bulk"}, filepath.Join(data, "agentd.db*"))) > 0; {
		if time.Sleep(100 * time.Millisecond); time.Now().After(end) {
			t.Error("the files still have what was clear while the daemon runs")
			break
		}
	}
	d.signal(syscall.SIGTERM)
	d.wait()
	if has := found(t, []string{"canary-bulk"}, filepath.Join(data, "*")); len(has) > 0 {
		t.Errorf("%q", has)
	}
	// A rotation to a KMS is killed when half of the data keys are wrapped anew: nothing has changed.
	kms := filepath.Join(dir, "kms")
	const script = "#!/bin/sh\ncase $1 in unwrap) base64 -d;; wrap) [ -e $0.once ] && kill -9 $PPID; touch $0.once; base64;; esac\n"
	if err := os.WriteFile(kms, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	twoDataKeys(t, path, first)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "serve")
	cmd.Env = []string{
		asMain + "=1", "GORACE=atexit_sleep_ms=0", "PATH=" + os.Getenv("PATH"), "AGENTD_ADDR=127.0.0.1:0", "AGENTD_ADMIN_ADDR=off",
		"AGENTD_DATA=" + data, "AGENTD_ENCRYPTION_KEYS=" + first, "AGENTD_ENCRYPTION_COMMAND=" + kms,
	}
	if err := cmd.Run(); err == nil || cmd.ProcessState.Exited() {
		t.Fatalf("the rotation was not killed: %v", err)
	}
	if got := export(env); got != want {
		t.Error("the export is another one after a rotation that was killed")
	}
	// The next key wraps the data keys anew; that of before is not needed any more.
	env["AGENTD_ENCRYPTION_KEYS"] = encryptionKey(t, dir, first, "second")
	if out := reseal(); !strings.Contains(out, fmt.Sprintf("sealed %d values, removed 2 old", sessions*records)) {
		t.Errorf("reseal by the command: %s", out)
	}
	second := filepath.Join(dir, "second-alone.keys")
	text, err := os.ReadFile(env["AGENTD_ENCRYPTION_KEYS"])
	if err == nil {
		line, _, _ := bytes.Cut(text, []byte("\n"))
		err = os.WriteFile(second, line, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	env["AGENTD_ENCRYPTION_KEYS"] = second
	if got := export(env); got != want {
		t.Error("the export is another one")
	}
}

// twoDataKeys gives a database a second data key.
func twoDataKeys(t *testing.T, path, keys string) {
	t.Helper()
	s, err := sqlite.Open(t.Context(), path, sqlite.Config{})
	if err != nil {
		t.Fatal(err)
	}
	// The first one has sealed as many values as it may.
	err = s.Transact(t.Context(), func(ctx context.Context, c *sql.Conn) error {
		_, err := c.ExecContext(ctx, `UPDATE data_keys SET used = 1 << 31`)
		return err
	})
	if err == nil {
		_, err = sealed.Open(t.Context(), s, sealed.Config{KeysFile: keys}, slog.New(slog.DiscardHandler))
	}
	if err = errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
}

// bulk makes a database with many clear records.
func bulk(t *testing.T, path string, sessions, records int) {
	t.Helper()
	s, err := sqlite.Open(t.Context(), path, sqlite.Config{})
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2031, 2, 3, 4, 5, 6, 0, time.UTC)
	for i := range sessions {
		id := fmt.Sprintf("s%02d", i)
		b := store.Batch{SessionID: id, Create: &store.NewSession{ID: id, CreatedAt: at}}
		for n := range int64(records) {
			text, err := json.Marshal(fmt.Sprintf("canary-bulk %d %s", n, strings.Repeat("x", 300)))
			if err != nil {
				t.Fatal(err)
			}
			b.Records = append(b.Records, record.Record{Seq: n + 1, TurnID: "t", Kind: record.KindRawPayload, Time: at, Data: text})
		}
		if err := s.Append(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// sealedRecords counts the records of a database that are sealed.
func sealedRecords(t *testing.T, path string) (n int) {
	t.Helper()
	s, err := sqlite.Open(t.Context(), path, sqlite.Config{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	err = s.View(t.Context(), func(ctx context.Context, c *sql.Conn) error {
		return c.QueryRowContext(ctx, `SELECT count(*) FROM records WHERE substr(data, 1, 1) = x'00'`).Scan(&n)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return n
}
