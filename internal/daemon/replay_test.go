package daemon_test

import (
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	_ "modernc.org/sqlite"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/session/store"
	"github.com/apzuk3/agentd/session/store/sqlite"
)

// contentsOf are the names, times, and contents of the files in a folder.
func contentsOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		out[path] = fmt.Sprintf("%v %x", info.ModTime(), sha256.Sum256(data))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// A session of a stopped daemon is replayed without a trace in its folder, and a
// record that was changed is found.
func TestReplay(t *testing.T) {
	dir := t.TempDir()
	d, err := daemon.New(daemon.Config{Addr: "127.0.0.1:0", DataDir: dir, Scripts: map[string]string{"says": `answers: [{when: {}, text: "All is well."}]`}})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	agent := llm("a", "scripted/says")
	agent.GetLlm().OutputKey = "said"
	for _, err := range client.New(d.URL()).Run(t.Context(), agent, "How is it?") {
		if err != nil {
			t.Fatal(err)
		}
	}
	// What a killed daemon leaves: the database without what is in the WAL alone.
	killed := t.TempDir()
	for _, name := range []string{"agentd.db", "agentd.db-wal"} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(killed, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := daemon.Replay(t.Context(), daemon.Config{DataDir: dir}, "any"); !errors.Is(err, sqlite.ErrLocked) {
		t.Errorf("while the daemon runs: %v", err)
	}
	stop(t, d)

	db, err := sqlite.Open(t.Context(), filepath.Join(dir, "agentd.db"), sqlite.Config{})
	if err != nil {
		t.Fatal(err)
	}
	infos, err := db.Sessions(t.Context(), store.InfoQuery{Limit: 1})
	if err != nil || len(infos) != 1 {
		t.Fatalf("%v, %v", infos, err)
	}
	id := infos[0].ID
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}

	for _, data := range []string{dir, killed} {
		before := contentsOf(t, data)
		rep, err := daemon.Replay(t.Context(), daemon.Config{DataDir: data}, id)
		if err != nil || rep.Divergence != nil || rep.Turns != 1 || rep.Records != 3 {
			t.Errorf("%+v, %v", rep, err)
		}
		if diff := cmp.Diff(before, contentsOf(t, data)); diff != "" {
			t.Errorf("the folder has changed:\n%s", diff)
		}
	}
	for where, want := range map[string]string{dir: "there is no session", t.TempDir(): "there is no database"} {
		if _, err := daemon.Replay(t.Context(), daemon.Config{DataDir: where}, "none"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}

	raw, err := sql.Open("sqlite", filepath.Join(dir, "agentd.db"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = raw.ExecContext(t.Context(), `UPDATE records SET sum = NULL, data = CAST(replace(CAST(data AS TEXT), '"said":"All', '"said":"Nothing') AS BLOB)`)
	if err := errors.Join(err, raw.Close()); err != nil {
		t.Fatal(err)
	}
	rep, err := daemon.Replay(t.Context(), daemon.Config{DataDir: dir}, id)
	want := `record 2 (event) of turn ` + infos[0].LastTurn + `, actions.stateDelta.said: the log has "Nothing is well.", the engine "All is well."`
	if err != nil || rep.Divergence == nil || rep.Divergence.String() != want {
		t.Errorf("%+v, %v; want %s", rep.Divergence, err, want)
	}
}
