package adkbridge

import (
	"context"
	"crypto/rand"
	"fmt"
	"html"
	"iter"
	"maps"
	"slices"
	"strings"

	"google.golang.org/adk/v2/agent"
	adkmodel "google.golang.org/adk/v2/model"
	"google.golang.org/genai"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/lineage"
	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/record"
)

// response is a complete response of a model.
type response struct {
	author, branch string
	content        *genai.Content // not nil
	finish         genai.FinishReason
	model          string
	meta           *meta
}

// agentModel is the model of one agent as ADK calls it.
type agentModel struct {
	t *turn
	n *node
	// recorded is the usage of failed tries of this call that the log holds, and reported
	// is how many tries have reported their usage.
	recorded record.Usage
	reported int
}

// Name is the model's name.
func (m *agentModel) Name() string { return m.n.modelName }

// GenerateContent makes one model call and yields its complete response. Within that
// yield ADK runs the response's tool calls and the agent to which it transfers, so the
// call holds nothing by then.
func (m *agentModel) GenerateContent(
	ctx context.Context, req *adkmodel.LLMRequest, _ bool,
) iter.Seq2[*adkmodel.LLMResponse, error] {
	return func(yield func(*adkmodel.LLMResponse, error) bool) {
		a, err := m.nextResponse(ctx, req)
		if err != nil {
			m.t.stop(err)
			yield(nil, err)
			return
		}
		yield(&adkmodel.LLMResponse{
			Content:        a.content,
			FinishReason:   a.finish,
			ModelVersion:   a.model,
			TurnComplete:   true,
			UsageMetadata:  usageMetadata(a.meta.Usage),
			CustomMetadata: map[string]any{metaKey: a.meta},
		}, nil)
	}
}

// nextResponse returns the next response, from the log if the log holds it. A new
// response is kept in turn.unappended until it is appended: its deltas were shown and
// its tokens are spent, so it must not get lost if the turn stops in between.
func (m *agentModel) nextResponse(ctx context.Context, req *adkmodel.LLMRequest) (*response, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	ic, ok := ctx.(agent.InvocationContext)
	if !ok {
		return nil, fmt.Errorf("%s: model called outside of a run (%T)", m.n.at(), ctx)
	}
	t, branch := m.t, ic.Branch()
	key, logged, err := t.nextCall(m.n, branch)
	if err != nil {
		return nil, err
	}
	if t.observer != nil {
		c := &callStep{m: m, branch: branch, key: key, config: req.Config, logged: logged != nil}
		if err := t.observer.modelCall(ctx, c); err != nil {
			return nil, err
		}
	}
	if logged != nil {
		return m.fromLog(req, branch, logged)
	}
	return m.callLive(ctx, req, key, branch)
}

// fromLog returns a response that the log holds.
func (m *agentModel) fromLog(req *adkmodel.LLMRequest, branch string, logged *stored) (*response, error) {
	a := &response{
		author: m.n.name, branch: branch, content: logged.Content,
		finish: logged.FinishReason, model: logged.ModelVersion,
		meta: &logged.CustomMetadata.Agentd,
	}
	if a.content == nil {
		a.content = &genai.Content{Role: genai.RoleModel}
	}
	sorted := m.classify(a, req)
	if m.t.observer != nil {
		if err := m.t.observer.response(m, a, sorted); err != nil {
			return nil, err
		}
	}
	if !a.meta.Structured {
		if _, err := m.checkOutput(a); err != nil {
			return nil, err
		}
	}
	return a, m.checkLimits(a)
}

