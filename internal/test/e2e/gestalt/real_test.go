package gestalt_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/apzuk3/agentd/internal/test/fakeprovider"
	"github.com/apzuk3/agentd/internal/test/providertest"
)

// TestRealHost has a gestaltd look at the package that agentd writes, as it does before it serves; a configuration with a
// key that there is not is refused. scripts/gestalt runs it.
func TestRealHost(t *testing.T) {
	h := newRealHost(t, echo)
	if h == nil {
		return
	}
	for _, tc := range []struct {
		more map[string]any
		want string
		code int
	}{{nil, "config ok", 0}, {map[string]any{"nonsense": "x"}, "nonsense", 1}} {
		cmd := h.command("validate", "--config", h.configure("config.yaml", tc.more), "--runtime")
		out, err := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != tc.code || !strings.Contains(string(out), tc.want) {
			t.Errorf("gestaltd validate exits %d (%v), want %d and %q\n%s", code, err, tc.code, tc.want, out)
		}
	}
}

// clerks are agents whose tools are the plugin's.
const clerks = `agents:
  - name: clerk
    llm: {model: claude-test, instruction: Be brief.}
tools:
  - {name: post__send__default, description: Sends a letter, needs_approval: true}
`

// clerk is their model: asked to "greet NAME" it does, for a "letter NAME" it sends something, too, and says what came of
// it; asked to "count" it says an object, to "wait" nothing.
func clerk(ctx context.Context, c *fakeprovider.Call) fakeprovider.Reply {
	r, err := c.Request()
	if err != nil {
		return fakeprovider.Reply{Status: http.StatusBadRequest, Message: err.Error()}
	}
	var said string
	var results []string
	for _, item := range r.Items {
		switch item.Kind {
		case providertest.User:
			said, results = item.Text, nil
		case providertest.Result:
			results = append(results, item.Text)
		default:
		}
	}
	what, name, _ := strings.Cut(said, " ")
	call := func(tool, parameter string) fakeprovider.Reply {
		args, err := json.Marshal(map[string]string{parameter: name})
		if err != nil {
			panic(err)
		}
		return fakeprovider.Reply{Calls: []providertest.ToolCall{{Name: tool, Args: string(args)}}}
	}
	switch {
	case what == "wait":
		<-ctx.Done()
		return fakeprovider.Reply{Drop: true}
	case what == "count":
		return fakeprovider.Reply{Text: []string{`{"count": 17}`}}
	case len(results) == 0:
		return call("post__greet__default", "name")
	case len(results) == 1 && what == "letter":
		return call("post__send__default", "to")
	default:
		return fakeprovider.Reply{Text: []string{"It says ", strings.Join(results, " and ")}}
	}
}

// postOffice is what the plugin's operations ask.
type postOffice struct {
	mu   sync.Mutex
	got  []string
	held map[string]chan struct{} // names whose greeting waits
}

func (p *postOffice) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var said struct{ Name, To string }
	if err != nil || json.Unmarshal(body, &said) != nil {
		http.Error(w, "a bad request", http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	p.got = append(p.got, r.Method+" "+r.URL.Path+" "+said.Name+said.To)
	hold := p.held[said.Name]
	p.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-r.Context().Done():
			return
		}
	}
	w.Header().Set("Content-Type", "application/json")
	if said.Name == "Nobody" {
		w.WriteHeader(http.StatusNotFound)
	}
	_, _ = io.WriteString(w, `"Hello `+said.Name+said.To+`"`)
}

// hold has greetings of a name wait until it is released.
func (p *postOffice) hold(name string) (release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := make(chan struct{})
	p.held[name] = c
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.held, name)
		close(c)
	}
}

// asked are the requests for a name.
func (p *postOffice) asked(name string) (out []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.got {
		if strings.HasSuffix(one, " "+name) {
			out = append(out, one)
		}
	}
	return out
}

// newClerks is a host with the clerks, which is started.
func newClerks(t *testing.T) (*realHost, *postOffice) {
	t.Helper()
	h := newRealHost(t, clerks)
	if h == nil {
		return nil, nil
	}
	_, model := fakeprovider.Start(t, clerk)
	p := &postOffice{held: map[string]chan struct{}{}}
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	h.plugin(server.URL)
	h.env = map[string]string{"ANTHROPIC_API_KEY": "a-key", "ANTHROPIC_BASE_URL": model}
	h.configure("config.yaml", nil)
	h.start()
	return h, p
}

