package adkbridge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"testing"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/record"
)

// errCrashed is what a log returns that takes no more.
var errCrashed = errors.New("crashed")

// fakeRun is a session with an open turn, in memory: its log can be cut, and
// its client is a function.
type fakeRun struct {
	t      testing.TB
	spec   *record.Spec
	turnID string
	state  map[string]any
	// client returns the results of calls, of each call once. A result without an outcome is none.
	client func(call record.ToolCall) record.ToolResult
	// person resolves interactions; each once.
	person func(call record.ToolCall) record.Resolution
	// appending sees each event before it is stored.
	appending func(ev *record.Event)
	// refuse says why an event is not stored.
	refuse func(ev *record.Event) error
	// reading sees how many records were read, before each.
	reading func(n int)
	// streaming sees each delta.
	streaming func(record.Delta)
	// injectAt has the user say something once so many results are there.
	injectAt []int

	mu     sync.Mutex // protects the fields below
	recs   []record.Record
	start  int64
	calls  map[string]record.ToolCall
	result map[string]record.ToolResult
	said   map[string]record.Resolution
	asked  map[string]int
	sealed map[string]bool // take no result any more
	deltas []record.Delta
	atEnd  []record.AgentChange // what belongs to the end of the turn
	limit  int                  // of records; -1 for none
	crash  context.CancelCauseFunc
}

func newFakeRun(t testing.TB, tree *agentdv1.Agent, prompt string) *fakeRun {
	f := &fakeRun{
		t:      t,
		spec:   &record.Spec{Prompt: prompt, Agent: tree, Tools: []*agentdv1.Tool{offer("search"), offer("fetch"), offer("calc")}},
		limit:  -1,
		client: func(call record.ToolCall) record.ToolResult { return resultWith(fmt.Sprintf(`{"ok":%q}`, call.Name)) },
		result: map[string]record.ToolResult{},
		said:   map[string]record.Resolution{},
		calls:  map[string]record.ToolCall{},
		asked:  map[string]int{},
		sealed: map[string]bool{},
	}
	f.begin(prompt)
	return f
}

func resultWith(output string) record.ToolResult {
	return record.ToolResult{Outcome: record.Returned, Output: &output}
}

// begin starts another turn.
func (f *fakeRun) begin(prompt string) {
	f.spec.Prompt = prompt
	turns := 0
	for _, r := range f.recs {
		if r.Kind == record.KindTurnStarted {
			turns++
		}
	}
	f.turnID = fmt.Sprintf("e-turn%d", turns)
	data, err := json.Marshal(record.TurnStarted{Prompt: prompt})
	if err != nil {
		f.t.Fatal(err)
	}
	rec, err := f.store(record.KindTurnStarted, data)
	if err != nil {
		f.t.Fatal(err)
	}
	f.start = rec.Seq
}

// restarted is the session after a crash that left the first n records: its
// last turn is open.
func (f *fakeRun) restarted(n int) *fakeRun {
	g := newFakeRun(f.t, f.spec.Agent, "")
	g.recs, g.client, g.person, g.spec.Tools, g.injectAt, g.refuse = slices.Clone(f.recs[:n]), f.client, f.person, f.spec.Tools, f.injectAt, f.refuse
	for _, r := range g.recs {
		switch r.Kind {
		case record.KindTurnStarted:
			var started record.TurnStarted
			g.must(json.Unmarshal(r.Data, &started))
			g.turnID, g.start, g.spec.Prompt = r.TurnID, r.Seq, started.Prompt
		case record.KindToolCall:
			var c record.ToolCall
			g.must(json.Unmarshal(r.Data, &c))
			g.calls[c.ID] = c
		case record.KindToolResult:
			var res record.ToolResult
			g.must(json.Unmarshal(r.Data, &res))
			g.result[res.CallID] = res
		case record.KindInteractionResolved:
			var said record.InteractionResolved
			g.must(json.Unmarshal(r.Data, &said))
			g.resolve(said)
		case record.KindEvent:
			s, err := decode(r.Data)
			g.must(err)
			for _, c := range s.sessionEvent().Calls {
				g.calls[c.ID] = c
			}
		case record.KindModelFallback, record.KindModelRetry, record.KindAgentsChanged, record.KindCompactionAsked, record.KindRemoteSession,
			record.KindGoalStarted, record.KindGoalCheckpointed, record.KindGoalPaused, record.KindGoalResumed, record.KindGoalEnded, record.KindMessageInjected,
			record.KindChildSpawned, record.KindChildReported:
		default:
			f.t.Fatal("a fake log holds neither ends nor resumptions")
		}
	}
	return g
}

func (f *fakeRun) must(err error) {
	if err != nil {
		f.t.Fatal(err)
	}
}

