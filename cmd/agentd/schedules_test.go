package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/internal/test/pgserver"
)

// hello writes a script, and returns the folder of scripts.
func hello(t *testing.T) string {
	t.Helper()
	scripts := t.TempDir()
	if err := os.WriteFile(filepath.Join(scripts, "hello.yaml"), []byte("answers: [{text: hello}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	return scripts
}

// ranOnce waits until a schedule has run, and checks that its session has that turn alone.
func ranOnce(t *testing.T, c *client.Client, id string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		s, err := c.Schedule(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if s.Runs == 0 {
			if time.Now().After(end) {
				t.Fatalf("%s does not run: %s", id, s.LastError)
			}
			continue
		}
		n := 0
		for turn, err := range c.Session(s.SessionID).Turns(t.Context(), client.TurnFilter{}) {
			if err != nil {
				t.Fatal(err)
			}
			if n++; turn.ID != s.LastTurnID && (!s.StartsGoals || s.LastTurnID != "") { // of a goal that is over by then
				t.Errorf("%s: turn %s, want %s", id, turn.ID, s.LastTurnID)
			}
		}
		if n != 1 || s.Runs != 1 || s.LastError != "" {
			t.Errorf("%s has run %d times, in %d turns: %s", id, s.Runs, n, s.LastError)
		}
		return
	}
}

// A server is killed, at once or while runs start: the next one starts each that was missed, once. The command makes,
// lists and deletes schedules.
func TestSchedules(t *testing.T) {
	t.Parallel()
	env := map[string]string{"AGENTD_ADDR": "127.0.0.1:0", "AGENTD_DATA": t.TempDir(), "AGENTD_SCRIPTS": hello(t)}
	first := binary(t, env)
	c := newClient(t, first)
	at := time.Now().Add(1500 * time.Millisecond)
	ids := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	for i, id := range ids {
		def := client.ScheduleDefinition{
			ID: id, At: at.Add(time.Duration(i) * 2 * time.Millisecond), Agent: agent("scripted/hello"), Prompt: "hi",
		}
		if i%2 == 1 {
			def.Prompt, def.Goal = "", &client.GoalSpec{Goal: "hi", MaxTurns: 1}
		}
		if _, err := c.CreateSchedule(t.Context(), def); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(time.Until(at.Add(5 * time.Millisecond))) // so that the kill meets starts of runs, if it can
	first.signal(syscall.SIGKILL)
	first.wait()
	second := binary(t, env)
	c = newClient(t, second)
	for _, id := range ids {
		ranOnce(t, c, id)
	}

	own := map[string]string{"AGENTD_URL": second.url}
	command := func(args ...string) string {
		t.Helper()
		var stdout, stderr bytes.Buffer
		if code := run(nil, append([]string{"schedules"}, args...), own, &stdout, &stderr); code != exitOK {
			t.Fatalf("schedules %v: exit code %d: %s", args, code, stderr.String())
		}
		return stdout.String()
	}
	var made struct {
		ID        string `json:"id"`
		NextTime  string `json:"nextTime"`
		SessionID string `json:"sessionId"`
	}
	text := command("create", "--id", "nightly", "--cron", "30 2 * * *", "--zone", "Europe/Berlin",
		"../../examples/agents/greeter.yaml", "Say", "hi")
	if err := json.Unmarshal([]byte(text), &made); err != nil || made.ID != "nightly" || made.NextTime == "" ||
		!strings.Contains(text, `"Say hi"`) {
		t.Errorf("create: %v, %s", err, text)
	}
	if text := command("list"); strings.Count(text, "\n") != len(ids)+1 || !strings.Contains(text, made.SessionID) {
		t.Errorf("list: %s", text)
	}
	goal := command("create", "--id", "tidy", "--every", "24h", "--goal", "--max-turns", "3", "../../examples/agents/greeter.yaml", "Tidy", "up")
	if text := command("show", "tidy"); text != goal || !strings.Contains(text, `"goal":"Tidy up"`) || !strings.Contains(text, `"maxTurns":3`) {
		t.Errorf("made %s, show: %s", goal, text)
	}
	person := shell{t: t, url: second.url}
	contains(t, person.says(true, "schedules", "list"), "STARTS", "a goal", "a turn")
	contains(t, person.says(true, "schedules", "show", "tidy"), "starts", "a goal", "Tidy up")
	command("delete", "tidy")
	if text := command("show", "nightly"); !strings.Contains(text, "Europe/Berlin") {
		t.Errorf("show: %s", text)
	}
	command("delete", "nightly", "a")
	if text := command("list"); strings.Contains(text, "nightly") {
		t.Errorf("list: %s", text)
	}
	for _, args := range [][]string{
		{"create", "--cron", "@daily", "--every", "1h", "f", "p"}, {"create", "f", "p"}, {"create", "--every", "1h", "p"},
		{"create", "--every", "1h", "--zone", "UTC", "f", "p"}, {"create", "--every", "1h", "--max-turns", "3", "f", "p"},
	} {
		if code := run(nil, append([]string{"schedules"}, args...), own, io.Discard, io.Discard); code != exitUsage {
			t.Errorf("schedules %v: exit code %d", args, code)
		}
	}
	second.signal(syscall.SIGTERM)
	if code := second.wait(); code != exitOK {
		t.Errorf("exit code %d: %s", code, second.log)
	}
	var audit bytes.Buffer
	if code := run(nil, []string{"audit"}, map[string]string{"AGENTD_DATA": env["AGENTD_DATA"]}, &audit, io.Discard); code != exitOK ||
		!strings.Contains(audit.String(), `"ScheduleService.Create"`) || !strings.Contains(audit.String(), `"ScheduleService.Delete"`) {
		t.Errorf("the audit trail: %s", audit.String())
	}
}

// Of two replicas the one that drives is killed: the other one starts what is due, wherever it was made.
func TestSchedulesOfReplicas(t *testing.T) {
	t.Parallel()
	env, _ := killable(t)
	delete(env, "AGENTD_DATA")
	env["AGENTD_STORE"], env["AGENTD_SCRIPTS"] = pgserver.URL(t), hello(t)
	first, second := replica(t, env), replica(t, env)
	c := client.New(second.url)
	t.Cleanup(c.CloseIdleConnections)
	schedule := func(id string, at time.Time) {
		for kind, def := range map[string]client.ScheduleDefinition{
			"": {Prompt: "hi"}, "-goal": {Goal: &client.GoalSpec{Goal: "hi", MaxTurns: 1}},
		} {
			def.ID, def.At, def.Agent = id+kind, at, agent("scripted/hello")
			if _, err := c.CreateSchedule(t.Context(), def); err != nil {
				t.Fatal(err)
			}
		}
	}
	schedule("now", time.Now())
	ranOnce(t, c, "now")
	ranOnce(t, c, "now-goal")
	schedule("later", time.Now().Add(time.Second))
	first.signal(syscall.SIGKILL)
	first.wait()
	ranOnce(t, c, "later")
	ranOnce(t, c, "later-goal")
	second.signal(syscall.SIGTERM)
	if code := second.wait(); code != exitOK {
		t.Errorf("exit code %d: %s", code, second.log)
	}
}
