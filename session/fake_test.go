package session_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
	"github.com/apzuk3/agentd/session/store/sqlite"
)

// engine is a Runner whose turns are Go functions.
type engine struct {
	mu  sync.Mutex // protects run
	run func(ctx context.Context, r *session.Run) error
	// check, if set, decides Check.
	check func(*record.Spec) error
	// decoded counts the calls of Decode.
	decoded atomic.Int64
}

func (e *engine) Check(_ context.Context, spec *record.Spec, _ session.Keys) error {
	if e.check != nil {
		return e.check(spec)
	}
	return nil
}

func (*engine) CheckState(*record.Spec, map[string]any) error { return nil }

func (*engine) CheckInput(*record.Spec, string, json.RawMessage) error { return nil }

func (e *engine) Decode(data []byte) (*record.Event, error) {
	e.decoded.Add(1)
	ev := &record.Event{}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber() // as adkbridge does
	return ev, dec.Decode(ev)
}

func (e *engine) Run(ctx context.Context, r *session.Run) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	e.mu.Lock()
	run := e.run
	e.mu.Unlock()
	return run(ctx, r)
}

// on sets what the next turns do.
func (e *engine) on(run func(ctx context.Context, r *session.Run) error) {
	e.mu.Lock()
	e.run = run
	e.mu.Unlock()
}

// add appends an event, unless it has calls that the log has: the turn runs again, as it does after it hibernated.
func add(ctx context.Context, r *session.Run, ev *record.Event) error {
	for rec, err := range r.Records(ctx, r.StartSeq()) {
		if len(ev.Calls) == 0 || err != nil {
			break // Append has the error
		}
		if rec.Kind != record.KindEvent || rec.TurnID != r.TurnID() {
			continue
		}
		if had, err := (&engine{}).Decode(rec.Data); err == nil && len(had.Calls) > 0 && had.Calls[0].ID == ev.Calls[0].ID {
			return nil
		}
	}
	ev.Marks = r.Marks(ev.MessageID)
	data, err := json.Marshal(ev)
	if err != nil {
		return err
	}
	_, err = r.Append(ctx, data, ev)
	return err
}

// say streams a text in pieces and appends the event that completes it.
func say(ctx context.Context, r *session.Run, id string, path []string, pieces ...string) error {
	for _, p := range pieces {
		r.Delta(record.Delta{MessageID: id, Path: path, Text: p})
	}
	return add(ctx, r, &record.Event{
		MessageID: id, Path: path, Text: strings.Join(pieces, ""),
		Usage: &record.Usage{Prompt: 3, Completion: 2, Total: 5, Calls: 1},
	})
}

// call appends an event with tool calls and awaits them all at once, as ADK does.
func call(ctx context.Context, r *session.Run, ids ...string) (map[string]record.ToolResult, error) {
	ev := &record.Event{Path: []string{"root"}}
	for _, id := range ids {
		ev.Calls = append(ev.Calls, record.ToolCall{ID: id, Name: "tool", Input: json.RawMessage(`{"b":1,"a":2}`), Path: ev.Path})
	}
	if err := add(ctx, r, ev); err != nil {
		return nil, err
	}
	type outcome struct {
		id  string
		res record.ToolResult
		err error
	}
	results := make(chan outcome)
	for _, id := range ids {
		go func() {
			res, err := r.Await(ctx, id)
			results <- outcome{id, res, err}
		}()
	}
	out := map[string]record.ToolResult{}
	var failed error
	for range ids {
		if o := <-results; o.err == nil {
			out[o.id] = o.res
		} else {
			failed = o.err
		}
	}
	return out, failed
}

var root = []string{"root"}

func tree() *agentdv1.Agent {
	return &agentdv1.Agent{Name: "root", AgentType: &agentdv1.Agent_Llm{Llm: &agentdv1.LlmAgent{Model: "echo"}}}
}

type fixture struct {
	*engine
	t     testing.TB
	store store.Store
	m     *session.Manager
}

// fixtures are the stores that have one, or several.
var fixtures sync.Map

func newFixture(t testing.TB, store store.Store, limits limits.Limits) *fixture {
	t.Helper()
	return newFixtureAt(t, store, limits, nil)
}

