package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/apzuk3/agentd/client"
)

// worker is a model that ends its goal in its second turn.
const worker = "answers:\n" +
	"  - {when: {user: continue, step: 1}, calls: [{name: report_done, args: {state: done, detail: all sorted}}]}\n" +
	"  - {when: {user: continue, step: 2}, text: so be it}\n" +
	"  - {when: {}, text: I have begun}\n"

// quickWorker is a model that ends its goal in its first turn.
const quickWorker = "answers:\n" +
	"  - {when: {step: 1}, calls: [{name: report_done, args: {state: done}}]}\n" +
	"  - {when: {}, text: there}\n"

// TestAuto works towards goals: the result is the last lines on standard error, and the exit code.
func TestAuto(t *testing.T) {
	t.Parallel()
	s := startShell(t, map[string]string{"worker": worker, "quick": quickWorker, "broken": "answers: [{error: {kind: blocked, message: no such talk}}]"})
	s.stdout, s.stderr = nil, nil
	if code := s.run("auto", "-m", "scripted/quick", "-o", "text", "be there"); code != exitOK || s.stdout.String() != "there\n" || !strings.HasPrefix(s.stderr.String(), "reason: completed\nturns: 1\n") {
		t.Errorf("exit code %d, %q, %q", code, s.stdout, s.stderr)
	}
	s.tty, s.stdout, s.stderr = true, nil, nil
	if code := s.run("auto", "-m", "scripted/worker", "sort it"); code != exitOK {
		t.Errorf("exit code %d: %s", code, s.stderr)
	}
	contains(t, s.stdout.String(), "— turn 1\n", "I have begun", "— turn 2\n", "so be it")
	contains(t, s.stderr.String(), "reason: completed\nturns: 2\n", "detail: all sorted\n")
	s.tty = false
	var result map[string]any
	if err := json.Unmarshal([]byte(s.says(false, "auto", "-m", "scripted/worker", "-o", "json", "sort it")), &result); err != nil || result["reason"] != "completed" || result["turns"] != 2.0 || result["done_detail"] != "all sorted" || result["final_text"] != "so be it" {
		t.Errorf("%v, %v", result, err)
	}
	if out := s.says(false, "auto", "-m", "scripted/worker", "sort it"); strings.Count(out, `"goalTurn":"2"`) != 1 || strings.Count(out, `"end":`) != 2 {
		t.Errorf("events are %s", out)
	}
	// A limit, and what goes on from there.
	contains(t, s.fails(exitError, "auto", "--session", "notes", "-m", "echo", "--max-turns", "2", "hi"), "SESSION_NOT_FOUND")
	limited := s.fails(exitError, "auto", "-m", "echo", "--max-turns", "2", "hi")
	contains(t, limited, "reason: max_turns_exceeded\nturns: 2\n", "to go on: agentd auto --no-builtin-tools --resume --session ")
	id := strings.TrimSpace(limited[strings.LastIndex(limited, " "):])
	contains(t, s.fails(exitError, "auto", "--no-builtin-tools", "--resume", "--session", id, "--max-turns", "3"), "reason: max_turns_exceeded\nturns: 3\n")
	contains(t, s.fails(exitError, "auto", "-m", "scripted/broken", "hi"), "turn 1 has failed: ", "no such talk", "reason: retry_policy_aborted\nturns: 1\n")
	contains(t, s.fails(exitError, "auto", "-m", "scripted/broken", "--on-failure", "retry", "--max-turns", "2", "hi"), "reason: max_turns_exceeded\nturns: 2\n")
	for want, args := range map[string][]string{
		"the goal is missing":         {"auto", "-m", "echo"},
		"the file is missing":         {"auto", "sort it"},
		"of which session?":           {"auto", "--resume", "hi"},
		"give one of them":            {"auto", "-o", "text", "--json", "-m", "echo", "hi"},
		"--max-defer is for --defer":  {"auto", "--max-defer", "1h", "-m", "echo", "hi"},
		"a limit has to be above 0":   {"auto", "--max-cost=-1", "-m", "echo", "hi"},
		"nobody is there to be asked": {"auto", file(t, "{name: a, llm: {model: echo, tool_names: [read_file]}}"), "hi"},
	} {
		contains(t, s.fails(exitUsage, args...), want)
	}
	contains(t, s.fails(exitError, "auto", "--permissions", "acceptEdits", "--max-turns", "1", file(t, "{name: a, llm: {model: echo, tool_names: [read_file]}}"), "hi"), "turns: 1\n")
	// What is known of them.
	rows := s.lines("goals", "list", "--status", "failed")
	if len(rows) != 5 {
		t.Errorf("%d goals have failed: %v", len(rows), rows)
	}
	contains(t, s.says(true, "goals", "show", id), "failed: max turns exceeded", "hi")
	contains(t, s.fails(exitError, "goals", "pause", id), "its goal has ended (failed)")
	contains(t, s.says(false, "goals", "stop", id), "GOAL_STATUS_FAILED")
	contains(t, s.says(true, "goals", "inject", id, "by", "the", "way"), "1 wait for the next turn")
}

