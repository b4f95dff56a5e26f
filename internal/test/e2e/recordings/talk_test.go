package recordings

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/apzuk3/agentd/agentdtest"
	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/jsondiff"
	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/internal/test/harness"
	"github.com/apzuk3/agentd/internal/test/providertest"
	"github.com/apzuk3/agentd/internal/test/testdaemon"
)

// recordedDaemon starts a daemon whose providers are all at one address, which
// a Server answers. It makes each model call once, for a recording holds it once.
func recordedDaemon(t *testing.T, address string, cfg agentdtest.Config) *agentdtest.Daemon {
	t.Helper()
	// No text of a recording holds the key, for keys are taken out of messages.
	const key = "sk-recorded-0123456789"
	cfg.Getenv = harness.VendorsAt(address, key)
	return harness.StartDaemon(t, cfg, testdaemon.WithRetry(modelcall.Retry{Tries: 1}))
}

// talk is one recorded session, held by the client with a daemon whose models
// answer from the recording.
type talk struct {
	t     *testing.T
	srv   *providertest.Server
	clnt  *client.Client
	agent *agentdv1.Agent
	said  *providertest.Session
	opts  []client.RunOption
	// soFar is what the next request has to carry before its prompt.
	soFar []providertest.Item
	// lost are the items of soFar whose texts are agentd's: results of calls that
	// were never answered.
	lost []int
	// failed is what the call took that made the turn fail, if its provider said.
	failed providertest.Usage
	// unfinished is what a call would have taken whose answer broke off; its
	// provider may have said a part of it.
	unfinished providertest.Usage
	// script is the running turn's, changed between turns.
	script *script
}

// newTalk prepares a session as its recording began it. srv is where d's models
// are.
func newTalk(t *testing.T, d *agentdtest.Daemon, srv *providertest.Server, wire providertest.Wire, said *providertest.Session, opts ...client.Option) *talk {
	t.Helper()
	k := &talk{t: t, srv: srv, clnt: d.Client(opts...), said: said}
	provider := harness.WireProviders[wire].Describe()
	llm := &agentdv1.LlmAgent{Model: provider.Name + "/" + said.Model, Instruction: said.System}
	if strings.Contains(said.System, "{") {
		// Braces could be taken for keys of the state, whose values never are.
		llm.Instruction = "{recorded}"
		k.opts = append(k.opts, client.WithInitialState(map[string]string{"recorded": said.System}))
	}
	for _, name := range said.Builtins {
		if slices.Contains(provider.Builtins, name) {
			llm.BuiltinTools = append(llm.BuiltinTools, name)
		}
	}
	for _, tool := range said.Tools {
		about := cmp.Or(tool.Description, "A tool without a description.")
		if err := client.AddRawTool(k.clnt, tool.Name, about, func(ctx context.Context, args json.RawMessage) (any, error) {
			return k.script.answer(ctx, tool.Name, args)
		}, client.ToolSchema(string(tool.Schema))); err != nil {
			t.Fatal(err)
		}
		llm.ToolNames = append(llm.ToolNames, tool.Name)
	}
	k.agent = &agentdv1.Agent{Name: "recorded", AgentType: &agentdv1.Agent_Llm{Llm: llm}}
	return k
}

// outcome is what the client saw of a turn.
type outcome struct {
	text, thoughts strings.Builder
	calls          []providertest.ToolCall
	usage          client.Usage
	completed      bool
	err            *client.Error // nil if the turn did not fail
}

// run runs a turn whose calls are answered as the steps say.
func (k *talk) run(prompt string, steps []providertest.Step) *outcome {
	k.t.Helper()
	control := &client.Control{}
	k.script = &script{control: control, steps: steps}
	out := &outcome{}
	opts := append(slices.Clone(k.opts), client.WithControl(control))
	for event, err := range k.clnt.Run(k.t.Context(), k.agent, prompt, opts...) {
		switch {
		case err != nil:
			var ok bool
			if out.err, ok = errors.AsType[*client.Error](err); !ok {
				k.t.Fatalf("error %v of type %T", err, err)
			}
			if u := out.err.Usage; u != nil {
				out.usage = *u
			}
		case harness.As[*client.TurnStarted](event) != nil:
			k.opts = []client.RunOption{client.WithSessionID(event.SessionID)}
		case event.OutputChunk != nil && event.OutputChunk.IsThought:
			out.thoughts.WriteString(event.OutputChunk.Content)
		case event.OutputChunk != nil:
			out.text.WriteString(event.OutputChunk.Content)
		case event.ToolCall != nil:
			out.calls = append(out.calls, providertest.ToolCall{Name: event.ToolCall.Name, Args: string(event.ToolCall.Input)})
		case event.Error != nil:
			k.t.Errorf("refused: %v", event.Error)
		case event.End != nil:
			out.usage, out.completed = *event.End.Usage, event.End.Completed
		}
	}
	for _, fault := range k.script.over() {
		k.t.Error(fault)
	}
	return out
}

