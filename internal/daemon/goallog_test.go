package daemon_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/internal/test/pgserver"
	"github.com/apzuk3/agentd/session"
)

// sorts is a script of an agent that is done when it is told to finish.
const sorts = `answers:
  - {when: {user: finish, step: 1}, calls: [{name: report_done, args: {state: done, detail: canary-detail}}]}
  - {when: {}, text: canary-text}`

// TestGoalInEventLog: each turn of a goal leaves a row of how far the goal has come, which other programs read with SQL
// and find again in the next process; List and Watch select it. An encrypted database has no text in it.
func TestGoalInEventLog(t *testing.T) {
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
			cfg.EventLog, cfg.CreateSessions, cfg.Scripts = true, true, map[string]string{"looks": looks, "sorts": sorts}
			goalInEventLog(t, &cfg, name == "encrypted")
		})
	}
}

func goalInEventLog(t *testing.T, cfg *daemon.Config, encrypted bool) {
	d := start(t, *cfg)
	askLooks(t, d, "other", "hello")
	cl := client.New(d.URL())
	defer cl.CloseIdleConnections()
	const author = "agentd/autonomous"
	seen := make(chan *client.LoggedEvent)
	go func() { // ends with the test
		defer close(seen)
		for e, err := range cl.WatchEventLog(t.Context(), 0, client.LogFilter{SessionID: "g", Tree: true, Author: author}) {
			if err != nil {
				return
			}
			select {
			case seen <- e:
			case <-t.Context().Done():
				return
			}
		}
	}()
	first := pursue(t, d, "g", &agentdv1.StartGoalRequest{Goal: "canary-goal", MaxTurns: new(int32(2))}, false)
	child := pursue(t, d, "g:sub:bg.x", &agentdv1.StartGoalRequest{Goal: "finish"}, false)
	if first.GetReason() != agentdv1.GoalReason_GOAL_REASON_MAX_TURNS_EXCEEDED || child.GetTurns() != 1 {
		t.Fatalf("goals end as %v and %v", first, child)
	}
	stop(t, d)
	d = start(t, *cfg)
	last := pursue(t, d, "g", &agentdv1.StartGoalRequest{Goal: "finish it"}, true)

	db := reader(t, cfg)
	said := func(text string) string {
		if encrypted {
			return "<nil>"
		}
		return text
	}
	want := []string{
		fmt.Sprint("g  1  ", said("canary-goal"), " ", said("continue"), " ", said(""), " ", said("canary-text")),
		fmt.Sprint("g  2 max_turns_exceeded ", said("canary-goal"), " ", said("continue"), " ", said(""), " ", said("canary-text")),
		fmt.Sprint("g:sub:bg.x bg.x 1 completed ", said("finish"), " ", said("continue"), " ", said("canary-detail"), " ", said("canary-text")),
		fmt.Sprint("g  3 completed ", said("finish it"), " ", said("continue"), " ", said("canary-detail"), " ", said("canary-text")),
	}
	got := rowsOf(t, db, `SELECT session_id, branch, metadata ->> 'turn', metadata ->> 'stop_reason', metadata ->> 'goal',
		metadata ->> 'continuation_prompt', metadata ->> 'done_detail', metadata ->> 'final_text'
		FROM agent_eventlog WHERE author = $1 ORDER BY seq`, author)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("checkpoints (-want +got):\n%s", diff)
	}
	// How a program finds out where a goal stands: the newest event whose author ends in /autonomous.
	newest := rowsOf(t, db, `SELECT metadata ->> 'turn', metadata ->> 'input_tokens', metadata ->> 'output_tokens',
		metadata ->> 'stop_reason', invocation_id <> '' FROM agent_eventlog
		WHERE session_id = 'g' AND author LIKE '%/autonomous' ORDER BY seq DESC LIMIT 1`)
	yes := "true"
	if cfg.StoreURL == "" {
		yes = "1"
	}
	standing := fmt.Sprintf("3 %d %d completed %s", last.GetInputTokens(), last.GetOutputTokens(), yes)
	if last.GetInputTokens() <= first.GetInputTokens() || !slices.Equal(newest, []string{standing}) {
		t.Errorf("the newest checkpoint is %q, want %q", newest, standing)
	}

	// List and Watch select rows as SQL does.
	again := client.New(d.URL())
	defer again.CloseIdleConnections()
	for name, c := range map[string]struct {
		filter client.LogFilter
		query  string
	}{
		"author":  {client.LogFilter{Author: author}, `author = 'agentd/autonomous'`},
		"session": {client.LogFilter{SessionID: "g", Author: author}, `author = 'agentd/autonomous' AND session_id = 'g'`},
		"tree":    {client.LogFilter{SessionID: "g", Tree: true}, `session_id = 'g' OR session_id LIKE 'g:sub:%'`},
		"branch":  {client.LogFilter{BranchPrefix: "bg."}, `branch LIKE 'bg.%'`},
	} {
		var listed []string
		for e, err := range again.EventLog(t.Context(), 0, c.filter) {
			if err != nil {
				t.Fatal(err)
			}
			listed = append(listed, e.ID)
		}
		if rows := rowsOf(t, db, `SELECT event_id FROM agent_eventlog WHERE `+c.query+` ORDER BY seq`); len(rows) == 0 || !slices.Equal(listed, rows) {
			t.Errorf("by %s List returns %q, the table has %q", name, listed, rows)
		}
	}
	// The watcher has lost its server, which is on another port now: what came before it was stopped, it has once.
	for i, want := range []int{1, 2, 1} {
		select {
		case e := <-seen:
			var m struct{ Turn int }
			if err := json.Unmarshal(e.Metadata, &m); err != nil || m.Turn != want || e.Author != author {
				t.Errorf("event %d is %+v, %s", i, e, e.Metadata)
			}
		case <-time.After(30 * time.Second):
			t.Fatal("a watcher is not told of checkpoints")
		}
	}
}

// pursue has a session work on a goal, or go on with one, to its end.
func pursue(t *testing.T, d *daemon.Daemon, id string, req *agentdv1.StartGoalRequest, again bool) *agentdv1.Goal {
	t.Helper()
	c := agentdv1connect.NewGoalServiceClient(http.DefaultClient, d.URL())
	req.Execute = &agentdv1.RunRequest_ExecuteRequest{Agent: llm("root", "scripted/sorts"), SessionId: &id, Create: !again}
	if again {
		call(t, c.Resume, &agentdv1.ResumeGoalRequest{Goal: req})
	} else {
		call(t, c.Start, req)
	}
	for wait := time.Millisecond; ; wait *= 2 {
		g := call(t, c.Get, &agentdv1.GetGoalRequest{SessionId: id}).GetGoal()
		if g.GetEndTime() != nil {
			return g
		}
		if wait > 20*time.Second {
			t.Fatalf("the goal goes on: %v", g)
		}
		time.Sleep(wait)
	}
}
