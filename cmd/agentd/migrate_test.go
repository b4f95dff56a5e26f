package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/test/pgserver"
)

// A server on SQLite, encrypted, is killed in the middle of a turn; the copy of its database to PostgreSQL is killed at
// several places and goes on each time; and a server on PostgreSQL continues the turn. Neither is done beside a server.
func TestMigrate(t *testing.T) {
	t.Parallel()
	env, f := killable(t)
	env["AGENTD_ENCRYPTION_KEYS"] = encryptionKey(t, t.TempDir(), "", "main")
	data, store := env["AGENTD_DATA"], pgserver.URL(t)
	first := binary(t, env)
	f.open(first, agent("scripted/work", "a", "b", "c", "d"))
	f.sendResult(f.until(func(m *agentdv1.RunResponse) bool { return m.GetToolCall() != nil }).GetToolCall())
	f.flushed()
	args := []string{"migrate", "sqlite-to-postgres", "--from", data}
	to := map[string]string{"AGENTD_STORE": store} // the copy needs no key
	if code, out, errs := command(t, to, args...); code != exitError || !strings.Contains(errs, "another agentd holds") {
		t.Errorf("beside the server: %d, %s%s", code, out, errs)
	}
	first.signal(syscall.SIGKILL)
	first.wait()
	f.drop()
	if code, out, errs := command(t, nil, args...); code != exitUsage || !strings.Contains(errs, "--to is missing") {
		t.Errorf("without a target: %d, %s%s", code, out, errs)
	}
	if code, _, errs := command(t, to, "audit"); code != exitOK { // which makes the tables
		t.Fatalf("audit: %d, %s", code, errs)
	}
	k := newKiller(t, store, append(args, "--json"))
	k.at("BEFORE INSERT ON sessions FOR EACH ROW")
	k.at("BEFORE INSERT ON heads FOR EACH ROW")
	k.at("BEFORE INSERT ON records FOR EACH ROW WHEN (NEW.seq = 2)")
	k.at("BEFORE INSERT ON data_keys FOR EACH ROW")
	k.at("BEFORE UPDATE ON agentd_migration FOR EACH ROW WHEN (NEW.finished_at IS NOT NULL)")
	serving := map[string]string{"AGENTD_ADDR": "127.0.0.1:0", "AGENTD_STORE": store}
	if code, _, errs := command(t, serving, "serve"); code != exitError || !strings.Contains(errs, "has not finished this database") {
		t.Errorf("a server on half a copy: %d, %s", code, errs)
	}
	code, out, errs := command(t, to, args...)
	if code != exitOK || !strings.HasPrefix(out, "copied and compared: 1 session, ") {
		t.Fatalf("%d, %s%s", code, out, errs)
	}
	if code, out, errs := command(t, to, args...); code != exitOK || !strings.HasPrefix(out, "nothing to do: an earlier run has finished") {
		t.Errorf("once more: %d, %s%s", code, out, errs)
	}
	delete(env, "AGENTD_DATA")
	env["AGENTD_STORE"] = store
	second := binary(t, env)
	f.open(second, nil)
	end := f.end()
	if !end.GetCompleted() || end.GetUsageSummary().GetLlmCalls() != 3 {
		t.Errorf("got %v, want a completed turn of 3 model calls", end)
	}
	if want := long + " result of a, result of b, result of c, result of d"; f.text() != want {
		t.Errorf("said %q, want %q", f.text(), want)
	}
	if code, out, errs := command(t, env, "check"); code != exitOK {
		t.Errorf("check: %d, %s%s", code, out, errs)
	}
	second.signal(syscall.SIGTERM)
	if code := second.wait(); code != exitOK {
		t.Errorf("exit code %d: %s", code, second.log)
	}
	if _, err := os.Stat(filepath.Join(data, "agentd.db")); err != nil {
		t.Error(err)
	}
}

// killer kills a command at a place that a trigger of the database of a URL names.
type killer struct {
	t    *testing.T
	url  string
	args []string
	conn *pgx.Conn
}

// killerLock is the advisory lock for which a command waits until it is killed.
const killerLock = "4711"

func newKiller(t *testing.T, url string, args []string) *killer {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	k := &killer{t, url, args, conn}
	k.do(`CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN PERFORM pg_advisory_xact_lock(` + killerLock + `); RETURN NEW; END $$`)
	return k
}

func (k *killer) do(text string) {
	k.t.Helper()
	if _, err := k.conn.Exec(k.t.Context(), text); err != nil {
		k.t.Fatalf("%s: %v", text, err)
	}
}

// at runs the command, and kills it when it is in the middle of a statement that a trigger stops.
func (k *killer) at(trigger string) {
	k.t.Helper()
	table := strings.Fields(trigger)[3]
	k.do("CREATE TRIGGER wait " + trigger + " EXECUTE FUNCTION wait()")
	k.do("SELECT pg_advisory_lock(" + killerLock + ")")
	cmd := exec.CommandContext(k.t.Context(), os.Args[0], k.args...)
	cmd.Env = []string{asMain + "=1", "GORACE=atexit_sleep_ms=0", "HOME=" + k.t.TempDir(), "AGENTD_STORE=" + k.url}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		k.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { // ends with the command
		defer close(ended)
		_ = cmd.Wait()
	}()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for waits := false; !waits; {
		select {
		case <-ended:
			k.t.Fatalf("the command has ended before %q: %s", trigger, &out)
		case <-tick.C:
		}
		err := k.conn.QueryRow(k.t.Context(), `SELECT EXISTS (SELECT 1 FROM pg_locks
			WHERE locktype = 'advisory' AND NOT granted AND objid = `+killerLock+`)`).Scan(&waits)
		if err != nil {
			k.t.Fatal(err)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		k.t.Fatal(err)
	}
	<-ended
	k.do("SELECT pg_advisory_unlock(" + killerLock + ")")
	k.do("DROP TRIGGER wait ON " + table)
}
