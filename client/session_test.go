package client_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/apzuk3/agentd/agentdtest"
	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// methods notes which methods of a service were called.
type methods struct {
	mu   sync.Mutex // protects seen
	seen map[string]bool
}

func (m *methods) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		m.note(req.Spec())
		return next(ctx, req)
	}
}

func (m *methods) note(spec connect.Spec) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen[spec.Procedure[strings.LastIndex(spec.Procedure, "/")+1:]] = true
}

func (m *methods) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		m.note(spec)
		return next(ctx, spec)
	}
}

func (m *methods) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

// all returns what a list yields, and must not fail.
func all[T any](t *testing.T, list iter.Seq2[T, error]) (items []T) {
	t.Helper()
	for item, err := range list {
		if err != nil {
			t.Fatal(err)
		}
		items = append(items, item)
	}
	return items
}

func must[T any](t *testing.T) func(T, error) T {
	t.Helper()
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

const clerkScript = `answers:
  - when: {user: "count", step: 1}
    calls: [{name: count}]
  - when: {}
    text: "heard {{last_user}}"`

// A chat of many turns, and all that the session service knows of it, without the
// protocol's package.
func TestSession(t *testing.T) {
	d := agentdtest.Start(t, agentdtest.Config{Scripts: map[string]string{"clerk": clerkScript}})
	called := &methods{seen: make(map[string]bool)}
	yes := client.PrompterFunc(func(context.Context, *client.Interaction) (*client.Resolution, error) { return client.Approve(), nil })
	c := d.Client(client.WithConnectOptions(connect.WithInterceptors(called)), client.WithPrompter(yes))
	ctx := t.Context()
	mustAdd(t, client.AddTool(c, "count", "counts", func(ctx context.Context, _ struct{}) (string, error) {
		call := client.CallFrom(ctx)
		if _, err := call.Ask(ctx, client.Question{Kind: client.InteractionApproval}); err != nil {
			return "", err
		}
		return "1", call.SetState("n", 1)
	}))
	s := c.NewSession(client.LLM("clerk", "scripted/clerk", client.Tools("count")), client.WithHeader("X-Extra", "1"))
	for _, prompt := range []string{"one", "count", "three"} {
		result, err := s.Send(ctx, prompt)
		if err != nil || result.SessionID != s.ID() || result.Text != "heard "+prompt {
			t.Fatalf("%s: %q of %q, %v", prompt, result.Text, result.SessionID, err)
		}
	}
	info := must[*client.SessionInfo](t)(s.Update(ctx, client.SessionUpdate{Labels: map[string]string{"a": "b"}, ClientRef: new("mine")}))
	if info.ID != s.ID() || info.State != client.SessionActive || info.LastTurnStatus != client.TurnSucceeded || info.Labels["a"] != "b" ||
		info.ClientRef != "mine" || info.Usage.ModelCalls != 4 || info.Proto().GetId() != s.ID() {
		t.Errorf("info %+v", info)
	}
	turns := all(t, s.Turns(ctx, client.TurnFilter{PageSize: 2}))
	if len(turns) != 3 || turns[0].Prompt != "three" || turns[1].Status != client.TurnSucceeded || turns[2].Text != "heard one" {
		t.Errorf("turns %+v", turns)
	}
	if n := len(all(t, c.Turns(ctx, client.TurnFilter{Statuses: []client.TurnStatus{client.TurnFailed}}))); n != 0 {
		t.Errorf("%d failed turns", n)
	}
	if last := must[*client.Turn](t)(s.Turn(ctx, "")); last.ID != turns[0].ID || last.Proto().GetId() != last.ID {
		t.Errorf("the last turn is %+v", last)
	}
	calls := all(t, s.ModelCalls(ctx, turns[1].ID))
	if len(calls) != 2 || calls[1].Ended.Model != "scripted/clerk" || !slices.Equal(calls[0].ToolNames, []string{"count"}) || calls[0].Contents == 0 {
		t.Errorf("model calls %+v", calls)
	}
	if state := must[map[string]any](t)(s.State(ctx)); state["n"] != 1.0 {
		t.Errorf("state %v", state)
	}
	fork := must[*client.Session](t)(s.Fork(ctx, client.ForkAt{ThroughSeq: &turns[1].AfterSeq, ClientRef: "fork"}))
	if state := must[map[string]any](t)(fork.State(ctx)); len(state) != 0 || fork.ID() == s.ID() {
		t.Errorf("the fork %s has %v", fork.ID(), state)
	}
	if result, err := fork.Send(ctx, "more"); err != nil || result.Text != "heard more" {
		t.Errorf("the fork says %+v, %v", result, err)
	}
	started := must[*client.Turn](t)(s.Start(ctx, "later"))
	if end := lastEnd(t, all(t, s.Attach(ctx, client.WithTurnID(started.ID)))); !end.Completed {
		t.Errorf("ended %+v", end)
	}
	if turn := must[*client.Turn](t)(s.Cancel(ctx, "late")); turn.Status != client.TurnSucceeded {
		t.Errorf("the turn that is over is %+v", turn)
	}
	if _, err := s.CancelTool(ctx, "none"); !errors.Is(err, client.ErrNotFound) && !errors.Is(err, client.ErrInvalidRequest) && err != nil {
		t.Errorf("cancel of an unknown call: %v", err)
	}
	refused, err := s.SubmitToolResults(ctx, started.ID, []client.ToolResult{{CallID: "none", ToolName: "count", Output: "1"}})
	if err == nil && refused["none"] == nil {
		t.Error("a result of an unknown call was taken")
	}
	if seq := must[int64](t)(s.Compact(ctx, "")); seq <= turns[0].AfterSeq {
		t.Errorf("asked for summaries at %d", seq)
	}
	if _, err := s.Interaction(ctx, "none"); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("an unknown interaction: %v", err)
	}
	if _, err := s.Resolve(ctx, "none", client.Approve()); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("an unknown interaction is resolved: %v", err)
	}
	if n := len(all(t, c.Interactions(ctx, client.InteractionFilter{Statuses: []client.InteractionStatus{client.InteractionStatusPending}}))); n != 0 {
		t.Errorf("%d interactions", n)
	}
	made := must[*client.SessionInfo](t)(c.CreateSession(ctx, client.NewSessionInfo{Labels: map[string]string{"made": "yes"}}))
	if _, err := c.Session(made.ID).Cancel(ctx, ""); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("a session without turns: %v", err)
	}
	listed := all(t, c.Sessions(ctx, client.SessionFilter{Labels: map[string]string{"made": "yes"}, States: []client.SessionState{client.SessionActive}}))
	if len(listed) != 1 || listed[0].ID != made.ID {
		t.Errorf("listed %+v", listed)
	}
	if caps := must[*client.Capabilities](t)(c.Capabilities(ctx)); caps.MaxPromptBytes == 0 || len(caps.Features) == 0 || len(caps.Providers) == 0 {
		t.Errorf("capabilities %+v", caps)
	}
	models := must[[]*client.ModelInfo](t)(c.Models(ctx))
	priced := slices.IndexFunc(models, func(m *client.ModelInfo) bool { return m.Price != nil && len(m.Price.Tiers) > 0 })
	if priced < 0 || models[priced].Name == "" || models[priced].Price.Tiers[0].Output <= 0 {
		t.Fatalf("models %+v", models)
	}
	if day, err := time.Parse(time.DateOnly, models[priced].Price.Date); err != nil || day.IsZero() {
		t.Errorf("a price of the day %q: %v", models[priced].Price.Date, err)
	}
	if err := c.SetSharedState(ctx, map[string]any{"app:plan": "sale", "app:none": nil}); err != nil {
		t.Error(err)
	}
	if shared := all(t, c.SharedState(ctx, "app:")); len(shared) != 1 || shared[0].Key != "app:plan" || shared[0].Value != `"sale"` {
		t.Errorf("shared %+v", shared)
	}
	if removed := must[[]string](t)(c.RemoveSharedState(ctx, []string{"app:none", "app:plan"})); len(removed) != 1 {
		t.Errorf("removed %v", removed)
	}
	agents(t, c)
	stored, watched := all(t, s.Events(ctx)), 0
	for event, err := range s.Watch(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if watched++; event.Cursor == stored[len(stored)-1].Cursor {
			break
		}
	}
	if watched < len(stored) {
		t.Errorf("watched %d of %d events", watched, len(stored))
	}
	if token, expires, err := s.CreateToken(ctx, client.TokenRequest{Observe: true}); err != nil ||
		!strings.HasPrefix(token, "agentd_token_") || !expires.After(time.Now()) {
		t.Errorf("a token %q until %v: %v", token, expires, err)
	}
	if err := s.Delete(ctx); err != nil {
		t.Error(err)
	}
	if _, err := s.Send(ctx, "again"); !errors.Is(err, client.ErrSessionNotFound) {
		t.Errorf("a deleted session: %v", err)
	}
	// WatchTurn is what Attach does over Run.
	service := agentdv1.File_agentd_v1_sessions_proto.Services().ByName("SessionService").Methods()
	for i := range service.Len() {
		name := string(service.Get(i).Name())
		if !called.seen[name] && name != "WatchTurn" {
			t.Errorf("no method of the package calls %s", name)
		}
	}
}

