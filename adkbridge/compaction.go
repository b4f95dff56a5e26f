package adkbridge

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"google.golang.org/genai"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/record"
)

const (
	// keepPart is the share of a prompt's room that stays as it is, the newest part.
	keepPart = 1.0 / 3
	// maxSummary bounds a summary and its thoughts, in tokens. maxSummaryRetry is the bound
	// for the second try, after the first summary was cut. Models whose longest response is
	// not known accept that much.
	maxSummary      = 8192
	maxSummaryRetry = 2 * maxSummary
	// maxCompactionText bounds Compaction.instruction, in bytes.
	maxCompactionText = 16 << 10
)

// compaction is when and how an agent's conversation is summarized. It is
// immutable.
type compaction struct {
	off    bool    // only when somebody asks for it
	share  float64 // of the window; 0 is only when a prompt was refused, or somebody asks
	window int64   // of any model, in tokens; 0 is what is known of it
	by     *node   // the agent with the model that writes summaries; nil is its own
	text   string  // what the client wants to be kept in mind
}

// windowOf is the context window of an agent's model, in tokens; 0 is not known.
func (c *compaction) windowOf(n *node) int64 { return cmp.Or(c.window, n.model.Window) }

// compaction checks an agent's compaction, and resolves its model.
func (p *planner) compaction(n *node, c *agentdv1.Compaction) (*compaction, error) {
	if c == nil {
		if p.share == 0 {
			return &compaction{off: true}, nil
		}
		c = &agentdv1.Compaction{AtShare: p.share}
	}
	switch share := c.GetAtShare(); {
	case share < 0 || share > 1 || math.IsNaN(share):
		return nil, n.errorf("compaction: at_share is %v, must be from 0 to 1", share)
	case c.GetContextTokens() < 0:
		return nil, n.errorf("compaction: context_tokens is %d, must not be below 0", c.GetContextTokens())
	case len(c.GetInstruction()) > maxCompactionText:
		return nil, n.errorf("compaction: the instruction has %d bytes, at most %d are allowed",
			len(c.GetInstruction()), maxCompactionText)
	}
	out := &compaction{share: c.GetAtShare(), window: c.GetContextTokens(), text: c.GetInstruction()}
	if c.GetModel() != "" {
		by := *n
		by.fallbacks = nil
		if err := p.openModel(&by, c.GetModel()); err != nil {
			return nil, err
		}
		out.by = &by
	}
	return out, nil
}

// compactAhead compacts the conversation before a call if somebody has asked for it, or
// if the prompt takes more than its share of the context window. If that fails and the
// call can be made, it is no error.
func (m *agentModel) compactAhead(ctx context.Context, l *liveCall) error {
	l.wish = m.wish(l)
	c, asked := m.n.compaction, l.wish.seq > 0
	bounded := c.share > 0 && c.windowOf(m.n) > 0
	if !asked && !bounded {
		return nil
	}
	o := m.outline(l)
	tokens := o.tokens(l.rest(o))
	if asked {
		if s, ok := o.choose(0, false); ok {
			_, err := m.compact(ctx, l, o, s, &record.Compacted{
				Asked: !l.wish.done, Done: l.wish.done, Prompt: tokens, Window: c.windowOf(m.n),
			})
			return err
		}
	}
	if !bounded {
		return nil
	}
	room := c.share * float64(c.windowOf(m.n))
	if m.triedWithoutGain(l, false) || o.fresh || float64(tokens) <= room {
		return nil
	}
	s, ok := o.choose(int(room*o.ratio()*keepPart), false)
	if !ok {
		return nil
	}
	_, err := m.compact(ctx, l, o, s, &record.Compacted{Prompt: tokens, Window: c.windowOf(m.n)})
	return err
}

// triedWithoutGain reports whether a summary of the prompt brought nothing in this
// turn.
func (m *agentModel) triedWithoutGain(l *liveCall, overflow bool) bool {
	m.t.mu.Lock()
	defer m.t.mu.Unlock()
	return m.t.noGain[summaryTry{promptKey{m.n.name, l.branch}, overflow}]
}

// overflowed reports whether a call failed because its prompt is too long, before
// anything was shown, and may be repeated with a shorter one.
func (m *agentModel) overflowed(ctx context.Context, l *liveCall, err error) bool {
	e, ok := errors.AsType[*model.Error](err)
	return ok && e.Kind == model.KindContextTooLong && !m.n.compaction.off && !l.shown && ctx.Err() == nil
}