// session makes a session.
func (h *realHost) session(ref string) answer {
	h.t.Helper()
	got := h.do(http.MethodPost, "/sessions", map[string]any{"model": "clerk", "clientRef": ref, "metadata": map[string]any{"a": 1}}, http.StatusCreated)
	if got.ID == "" || got.Provider != "agentd" || got.Model != "clerk" || got.ClientRef != ref || got.State != "active" || got.Metadata["a"] != 1.0 ||
		got.CreatedBy == nil || got.CreatedBy.SubjectID == "" || got.CreatedAt == nil || got.UpdatedAt == nil || got.LastTurnAt != nil {
		h.t.Errorf("session: %+v", got)
	}
	return got
}

// question is what a turn asks.
func (h *realHost) question(turn string) answer {
	h.t.Helper()
	asked := h.list("/turns/" + turn + "/interactions")
	if len(asked) != 1 || asked[0].State != "pending" || asked[0].Type != "approval" || asked[0].TurnID != turn || asked[0].Request["tool_name"] != "post__send__default" {
		h.t.Fatalf("asked: %+v", asked)
	}
	return asked[0]
}

// approve says yes to what a turn asks.
func (h *realHost) approve(turn string) {
	h.t.Helper()
	question := h.question(turn)
	got := h.do(http.MethodPost, "/turns/"+turn+"/interactions/"+question.ID+"/resolve", map[string]any{"resolution": map[string]any{"approved": true}}, http.StatusOK)
	if approved, _ := got.Resolution["approved"].(bool); got.ID != question.ID || got.State != "resolved" || got.ResolvedAt == nil || !approved {
		h.t.Errorf("resolved: %+v", got)
	}
}

// greeted are the events of a turn that calls a tool, asked those up to the question, answered those after it.
var (
	greeted  = []string{"turn.started", "tool.started", "tool.completed"}
	asked    = slices.Concat(greeted, []string{"interaction.requested"})
	answered = []string{"interaction.resolved", "tool.started", "tool.completed", "agent.message.delta", "assistant.completed", "turn.completed"}
)

// TestRealHostServes goes through the host's API: a turn whose model calls operations of a plugin, one of which a person
// approves, one that is canceled, what is refused, and an archived session; all is there, and the same, after a restart.
func TestRealHostServes(t *testing.T) {
	h, post := newClerks(t)
	if h == nil {
		return
	}
	var providers struct {
		Providers []struct {
			Name         string
			Capabilities struct{ StreamingText, ToolCalls, Interactions, ResumableTurns, BoundedListHydration bool }
		}
	}
	if err := json.Unmarshal(h.call(http.MethodGet, "/providers", nil, http.StatusOK), &providers); err != nil || len(providers.Providers) != 1 || providers.Providers[0].Name != "agentd" {
		t.Fatalf("providers: %+v, %v", providers, err)
	}
	if can := providers.Providers[0].Capabilities; !can.StreamingText || !can.ToolCalls || !can.Interactions || !can.ResumableTurns || !can.BoundedListHydration {
		t.Errorf("agentd can %+v", can)
	}

	session := h.session("r1")
	prompt := map[string]any{"messages": []any{map[string]any{"role": "user", "text": "letter Ada"}}, "idempotencyKey": "k1"}
	turn := h.do(http.MethodPost, "/sessions/"+session.ID+"/turns", prompt, http.StatusCreated)
	if turn.ID == "" || turn.SessionID != session.ID || turn.Status != "running" || turn.StartedAt == nil || len(turn.Messages) != 1 || turn.ExecutionRef != turn.ID {
		t.Errorf("the turn begins as %+v", turn)
	}
	if again := h.do(http.MethodPost, "/sessions/"+session.ID+"/turns", prompt, http.StatusCreated); again.ID != turn.ID {
		t.Errorf("the same request again is turn %s, want %s", again.ID, turn.ID)
	}
	before := h.stream(turn.ID, 0)
	if diff := cmp.Diff(asked, types(before)); diff != "" {
		t.Errorf("the stream ends before the question is answered (-want +got):\n%s", diff)
	}
	if got := h.turn(turn.ID); got.Status != "waiting_for_input" {
		t.Errorf("the turn is %+v", got)
	}
	if diff := cmp.Diff([]string{"POST /greet Ada"}, post.asked("Ada")); diff != "" {
		t.Errorf("the plugin was asked (-want +got):\n%s", diff)
	}
	resolve := "/turns/" + turn.ID + "/interactions/" + h.question(turn.ID).ID + "/resolve"
	if got := h.do(http.MethodPost, resolve, map[string]any{"resolution": map[string]any{"answer": "yes"}}, http.StatusBadRequest); !strings.Contains(got.Error, "resolution.answer") {
		t.Errorf("refused with %q", got.Error)
	}
	h.approve(turn.ID)
	h.call(http.MethodPost, resolve, map[string]any{"resolution": map[string]any{"approved": true}}, http.StatusInternalServerError)
	after := h.stream(turn.ID, len(before))
	if diff := cmp.Diff(answered, types(after)); diff != "" {
		t.Errorf("the stream after the answer (-want +got):\n%s", diff)
	}
	done := h.turn(turn.ID)
	if want := "It says Hello Ada and Hello Ada"; done.Status != "succeeded" || done.OutputText != want || done.CompletedAt == nil {
		t.Errorf("the turn ends as %+v, want %s", done, want)
	}
	if diff := cmp.Diff([]string{"POST /greet Ada", "POST /send Ada"}, post.asked("Ada")); diff != "" {
		t.Errorf("the plugin was asked (-want +got):\n%s", diff)
	}
	all := h.events(turn.ID)
	checkEvents(t, turn.ID, all)
	if diff := cmp.Diff(slices.Concat(before, after), all, protocmp.Transform()); diff != "" {
		t.Errorf("the stream and the list differ:\n%s", diff)
	}

	fails, counts := h.fails(), h.counts()
	h.refuses(session.ID)
	canceled := h.cancels()
	h.archives(session.ID)

	gone := h.all(session.ID, turn.ID, fails, counts, canceled)
	h.end(syscall.SIGTERM)
	if h.err != nil {
		t.Errorf("the host has ended with %v", h.err)
	}
	h.start()
	if diff := cmp.Diff(gone, h.all(session.ID, turn.ID, fails, counts, canceled)); diff != "" {
		t.Errorf("after a restart:\n%s", diff)
	}
	h.end(syscall.SIGTERM)
}

