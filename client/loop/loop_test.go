package loop_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/apzuk3/agentd/agentdtest"
	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/client/loop"
)

func TestBuildPrompt(t *testing.T) {
	user := func(text string) loop.Message { return loop.Message{Role: "user", Content: text} }
	for _, c := range []struct {
		session, prompt string
		messages        []loop.Message
		want            string
	}{
		{"", "", []loop.Message{user("hello"), {Role: "assistant", Content: "hi there"}}, "user: hello\nassistant: hi there\n"},
		{"", "", []loop.Message{user("hello")}, "user: hello\n"},
		{"", "", nil, ""},
		{"sess-1", "do stuff", []loop.Message{user("ignored")}, "do stuff"},
		{"sess-1", "", []loop.Message{user("first"), user("latest")}, "latest"},
		{"", "alone", nil, "alone"},
		{"", "ignored", []loop.Message{user("hello")}, "user: hello\n"},
		{"sess-1", "", nil, ""},
		{"sess-1", "alone", nil, "alone"},
	} {
		r := &loop.Request{SessionID: c.session, Prompt: c.prompt, Messages: c.messages}
		if got := r.BuildPrompt(); got != c.want {
			t.Errorf("session %q, prompt %q, %d messages: %q, want %q", c.session, c.prompt, len(c.messages), got, c.want)
		}
	}
}

// looks calls a tool in its first step, and says what the user has said last.
const looks = `answers:
  - {when: {user: fail}, error: {kind: invalid, message: no}}
  - {when: {step: 1}, text: "Let me look. ", calls: [{name: look, args: {where: north}}]}
  - {when: {}, text: '{{last_user}}: {{tool_result "look"}}|{{system}}'}`

// bench is a daemon with a client that has the tool look.
type bench struct {
	clnt     *client.Client
	mu       sync.Mutex // protects the fields below
	log      []string
	metadata map[string]string
}

func newBench(t *testing.T, script string) *bench {
	t.Helper()
	d := agentdtest.Start(t, agentdtest.Config{Scripts: map[string]string{"m": script}, Addr: "127.0.0.1:0"})
	b := &bench{clnt: client.New(d.URL)}
	t.Cleanup(b.clnt.CloseIdleConnections)
	err := client.AddTool(b.clnt, "look", "looks", func(ctx context.Context, in struct {
		Where string `json:"where"`
	}) (string, error) {
		b.mu.Lock()
		b.metadata = client.CallFrom(ctx).Metadata()
		b.mu.Unlock()
		b.note("ran look")
		return "white", nil
	}, client.ToolEffect(client.EffectWrite))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) note(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.log = append(b.log, what)
}

// took returns what was noted since the last call.
func (b *bench) took() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := b.log
	b.log = nil
	return out
}

// watched is a request whose functions note what they are called with.
func (b *bench) watched(r loop.Request) *loop.Request {
	r.OnTurn = func(text string) { b.note("turn " + text) }
	r.OnToolUse = func(name, input string) { b.note("use " + name + " " + input) }
	r.OnActivity = func(activity, detail string) { b.note(activity + " " + detail) }
	return &r
}

func TestRun(t *testing.T) {
	b := newBench(t, looks)
	agent := client.LLM("root", "scripted/m", client.Tools("look"))
	first, err := loop.Run(t.Context(), b.clnt, agent, b.watched(loop.Request{
		Messages:  []loop.Message{{Role: "user", Content: "hello"}, {Role: "assistant", Content: "hi"}},
		ChannelID: "c1", AuthorID: "ann", DirPath: "/srv/a", ParentDirPath: "/srv", SystemPrompt: "Be brief.",
	}))
	if err != nil {
		t.Fatal(err)
	}
	text := first.Response
	if !strings.HasPrefix(text, "user: hello\nassistant: hi\n: white|") || !strings.Contains(text, "Be brief.") {
		t.Errorf("responded %q", text)
	}
	want := loop.Response{Response: text, SessionID: first.SessionID, DurationMs: first.DurationMs, NumTurns: 2, StopReason: "end_turn", Model: "m"}
	if *first != want || first.SessionID == "" || first.DurationMs < 0 {
		t.Errorf("%+v, want %+v", *first, want)
	}
	if got, want := b.took(), []string{"model scripted/m", "turn Let me look. ", `use look {"where":"north"}`, "ran look", "turn " + text}; !slices.Equal(got, want) {
		t.Errorf("noted %q, want %q", got, want)
	}
	if !maps.Equal(b.metadata, map[string]string{"dir_path": "/srv/a", "parent_dir_path": "/srv"}) {
		t.Errorf("the tool was told %v", b.metadata)
	}
	var listed []string
	for s, err := range b.clnt.Sessions(t.Context(), client.SessionFilter{Labels: map[string]string{"channel_id": "c1"}}) {
		if err != nil {
			t.Fatal(err)
		}
		listed = append(listed, s.ID)
	}
	if !slices.Equal(listed, []string{first.SessionID}) {
		t.Errorf("sessions of the channel: %q", listed)
	}
	// In the session, with functions that are nil; and on a fork.
	next, err := loop.Run(t.Context(), b.clnt, nil, &loop.Request{SessionID: first.SessionID, Prompt: "and now"})
	if err != nil || next.SessionID != first.SessionID || !strings.HasPrefix(next.Response, "and now: white|") || strings.Contains(next.Response, "Be brief.") {
		t.Errorf("in the session: %+v, %v", next, err)
	}
	fork, err := loop.Run(t.Context(), b.clnt, nil, &loop.Request{SessionID: first.SessionID, ForkSession: true, Prompt: "elsewhere"})
	if err != nil || fork.SessionID == "" || fork.SessionID == first.SessionID || !strings.HasPrefix(fork.Response, "elsewhere: white|") {
		t.Errorf("on a fork: %+v, %v", fork, err)
	}
	// A turn that plans runs no tool that may change something.
	b.took()
	plan, err := loop.Run(t.Context(), b.clnt, nil, b.watched(loop.Request{SessionID: first.SessionID, Prompt: "plan", PlanMode: true}))
	if got := b.took(); err != nil || !strings.HasPrefix(plan.Response, "plan: plan mode: look (WRITE) was not run|") || slices.Contains(got, "ran look") {
		t.Errorf("a plan: %+v, %v, noted %q", plan, err, got)
	}
}

