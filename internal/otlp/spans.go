package otlp

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/apzuk3/agentd/internal/tracecontext"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// Spans makes the spans of a daemon. Its methods may be called from any goroutine.
type Spans struct {
	tracer trace.Tracer
	decode func([]byte) (*record.Event, error)

	// turns are those that run, by their sessions and ids; nil for one without spans. What a turn has that is not
	// here any more, it has no spans for.
	turns *lru.Cache[string, *turn]
}

// maxTurns is how many turns at once have spans.
const maxTurns = 1 << 14

// Spans returns what makes spans; decode is Runner.Decode of the engine.
func (e *Exporter) Spans(decode func([]byte) (*record.Event, error)) *Spans {
	turns, err := lru.New[string, *turn](maxTurns)
	if err != nil {
		panic(err) // the size is a constant
	}
	return &Spans{tracer: e.tracer(), decode: decode, turns: turns}
}

// spanOf is a span that is over.
type spanOf struct {
	name         string
	kind         trace.SpanKind
	id           trace.SpanID // zero for a random one
	above        tracecontext.Context
	began, ended time.Time
	attributes   []attribute.KeyValue
	failed       string // the type of the error; "" for none
	resumed      []time.Time
}

func (s *Spans) emit(o spanOf) {
	ctx := trace.ContextWithRemoteSpanContext(context.Background(), o.above.SpanContext())
	if o.id.IsValid() {
		ctx = withID(ctx, o.id)
	}
	_, span := s.tracer.Start(ctx, o.name, trace.WithSpanKind(o.kind), trace.WithTimestamp(o.began),
		trace.WithAttributes(attributes(o.attributes...)...))
	for _, at := range o.resumed {
		span.AddEvent("agentd.turn.resumed", trace.WithTimestamp(at))
	}
	if o.failed != "" {
		span.SetStatus(codes.Error, "")
		span.SetAttributes(semconv.ErrorTypeKey.String(o.failed))
	}
	// The clock may have been set back.
	if o.ended.Before(o.began) {
		o.ended = o.began
	}
	span.End(trace.WithTimestamp(o.ended))
}

// turn is what is known of a turn that has spans.
type turn struct {
	mu      sync.Mutex      // protects the fields below
	reading bool            // its log is being read
	held    []record.Record // appended meanwhile: the results that come before the run begins
	through int64           // the last record that was taken

	at      tracecontext.Context // of its first record
	id      string
	session string
	tenant  string
	name    string // of the root of its tree
	began   time.Time
	resumed []time.Time
	agents  map[string]*begun // those that work, by path
	starts  map[string]int    // of each agent
	calls   map[string]*begun // without a result
}

// begun is an agent or a tool call that is under way.
type begun struct {
	name  string
	path  []string
	below string // the name of its span
	at    time.Time
	model string
}

const pathSeparator = "\x00"

func keyOf(path []string) string { return strings.Join(path, pathSeparator) }

// below is the place below the turn's own span.
func (t *turn) below() tracecontext.Context { return t.at.Below(t.id) }

// aboveLocked returns what a span of an agent's work is below: the agent, the nearest of those above it that work, or
// the turn.
func (t *turn) aboveLocked(path []string) tracecontext.Context {
	for n := len(path); n > 0; n-- {
		if a := t.agents[keyOf(path[:n])]; a != nil {
			return t.at.Below(t.id, a.below)
		}
	}
	return t.below()
}

func (t *turn) aboveModel(path []string) tracecontext.Context {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.aboveLocked(path)
}

type turnKey struct{}

// turnOf returns the turn whose run has this context; nil if it has no spans.
func turnOf(ctx context.Context) *turn {
	t, _ := ctx.Value(turnKey{}).(*turn)
	return t
}

// Runner returns the engine with what its runs do below the spans of their turns.
func (s *Spans) Runner(r session.Runner) session.Runner { return &tracedRunner{r, s} }

type tracedRunner struct {
	session.Runner
	spans *Spans
}

// Run implements session.Runner.
func (r *tracedRunner) Run(ctx context.Context, run *session.Run) error {
	key := run.Key() + pathSeparator + run.TurnID()
	if t := r.spans.turn(ctx, key, run); t != nil {
		ctx = context.WithValue(ctx, turnKey{}, t)
	}
	err := r.Runner.Run(ctx, run)
	if err != nil && errors.Is(context.Cause(ctx), session.ErrSuspended) {
		r.spans.turns.Remove(key) // whoever resumes it reads it
	}
	return err
}