// fails has an operation fail, which the model reads, and returns the turn.
func (h *realHost) fails() string {
	h.t.Helper()
	turn := h.prompt(h.session("r2").ID, "greet Nobody").ID
	if got := h.over(turn, "succeeded"); !strings.Contains(got.OutputText, "404") || !strings.Contains(got.OutputText, "Hello Nobody") {
		h.t.Errorf("the model reads %q", got.OutputText)
	}
	events := h.events(turn)
	checkEvents(h.t, turn, events)
	if diff := cmp.Diff(slices.Concat([]string{"turn.started", "tool.started", "tool.failed"}, answered[3:]), types(events)); diff != "" {
		h.t.Errorf("the events of a turn whose tool fails (-want +got):\n%s", diff)
	}
	return turn
}

// counts has a turn end with an object, and returns it.
func (h *realHost) counts() string {
	h.t.Helper()
	turn := h.do(http.MethodPost, "/sessions/"+h.session("r3").ID+"/turns", map[string]any{
		"messages": []any{
			map[string]any{"role": "system", "text": "Count."},
			map[string]any{"role": "user", "parts": []any{map[string]any{"type": "text", "text": "count"}}},
		},
		"responseSchema": map[string]any{"type": "object", "properties": map[string]any{"count": map[string]any{"type": "integer"}}},
		"modelOptions":   map[string]any{"temperature": 0.5},
	}, http.StatusCreated).ID
	if got := h.over(turn, "succeeded"); got.StructuredOutput["count"] != 17.0 || len(got.Messages) != 2 {
		h.t.Errorf("the turn ends as %+v", got)
	}
	return turn
}

// refuses checks what is refused, and how.
func (h *realHost) refuses(session string) {
	h.t.Helper()
	said := func(role string) map[string]any {
		return map[string]any{"messages": []any{map[string]any{"role": role, "text": "hi"}}}
	}
	if got := h.do(http.MethodPost, "/sessions/"+session+"/turns", said("assistant"), http.StatusBadRequest); !strings.Contains(got.Error, "messages[0].role") {
		h.t.Errorf("refused with %q", got.Error)
	}
	h.call(http.MethodGet, "/sessions/nobody", nil, http.StatusNotFound)
	h.call(http.MethodPost, "/sessions/nobody/turns", said("user"), http.StatusNotFound)
	for _, path := range []string{"", "/events", "/interactions", "/events/stream"} {
		h.call(http.MethodGet, "/turns/nobody"+path, nil, http.StatusNotFound)
	}
	h.call(http.MethodPost, "/turns/nobody/cancel", nil, http.StatusNotFound)
}

