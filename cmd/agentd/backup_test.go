package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
	"github.com/apzuk3/agentd/session/store/sqlite"
)

// loaded is a daemon in a process of its own, whose clients run turns with a tool until stop.
func loaded(t *testing.T) (d *served, dir string, stop func()) {
	t.Helper()
	dir = t.TempDir()
	d = binary(t, map[string]string{"AGENTD_ADDR": "127.0.0.1:0", "AGENTD_DATA": dir})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 4 {
		clnt := client.New(d.url)
		greet := func(_ context.Context, in struct{ Name string }) (any, error) {
			return "Hello, " + in.Name + "!", nil
		}
		if err := client.AddTool(clnt, "greet", "Returns a greeting", greet); err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			defer clnt.CloseIdleConnections()
			for n := 0; ctx.Err() == nil; n++ {
				s := clnt.NewSession(client.LLM("greeter", "scripted/demo", client.Tools("greet")))
				for range 3 {
					if _, err := s.Send(ctx, "Say hi to Alice"); err != nil && ctx.Err() == nil {
						t.Errorf("a turn beside a backup: %v", err)
						return
					}
				}
			}
		})
	}
	return d, dir, sync.OnceFunc(func() { cancel(); wg.Wait() })
}

// agentd runs a command in this process.
func agentd(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(nil, args, map[string]string{"HOME": t.TempDir()}, &out, &errs)
	return code, out.String(), errs.String()
}

// grown waits until a database has more records than before, and returns how many; 0 if that takes too long.
func grown(t *testing.T, file string, before int) int {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		records := 0
		read(t, file, func(_ *sqlite.Store, info store.Info) { records += int(info.LastSeq) })
		if records > before {
			return records
		}
	}
	return 0
}

// logsOf returns every log of a database to which nobody writes.
func logsOf(t *testing.T, file string) map[string][]record.Record {
	t.Helper()
	logs := map[string][]record.Record{}
	read(t, file, func(db *sqlite.Store, info store.Info) {
		recs, err := db.Read(t.Context(), info.ID, 0, 10_000)
		if err != nil || int64(len(recs)) != info.LastSeq {
			t.Fatalf("session %s: %d of %d records, %v", info.ID, len(recs), info.LastSeq, err)
		}
		logs[info.ID] = recs
	})
	return logs
}