// TestAutoInterrupted stops the goal at the first signal, and leaves it at the second one, as when the terminal closes.
// What was left is steered by other commands, and followed by the command that was named.
func TestAutoInterrupted(t *testing.T) {
	t.Parallel()
	s := startShell(t, map[string]string{"slow": "answers: [{text: at last, delay: 1h}]", "worker": worker})
	c := client.New(s.url)
	defer c.CloseIdleConnections()
	running := func() *client.GoalInfo {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
			for g, err := range c.ListGoals(t.Context(), client.GoalFilter{Statuses: []client.GoalStatus{client.GoalRunning}}) {
				if err != nil {
					t.Fatal(err)
				}
				if g.TurnID != "" {
					return g
				}
			}
			if time.Now().After(end) {
				t.Fatal("no goal runs")
			}
		}
	}
	for _, leaves := range []bool{false, true} {
		s.signals = make(chan os.Signal, 2)
		s.stdout, s.stderr = nil, nil
		s.stdout, s.stderr = &locked{}, &locked{}
		code := make(chan int)
		go func() { code <- s.run("auto", "-m", "scripted/slow", "wait") }()
		g := running()
		if leaves {
			s.signals <- syscall.SIGHUP
		} else {
			s.signals <- os.Interrupt
		}
		if got := <-code; got != exitError {
			t.Errorf("exit code %d: %s", got, s.stderr)
		}
		if !leaves {
			contains(t, s.stderr.String(), "stopping the goal; interrupt again to leave it", "reason: context_cancelled\nturns: 1\n")
			continue
		}
		contains(t, s.stderr.String(), "To go on: agentd auto --no-builtin-tools --resume --session "+g.SessionID, "interrupted")
		s.signals = nil
		contains(t, s.says(true, "goals", "pause", g.SessionID), "paused")
		contains(t, s.says(true, "goals", "list", "--status", "running,paused"), g.SessionID, "paused")
		contains(t, s.says(true, "goals", "resume", g.SessionID), "running")
		contains(t, s.says(true, "goals", "stop", g.SessionID), "stopped: context cancelled")
	}
}

// TestAutoLocal: a goal that waits for a time ends the command, whose daemon ends with it, as deferred. The next command
// waits for the time, and goes on.
func TestAutoLocal(t *testing.T) {
	t.Parallel()
	s := startShell(t, nil)
	s.url = "http://127.0.0.1:1"
	scripts, data := t.TempDir(), t.TempDir()
	later := "answers:\n" +
		"  - {when: {user: sort, step: 1}, calls: [{name: schedule_next_turn, args: {wake_in_sec: 2, next_prompt: look again}}]}\n" +
		"  - {when: {user: look again, step: 1}, calls: [{name: report_done, args: {state: done}}]}\n" +
		"  - {when: {}, text: so be it}\n"
	if err := os.WriteFile(filepath.Join(scripts, "later.yaml"), []byte(later), 0o600); err != nil {
		t.Fatal(err)
	}
	local := []string{"auto", "--local", "--data", data, "--scripts", scripts, "--defer"}
	said := s.fails(exitError, append(local, "-m", "scripted/later", "sort it")...)
	contains(t, said, "reason: deferred\nturns: 1\n", "next_wake_at: 2", "to go on: agentd auto --local --data "+data+" --no-builtin-tools --resume --session ")
	id := strings.TrimSpace(said[strings.LastIndex(said, " "):])
	s.stdout, s.stderr = nil, nil
	if code := s.run(append(local, "--no-builtin-tools", "--resume", "--session", id)...); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	contains(t, s.stderr.String(), "the goal has not ended, and goes on as it was started", "reason: completed\nturns: 2\n")
}

// TestBackgroundCommands: agentd auto and agentd run run the tools of background agents, and say what those report.
func TestBackgroundCommands(t *testing.T) {
	t.Parallel()
	s := startShell(t, map[string]string{"team": "answers:\n" +
		"  - {when: {system: You look, step: 1}, calls: [{name: look, args: {}}]}\n" +
		"  - {when: {system: You look, step: 2}, calls: [{name: report_done, args: {state: done, detail: 'seen: {{tool_result \"look\"}}'}}]}\n" +
		"  - {when: {user: find, step: 1}, calls: [{name: spawn_agent, args: {name: scout, system_prompt: You look., goal: look around}}]}\n" +
		"  - {when: {user: find, step: 2}, calls: [{name: wait_agent, args: {name: scout}}]}\n" +
		"  - {when: {user: find, step: 3}, calls: [{name: report_done, args: {state: done}}]}\n" +
		"  - {when: {}, text: that is all}\n"})
	team := file(t, "agent: {name: lead, llm: {model: scripted/team, instruction: You lead., tool_names: [look], background_agents: {}}}\n"+
		"tools: [{name: look, description: Looks., command: [echo, a tree]}]\n")
	for command, result := range map[string]string{"auto": "reason: completed\nturns: 1\n", "run": ""} {
		s.tty, s.stdout, s.stderr = true, nil, nil
		if code := s.run(command, team, "find it"); code != exitOK {
			t.Errorf("agentd %s: exit code %d: %s", command, code, s.stderr)
		}
		contains(t, s.stdout.String(), "that is all", "↪ scout spawned: look around\n", "↪ scout completed: seen: a tree", "(1 turn(s), $0.0000)\n")
		contains(t, s.stderr.String(), result)
	}
}
