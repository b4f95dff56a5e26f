package console_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"os"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/agentdtest"
	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/client/console"
)

// TestWriteEvents: what a model says is on one side, unchanged, and each call and result once on the other.
func TestWriteEvents(t *testing.T) {
	d := agentdtest.Start(t, agentdtest.Config{Scripts: map[string]string{"s": `answers:
  - thoughts: hidden
    text: ["Let me ", "look. "]
    calls: [{name: look, args: {z: 1, a: "` + strings.Repeat("x", 100) + `", m: {k: [1, 2]}}}, {name: fail}]
  - text: "Done."`}})
	clnt := d.Client()
	defer clnt.CloseIdleConnections()
	set := client.NewToolSet()
	err := errors.Join(
		client.AddRawTool(set, "look", "Looks", func(_ context.Context, _ json.RawMessage) (string, error) { return `{"b": 2, "a": "x"}`, nil }),
		client.AddRawTool(set, "fail", "Fails", func(_ context.Context, _ json.RawMessage) (string, error) { return "", errors.New("no\nluck") }),
	)
	if err != nil {
		t.Fatal(err)
	}
	var out, info bytes.Buffer
	agent := client.LLM("a", "scripted/s", client.Tools("look", "fail"))
	if err := console.WriteEvents(clnt.Run(t.Context(), agent, "go", client.WithTools(set)), &out, &info); err != nil {
		t.Fatal(err)
	}
	if out.String() != "Let me look. Done." {
		t.Errorf("out has %q", &out)
	}
	lines := strings.Split(strings.TrimSpace(info.String()), "\n")
	want := map[string]int{
		`→ look(a="` + strings.Repeat("x", 78) + `…, m={"k":[1,2]}, z=1)`: 0, "→ fail()": 0, `← look(a="x", b=2)`: 0, "← fail: error: no luck": 0,
	}
	for _, l := range lines {
		want[l]++
	}
	for l, n := range want {
		if n != 1 {
			t.Errorf("%q is there %d times", l, n)
		}
	}
}

// events are a run of some events.
func events(err error, data ...client.EventData) iter.Seq2[*client.Event, error] {
	return func(yield func(*client.Event, error) bool) {
		for _, d := range data {
			if !yield(&client.Event{Data: d}, nil) {
				return
			}
		}
		if err != nil {
			yield(nil, err)
		}
	}
}

// TestSafe: nothing that a model or a tool has written drives the terminal, and colors end where they begin.
func TestSafe(t *testing.T) {
	var out, info bytes.Buffer
	evil := "a\x1b[2Jb\x07\r"
	err := console.WriteEvents(events(errors.New("over"), &client.OutputChunk{Content: evil}, &client.OutputChunk{Content: "thought", IsThought: true},
		&client.ToolCall{ID: "1", Name: evil, Input: json.RawMessage(`{"` + "k\\u001b[0m" + `": "` + "\\u001b[2J" + `"}`)}, &client.ToolCall{ID: "1", Name: "again"},
		&client.ToolCallAnswered{ID: "1", Name: "x", Output: evil}), &out, &info, console.WithColor(true))
	if err == nil || err.Error() != "over" {
		t.Errorf("got %v", err)
	}
	if strings.Count(out.String(), "\x1b") != 2 || !strings.HasPrefix(out.String(), "\x1b[32ma") || !strings.HasSuffix(out.String(), "b\x1b[0m") {
		t.Errorf("out has %q", &out)
	}
	for line := range strings.Lines(info.String()) {
		if strings.Count(line, "\x1b") != 2 || !strings.HasPrefix(line, "\x1b[36m") || strings.ContainsAny(line, "\a\r") {
			t.Errorf("info has %q", line)
		}
	}
	if n := strings.Count(info.String(), "\n"); n != 2 {
		t.Errorf("info has %d lines: %q", n, &info)
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("full") }

// TestFails: a place that cannot be written to ends the run.
func TestFails(t *testing.T) {
	if err := console.WriteEvents(events(nil, &client.OutputChunk{Content: "x"}), broken{}, &bytes.Buffer{}); err == nil {
		t.Error("nothing is said")
	}
	if console.IsTerminal(&bytes.Buffer{}) {
		t.Error("a buffer is a terminal")
	}
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if console.IsTerminal(f) {
		t.Error("a file is a terminal")
	}
}