// read calls f for each session of a database.
func read(t *testing.T, file string, f func(*sqlite.Store, store.Info)) {
	t.Helper()
	db, err := sqlite.Open(t.Context(), file, sqlite.Config{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	for q := (store.InfoQuery{Limit: 1000}); ; {
		infos, err := db.Sessions(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, info := range infos {
			f(db, info)
		}
		if len(infos) < q.Limit {
			return
		}
		q.After = &infos[len(infos)-1]
	}
}

// TestBackupOfALoadedDaemon backs up a daemon that runs turns, restores each backup elsewhere, and compares
// it with the daemon's own logs: each log is a beginning of those. A daemon then serves the last one.
func TestBackupOfALoadedDaemon(t *testing.T) {
	t.Parallel()
	d, dir, stop := loaded(t)
	defer stop()
	var restored []string
	saved := 0
	for i := range 4 {
		if saved = grown(t, filepath.Join(dir, "agentd.db"), saved); saved == 0 {
			t.Fatal("the turns record nothing more")
		}
		file, to := filepath.Join(t.TempDir(), "backup.db"), filepath.Join(t.TempDir(), "data")
		code, out, errs := agentd(t, "backup", "--json", "--data", dir, file)
		var report struct{ Sessions, Records, Findings, Bytes int64 }
		if err := json.Unmarshal([]byte(out), &report); err != nil || code != exitOK || report.Sessions == 0 || report.Findings > 0 || report.Bytes == 0 {
			t.Fatalf("backup %d: exit code %d, %s%s, %v", i, code, out, errs, err)
		}
		for _, args := range [][]string{{"check", file}, {"check", "--data", dir}, {"restore", "--data", to, file}, {"check", "--data", to}} {
			if code, out, errs := agentd(t, args...); code != exitOK {
				t.Errorf("agentd %q: exit code %d\n%s%s", args, code, out, errs)
			}
		}
		restored = append(restored, to)
		saved = int(report.Records)
	}
	if code, _, errs := agentd(t, "restore", "--force", "--data", dir, filepath.Join(restored[0], "agentd.db")); code != exitError || !strings.Contains(errs, "in use") {
		t.Errorf("restore over a daemon: exit code %d, %s", code, errs)
	}
	stop()
	d.signal(syscall.SIGTERM)
	if code := d.wait(); code != 0 {
		t.Errorf("the daemon ended with %d: %s", code, d.log)
	}
	live := logsOf(t, filepath.Join(dir, "agentd.db"))
	before := 0
	for i, to := range restored {
		records := 0
		for id, recs := range logsOf(t, filepath.Join(to, "agentd.db")) {
			records += len(recs)
			for k, rec := range recs {
				own := live[id]
				if k >= len(own) || own[k].Kind != rec.Kind || own[k].TurnID != rec.TurnID || !own[k].Time.Equal(rec.Time) || !bytes.Equal(own[k].Data, rec.Data) {
					t.Fatalf("backup %d: record %d of session %s is not the daemon's", i, rec.Seq, id)
				}
			}
		}
		if records <= before {
			t.Errorf("backup %d has %d records, the one before %d", i, records, before)
		}
		before = records
	}
	last := restored[len(restored)-1]
	next := inProcess(t, map[string]string{"AGENTD_ADDR": "127.0.0.1:0", "AGENTD_DATA": last})
	for s, err := range client.New(next.url).Sessions(t.Context(), client.SessionFilter{}) {
		if err != nil {
			t.Fatal(err)
		}
		if turn, err := client.New(next.url).Session(s.ID).Start(t.Context(), "And again", client.WithAgent(client.LLM("a", "echo")), client.WithOnBusy(client.OnBusyInterrupt)); err != nil {
			t.Errorf("the restored session takes no turn: %+v, %v", turn, err)
		}
		break
	}
}

// TestKilledBackup kills backups at random moments: there is no file of the final name, or a whole one.
func TestKilledBackup(t *testing.T) {
	t.Parallel()
	_, dir, stop := loaded(t)
	defer stop()
	time.Sleep(time.Second)
	halfway := 0
	for i := range 12 {
		file := filepath.Join(t.TempDir(), "backup.db")
		cmd := exec.CommandContext(t.Context(), os.Args[0], "backup", "--data", dir, file)
		cmd.Env = []string{asMain + "=1", "GORACE=atexit_sleep_ms=0", "HOME=" + dir}
		cmd.Stdout, cmd.Stderr = io.Discard, io.Discard
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		part := fmt.Sprintf("%s.part-%d", file, cmd.Process.Pid)
		for begun := time.Now(); time.Since(begun) < time.Minute; time.Sleep(time.Millisecond) {
			_, err := os.Stat(part)
			_, done := os.Stat(file)
			if err == nil || done == nil {
				break
			}
		}
		time.Sleep(time.Duration(i) * 3 * time.Millisecond)
		if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		switch _, err := os.Stat(file); {
		case errors.Is(err, fs.ErrNotExist):
			halfway++
		case err != nil:
			t.Fatal(err)
		default:
			if code, out, errs := agentd(t, "check", file); code != exitOK {
				t.Errorf("kill %d has left a file: exit code %d\n%s%s", i, code, out, errs)
			}
		}
	}
	if halfway == 0 {
		t.Error("no backup was killed in the middle")
	}
	stop()
	if code, out, errs := agentd(t, "check", "--data", dir); code != exitOK {
		t.Errorf("the daemon's database: exit code %d\n%s%s", code, out, errs)
	}
}

// TestBackupRefusals: what backup and restore refuse, they leave as it is.
func TestBackupRefusals(t *testing.T) {
	t.Parallel()
	data, file, text := t.TempDir(), filepath.Join(t.TempDir(), "backup.db"), filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("no database"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := inProcess(t, map[string]string{"AGENTD_ADDR": "127.0.0.1:0", "AGENTD_DATA": data})
	if _, err := client.New(d.url).Do(t.Context(), client.LLM("a", "echo"), "hi"); err != nil {
		t.Fatal(err)
	}
	d.signal(os.Interrupt)
	d.wait()
	if code, out, errs := agentd(t, "backup", "--data", data, file); code != exitOK || !strings.Contains(out, "1 session, ") {
		t.Fatalf("exit code %d, %s%s", code, out, errs)
	}
	for says, args := range map[string][]string{
		"--force replaces it":                     {"backup", "--data", data, file},
		"belongs to the database":                 {"backup", "--data", data, "--force", filepath.Join(data, "agentd.db")},
		"there is no database":                    {"backup", "--data", t.TempDir(), filepath.Join(t.TempDir(), "b.db")},
		"--force replaces it, and keeps it under": {"restore", "--data", data, file},
		"is the database itself":                  {"restore", "--data", data, filepath.Join(data, "agentd.db")},
		"no SQLite database":                      {"restore", "--data", t.TempDir(), text},
		"there is no database " + text + "2":      {"restore", "--force", "--data", data, text + "2"},
	} {
		if code, out, errs := agentd(t, args...); code != exitError || !strings.Contains(errs, says) {
			t.Errorf("agentd %q: exit code %d, %s%s, want %q", args, code, out, errs, says)
		}
	}
	if code, out, errs := agentd(t, "restore", "--force", "--data", data, file); code != exitOK || !strings.Contains(out, "agentd.db.replaced-") {
		t.Errorf("exit code %d, %s%s", code, out, errs)
	}
	if code, out, errs := agentd(t, "backup", "--force", "--data", data, file); code != exitOK {
		t.Errorf("exit code %d, %s%s", code, out, errs)
	}
	if code, out, errs := agentd(t, "check", "--data", data); code != exitOK || out != "0 findings in 1 session, 3 records\n" {
		t.Errorf("exit code %d, %s%s", code, out, errs)
	}
}
