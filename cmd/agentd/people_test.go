package main

import (
	"strings"
	"testing"
)

// A person at the terminal is asked, and the turn continues with what they say.
func TestRunAsks(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		types string
		want  []string
	}{
		"yes":  {"y\n", []string{"! the call of refund was approved\n", `→ refund {"amount":30}`, `paid back: {"amount":30}`}},
		"edit": {"e\n{\"amount\": 5}\n", []string{`was approved with other arguments: {"amount":5}`, `→ refund {"amount":5}`, `paid back: {\"amount\":5}`}},
		"no":   {"n\nnot today\n", []string{"! the call of refund was denied: not today"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startShell(t, nil)
			s.tty, s.stdin = true, strings.NewReader(tc.types)
			if code := s.run("run", examples+"refund.yaml", "Refund 30 dollars"); code != exitOK {
				t.Fatalf("exit code %d: %s", code, s.stderr)
			}
			contains(t, s.stdout.String(), tc.want...)
			contains(t, s.stderr.String(), `support wants to call refund {"amount":30}`)
			if name == "no" && strings.Contains(s.stdout.String(), "→ refund") {
				t.Error("the tool was run")
			}
		})
	}
}

// Somebody else answers for a program that nobody sits at.
func TestInteractionsCommands(t *testing.T) {
	t.Parallel()
	s := startShell(t, map[string]string{"asks": `answers:
  - {when: {step: 1}, calls: [{name: ask_user, args: {question: Which one?, choices: [red, blue]}}]}
  - {when: {}, text: 'You said {{tool_result "ask_user"}}'}`})
	asks := file(t, "name: a\nllm: {model: scripted/asks, builtin_tools: [ask_user]}\n")
	for _, tc := range []struct {
		file, shown string
		resolve     []string
		printed     string // by resolve, on a terminal
		said        string
	}{
		{examples + "refund.yaml", "approval       pending", []string{"approve"}, "the call of refund was approved\n", `paid back: {"amount":30}`},
		{examples + "refund.yaml", "approval       pending", []string{"approve", `{"amount":7}`}, `with other arguments: {"amount":7}`, `paid back: {\"amount\":7}`},
		{examples + "refund.yaml", "approval       pending", []string{"deny", "no money"}, "was denied: no money\n", "no money"},
		{asks, "clarification  pending", []string{"answer", "blue"}, "the question was answered: blue\n", "You said blue"},
	} {
		s.stdin, s.stdout, s.stderr, s.tty = nil, &locked{}, &locked{}, false
		runner := s
		done := make(chan int, 1)
		go func() { done <- runner.run("run", tc.file, "Refund 30 dollars") }()
		<-runner.stderr.await("the turn waits for a person: agentd interactions resolve ")
		open := s.lines("interactions", "list")
		if len(open) != 1 {
			t.Fatalf("open: %v", open)
		}
		session, _ := open[0]["sessionId"].(string)
		id, _ := open[0]["id"].(string)
		table := s.says(true, "interactions", "list", session, "--limit=5")
		if !strings.Contains(strings.Join(strings.Fields(table), " "), strings.Join(strings.Fields(tc.shown), " ")) {
			t.Errorf("listed %s, want %q", table, tc.shown)
		}
		contains(t, s.says(true, "turns", "show", session), "waiting for input", "(interaction "+id+")")
		contains(t, s.says(true, append([]string{"interactions", "resolve", session, id}, tc.resolve...)...), tc.printed)
		if code := <-done; code != exitOK {
			t.Errorf("exit code %d: %s", code, runner.stderr)
		}
		text := ""
		for _, e := range s.lines("sessions", "events", session) {
			event, _ := e["event"].(map[string]any)
			if c, ok := event["outputChunk"].(map[string]any); ok {
				part, _ := c["content"].(string)
				text += part
			}
		}
		contains(t, text, tc.said)
		contains(t, s.fails(exitError, append([]string{"interactions", "resolve", session, id}, tc.resolve...)...), "FAILED_PRECONDITION")
		if got := s.lines("interactions", "list", session, "--status", "resolved"); len(got) != 1 || got[0]["resolution"] == nil {
			t.Errorf("resolved: %v", got)
		}
	}
	if got := s.says(true, "interactions", "list"); got != "nothing\n" {
		t.Errorf("still open: %s", got)
	}
	if got := s.lines("interactions", "list", "--status", "all", "--limit", "3"); len(got) != 3 {
		t.Errorf("%d of all, want 3", len(got))
	}
}

func TestModelsCommand(t *testing.T) {
	s := startShell(t, nil)
	contains(t, s.says(true, "models"), "MODEL ", "PROVIDER", "CONTEXT", "echo", "List prices of 20")
	found := false
	for _, m := range s.lines("models") {
		found = found || m["name"] == "scripted/demo" && m["available"] != nil
	}
	if !found {
		t.Error("scripted/demo is not listed as available")
	}
}