// newFixtureAt is newFixture with a clock.
func newFixtureAt(t testing.TB, store store.Store, limits limits.Limits, now func() time.Time) *fixture {
	t.Helper()
	e := &engine{}
	if limits.StorePatience == 0 {
		limits.StorePatience = time.Millisecond // most tests want a fault to show
	}
	m, err := session.NewManager(session.Config{Store: store, Runner: e, Limits: limits, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	if _, again := fixtures.LoadOrStore(store, true); !again {
		t.Cleanup(func() { // when the last server on the store has stopped
			fixtures.Delete(store)
			if !t.Failed() {
				checkIndex(t, store, e)
			}
		})
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := m.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
	})
	return &fixture{engine: e, t: t, store: store, m: m}
}

func (f *fixture) start(req session.Request) *session.Turn {
	f.t.Helper()
	if req.Prompt == "" && len(req.Parts) == 0 {
		req.Prompt = "hello"
	}
	if req.Agent == nil && req.SessionID == "" {
		req.Agent = tree()
		for _, name := range []string{"tool", "t", "loop_continue"} {
			req.Tools = append(req.Tools, &agentdv1.Tool{Name: name, Description: "a tool"})
		}
	}
	turn, err := f.m.Start(f.t.Context(), req)
	if err != nil {
		f.t.Fatalf("start: %v", err)
	}
	return turn
}

// follow reads a watcher to its end.
func follow(t testing.TB, w *session.Watcher) []*agentdv1.RunResponse {
	t.Helper()
	out, err := followErr(t, w)
	if err != nil {
		t.Fatalf("next: %v", err)
	}
	return out
}

// followErr reads a watcher to its end, which may be an error.
func followErr(t testing.TB, w *session.Watcher) ([]*agentdv1.RunResponse, error) {
	t.Helper()
	var out []*agentdv1.RunResponse
	for {
		msgs, err := w.Next(t.Context())
		out = append(out, msgs...)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			w.Close()
			return out, err
		}
		if len(msgs) == 0 {
			<-w.Ready()
		}
	}
}

// await reads a watcher until a message satisfies want.
func await(t testing.TB, w *session.Watcher, want func(*agentdv1.RunResponse) bool) []*agentdv1.RunResponse {
	t.Helper()
	var out []*agentdv1.RunResponse
	for {
		msgs, err := w.Next(t.Context())
		out = append(out, msgs...)
		if slices.ContainsFunc(msgs, want) {
			return out
		}
		if err != nil {
			t.Fatalf("next: %v after %v", err, out)
		}
		<-w.Ready()
	}
}

func isCall(m *agentdv1.RunResponse) bool { return m.GetToolCall() != nil }

// texts joins what each agent said.
func texts(msgs []*agentdv1.RunResponse) map[string]string {
	out := map[string]string{}
	for _, m := range msgs {
		if c := m.GetOutputChunk(); c != nil && !c.IsThought {
			out[strings.Join(c.AgentPath, "/")] += c.Content
		}
	}
	return out
}

func end(t testing.TB, msgs []*agentdv1.RunResponse) *agentdv1.RunResponse_EndResponse {
	t.Helper()
	var found *agentdv1.RunResponse_EndResponse
	for i, m := range msgs {
		if e := m.GetEnd(); e != nil {
			if found != nil || i != len(msgs)-1 {
				t.Fatalf("EndResponse is not the one last message: %v", msgs)
			}
			found = e
		}
	}
	if found == nil {
		t.Fatalf("no EndResponse in %v", msgs)
	}
	return found
}

func code(err error) agentdv1.ErrorCode {
	e, ok := errors.AsType[*fault.Error](err)
	if !ok {
		return 0
	}
	return e.Code
}

// faulty is a store whose appends fail on demand.
type faulty struct {
	store.Store
	// before fails an append that is not done, after one that is.
	before, after atomic.Bool
	appends       atomic.Int64
}

func (s *faulty) Append(ctx context.Context, b store.Batch) error {
	s.appends.Add(1)
	if s.before.Load() {
		return errors.New("disk on fire")
	}
	err := s.Store.Append(ctx, b)
	if s.after.Load() {
		return errors.New("disk on fire, maybe")
	}
	return err
}

// memory opens a store that keeps everything in memory.
func memory(t testing.TB) store.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), ":memory:", sqlite.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close the store: %v", err)
		}
	})
	return s
}

// eventsOf is how many events the log has of a turn: a turn that resumes begins behind
// them.
func eventsOf(ctx context.Context, r *session.Run) (n int, err error) {
	for rec, err := range r.Records(ctx, r.StartSeq()) {
		if err != nil {
			return 0, err
		}
		if rec.Kind == record.KindEvent {
			n++
		}
	}
	return n, nil
}

// What happens to a prompt whose session runs a turn.
const (
	reject    = agentdv1.OnBusy_ON_BUSY_REJECT
	enqueue   = agentdv1.OnBusy_ON_BUSY_ENQUEUE
	interrupt = agentdv1.OnBusy_ON_BUSY_INTERRUPT
	inject    = agentdv1.OnBusy_ON_BUSY_INJECT
	patient   = agentdv1.OnBusy_ON_BUSY_WAIT
)