// store appends a record. The caller holds mu, or is alone.
func (f *fakeRun) store(kind record.Kind, data []byte) (record.Record, error) {
	if f.limit >= 0 && len(f.recs) >= f.limit {
		if f.crash != nil {
			f.crash(errCrashed)
		}
		return record.Record{}, errCrashed
	}
	rec := record.Record{Seq: int64(len(f.recs) + 1), TurnID: f.turnID, Kind: kind, Time: time.Now(), Data: data}
	f.recs = append(f.recs, rec)
	return rec, nil
}

func (f *fakeRun) SessionID() string     { return "s" }
func (f *fakeRun) TurnID() string        { return f.turnID }
func (f *fakeRun) Spec() *record.Spec    { return f.spec }
func (f *fakeRun) Keys() session.Keys    { return nil }
func (f *fakeRun) State() map[string]any { return f.state }
func (f *fakeRun) StartSeq() int64       { return f.start }

func (f *fakeRun) CompactionAsked() (seq int64, focus string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, rec := range f.recs {
		if rec.Kind == record.KindCompactionAsked {
			var asked record.CompactionAsked
			f.must(json.Unmarshal(rec.Data, &asked))
			seq, focus = rec.Seq, asked.Focus
		}
	}
	return seq, focus
}

func (f *fakeRun) Records(ctx context.Context, after int64) iter.Seq2[record.Record, error] {
	f.mu.Lock()
	recs := slices.Clone(f.recs[after:])
	f.mu.Unlock()
	return func(yield func(record.Record, error) bool) {
		for i := range len(recs) + 1 {
			if f.reading != nil {
				f.reading(i)
			}
			if ctx.Err() != nil {
				yield(record.Record{}, ctx.Err())
				return
			}
			if i == len(recs) || !yield(recs[i], nil) {
				return
			}
		}
	}
}

func (f *fakeRun) Append(ctx context.Context, data []byte, ev *record.Event) (record.Record, error) {
	if ctx.Err() != nil {
		return record.Record{}, context.Cause(ctx)
	}
	if s, err := decode(data); err != nil || compact(s.sessionEvent()) != compact(ev) {
		f.t.Errorf("Decode does not give the event: %v\n%s", err, compact(ev))
	}
	if f.appending != nil {
		f.appending(ev)
	}
	if f.refuse != nil {
		if err := f.refuse(ev); err != nil {
			return record.Record{}, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	rec, err := f.store(record.KindEvent, data)
	if err != nil {
		return rec, err
	}
	for _, c := range ev.Calls {
		f.calls[c.ID] = c
	}
	return rec, nil
}

// AppendLater appends at once: its run never waits.
func (f *fakeRun) AppendLater(ctx context.Context, data []byte, ev *record.Event) (record.Record, error) {
	return f.Append(ctx, data, ev)
}

// AppendAtEnd appends at once: the log of a fake run holds no ends.
func (f *fakeRun) AppendAtEnd(ctx context.Context, data []byte, ev *record.Event) error {
	_, err := f.Append(ctx, data, ev)
	return err
}

func (f *fakeRun) AgentsChanged(ctx context.Context, c record.AgentsChanged) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return f.storeFact(record.KindAgentsChanged, c)
}

// AgentsChangedAtEnd keeps what belongs to the end, which the log does not hold.
func (f *fakeRun) AgentsChangedAtEnd(c record.AgentsChanged) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.atEnd = append(f.atEnd, c.Changes...)
	return nil
}

func (*fakeRun) Marks(string) record.Marks { return nil }

func (*fakeRun) BeginCall(context.Context, record.ModelCall, func() record.Spent) (func(bool), error) {
	return func(bool) {}, nil
}

func (*fakeRun) Wait(ctx context.Context, _ bool, wait func(context.Context) error) error {
	return wait(ctx)
}

func (f *fakeRun) Retrying(_ context.Context, r record.ModelRetry) error {
	return f.storeFact(record.KindModelRetry, r)
}

func (f *fakeRun) FellBack(_ context.Context, b record.ModelFallback) error {
	return f.storeFact(record.KindModelFallback, b)
}

func (f *fakeRun) storeFact(kind record.Kind, fact any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	data, err := json.Marshal(fact)
	if err == nil {
		_, err = f.store(kind, data)
	}
	return err
}

func (f *fakeRun) RemoteSession(ctx context.Context, s *agentdv1.RemoteSession) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return f.storeFact(record.KindRemoteSession, s)
}

func (*fakeRun) Raw(context.Context, record.RawPayload) error { return nil }

// Injected returns what the user says while the turn runs, each once so many
// results are there, unless the log holds it.
func (f *fakeRun) Injected() []session.Injected {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []session.Injected
	for i, due := range f.injectAt {
		id := fmt.Sprintf("e-told%d", i)
		logged := slices.ContainsFunc(f.recs, func(r record.Record) bool { return bytes.Contains(r.Data, []byte(id)) })
		if len(f.result) >= due && !logged {
			out = append(out, session.Injected{ID: id, Text: fmt.Sprintf("and %d", i)})
		}
	}
	return out
}