// turn returns the turn of a run, from the log if this process did not start it; nil if it has no spans.
func (s *Spans) turn(ctx context.Context, key string, run *session.Run) *turn {
	t := &turn{reading: true}
	if known, ok, _ := s.turns.PeekOrAdd(key, t); ok {
		return known
	}
	var over []spanOf
	sampled := false
	for rec, err := range run.Records(ctx, run.StartSeq()-1) {
		if err != nil {
			break // the run meets the same error
		}
		if rec.TurnID != run.TurnID() {
			continue // a prompt that waits
		}
		if rec.Kind == record.KindTurnStarted {
			if sampled = t.start(run.Key(), rec); !sampled {
				break
			}
			continue
		}
		if rec.Kind == record.KindTurnResumed {
			over = nil // what ended before it was exported by whoever ran the turn then
		}
		over = append(over, t.read(rec, s.decode)...)
	}
	if !sampled {
		s.turns.Add(key, nil)
		return nil
	}
	for _, o := range append(over, t.readThrough(s.decode)...) {
		s.emit(o)
	}
	return t
}

// Store returns the store with the spans made of what is appended.
func (s *Spans) Store(of store.Store) store.Store { return &traced{of, s} }

type traced struct {
	store.Store
	spans *Spans
}

// Append implements store.Store.
func (s *traced) Append(ctx context.Context, b store.Batch) error {
	err := s.Store.Append(ctx, b)
	if err == nil {
		for _, rec := range b.Records {
			s.spans.appended(b.SessionID, rec)
		}
	}
	return err
}

// appended takes a record that is durable.
func (s *Spans) appended(session string, rec record.Record) {
	key := session + pathSeparator + rec.TurnID
	if rec.Kind == record.KindTurnStarted {
		s.turns.Add(key, s.begin(session, rec))
		return
	}
	t, _ := s.turns.Get(key)
	if rec.Kind == record.KindTurnEnded {
		s.turns.Remove(key)
	}
	if t == nil {
		return
	}
	for _, o := range t.add(rec, s.decode) {
		s.emit(o)
	}
}

// begin returns the turn that a record starts; nil if it has no spans.
func (s *Spans) begin(session string, rec record.Record) *turn {
	t := &turn{}
	if !t.start(session, rec) {
		return nil
	}
	return t
}

// start takes the first record of a turn, and reports whether the turn has spans.
func (t *turn) start(session string, rec record.Record) bool {
	var started struct {
		Trace tracecontext.Context `json:"trace"`
		Agent struct {
			Name string `json:"name"`
		} `json:"agent"`
		Alone *record.AgentChange `json:"agent_started"`
	}
	if json.Unmarshal(rec.Data, &started) != nil || !started.Trace.Spans {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.at, t.id, t.name, t.began = started.Trace, rec.TurnID, started.Agent.Name, rec.Time
	t.agents, t.starts, t.calls = map[string]*begun{}, map[string]int{}, map[string]*begun{}
	t.tenant, t.session = (&store.Batch{SessionID: session}).Names()
	if started.Alone != nil {
		t.changedLocked(*started.Alone, rec.Time)
	}
	return true
}

// add takes a record that is appended, and returns the spans that end with it.
func (t *turn) add(rec record.Record, decode func([]byte) (*record.Event, error)) []spanOf {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.reading {
		t.held = append(t.held, rec)
		return nil
	}
	return t.takeLocked(rec, decode)
}

// read takes a record of the log, and returns the spans that end with it.
func (t *turn) read(rec record.Record, decode func([]byte) (*record.Event, error)) []spanOf {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.takeLocked(rec, decode)
}

// readThrough ends the reading of the log, and returns the spans that have ended meanwhile.
func (t *turn) readThrough(decode func([]byte) (*record.Event, error)) (over []spanOf) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, rec := range t.held {
		over = append(over, t.takeLocked(rec, decode)...)
	}
	t.held, t.reading = nil, false
	return over
}

// takeLocked takes a record that follows those that were taken; it leaves out one that was taken.
func (t *turn) takeLocked(rec record.Record, decode func([]byte) (*record.Event, error)) (over []spanOf) {
	if rec.Seq <= t.through {
		return nil
	}
	t.through = rec.Seq
	switch rec.Kind {
	case record.KindAgentsChanged, record.KindEvent, record.KindToolCall, record.KindToolResult,
		record.KindInteractionResolved, record.KindTurnEnded, record.KindTurnResumed:
	default:
		return nil
	}
	fact, err := rec.Decode(decode)
	if err != nil {
		return nil // whoever reads the log finds it
	}
	switch f := fact.(type) {
	case *record.TurnResumed:
		t.resumed = append(t.resumed, rec.Time)
	case *record.AgentsChanged:
		for _, c := range f.Changes {
			over = append(over, t.changedLocked(c, rec.Time)...)
		}
	case *record.Event, *record.ToolCall:
		for _, c := range record.CallsOf(f) {
			t.calls[c.ID] = &begun{name: c.Name, path: c.Path, below: c.ID, at: rec.Time}
		}
	case *record.ToolResult:
		over = t.settledLocked(f, rec.Time)
	case *record.InteractionResolved:
		if res := f.Result(); res != nil { // a person has answered, or has said no
			over = t.settledLocked(res, rec.Time)
		}
	case *record.TurnEnded:
		over = t.endLocked(f, rec.Time)
	}
	return over
}