// callLive makes a model call whose response the log does not hold.
func (m *agentModel) callLive(ctx context.Context, req *adkmodel.LLMRequest, key, branch string) (*response, error) {
	t := m.t
	if m.n.kind == remoteKind {
		return m.callRemote(ctx, req, key, branch)
	}
	if err := t.recordAgents(ctx); err != nil {
		return nil, err
	}
	if lineage.Room(branch) == "" { // an agent that is called as a tool sees none
		if err := t.inject(ctx); err != nil {
			return nil, err
		}
	}
	leave, err := m.enterCall(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	if err := m.fillInstruction(req.Config, t.stateOf(m.n)); err != nil {
		return nil, err
	}
	defer func() { req.Config.SystemInstruction = nil }() // ADK keeps the request while other agents run
	m.configure(req.Config)
	// ADK's own contents are dropped; of the request its configuration is used.
	l := &liveCall{branch: branch, id: messageID(t.run.TurnID(), key), config: req.Config,
		chain: newChain(t, slices.Concat([]*node{m.n}, m.n.fallbacks))}
	if err := m.compactAhead(ctx, l); err != nil {
		return nil, err
	}
	resp, call, err := m.callModel(ctx, l)
	if m.overflowed(ctx, l, err) {
		if failed := t.reportUsage(ctx, m.n.name, branch); failed != nil { // the next call of the agent is another one
			return nil, failed
		}
		shorter, failed := m.compactOverflow(ctx, l)
		if failed != nil {
			return nil, failed
		}
		if shorter {
			resp, call, err = m.callModel(ctx, l)
		}
	}
	if err != nil {
		return nil, err
	}
	a := l.chain.last.newResponse(resp, key, branch)
	a.meta.Marks, a.meta.Call = t.run.Marks(l.id), call
	return a, m.interpret(a, req)
}

// interpret finds out what a response means, and keeps it in turn.unappended. An error
// ends the turn.
func (m *agentModel) interpret(a *response, req *adkmodel.LLMRequest) error {
	m.classify(a, req).note(a.meta)
	for range a.meta.Asks {
		var q record.Question
		q.SetNewID()
		a.meta.Interactions = append(a.meta.Interactions, q.ID)
	}
	if misfit := m.keepResponse(a); misfit != nil {
		return misfit
	}
	return m.checkLimits(a)
}

// keepResponse sets what a response means for its agent, and keeps it in
// turn.unappended. The error says why the response does not satisfy the agent's output
// schema.
func (m *agentModel) keepResponse(a *response) (misfit error) {
	a.meta.Last = len(callsOf(a.content)) == 0 && !onlyThoughts(a.content) && m.n.speaksOnce()
	a.meta.Structured, misfit = m.checkOutput(a)
	m.t.mu.Lock()
	defer m.t.mu.Unlock()
	m.t.unappended = append(m.t.unappended, a)
	return misfit
}

// since returns the first record that the model sees.
func (m *agentModel) since() int64 {
	if m.n.turnOnly {
		return m.t.run.StartSeq()
	}
	return 0
}

// inject turns prompts that arrived during the turn into messages of it.
func (t *turn) inject(ctx context.Context) error {
	t.injecting.Lock()
	defer t.injecting.Unlock()
	for _, in := range t.run.Injected() {
		ev := t.newEvent(ctx, user, "")
		ev.Content = userContent(in.Text, in.Parts)
		if err := t.commit(ctx, ev, &meta{Injected: in.ID, InjectedBy: in.By, NoText: in.Text == ""}); err != nil {
			return err
		}
	}
	return nil
}

// nextCall numbers a model call, and returns its response if the log holds it.
func (t *turn) nextCall(n *node, branch string) (key string, logged *stored, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped {
		return "", nil, errStopped
	}
	if t.modelCalls++; t.modelCalls > t.limits.ModelCalls {
		return "", nil, fault.Errorf(codeLimit, "%s: the turn has made %d model calls, more are not allowed", n.at(),
			t.limits.ModelCalls).
			Over("turn_model_calls", t.limits.ModelCalls, t.limits.ModelCalls+1)
	}
	at := n.name + "|" + branch
	key = fmt.Sprintf("%s#%d", at, t.callCounts[at])
	t.callCounts[at]++
	return key, t.responses[key], nil
}

// fillInstruction puts the agent's instruction into a request's configuration, filled
// in from this state.
func (m *agentModel) fillInstruction(cfg *genai.GenerateContentConfig, state map[string]any) error {
	if !m.t.instructed(m.n) {
		return nil
	}
	text, err := m.t.instruction(m.n, state)
	if err != nil {
		return err
	}
	p := cfg.SystemInstruction.Parts[0]
	rest, ok := strings.CutPrefix(p.Text, instructionMark)
	if !ok {
		return fmt.Errorf("%s: the engine has put something before the instruction", m.n.at())
	}
	if text == "" {
		rest = strings.TrimPrefix(rest, layerBreak)
	}
	p.Text = text + rest
	return nil
}

// configure completes a request's configuration, which ADK made for this call alone.
func (m *agentModel) configure(cfg *genai.GenerateContentConfig) {
	m.n.generation.apply(cfg)
	cfg.Tools = append(cfg.Tools, m.n.builtins...)
	if m.n.output != nil {
		cfg.ResponseMIMEType, cfg.ResponseJsonSchema = "application/json", m.n.output.text
	}
	// ADK renders the list of agents to transfer to as HTML.
	if cfg.SystemInstruction == nil || len(m.n.targets()) == 0 {
		return
	}
	for _, p := range cfg.SystemInstruction.Parts {
		if at := strings.LastIndex(p.Text, transferMarker); at >= 0 {
			p.Text = p.Text[:at] + html.UnescapeString(p.Text[at:])
		}
	}
}

// transferMarker begins ADK's list of agents to transfer to.
const transferMarker = "\nYou have a list of other agents to transfer to:\n"

// generate calls the model. It calls spoke with each piece of text. A panic of the
// model becomes an error.
func (m *agentModel) generate(
	ctx context.Context, req *model.Request, info modelcall.Info, spoke func(),
) (resp *model.Response, err error) {
	defer func() {
		if p := recover(); p != nil {
			resp, err = nil, panicError("the model", p)
		}
	}()
	req.Deferred, req.ToolSearch = m.n.deferred(), m.n.toolSearch
	resp, err = m.n.model.LLM.Generate(m.recordTries(ctx, info), req, func(d model.Delta) {
		spoke()
		m.t.run.Delta(record.Delta{MessageID: info.MessageID, Path: m.n.path, Text: d.Text, Thought: d.Thought})
	})
	if err == nil && resp == nil {
		err = fmt.Errorf("the model returned neither a response nor an error")
	}
	return resp, err
}

// recordTries returns a context in which a call records its failed tries and, if the turn
// asks for them, the raw responses of the provider.
func (m *agentModel) recordTries(ctx context.Context, info modelcall.Info) context.Context {
	messageID := info.MessageID
	info.OnRetry = func(f modelcall.FailedTry) error { return m.recordRetry(ctx, messageID, f) }
	info.Pause = func(ctx context.Context, wait func(context.Context) error) error {
		return m.t.run.Wait(ctx, true, wait)
	}
	if m.t.run.Spec().Raw {
		info.OnRaw = func(r modelcall.Raw) error { return m.raw(ctx, messageID, r) }
	}
	return modelcall.With(ctx, info)
}

// recordRetry records that a try of a model call failed and that another one follows.
func (m *agentModel) recordRetry(ctx context.Context, messageID string, f modelcall.FailedTry) error {
	retry := record.ModelRetry{
		MessageID: messageID,
		Path:      m.n.path,
		Attempt:   f.Try,
		Wait:      f.Wait,
		Code:      codes[f.Err.Kind],
		Message:   modelError(m.n, f.Err).Error(),
	}
	if f.Err.Usage != nil && f.Err.Usage.Valid() {
		retry.Usage = m.price(*f.Err.Usage)
	}
	if err := m.t.run.Retrying(ctx, retry); err != nil {
		return err
	}
	if retry.Usage != nil {
		m.recorded = m.recorded.Add(*retry.Usage)
	}
	if f.Err.Usage != nil {
		m.reported++
	}
	return nil
}

// newResponse converts a model's response. Each call gets an id that is unique in the
// session. What the adapter returned does not change.
func (m *agentModel) newResponse(resp *model.Response, key, branch string) *response {
	a := &response{
		author: m.n.name, branch: branch,
		content: &genai.Content{Role: genai.RoleModel},
		finish:  resp.FinishReason, model: strings.ToValidUTF8(resp.Model, "\uFFFD"),
		meta: &meta{LLM: key, Path: m.n.path, Provided: provided(resp.Provided), Context: max(resp.Usage.Prompt, 0)},
	}
	a.meta.Usage, a.meta.Before = m.splitUsage(append(slices.Clone(resp.Failed), resp.Usage))
	if resp.Content == nil {
		return a
	}
	for _, p := range resp.Content.Parts {
		if emptyPart(p) {
			continue
		}
		if p.FunctionCall != nil {
			p = withOwnID(p)
		}
		a.content.Parts = append(a.content.Parts, p)
	}
	return a
}

// withOwnID returns a function call under a new id. The provider's id stays with it for
// the adapter.
func withOwnID(p *genai.Part) *genai.Part {
	part, call := *p, *p.FunctionCall
	if call.ID != "" {
		part.PartMetadata = maps.Clone(part.PartMetadata)
		if part.PartMetadata == nil {
			part.PartMetadata = map[string]any{}
		}
		part.PartMetadata[seam.MetaCallID] = call.ID
	}
	call.ID = "call_" + strings.ToLower(rand.Text())
	if call.Args == nil {
		call.Args = map[string]any{}
	}
	// ADK acts on these names by itself, whether or not such a tool exists.
	if call.Name == modelResultTool || call.Name == stopStreamTool {
		call.Name = "unknown_" + call.Name
	}
	part.FunctionCall = &call
	return &part
}

// sorted are the calls of a response by who serves them, by their ids.
type sorted struct {
	ours   []string // the client or a person
	asks   []string // of ours, those about which a person is asked
	agents []string // agents that are called as tools
}

// note has the meta of the response say it.
func (s sorted) note(m *meta) { m.Calls, m.Asks, m.Agents = s.ours, s.asks, s.agents }

// classify decides for each call of a response who runs it. A call that cannot be run
// is refused: its result tells the model why. It depends only on the response, the tree
// and the limits.
func (m *agentModel) classify(a *response, req *adkmodel.LLMRequest) sorted {
	if req.Tools == nil {
		req.Tools = map[string]any{}
	}
	offered := slices.Sorted(maps.Keys(req.Tools))
	if _, ok := req.Tools[transferTool]; ok {
		req.Tools[transferTool] = &transferRunner{t: m.t}
	}
	// ADK looks tools up in req.Tools after the response arrives, so this can add the tools
	// that ADK would not find.
	handed := false
	var out sorted
	refused := map[string]string{}
	for i, p := range callsOf(a.content) {
		call := p.FunctionCall
		reason := ""
		switch bad, _ := p.PartMetadata[seam.MetaArgsError].(string); {
		case i >= m.t.limits.ResponseCalls:
			// The text is a part of logs, as that of the second transfer: a replay compares them.
			reason = fmt.Sprintf("not run: an answer may have at most %d tool calls", m.t.limits.ResponseCalls)
		case !slices.Contains(offered, call.Name):
			reason = fmt.Sprintf("there is no tool %q; available: %s", cut(call.Name, maxName), quoteAll(offered))
			req.Tools[call.Name] = &unknownTool{baseTool{t: m.t, name: call.Name}}
		case call.Name == exitLoopTool, call.Name == taskDoneTool && m.n.taskDone: // whatever its arguments
		case bad != "":
			reason = malformedText + cut(bad, 512)
		case m.t.isGoalTool(call.Name), m.n.isBackgroundTool(call.Name):
		case call.Name == transferTool:
			target, _ := call.Args["agent_name"].(string)
			switch targets := m.n.targets(); {
			case handed:
				reason = "not run: an answer can transfer only once"
			case !slices.Contains(targets, target):
				reason = fmt.Sprintf("there is no agent %q to transfer to; available: %s", cut(target, maxName),
					quoteAll(targets))
			default:
				handed = true
			}
		case m.n.agentTool(call.Name) != nil:
			if reason = m.refusesAgent(call, len(adapter.ArgsText(p))); reason == "" {
				out.agents = append(out.agents, call.ID)
			}
		case a.meta.Dropped: // the arguments are not there any more: what was found then stands
			if !slices.Contains(a.meta.Calls, call.ID) {
				reason = dropped
				break
			}
			out.ours = append(out.ours, call.ID)
			if slices.Contains(a.meta.Asks, call.ID) {
				out.asks = append(out.asks, call.ID)
			}
		default:
			ask, why := m.runs(call, len(adapter.ArgsText(p)))
			if reason = why; reason != "" {
				break
			}
			out.ours = append(out.ours, call.ID)
			if ask {
				out.asks = append(out.asks, call.ID)
			}
		}
		if reason != "" {
			refused[call.ID] = reason
		}
	}
	m.t.mu.Lock()
	maps.Copy(m.t.refused, refused)
	if handed {
		m.t.transfers++
	}
	m.t.mu.Unlock()
	return out
}

// runs returns why a call with so many bytes of arguments is not run, or whether a person is asked about it.
func (m *agentModel) runs(call *genai.FunctionCall, bytes int) (ask bool, reason string) {
	if most := m.t.limits.ValueBytes; bytes > most {
		return false, tooLong(bytes, most)
	}
	if reason := m.notPlanned(call.Name); reason != "" {
		return false, reason
	}
	ask, err := m.needsPerson(call)
	if err != nil {
		return false, err.Error()
	}
	return ask, ""
}

// notPlanned returns why a turn that only plans does not run a tool, "" if it does.
func (m *agentModel) notPlanned(name string) string {
	if !m.t.run.Spec().PlanMode {
		return ""
	}
	for _, d := range m.n.tools {
		if d.name != name {
			continue
		}
		switch d.effect {
		case agentdv1.Tool_EFFECT_READ, agentdv1.Tool_EFFECT_INTERNAL:
			return ""
		case agentdv1.Tool_EFFECT_UNSPECIFIED:
			return fmt.Sprintf("plan mode: %s was not run: it may change something", name)
		default:
			return fmt.Sprintf("plan mode: %s (%s) was not run", name, strings.TrimPrefix(d.effect.String(), "EFFECT_"))
		}
	}
	return ""
}

// needsPerson reports whether a person is asked about a call; the error says why the
// call cannot be asked.
func (m *agentModel) needsPerson(call *genai.FunctionCall) (bool, error) {
	if call.Name == askUserTool {
		_, err := questionOf(call.Args)
		return err == nil, err
	}
	return m.n.needsApproval(call.Name), nil
}

// checkLimits checks a response against the limits of a turn.
func (m *agentModel) checkLimits(a *response) error {
	t, at := m.t, m.n.name+"|"+a.branch
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.transfers > t.limits.Transfers {
		return fault.Errorf(codeLimit, "%s: the turn has made %d transfers between agents, more are not allowed",
			m.n.at(), t.limits.Transfers).
			Over("turn_transfers", t.limits.Transfers, t.limits.Transfers+1)
	}
	calls := callsOf(a.content)
	allRefused := len(calls) > 0 && !slices.ContainsFunc(calls,
		func(p *genai.Part) bool { return t.refused[p.FunctionCall.ID] == "" })
	if !allRefused {
		t.refusedRounds[at] = 0
	} else if t.refusedRounds[at]++; t.refusedRounds[at] > t.limits.RefusedRounds {
		return fault.Errorf(codeLimit,
			"%s: model %q responded %d times in a row with nothing but calls that cannot be run, "+
				"the last time because %s",
			m.n.at(), m.n.modelName, t.refusedRounds[at], t.refused[calls[0].FunctionCall.ID])
	}
	if text, ok := m.n.finalText(a.content, a.meta); ok && m.n.outputKey != "" && len(text) > t.limits.ValueBytes {
		return fault.Errorf(codeLimit, "%s: the response has %d bytes, output_key %q takes at most %d", m.n.at(),
			len(text), m.n.outputKey, t.limits.ValueBytes).
			Over("output_key_bytes", t.limits.ValueBytes, len(text))
	}
	if !onlyThoughts(a.content) {
		t.thoughtRounds[at] = 0
		return nil
	}
	if t.thoughtRounds[at]++; t.thoughtRounds[at] > t.limits.ThoughtRounds {
		return fault.Errorf(codeLimit, "%s: model %q responded %d times in a row with thoughts alone", m.n.at(),
			m.n.modelName, t.thoughtRounds[at])
	}
	return nil
}

// callsOf returns the parts of a content that are function calls.
func callsOf(c *genai.Content) []*genai.Part {
	var out []*genai.Part
	for _, p := range c.Parts {
		if p.FunctionCall != nil {
			out = append(out, p)
		}
	}
	return out
}

// malformedText begins the results of calls whose arguments are no JSON object. It is a part of logs.
const malformedText = "the arguments are no JSON object: "

// onlyThoughts reports whether a response holds only thoughts; ADK then calls the model
// again.
func onlyThoughts(c *genai.Content) bool {
	return len(c.Parts) > 0 && !slices.ContainsFunc(c.Parts, func(p *genai.Part) bool { return !p.Thought })
}