// Who has left a turn continues behind what they have seen of it.
func TestSessionAttachContinues(t *testing.T) {
	s := newDaemon(t)
	c, _ := s.client(t)
	chat := c.NewSession(actor("door"), client.WithOnLeave(client.OnLeaveDetach))
	door := newDoor(t, c, "door")
	s.will(t, reply{text: "before", calls: []string{"door"}})
	for event, err := range chat.Stream(t.Context(), "go") {
		if err != nil {
			t.Fatal(err)
		}
		if event.ToolCall != nil {
			break
		}
	}
	s.will(t, reply{text: "after"})
	second := follow(chat.Attach(t.Context()))
	<-door.asked
	for len(door.asked) > 0 {
		<-door.asked
	}
	door.let(t, "open")
	events := second.rest(t)
	if text := textOf(events); text != "after" || !lastEnd(t, events).Completed {
		t.Errorf("it goes on with %q", text)
	}
	// A new object follows the last turn from its beginning.
	if text := textOf(all(t, c.Session(chat.ID()).Attach(t.Context()))); text != "beforeafter" {
		t.Errorf("a stranger sees %q", text)
	}
}

// A turn that runs is canceled by the session that has started it.
func TestSessionCancel(t *testing.T) {
	s := newDaemon(t)
	c, _ := s.client(t)
	chat := c.NewSession(actor())
	run := follow(chat.Stream(t.Context(), "go"))
	run.until(t, isStarted)
	s.next(t)
	turn, err := chat.Cancel(t.Context(), "enough")
	if err != nil || turn.Status != client.TurnCanceled || turn.Receipt == nil {
		t.Errorf("%+v, %v", turn, err)
	}
	if end := lastEnd(t, run.rest(t)); end.Completed || end.Reason != "enough" {
		t.Errorf("ended %+v", end)
	}
}