func (f *fakeRun) Delta(d record.Delta) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.deltas = append(f.deltas, d)
	if f.streaming != nil {
		f.streaming(d)
	}
}

func (f *fakeRun) Await(ctx context.Context, id string) (record.ToolResult, error) {
	if ctx.Err() != nil {
		return record.ToolResult{}, context.Cause(ctx)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if res, ok := f.result[id]; ok {
		return res, nil
	}
	call, ok := f.calls[id]
	if !ok {
		return record.ToolResult{}, fmt.Errorf("no such call %q", id)
	}
	if _, ok := f.said[id]; call.Asks != nil && !ok {
		said := record.InteractionResolved{ID: id, Resolution: f.person(call)}
		data, err := json.Marshal(said)
		if err == nil {
			_, err = f.store(record.KindInteractionResolved, data)
		}
		if err != nil {
			return record.ToolResult{}, err
		}
		f.resolve(said)
		if res, ok := f.result[id]; ok {
			return res, nil
		}
	}
	if f.sealed[id] {
		return record.ToolResult{}, fmt.Errorf("call %q takes no result any more: a session would wait for ever", id)
	}
	if said := f.said[id]; said.Input != nil {
		call.Input = said.Input
	}
	f.asked[id]++
	res := f.client(call)
	if res.Outcome == "" {
		f.mu.Unlock()
		<-ctx.Done()
		f.mu.Lock()
		return res, context.Cause(ctx)
	}
	res.CallID = id
	data, err := json.Marshal(res)
	if err != nil {
		return res, err
	}
	if _, err := f.store(record.KindToolResult, data); err != nil {
		return res, err
	}
	f.result[id] = res
	return res, nil
}

// resolve does what a session does with what a person says.
func (f *fakeRun) resolve(said record.InteractionResolved) {
	f.said[said.ID] = said.Resolution
	switch said.Decision {
	case record.Reply:
		f.result[said.ID] = record.ToolResult{CallID: said.ID, Outcome: record.Returned, Output: &said.Answer}
	case record.Deny:
		f.result[said.ID] = record.ToolResult{CallID: said.ID, Outcome: record.Denied, Error: said.Reason}
	case record.Approve:
	}
}

func (f *fakeRun) Resolved(id string) (record.Resolution, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	said, ok := f.said[id]
	return said, ok
}

func (f *fakeRun) Ask(ctx context.Context, call record.ToolCall) (record.ToolResult, error) {
	f.mu.Lock()
	if _, ok := f.calls[call.ID]; !ok {
		data, err := json.Marshal(call)
		if err == nil {
			_, err = f.store(record.KindToolCall, data)
		}
		if err != nil {
			f.mu.Unlock()
			return record.ToolResult{}, err
		}
		f.calls[call.ID] = call
	}
	f.mu.Unlock()
	return f.Await(ctx, call.ID)
}

func (f *fakeRun) ResultNow(id string) (record.ToolResult, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	res, ok := f.result[id]
	return res, ok
}

func (f *fakeRun) Result(id string) (record.ToolResult, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	res, ok := f.result[id]
	f.sealed[id] = !ok
	return res, ok
}

// events are what the log says.
func (f *fakeRun) events(r *Runner) []*record.Event {
	var out []*record.Event
	for _, rec := range f.recs {
		if rec.Kind == record.KindEvent {
			ev, err := r.Decode(rec.Data)
			f.must(err)
			out = append(out, ev)
		}
	}
	return out
}

// usage returns the usage of model calls: by all records of the log, and by those that
// report a call's end to clients.
func (f *fakeRun) usage(r *Runner) (taken, reported record.Usage) {
	for _, rec := range f.recs {
		switch rec.Kind {
		case record.KindEvent:
			ev, err := r.Decode(rec.Data)
			f.must(err)
			if ev.Usage != nil {
				taken, reported = taken.Add(*ev.Usage), reported.Add(*ev.Usage)
			}
			if ev.Before != nil {
				reported = reported.Add(*ev.Before)
			}
		case record.KindModelRetry, record.KindModelFallback:
			var fact struct{ Usage record.Usage }
			f.must(json.Unmarshal(rec.Data, &fact))
			taken = taken.Add(fact.Usage)
		default:
		}
	}
	return taken, reported
}

// errNoChildren is why a fake session spawns nothing: children are tested with real ones.
var errNoChildren = errors.New("a fake session has no children")

func (*fakeRun) Spawn(context.Context, session.Spawn) (*session.Child, string, error) {
	return nil, "", errNoChildren
}
func (*fakeRun) Children(context.Context) ([]*session.Child, error) { return nil, errNoChildren }
func (*fakeRun) AwaitChild(context.Context, string) error           { return errNoChildren }
func (*fakeRun) StopChild(context.Context, *session.Child) error    { return errNoChildren }
func (*fakeRun) TellChild(context.Context, *session.Child, string, string) error {
	return errNoChildren
}