// expect checks what the client saw, and the requests that the models got from
// number first on. The steps are those that came to their ends; of a turn that
// failed they are followed by an unfinished one, or by none.
func (k *talk) expect(out *outcome, prompt string, steps []providertest.Step, first int) {
	k.t.Helper()
	turn := providertest.Turn{Prompt: prompt, Steps: steps}
	var calls []providertest.ToolCall
	var thoughts strings.Builder
	for _, step := range steps {
		calls = append(calls, step.Calls...)
		thoughts.WriteString(strings.Join(step.Thoughts, ""))
	}
	if out.err == nil {
		if got, want := out.text.String(), turn.Text(); got != want {
			k.t.Errorf("text %q, want %q", got, want)
		}
		// Between the pieces of a summary an adapter may break the line.
		if got, want := harness.NoSpace(out.thoughts.String()), harness.NoSpace(thoughts.String()); got != want {
			k.t.Errorf("thoughts %q, want %q", got, want)
		}
	}
	if !slices.EqualFunc(out.calls, calls, sameCall) {
		k.t.Errorf("tool calls %v, want %v", out.calls, calls)
	}
	total := out.usage
	got := providertest.Usage{
		Prompt: total.PromptTokens, Completion: total.CompletionTokens, Cached: total.CachedTokens,
		CacheWrite: total.CacheWriteTokens, Thoughts: total.ThoughtsTokens, Total: total.TotalTokens,
	}
	want, counted := turn.Usage().Add(k.failed), len(steps)
	if k.failed != (providertest.Usage{}) {
		counted++
	}
	if n := int(out.usage.ModelCalls); n == counted+1 && k.unfinished != (providertest.Usage{}) {
		if !between(want, got, want.Add(k.unfinished)) {
			k.t.Errorf("usage %+v, want %+v and a part of %+v", got, want, k.unfinished)
		}
	} else if got != want || n != counted {
		k.t.Errorf("usage %+v of %d model calls, want %+v of %d", got, n, want, counted)
	}

	requests := k.srv.Received()[first:]
	most := len(steps)
	if out.err != nil {
		most++
	}
	if len(requests) != most {
		k.t.Errorf("%d model calls were made, want %d", len(requests), most)
	}
	s := &providertest.Session{Turns: []providertest.Turn{turn}}
	for i, req := range requests[:min(len(requests), most)] {
		var signatures []string
		if i < len(steps) {
			signatures = steps[i].Signatures
		}
		k.request(req, s.History(0, i), signatures)
	}
	k.remember(s.History(0, len(steps)), steps)
}

// between tells whether no count is below low or above high.
func between(low, u, high providertest.Usage) bool {
	return min(u.Prompt-low.Prompt, u.Completion-low.Completion, u.Cached-low.Cached, u.Thoughts-low.Thoughts, u.Total-low.Total) >= 0 &&
		max(u.Prompt-high.Prompt, u.Completion-high.Completion, u.Cached-high.Cached, u.Thoughts-high.Thoughts, u.Total-high.Total) <= 0
}

// remember keeps what was said in a turn. Calls that were left open got their
// results from agentd when the turn was cancelled.
func (k *talk) remember(items []providertest.Item, steps []providertest.Step) {
	k.soFar = append(k.soFar, items...)
	if n := len(steps); n > 0 && steps[n-1].Open() {
		for _, call := range steps[n-1].Calls {
			k.lost = append(k.lost, len(k.soFar))
			k.soFar = append(k.soFar, providertest.Item{Kind: providertest.Result, ID: call.ID, Name: call.Name})
		}
	}
}