// TestRunFails: a failure gives both a response and an error. In a session there is one retry, elsewhere none.
func TestRunFails(t *testing.T) {
	b := newBench(t, looks)
	agent := client.LLM("root", "scripted/m", client.Tools("look"))
	ask := func(r loop.Request) (*loop.Response, int, error) {
		t.Helper()
		resp, err := loop.Run(t.Context(), b.clnt, agent, b.watched(r))
		tries := 0
		for _, what := range b.took() {
			if strings.HasPrefix(what, "model ") {
				tries++
			}
		}
		return resp, tries, err
	}
	resp, tries, err := ask(loop.Request{Prompt: "fail"})
	if err == nil || resp == nil || resp.SessionID == "" || resp.Error != err.Error() || tries != 1 {
		t.Errorf("a new session: %+v, %v, %d tries", resp, err, tries)
	}
	id := resp.SessionID
	resp, tries, err = ask(loop.Request{SessionID: id, Prompt: "fail"})
	if err == nil || resp.SessionID != id || resp.Error != err.Error() || tries != 2 {
		t.Errorf("a session: %+v, %v, %d tries", resp, err, tries)
	}
	resp, tries, err = ask(loop.Request{SessionID: id, ForkSession: true, Prompt: "fail"})
	if err == nil || resp.SessionID == id || resp.SessionID == "" || tries != 2 {
		t.Errorf("a fork: %+v, %v, %d tries", resp, err, tries)
	}
	if forks := forksOf(t, b.clnt, id); forks != 1 {
		t.Errorf("%d forks, want the one on which it was tried twice", forks)
	}
	resp, _, err = ask(loop.Request{SessionID: "none", Prompt: "x"})
	if !errors.Is(err, client.ErrSessionNotFound) || resp.SessionID != "none" || resp.Error == "" {
		t.Errorf("no session: %+v, %v", resp, err)
	}
}

func forksOf(t *testing.T, c *client.Client, id string) int {
	t.Helper()
	n := 0
	for s, err := range c.Sessions(t.Context(), client.SessionFilter{}) {
		if err != nil {
			t.Fatal(err)
		}
		if s.ForkedFrom == id {
			n++
		}
	}
	return n
}

// TestRunStopped: a turn that another connection stops is not tried again.
func TestRunStopped(t *testing.T) {
	b := newBench(t, looks)
	agent := client.LLM("root", "scripted/m", client.Tools("look"))
	first, err := loop.Run(t.Context(), b.clnt, agent, &loop.Request{Prompt: "hello"})
	if err != nil {
		t.Fatal(err)
	}
	uses := 0
	resp, err := loop.Run(t.Context(), b.clnt, nil, &loop.Request{SessionID: first.SessionID, Prompt: "go", OnToolUse: func(string, string) {
		uses++
		if _, err := b.clnt.Session(first.SessionID).Cancel(t.Context(), ""); err != nil {
			t.Error(err)
		}
	}})
	if err == nil || resp.SessionID != first.SessionID || !strings.Contains(resp.Error, "stopped") || uses != 1 {
		t.Errorf("%+v, %v, %d uses", resp, err, uses)
	}
}

// TestSubAgents: their start and end are activities, behind the model.
func TestSubAgents(t *testing.T) {
	b := newBench(t, `answers: [{when: {}, text: said}]`)
	tree := client.Sequential("both", client.LLM("one", "scripted/m"), client.LLM("two", "scripted/m"))
	resp, err := loop.Run(t.Context(), b.clnt, tree, b.watched(loop.Request{Prompt: "go"}))
	if err != nil || resp.Response != "said" || resp.NumTurns != 2 {
		t.Errorf("%+v, %v", resp, err)
	}
	want := []string{
		"model scripted/m", "agent_started both/one", "turn said", "agent_ended both/one",
		"agent_started both/two", "turn said", "agent_ended both/two",
	}
	if got := b.took(); !slices.Equal(got, want) {
		t.Errorf("noted %q, want %q", got, want)
	}
}