// changedLocked notes that an agent starts or ends.
func (t *turn) changedLocked(c record.AgentChange, at time.Time) []spanOf {
	key := keyOf(c.Path)
	own := key // an agent that is called as a tool may run several times at once
	if other := key + pathSeparator + c.Room; t.agents[other] != nil || c.Ended == "" && t.agents[key] != nil {
		own = other
	}
	if c.Ended != "" {
		a := t.agents[own]
		if a == nil {
			return nil
		}
		delete(t.agents, own)
		return []spanOf{t.agentLocked(a, string(c.Ended), at)}
	}
	t.starts[key]++
	name := ""
	if n := len(c.Path); n > 0 {
		name = c.Path[n-1]
	}
	t.agents[own] = &begun{
		name: name, path: c.Path, below: "agent" + pathSeparator + key + pathSeparator + strconv.Itoa(t.starts[key]),
		at: at, model: c.Model,
	}
	return nil
}

// agentLocked is the span of an agent that has ended.
func (t *turn) agentLocked(a *begun, how string, at time.Time) spanOf {
	return spanOf{
		name: "invoke_agent " + a.name, kind: trace.SpanKindInternal, id: t.at.SpanID(t.id, a.below),
		above: t.aboveLocked(a.path[:max(len(a.path)-1, 0)]), began: a.at, ended: at,
		attributes: []attribute.KeyValue{
			semconv.GenAIOperationNameInvokeAgent, semconv.GenAIAgentName(a.name),
			semconv.GenAIConversationID(t.session), semconv.GenAIRequestModel(a.model),
			attribute.String("agentd.turn.id", t.id), attribute.String("agentd.agent.ended", how),
			attribute.String("agentd.agent.path", strings.Join(a.path, "/")),
		},
	}
}

// settledLocked returns the span of a call that has its result now.
func (t *turn) settledLocked(f *record.ToolResult, at time.Time) []spanOf {
	c := t.calls[f.CallID]
	if c == nil {
		return nil
	}
	delete(t.calls, f.CallID)
	return []spanOf{t.toolLocked(c, f, at)}
}

// toolLocked is the span of a tool call that is settled.
func (t *turn) toolLocked(c *begun, f *record.ToolResult, at time.Time) spanOf {
	o := spanOf{
		name: "execute_tool " + c.name, kind: trace.SpanKindClient, id: t.at.SpanID(t.id, c.below),
		above: t.aboveLocked(c.path), began: c.at, ended: at,
		attributes: []attribute.KeyValue{
			semconv.GenAIOperationNameExecuteTool, semconv.GenAIToolName(c.name), semconv.GenAIToolCallID(c.below),
			semconv.GenAIToolType("function"), semconv.GenAIConversationID(t.session),
			attribute.String("agentd.turn.id", t.id), attribute.String("agentd.tool.outcome", string(f.Outcome)),
		},
	}
	switch {
	case f.Outcome != record.Returned:
		o.failed = string(f.Outcome)
	case f.Output == nil && f.Error != "":
		o.failed = "tool_error"
	}
	return o
}

// endLocked returns the spans that the end of the turn ends: the turn's own last.
func (t *turn) endLocked(f *record.TurnEnded, at time.Time) (over []spanOf) {
	for _, c := range t.calls {
		over = append(over, t.toolLocked(c, &record.ToolResult{Outcome: "none"}, at))
	}
	for _, a := range t.agents {
		over = append(over, t.agentLocked(a, "turn_ended", at))
	}
	status, failed := "succeeded", ""
	switch {
	case f.Code != 0:
		status, failed = "failed", f.Code.String()
	case !f.Completed:
		status = "canceled"
	}
	return append(over, spanOf{
		name: "turn " + t.name, kind: trace.SpanKindInternal, id: t.at.SpanID(t.id), above: t.at,
		began: t.began, ended: at, failed: failed, resumed: t.resumed,
		attributes: []attribute.KeyValue{
			semconv.GenAIConversationID(t.session), attribute.String("agentd.turn.id", t.id),
			attribute.String("agentd.turn.status", status), attribute.String("agentd.tenant", t.tenant),
		},
	})
}