// compactOverflow compacts the conversation after its prompt was refused, and reports
// whether it is shorter now.
func (m *agentModel) compactOverflow(ctx context.Context, l *liveCall) (bool, error) {
	c, o := m.n.compaction, m.outline(l)
	window := c.windowOf(l.chain.last.n)
	if o.fresh && o.overflow || m.triedWithoutGain(l, true) {
		return false, nil // the provider still refused it
	}
	keep := float64(o.bytes)
	if window > 0 {
		room := o.ratio() * float64(window)
		if c.share > 0 {
			room *= c.share
		}
		keep = min(keep, room)
	}
	s, ok := o.choose(int(keep*keepPart/2), true)
	if !ok {
		return false, nil
	}
	fact := &record.Compacted{Overflow: true, Prompt: o.tokens(l.rest(o)), Window: window}
	return m.compact(ctx, l, o, s, fact)
}

// outline returns the prompt of the next call.
func (m *agentModel) outline(l *liveCall) *outline {
	return m.t.hist.outline(promptKey{m.n.name, l.branch}, m.since(), m.t.run.StartSeq())
}

// rest returns the size of a request besides its contents, in bytes, for a prompt that
// no provider has counted yet.
func (l *liveCall) rest(o *outline) int {
	if o.context > 0 {
		return 0
	}
	return len(adapter.Text(l.config.SystemInstruction)) + toolBytes(l.config.Tools)
}

// summarizers returns the agent with the models that write summaries, each for the case
// that the ones before fail. Unless the client names a model, they are the models of
// the call.
func (m *agentModel) summarizers(l *liveCall) []*node {
	if by := m.n.compaction.by; by != nil {
		return []*node{by}
	}
	return slices.Concat([]*node{l.chain.last.n}, l.chain.rest)
}

// summaryInput returns how much of a prompt fits into the request for its summary, in
// bytes.
func (m *agentModel) summaryInput(by *node, o *outline, fact *record.Compacted) int {
	const part = 0.6
	most := o.bytes
	if fact.Overflow {
		most /= 2
	}
	window := by.model.Window
	if by != m.n.compaction.by || window == 0 {
		window = cmp.Or(fact.Window, window)
	}
	if window > 0 {
		most = min(most, int(part*o.ratio()*float64(window)))
	}
	return most
}

// compact asks for a summary of a section and appends it. It returns false if no
// summary would help; the log says so too, so nobody pays for another try. An error
// ends the turn.
func (m *agentModel) compact(
	ctx context.Context, l *liveCall, o *outline, s section, fact *record.Compacted,
) (bool, error) {
	by := m.summarizers(l)
	input := conversation(o.contents[:s.n], m.summaryInput(by[0], o, fact))
	text, meta, err := m.summarize(ctx, l, input, fact, by)
	if err == nil && meta.NoGain == summaryCut {
		m.t.mu.Lock()
		m.t.cutShort[promptKey{m.n.name, l.branch}] = true
		m.t.mu.Unlock()
		m.keepSummary(l, meta)
		if err := m.t.reportUsage(ctx, m.n.name, l.branch); err != nil {
			return false, err
		}
		// The models before the one that responded failed.
		at := slices.IndexFunc(by, func(n *node) bool { return n.modelName == meta.Call.Model })
		text, meta, err = m.summarize(ctx, l, input, fact, by[at:])
	}
	if err != nil {
		return false, err
	}
	fact.Summary, fact.Through = text, s.seq
	helps := text != "" && len(text) <= m.t.limits.ValueBytes && len(text)+len(summaryHead)+len(summaryTail) < s.gain
	switch {
	case helps:
		meta.Compacted, meta.Span = fact, &span{Since: m.since(), Kept: s.kept}
	case fact.Overflow:
		meta.NoGain = noGainOverflow
	case fact.Asked, fact.Done:
		meta.NoGain = noGainAsked
	default:
		meta.NoGain = noGainShare
	}
	if !helps && meta.NoGain != noGainAsked { // what was asked for is not asked for again
		m.t.mu.Lock()
		m.t.noGain[summaryTry{promptKey{m.n.name, l.branch}, fact.Overflow}] = true
		m.t.mu.Unlock()
	}
	m.keepSummary(l, meta)
	return helps, m.t.reportUsage(ctx, m.n.name, l.branch)
}

// keepSummary keeps the end of a call for a summary until it is reported. The summary
// is paid for: if the turn is suspended before, it uses the summary when it resumes.
func (m *agentModel) keepSummary(l *liveCall, meta *meta) {
	m.t.keepCallEnd(&response{author: m.n.name, branch: l.branch, content: &genai.Content{Role: genai.RoleModel},
		meta: meta})
}

// maxSummaryTokens is how long a summary may be, in tokens; again is after one that
// was cut.
func maxSummaryTokens(by *node, window int64, retry bool) int64 {
	most, share := int64(maxSummary), window/8
	if retry {
		most, share = maxSummaryRetry, window/4
	}
	for _, limit := range []int64{share, by.model.Longest} {
		if limit > 0 {
			most = min(most, limit)
		}
	}
	return most
}