// cancels cancels a turn whose model says nothing, and returns it.
func (h *realHost) cancels() string {
	h.t.Helper()
	turn := h.prompt(h.session("r4").ID, "wait").ID
	got := h.do(http.MethodPost, "/turns/"+turn+"/cancel", map[string]any{"reason": "enough"}, http.StatusOK)
	if got.ID != turn || got.Status != "canceled" || got.StatusMessage != "enough" || got.CompletedAt == nil {
		h.t.Errorf("canceled: %+v", got)
	}
	events := h.stream(turn, 0)
	checkEvents(h.t, turn, events)
	if diff := cmp.Diff([]string{"turn.started", "turn.canceled"}, types(events)); diff != "" {
		h.t.Errorf("the events of a turn that is canceled (-want +got):\n%s", diff)
	}
	return turn
}

// archives archives a session, which takes no turns then.
func (h *realHost) archives(session string) {
	h.t.Helper()
	got := h.do(http.MethodPatch, "/sessions/"+session, map[string]any{"state": "archived", "clientRef": "r9"}, http.StatusOK)
	if got.ID != session || got.State != "archived" || got.ClientRef != "r9" || got.Metadata["a"] != 1.0 || got.LastTurnAt == nil {
		h.t.Errorf("archived: %+v", got)
	}
	for state, want := range map[string]bool{"active": false, "archived": true} {
		for _, more := range []string{"", "&view=summary&limit=10"} {
			listed := slices.ContainsFunc(h.list("/sessions?state="+state+more), func(s answer) bool { return s.ID == session })
			if listed != want {
				h.t.Errorf("among those that are %s%s: %v, want %v", state, more, listed, want)
			}
		}
	}
	h.call(http.MethodPost, "/sessions/"+session+"/turns", map[string]any{"messages": []any{map[string]any{"role": "user", "text": "greet Ada"}}}, http.StatusInternalServerError)
}

// all is what the host says of a session and of turns.
func (h *realHost) all(session string, turns ...string) map[string]string {
	h.t.Helper()
	out := map[string]string{}
	paths := []string{"/sessions", "/sessions?view=summary&limit=1", "/sessions/" + session, "/sessions/" + session + "/turns"}
	for _, turn := range turns {
		paths = append(paths, "/turns/"+turn, "/turns/"+turn+"/events", "/turns/"+turn+"/interactions", "/turns/"+turn+"/events/stream")
	}
	for _, path := range paths {
		out[path] = string(bytes.TrimSpace(h.call(http.MethodGet, path, nil, http.StatusOK)))
	}
	return out
}

// TestRealHostRestarts ends the host in the middle of turns, softly and not: one is in an operation of the plugin, which
// is executed again, and its model reads the result and nothing else; one waits for a person, who answers later.
func TestRealHostRestarts(t *testing.T) {
	h, post := newClerks(t)
	if h == nil {
		return
	}
	for signal, name := range map[syscall.Signal]string{syscall.SIGTERM: "Eve", syscall.SIGKILL: "Eva"} {
		release := post.hold(name)
		session := h.session(name)
		running := h.prompt(session.ID, "greet "+name).ID
		asking := h.prompt(h.session("asks").ID, "letter Bob"+name).ID
		h.stream(asking, 0)
		h.await("the operation", func() bool { return len(post.asked(name)) == 1 })
		h.end(signal)
		release()
		h.start()
		if got := h.over(running, "succeeded"); got.OutputText != "It says Hello "+name {
			t.Errorf("after %v the turn says %q", signal, got.OutputText)
		}
		events := h.events(running)
		checkEvents(t, running, events)
		if diff := cmp.Diff(slices.Concat(greeted, answered[3:]), types(events)); diff != "" {
			t.Errorf("after %v the events are (-want +got):\n%s", signal, diff)
		}
		if got := post.asked(name); len(got) != 2 {
			t.Errorf("after %v the plugin was asked %v, want it twice", signal, got)
		}
		if got := h.turn(asking); got.Status != "waiting_for_input" {
			t.Errorf("after %v the turn that asks is %+v", signal, got)
		}
		h.approve(asking)
		if got, want := h.over(asking, "succeeded"), "It says Hello Bob"+name+" and Hello Bob"+name; got.OutputText != want {
			t.Errorf("after %v the turn that asked says %q, want %q", signal, got.OutputText, want)
		}
	}
	h.end(syscall.SIGTERM)
}