// request checks a model request: the whole of the history, and what goes with
// it, with the signatures of thoughts that the recorded one had.
func (k *talk) request(got providertest.Received, items []providertest.Item, signed []string) {
	k.t.Helper()
	req, err := providertest.ParseRequest(got.Path, got.Body)
	if err != nil {
		k.t.Fatal(err)
	}
	want := slices.Concat(k.soFar, items)
	for _, at := range k.lost {
		want[at].Text = lostResult(req.Items)
	}
	if err := providertest.CheckHistory(got.Body, got.Wire, want); err != nil {
		k.t.Errorf("call %d: %v", got.Call, err)
	}
	// The engine tells agents their names behind their instructions.
	if req.Model != k.said.Model || !req.Stream || !strings.HasPrefix(req.System, k.said.System) {
		k.t.Errorf("call %d: model %q, streams: %t, system %q; want %q and %q", got.Call, req.Model, req.Stream, req.System, k.said.Model, k.said.System)
	}
	same := func(a, b providertest.Tool) bool {
		return a.Name == b.Name && (a.Description == b.Description || b.Description == "") &&
			(b.Schema == nil || jsondiff.Equal(string(a.Schema), string(b.Schema)))
	}
	if !slices.EqualFunc(req.Tools, k.said.Tools, same) {
		k.t.Errorf("call %d: tools %+v, want %+v", got.Call, req.Tools, k.said.Tools)
	}
	have := plainSignatures(req.Signatures)
	for _, want := range plainSignatures(signed) {
		if !slices.Contains(have, want) {
			k.t.Errorf("call %d does not hand back the signature %.40q of a thought", got.Call, want)
		}
	}
}

// plainSignatures decodes signatures, since both alphabets of base64 are in use.
func plainSignatures(in []string) []string {
	var out []string
	for _, s := range in {
		s = strings.NewReplacer("-", "+", "_", "/").Replace(s)
		if b, err := base64.StdEncoding.DecodeString(s); err == nil {
			s = string(b)
		}
		out = append(out, s)
	}
	return out
}

// lostResult returns what the model is told about calls that were cancelled.
func lostResult(items []providertest.Item) string {
	for _, item := range items {
		if item.Kind == providertest.Result && strings.Contains(item.Text, "cancelled: the turn was stopped") {
			return item.Text
		}
	}
	return ""
}

// script answers the tool calls of one turn.
type script struct {
	control *client.Control
	steps   []providertest.Step

	mu sync.Mutex
	// The fields below are protected by mu.
	step   int    // the one whose calls are expected
	taken  []bool // of the step's calls
	faults []string
}

// answer answers a call as it was recorded. If the recording leaves the step's
// calls open, it cancels the turn once all of them have come.
func (s *script) answer(ctx context.Context, name string, args json.RawMessage) (any, error) {
	result, open, err := s.take(name, args)
	switch {
	case err != nil:
		return nil, err
	case open:
		<-ctx.Done()
		return nil, context.Cause(ctx)
	case result.IsError:
		return nil, errors.New(result.Output)
	default:
		return result.Output, nil
	}
}

func (s *script) take(name string, args json.RawMessage) (result providertest.ToolResult, open bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !slices.Contains(s.taken, false) && s.step < len(s.steps) {
		s.taken = make([]bool, len(s.steps[s.step].Calls))
		s.step++
	}
	got := providertest.ToolCall{Name: name, Args: string(args)}
	var step providertest.Step
	if s.step > 0 {
		step = s.steps[s.step-1]
	}
	for i, call := range step.Calls {
		if s.taken[i] || !sameCall(call, got) {
			continue
		}
		s.taken[i] = true
		if !step.Open() {
			return step.Results[i], false, nil
		}
		if !slices.Contains(s.taken, false) {
			err = s.control.Cancel()
		}
		return providertest.ToolResult{}, true, err
	}
	err = fmt.Errorf("step %d: the tool %s was called with %s, want one of %v", s.step-1, name, args, step.Calls)
	s.faults = append(s.faults, err.Error())
	return providertest.ToolResult{}, false, err
}

// over returns what was wrong with the calls that came.
func (s *script) over() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.faults
}

// sameCall compares calls, apart from their ids, which agentd gives.
func sameCall(a, b providertest.ToolCall) bool {
	return a.Name == b.Name && jsondiff.Equal(a.Args, b.Args)
}
