package daemon_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/internal/models/record"
	"github.com/apzuk3/agentd/internal/test/fakeprovider"
	"github.com/apzuk3/agentd/internal/test/providertest"
	"github.com/apzuk3/agentd/session"
)

// A run with keys in the environment and in headers, against a provider that
// repeats them, leaves no trace of them in the record.
func TestRecordHoldsNoKeys(t *testing.T) {
	_, url := fakeprovider.Start(t, func(_ context.Context, c *fakeprovider.Call) fakeprovider.Reply {
		return fakeprovider.Reply{
			Text: []string{"your key is " + c.Header.Get("Authorization")}, Model: "gpt-x",
			Usage: providertest.Usage{Prompt: 1, Completion: 2, Total: 3},
		}
	})
	file := filepath.Join(t.TempDir(), "calls.jsonl")
	d := start(t, daemon.Config{
		Providers: daemon.Providers{OpenAIAPIKey: session.Secret("canary-server-key"), OpenAIBaseURL: url + "/canary-not-a-key"},
		RecordTo:  file,
	})
	agent := &agentdv1.Agent{Name: "a", AgentType: &agentdv1.Agent_Llm{Llm: &agentdv1.LlmAgent{Model: "openai-chat/gpt-x", Instruction: "Be brief."}}}
	for _, opts := range [][]client.RunOption{nil, {client.WithProviderKey("openai", "canary-caller-key")}} {
		for _, err := range client.New(d.URL()).Run(t.Context(), agent, "Which key?", opts...) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(data), "canary") {
		t.Errorf("a secret is in the record:\n%s", data)
	}
	lines, err := record.Read(bytes.NewReader(data))
	if err != nil || len(lines) != 2 {
		t.Fatalf("%d lines, error %v", len(lines), err)
	}
	for _, l := range lines {
		if l.Provider != "openai-chat" || l.Model != "openai-chat/gpt-x" || l.Served != "gpt-x" || l.Session == "" || l.Turn == "" ||
			strings.Join(l.Path, "/") != "a" || l.MessageID == "" || l.Response == nil ||
			!strings.Contains(string(l.Response.Content), "your key is Bearer ***") || l.Response.Usage.Total != 3 {
			t.Errorf("%+v", l)
		}
	}
}

// A record that cannot be opened is an error at once.
func TestRecordToNowhere(t *testing.T) {
	_, err := daemon.New(daemon.Config{RecordTo: filepath.Join(t.TempDir(), "no", "calls.jsonl")})
	if err == nil || !strings.Contains(err.Error(), "record: open") {
		t.Errorf("%v", err)
	}
}

// A file that is played as all models needs no provider, and a reload does not begin it anew.
func TestScriptIsEveryModel(t *testing.T) {
	file := filepath.Join(t.TempDir(), "calls.jsonl")
	text := ""
	for _, said := range []string{"One.", "Two."} {
		text += `{"request":{"Model":"m"},"responses":[{"Content":{"parts":[{"text":"` + said + `"}],"role":"model"}}]}` + "\n"
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := daemon.Config{Script: file, Prices: filepath.Join(t.TempDir(), "no prices")}
	d := start(t, cfg)
	say := func() (string, error) {
		res, err := client.New(d.URL()).Do(t.Context(), client.LLM("a", "claude-opus-4-5"), "Hello")
		if err != nil {
			return "", err
		}
		return res.Text, nil
	}
	if got, err := say(); err != nil || got != "One." {
		t.Errorf("%q, %v", got, err)
	}
	if err := d.Reload(cfg); err != nil {
		t.Fatal(err)
	}
	if got, err := say(); err != nil || got != "Two." {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := say(); err == nil || !strings.Contains(err.Error(), "script exhausted at turn 2") {
		t.Errorf("%v", err)
	}
}

// A call that falls back to another model is a line for each, and the recording
// plays the response of the last one.
func TestRecordFallback(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "calls.jsonl")
	d := start(t, daemon.Config{
		RecordTo: file, ScriptsDir: dir,
		Scripts: map[string]string{
			"down":  `answers: [{when: {}, error: {kind: unavailable, status: 404, message: gone}}]`,
			"spare": `answers: [{when: {}, text: "Spare."}]`,
		},
	})
	say := func(modelName string, fallbacks ...string) (text string) {
		t.Helper()
		agent := &agentdv1.Agent{Name: "a", AgentType: &agentdv1.Agent_Llm{Llm: &agentdv1.LlmAgent{Model: modelName, FallbackModels: fallbacks}}}
		for event, err := range client.New(d.URL()).Run(t.Context(), agent, "Hello") {
			if err != nil {
				t.Fatal(err)
			}
			if event.OutputChunk != nil {
				text += event.OutputChunk.Content
			}
		}
		return text
	}
	if got := say("scripted/down", "scripted/spare"); got != "Spare." {
		t.Fatalf("said %q", got)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := record.Read(bytes.NewReader(data))
	if err != nil || len(lines) != 2 {
		t.Fatalf("%d lines, error %v", len(lines), err)
	}
	down, spare := lines[0], lines[1]
	if down.Model != "scripted/down" || down.Error == nil || spare.Model != "scripted/spare" || spare.Response == nil || down.MessageID == "" || down.MessageID != spare.MessageID {
		t.Errorf("%+v\n%+v", down, spare)
	}
	if got := say("scripted/calls:strict"); got != "Spare." {
		t.Errorf("played %q", got)
	}
}

// A call that is under way when the daemon stops is in the record, as one that was
// canceled, with what was shown of its response.
func TestRecordIsWholeAfterShutdown(t *testing.T) {
	file := filepath.Join(t.TempDir(), "calls.jsonl")
	d, err := daemon.New(daemon.Config{
		Addr: "127.0.0.1:0", RecordTo: file,
		Scripts: map[string]string{"hang": `answers: [{when: {}, text: ["Well, ", "then"], error: {kind: hang, after: 1}}]`},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	reported := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for event, err := range client.New(d.URL(), client.WithReconnect(client.ReconnectPolicy{Off: true})).Run(t.Context(), llm("a", "scripted/hang"), "Hello") {
			if err != nil {
				return // the daemon is gone
			}
			if event.OutputChunk != nil && event.OutputChunk.Content != "" {
				close(reported)
			}
		}
	}()
	<-reported
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // do not wait for the turn
	if err := d.Shutdown(ctx); err != nil {
		t.Log(err)
	}
	<-done
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := record.Read(bytes.NewReader(data))
	if err != nil || len(lines) != 1 || lines[0].Error == nil || lines[0].Error.Kind != record.Canceled || len(lines[0].Shown) != 1 || lines[0].Shown[0].Text != "Well, " {
		t.Errorf("%v\n%s", err, data)
	}
}
