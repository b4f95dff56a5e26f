package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// What standard output gets is said by --output, on a terminal and elsewhere: the
// answer alone, one object, or events.
func TestRunOutput(t *testing.T) {
	t.Parallel()
	s := startShell(t, map[string]string{"broken": "answers: [{text: 'a ', error: {kind: blocked, message: no such talk}}]", "quick": "answers: [{text: 'quick words'}]"})
	greeter := examples + "greeter.yaml"
	for _, tty := range []bool{true, false} {
		out := s.says(tty, "run", "-o", "text", greeter, "Say hi to Alice")
		if !strings.HasPrefix(out, "The tool greet says: Hello, Alice!") || strings.Count(out, "\n") != 1 {
			t.Errorf("text is %q", out)
		}
		out = s.says(tty, "run", "--output=json", greeter, "Say hi to Alice")
		var turn struct{ Status, OutputText string }
		if err := json.Unmarshal([]byte(out), &turn); err != nil || turn.Status != "TURN_STATUS_SUCCEEDED" || !strings.HasPrefix(turn.OutputText, "The tool greet says") || strings.Count(out, "\n") != 1 {
			t.Errorf("%v, json is %q", err, out)
		}
		if out = s.says(tty, "run", "-o", "events", greeter, "Say hi to Alice"); !strings.HasPrefix(out, "{") || strings.Count(out, "\n") < 5 || !strings.Contains(out, `{"toolCall":`) && !strings.Contains(out, `"toolCall":`) {
			t.Errorf("events are %q", out)
		}
		// A model without a file, in a new session or an old one.
		if out = s.says(tty, "run", "-m", "scripted/quick", "-o", "text", "hi"); out != "quick words\n" {
			t.Errorf("a model says %q", out)
		}
	}
	id, _ := s.lines("sessions", "list")[0]["id"].(string)
	if out := s.says(true, "run", "-m", "echo", "--session", id, "-o", "text", "and me"); out != "and me\n" {
		t.Errorf("the session's next model says %q", out)
	}
	if out := s.says(false, "run", "--attach", id, "-o", "text"); out != "and me\n" {
		t.Errorf("who attaches gets %q", out)
	}
	// A turn that fails has no answer.
	failed := s
	contains(t, failed.fails(exitError, "run", "-m", "scripted/broken", "-o", "text", "hi"), "no such talk")
	failed.stdout, failed.stderr = nil, nil
	if code := failed.run("run", "-m", "scripted/broken", "-o", "text", "hi"); code != exitError || failed.stdout.String() != "" {
		t.Errorf("exit code %d, answer %q", code, failed.stdout)
	}
	failed.stdout, failed.stderr = nil, nil
	if code := failed.run("run", "-m", "scripted/broken", "-o", "json", "hi"); code != exitError || !strings.Contains(failed.stdout.String(), `"TURN_STATUS_FAILED"`) {
		t.Errorf("exit code %d, json %q", code, failed.stdout)
	}
	for want, args := range map[string][]string{
		"give one of them":             {"run", "-o", "text", "--json", greeter, "go"},
		"--model goes without a FILE":  {"run", "-m", "echo", greeter, "go"},
		"the turn has its models":      {"run", "-m", "echo", "--attach", "x"},
		"must be one of":               {"run", "-o", "xml", greeter, "go"},
		"the prompt is missing":        {"run", "-m", "echo"},
		"does not go with --session":   {"run", "--attach", "x", "--session", "y"},
		"unexpected argument anything": {"run", "-m", "echo", "a", "b", "anything"},
	} {
		if got := s.fails(exitUsage, args...); !strings.Contains(got, want) {
			t.Errorf("agentd %q says %q, want %q", args, got, want)
		}
	}
}

// A tool gets a key of a provider only where its file says so.
func TestToolEnvironment(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "sk-canary")
	s := startShell(t, nil)
	text := "agent: {name: a, llm: {model: scripted/demo, tool_names: [look]}}\ntools: [{name: look, description: Looks, command: [sh, -c, 'echo \"key=$OPENAI_API_KEY.\"']PASS}]\n"
	contains(t, s.says(true, "run", file(t, strings.ReplaceAll(text, "PASS", "")), "go"), "key=.")
	contains(t, s.says(true, "run", file(t, strings.ReplaceAll(text, "PASS", ", pass_env: [OPENAI_API_KEY]")), "go"), "key=sk-canary.")
	bad := file(t, strings.ReplaceAll(text, "PASS", ", pass_env: ['A=b']"))
	contains(t, s.fails(exitUsage, "validate", bad), `pass_env: "A=b" is no name of a variable`)
	bad = file(t, strings.ReplaceAll(text, "PASS", ", pass_env: A"))
	contains(t, s.fails(exitUsage, "validate", bad), "pass_env: want a list of names")
}