func TestDoAs(t *testing.T) {
	d := agentdtest.Start(t, agentdtest.Config{
		Scripts: map[string]string{"clerk": `answers: [{when: {}, text: '{"name": "Ada", "age": 36}'}]`},
	})
	c := d.Client()
	agent := client.LLM("clerk", "scripted/clerk")
	for name, tree := range map[string]*client.Agent{
		"alone":      agent,
		"sequential": client.Sequential("desk", client.LLM("first", "scripted/clerk"), agent),
		"own schema": client.LLM("clerk", "scripted/clerk", client.OutputSchemaOf[person]()),
	} {
		got, result, err := client.DoAs[person](t.Context(), c, tree, "who?")
		if err != nil || got.Name != "Ada" || got.Age != 36 || !result.Completed {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if agent.GetLlm().OutputSchema != nil {
		t.Error("the caller's tree was changed")
	}
	if _, _, err := client.DoAs[[]int](t.Context(), c, agent, "who?"); !errors.Is(err, client.ErrInvalidRequest) {
		t.Errorf("a slice: %v", err)
	}
	if _, _, err := client.DoAs[person](t.Context(), c, client.Loop("again", 1, agent), "who?"); err == nil {
		t.Error("an answer without a schema was taken")
	}
	got, _, err := client.SendAs[person](t.Context(), c.NewSession(client.LLM("clerk", "scripted/clerk", client.OutputSchemaOf[person]())), "who?")
	if err != nil || got.Name != "Ada" {
		t.Errorf("of a session: %+v, %v", got, err)
	}
}

const plannerScript = `answers:
  - when: {user: "<conversation>"}
    text: "They agreed."
  - when: {}
    text: "heard {{last_user}}, at length: {{last_user}} {{last_user}} {{last_user}}"`

// A summary that was asked for is written before the next model call, is told, and is what the model reads then.
func TestCompactSession(t *testing.T) {
	d := agentdtest.Start(t, agentdtest.Config{Scripts: map[string]string{"planner": plannerScript}})
	c, ctx := d.Client(), t.Context()
	s := c.NewSession(client.LLM("planner", "scripted/planner"))
	if _, err := s.Compact(ctx, ""); err == nil {
		t.Error("a session that is not there was compacted")
	}
	for _, prompt := range []string{"plan the move " + strings.Repeat("of all boxes ", 50), "and the lunch"} {
		if _, err := s.Send(ctx, prompt); err != nil {
			t.Fatal(err)
		}
	}
	asked := must[int64](t)(s.Compact(ctx, "what was agreed"))
	var summary *client.HistoryCompacted
	for event, err := range s.Stream(ctx, "what now?") {
		if err != nil {
			t.Fatal(err)
		}
		if h, ok := event.Data.(*client.HistoryCompacted); ok {
			if summary != nil || event.Seq <= asked {
				t.Errorf("a summary at %d, asked for at %d: %+v", event.Seq, asked, h)
			}
			summary = h
		}
	}
	if summary == nil || summary.Summary != "They agreed." || summary.Reason != client.CompactionRequested {
		t.Fatalf("the summary is %+v", summary)
	}
	calls := all(t, s.ModelCalls(ctx, ""))
	if len(calls) == 0 || calls[len(calls)-1].Contents != 2 {
		t.Errorf("the model was sent %+v, want the summary and the prompt", calls)
	}
	if _, err := s.Compact(ctx, strings.Repeat("x", 16<<10+1)); !errors.Is(err, client.ErrInvalidRequest) || !strings.Contains(err.Error(), "focus") {
		t.Errorf("a long focus: %v", err)
	}
}

// agents has the server keep an agent, runs it, and removes it.
func agents(t *testing.T, c *client.Client) {
	t.Helper()
	ctx := t.Context()
	tree := client.LLM("clerk", "scripted/clerk", client.Tools("count"))
	def := client.AgentDefinition{Name: "clerk", Agent: tree, Metadata: map[string]any{"team": "a"}, Read: new(int64(0))}
	kept, created, err := c.ApplyAgent(ctx, def)
	if err != nil || !created || kept.Name != "clerk" || kept.Version != 1 || len(kept.ContentHash) != 64 || kept.Agent.GetName() != "clerk" ||
		len(kept.Tools) != 1 || kept.Metadata["team"] != "a" || kept.CreatedBy != "local" || !kept.ArchiveTime.IsZero() || kept.Proto().GetName() != "clerk" {
		t.Fatalf("kept %+v, %v, %v", kept, created, err)
	}
	if _, _, err := c.ApplyAgent(ctx, def); !errors.Is(err, client.ErrConflict) {
		t.Errorf("made twice: %v", err)
	}
	def.Read, def.DryRun = nil, true
	if again, created, err := c.ApplyAgent(ctx, def); err != nil || created || again.Version != 1 {
		t.Errorf("would be %+v, %v, %v", again, created, err)
	}
	_, _, err = c.ApplyAgent(ctx, client.AgentDefinition{Name: "x", Agent: client.LLM("x", "echo", client.Tools("nobody"))})
	if !errors.Is(err, client.ErrInvalidAgentTree) || !strings.Contains(err.Error(), "nobody") {
		t.Errorf("a tool that there is not: %v", err)
	}
	byHash := must[*client.RegisteredAgent](t)(c.RegisteredAgent(ctx, client.AgentRef{Name: "clerk@" + kept.ContentHash[:8]}))
	if byHash.AgentRef != kept.AgentRef {
		t.Errorf("by its hash: %+v", byHash)
	}
	if list := all(t, c.RegisteredAgents(ctx, client.AgentFilter{PageSize: 1})); len(list) != 1 || list[0].Name != "clerk" {
		t.Errorf("listed %+v", list)
	}
	result, err := c.Do(ctx, nil, "count", client.WithAgentRef(client.AgentRef{Name: "clerk"}))
	if err != nil || result.Text != "heard count" {
		t.Errorf("by name: %+v, %v", result, err)
	}
	for what, opts := range map[string][]client.RunOption{
		"an agent too": {client.WithAgentRef(kept.AgentRef)}, "no name": {client.WithAgentRef(client.AgentRef{})},
	} {
		if _, err := c.Do(ctx, tree, "hi", opts...); !errors.Is(err, client.ErrInvalidRequest) {
			t.Errorf("%s: %v", what, err)
		}
	}
	made := must[*client.SessionInfo](t)(c.CreateSession(ctx, client.NewSessionInfo{Agent: client.AgentRef{Name: "clerk"}}))
	if made.Agent != kept.AgentRef {
		t.Errorf("made with %+v", made.Agent)
	}
	if result, err := c.Session(made.ID).Send(ctx, "count"); err != nil || result.Text != "heard count" {
		t.Errorf("in a session that was made with it: %+v, %v", result, err)
	}
	if result, err := c.NewSession(nil, client.WithAgentRef(kept.AgentRef)).Send(ctx, "hi"); err != nil || result.Text != "heard hi" {
		t.Errorf("in a session of its own: %+v, %v", result, err)
	}
	if gone := must[*client.RegisteredAgent](t)(c.ArchiveAgent(ctx, "clerk")); gone.ArchiveTime.IsZero() {
		t.Errorf("archived %+v", gone)
	}
	if _, err := c.Do(ctx, nil, "hi", client.WithAgentRef(kept.AgentRef)); !errors.Is(err, client.ErrPrecondition) {
		t.Errorf("an archived agent runs: %v", err)
	}
	if err := c.DeleteAgent(ctx, "clerk"); err != nil {
		t.Error(err)
	}
	if _, err := c.RegisteredAgent(ctx, kept.AgentRef); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("a deleted agent: %v", err)
	}
}
