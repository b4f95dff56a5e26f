package daemon_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/internal/daemon"
)

// TestDropToolPayloads: in a session that says so, or a daemon that says so for all, what tools were given and returned
// is nowhere once its turn is over; the log is consistent, later turns read it, and it can be run again.
func TestDropToolPayloads(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ session, all, kept bool }{
		"session":  {session: true},
		"all":      {all: true},
		"kept":     {kept: true},
		"together": {session: true, all: true},
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); dropPayloads(t, c.session, c.all, c.kept) })
	}
}

func dropPayloads(t *testing.T, bySession, byDaemon, kept bool) {
	dir := t.TempDir()
	d, err := daemon.New(daemon.Config{
		Addr: "127.0.0.1:0", DataDir: dir, DropToolPayloads: byDaemon, Scripts: map[string]string{"works": `answers:
  - {when: {call: 1}, text: first, calls: [{name: look, args: {what: canary-args}}, {name: act, args: {what: canary-act}}]}
  - {when: {call: 2}, text: "said", calls: [{name: look, args: {what: canary-more}}]}
  - {when: {call: 3}, text: "over"}
  - {when: {}, text: 'the tool said {{tool_result "look"}}'}`},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	cl := client.New(d.URL())
	defer cl.CloseIdleConnections()
	type in struct {
		What string `json:"what"`
	}
	var given []string
	look := func(ctx context.Context, i in) (client.ToolOutput, error) {
		given = append(given, i.What)
		q := client.Question{Kind: client.InteractionInput, Text: "canary-question", Choices: []string{"canary-choice"}}
		if said, err := client.CallFrom(ctx).Ask(ctx, q); err != nil || said.Answer != "canary-answer" {
			t.Errorf("the tool was told %+v, %v", said, err)
		}
		return client.ToolOutput{Output: "canary-output", Parts: []client.Part{client.Inline("image/png", []byte("canary-file"))}}, nil
	}
	act := func(_ context.Context, i in) (string, error) { return "", toolError("canary-error of " + i.What) }
	if err := client.AddTool(cl, "look", "looks", look); err != nil {
		t.Fatal(err)
	}
	if err := client.AddTool(cl, "act", "acts", act, client.NeedsApproval()); err != nil {
		t.Fatal(err)
	}
	info, err := cl.CreateSession(t.Context(), client.NewSessionInfo{DropToolPayloads: bySession})
	if err != nil || info.DropToolPayloads != bySession {
		t.Fatalf("%+v, %v", info, err)
	}
	edits := client.PrompterFunc(func(_ context.Context, in *client.Interaction) (*client.Resolution, error) {
		if in.N > 0 {
			return client.Answer("canary-answer"), nil
		}
		return client.Edit(map[string]string{"what": "canary-edited"}), nil
	})
	agent := client.LLM("a", "scripted/works", client.Tools("look", "act"))
	run := func(prompt string) *client.Result {
		t.Helper()
		res, err := client.Collect(cl.Run(t.Context(), agent, prompt, client.WithSessionID(info.ID), client.WithPrompter(edits)))
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	run("go")
	if strings.Join(given, " ") != "canary-args canary-more" {
		t.Fatalf("the tool was given %v", given)
	}
	answer := run("and now?").Text
	var shown strings.Builder
	for ev, err := range cl.Session(info.ID).Events(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		shown.WriteString(ev.Proto().String())
	}
	for in, err := range cl.Interactions(t.Context(), client.InteractionFilter{SessionID: info.ID}) {
		if err != nil {
			t.Fatal(err)
		}
		shown.WriteString(in.Proto().String())
	}
	stop(t, d)

	var files bytes.Buffer
	names, err := filepath.Glob(filepath.Join(dir, "agentd.db*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		files.Write(data)
	}
	for _, canary := range []string{"canary-args", "canary-act", "canary-more", "canary-output", "canary-error", "canary-edited", "Y2FuYXJ5LWZpbGU",
		"canary-question", "canary-choice", "canary-answer"} {
		if got := bytes.Contains(files.Bytes(), []byte(canary)); got != kept {
			t.Errorf("%s is in the database: %v", canary, got)
		}
		if got := strings.Contains(shown.String(), canary); got && !kept {
			t.Errorf("a reader finds %s", canary)
		}
	}
	if got := strings.Contains(answer, "canary-output"); got != kept {
		t.Errorf("the next turn says %q", answer)
	}
	if _, err := daemon.Check(t.Context(), daemon.Copying{DataDir: dir, Finding: func(f daemon.CheckFinding) { t.Errorf("%+v", f) }}); err != nil {
		t.Error(err)
	}
	rep, err := daemon.Replay(t.Context(), daemon.Config{DataDir: dir}, info.ID)
	if err != nil || rep.Divergence != nil || rep.Turns != 2 {
		t.Errorf("a replay: %+v, %v", rep, err)
	}
}

// TestPayloadsOfAnotherSession: a session with the id of one that was deleted keeps its payloads or not by itself.
func TestPayloadsOfAnotherSession(t *testing.T) {
	t.Parallel()
	d := start(t, daemon.Config{CreateSessions: true, Scripts: map[string]string{
		"works": "answers: [{when: {step: 1}, calls: [{name: look, args: {}}]}, {when: {}, text: over}]",
	}})
	cl := client.New(d.URL())
	defer cl.CloseIdleConnections()
	look := func(context.Context, struct{}) (string, error) { return "canary", nil }
	if err := client.AddTool(cl, "look", "looks", look); err != nil {
		t.Fatal(err)
	}
	info, err := cl.CreateSession(t.Context(), client.NewSessionInfo{DropToolPayloads: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, kept := range []bool{false, true} {
		agent := client.LLM("a", "scripted/works", client.Tools("look"))
		if _, err := cl.Do(t.Context(), agent, "go", client.WithSessionID(info.ID)); err != nil {
			t.Fatal(err)
		}
		var shown strings.Builder
		for ev, err := range cl.Session(info.ID).Events(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			shown.WriteString(ev.Proto().String())
		}
		if got := strings.Contains(shown.String(), "canary"); got != kept {
			t.Errorf("a reader finds what the tool returned: %v, want %v", got, kept)
		}
		if err := cl.Session(info.ID).Delete(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// toolError is an error of a tool.
type toolError string

func (e toolError) Error() string { return string(e) }