// summarize asks for a summary, one model after the other fails. It is a model call
// like any, but shows nothing. A call that fails, or whose summary is cut at its limit,
// yields no text and no error. If a longer summary is allowed, NoGain is summaryCut.
func (m *agentModel) summarize(
	ctx context.Context, l *liveCall, text string, fact *record.Compacted, models []*node,
) (string, *meta, error) {
	t := m.t
	t.mu.Lock()
	t.modelCalls++
	tooMany := t.modelCalls > t.limits.ModelCalls
	retry := t.cutShort[promptKey{m.n.name, l.branch}]
	t.mu.Unlock()
	if tooMany {
		return "", nil, fault.Errorf(codeLimit, "%s: the turn has made %d model calls, more are not allowed",
			m.n.at(), t.limits.ModelCalls).
			Over("turn_model_calls", t.limits.ModelCalls, t.limits.ModelCalls+1)
	}
	instruction := summaryInstruction
	if mind := m.n.compaction.text; mind != "" {
		instruction += "\n\nFor this agent, mind in particular:\n" + mind
	}
	switch {
	case !fact.Asked && !fact.Done || l.wish.focus == "":
	case fact.Done:
		instruction += "\n\nThe agent has said that a task is done; what comes next needs its outcome:\n" + l.wish.focus
	default:
		instruction += "\n\nFor this summary, mind in particular:\n" + l.wish.focus
	}
	ask := "<conversation>\n" + text + "</conversation>\n\nWrite the summary."
	request := func(by *node) *model.Request {
		return &model.Request{
			Contents: []*genai.Content{genai.NewContentFromText(ask, genai.RoleUser)},
			Config: &genai.GenerateContentConfig{
				SystemInstruction: genai.NewContentFromText(instruction, ""),
				MaxOutputTokens:   int32(maxSummaryTokens(by, fact.Window, retry)),
			},
		}
	}
	call := record.ModelCall{Path: m.n.path, Model: models[0].modelName, MessageID: l.id}
	done, err := t.run.BeginCall(ctx, call, func() (all record.Spent) {
		for i, by := range models {
			req := request(by)
			one := most(req.Contents, req.Config, models[i:i+1])
			all.Tokens, all.Cost = max(all.Tokens, one.Tokens), max(all.Cost, one.Cost)
		}
		return all
	})
	if err != nil {
		return "", nil, err
	}
	owed := true // the summary is recorded later
	defer func() { done(owed) }()
	began := time.Now()
	c := newChain(t, models)
	c.takeCutUsage(l.branch)
	resp, failed := c.generate(ctx, "", func(by *agentModel, replaceable bool) (*model.Response, bool, error) {
		// A call can be made without a summary, unless it was refused.
		info := modelcall.Info{
			Session: t.run.SessionID(), Turn: t.run.TurnID(), Path: m.n.path, MessageID: l.id,
			Replaceable: !fact.Overflow || replaceable,
		}
		resp, err := by.generateSilently(ctx, info, request(by.n))
		return resp, false, err
	})
	by := c.last
	info := &meta{Path: m.n.path, Call: &record.CallInfo{Model: by.n.modelName, Provider: by.n.model.Provider,
		Took: time.Since(began)}}
	switch {
	case failed == nil:
		info.Usage, info.Before = by.splitUsage(append(slices.Clone(resp.Failed), resp.Usage))
		if resp.FinishReason == genai.FinishReasonMaxTokens {
			if !retry && maxSummaryTokens(by.n, fact.Window, true) > maxSummaryTokens(by.n, fact.Window, false) {
				info.NoGain = summaryCut
			}
			return "", info, nil
		}
		return strings.TrimSpace(adapter.Text(resp.Content)), info, nil
	case ctx.Err() != nil:
		owed = by.keepUsage(failed, l.branch, info.Call)
		return "", nil, context.Cause(ctx)
	case c.unrecorded != nil:
		owed = by.keepUsage(failed, l.branch, info.Call)
		return "", nil, c.unrecorded
	}
	if info.Usage, info.Before = by.splitUsage(modelcall.Took(failed)); info.Usage.Calls == 0 && info.Before == nil {
		info.Usage, owed = nil, false
	}
	return "", info, nil
}

// generateSilently calls the model and shows nothing; a panic of it becomes an error.
func (m *agentModel) generateSilently(
	ctx context.Context, info modelcall.Info, req *model.Request,
) (resp *model.Response, err error) {
	defer func() {
		if p := recover(); p != nil {
			resp, err = nil, panicError("the model", p)
		}
	}()
	resp, err = m.n.model.LLM.Generate(m.recordTries(ctx, info), req, func(model.Delta) {})
	if err == nil && resp == nil {
		err = errors.New("the model returned neither a response nor an error")
	}
	return resp, err
}
