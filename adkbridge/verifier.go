package adkbridge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	adksession "google.golang.org/adk/v2/session"
	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/jsondiff"
	"github.com/apzuk3/agentd/session/record"
)

// maxShown bounds how much of a value or an error a divergence shows, in bytes.
const maxShown = 300

// stallTimeout is how long a run of a stopped turn may make no progress before it
// counts as being at the end of the log.
const stallTimeout = 5 * time.Second

var (
	// errLogEnd ends a run that has reached the place where its turn was stopped.
	errLogEnd = errors.New("the log goes no further")
	// errDiverged ends a run that has taken another way than the log.
	errDiverged = errors.New("the run differs from the log")
)

// verifier is a turn of a log that is run again. It is the run's handle, its models
// and its observer, and compares what the run would append with the log.
type verifier struct {
	sessionID string
	recs      []record.Record // those of the turn, by seq; the first is its start
	started   record.TurnStarted
	spec      *record.Spec
	ended     *record.TurnEnded // nil: the turn is open
	state     map[string]any
	calls     map[string]record.Record // of kind tool_call, by id
	results   map[string]record.ToolResult
	resolved  map[string]record.Resolution
	agents    *agentLog

	t        *turn
	recorder *callRecorder // of what models receive; may be nil
	stop     context.CancelCauseFunc

	mu      sync.Mutex       // protects the fields below
	metas   map[string]*meta // what the run finds in responses of the log, by model call
	found   *divergence      // the first one, by seq
	waiting bool             // somebody has come to where the log ends
	steps   int              // rises when the run makes progress

	// Owned by the goroutine that verifies, once the run's own are gone.
	closing []loggedEvent // what the log has for that
}

var (
	_ handle   = (*verifier)(nil)
	_ observer = (*verifier)(nil)
)

func newVerifier(sessionID string, recs []record.Record) (*verifier, error) {
	v := &verifier{
		sessionID: sessionID, recs: recs,
		calls: map[string]record.Record{}, results: map[string]record.ToolResult{},
		resolved: map[string]record.Resolution{},
		agents:   newAgentLog(), metas: map[string]*meta{},
	}
	for _, rec := range recs {
		if err := v.read(rec); err != nil {
			return nil, fmt.Errorf("record %d (%s): %w", rec.Seq, rec.Kind, err)
		}
	}
	var err error
	if v.spec, err = v.started.ReadSpec(); err != nil {
		return nil, fmt.Errorf("record %d: %w", recs[0].Seq, err)
	}
	return v, nil
}

// read reads a record that is no event.
func (v *verifier) read(rec record.Record) error {
	if rec.TurnID != v.recs[0].TurnID {
		return nil // of a prompt that waits
	}
	switch rec.Kind {
	case record.KindTurnStarted:
		if err := unmarshal(rec.Data, &v.started); err != nil {
			return err
		}
		if v.started.Alone != nil {
			v.agents.read(rec, "agent_started", *v.started.Alone)
		}
	case record.KindAgentsChanged:
		var f record.AgentsChanged
		if err := unmarshal(rec.Data, &f); err != nil {
			return err
		}
		for i, c := range f.Changes {
			v.agents.read(rec, fmt.Sprintf("changes[%d]", i), c)
		}
	case record.KindToolCall:
		var call record.ToolCall
		if err := unmarshal(rec.Data, &call); err != nil {
			return err
		}
		v.calls[call.ID] = rec
	case record.KindToolResult:
		var res record.ToolResult
		if err := unmarshal(rec.Data, &res); err != nil {
			return err
		}
		v.results[res.CallID] = res
	case record.KindInteractionResolved:
		var resolved record.InteractionResolved
		if err := unmarshal(rec.Data, &resolved); err != nil {
			return err
		}
		if resolved.N > 0 { // the engine does not know of it
			return nil
		}
		v.resolved[resolved.ID] = resolved.Resolution
		if res := resolved.Result(); res != nil {
			v.results[resolved.ID] = *res
		}
	case record.KindTurnEnded:
		v.ended = &record.TurnEnded{}
		return unmarshal(rec.Data, v.ended)
	default:
	}
	return nil
}

// complete reports whether the log holds all of the turn.
func (v *verifier) complete() bool { return v.ended != nil && v.ended.Completed }

// diverge records a divergence and returns the error that ends the run.
func (v *verifier) diverge(rec record.Record, field, recorded, replayed string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.found == nil || rec.Seq < v.found.Seq {
		v.found = &divergence{Turn: v.TurnID(), Seq: rec.Seq, Kind: rec.Kind, Field: field, Recorded: recorded,
			Replayed: replayed}
	}
	return errDiverged
}

// divergeAtNext is a divergence at the next event of an agent in the log, or at the
// turn's end if there is none.
func (v *verifier) divergeAtNext(author, replayed string) error {
	if left := v.unread(author); len(left) > 0 {
		return v.diverge(v.record(left[0].seq), "", summary(left[0].ev), replayed)
	}
	return v.diverge(v.recs[len(v.recs)-1], "", "no more of "+author+" before it", replayed)
}

// unread returns the events that the run has not reached, by seq: those of one agent,
// or of all if author is "".
func (v *verifier) unread(author string) []loggedEvent {
	v.t.mu.Lock()
	defer v.t.mu.Unlock()
	var out []loggedEvent
	for key, queue := range v.t.logged {
		if author == "" || key.agent == author {
			out = append(out, queue...)
		}
	}
	slices.SortFunc(out, func(a, b loggedEvent) int { return int(a.seq - b.seq) })
	return out
}

// record finds a record of the turn.
func (v *verifier) record(seq int64) record.Record {
	i, _ := slices.BinarySearchFunc(v.recs, seq, func(r record.Record, seq int64) int { return int(r.Seq - seq) })
	return v.recs[i]
}

// atLogEnd notes that an agent has reached the end of the log.
func (v *verifier) atLogEnd() {
	v.mu.Lock()
	v.waiting = true
	v.mu.Unlock()
	v.endIfAllWait()
}

// waitAtLogEnd blocks a goroutine at the end of the log until the others are there too.
func (v *verifier) waitAtLogEnd(ctx context.Context) error {
	v.atLogEnd()
	<-ctx.Done()
	return context.Cause(ctx)
}

// endIfAllWait ends the run if an agent waits at the end of the log and the others have
// reached it too, or have reached all calls that the recorder wants.
func (v *verifier) endIfAllWait() {
	v.mu.Lock()
	held := v.waiting
	v.mu.Unlock()
	if held && v.recorder.hasAll() && !slices.ContainsFunc(v.unread(""),
		func(l loggedEvent) bool { return !l.ev.isCutOff() }) {
		v.stop(errLogEnd)
	}
}

// endStalled ends a run that waits at the end of the log and makes no progress.
func (v *verifier) endStalled(ctx context.Context) {
	tick := time.NewTicker(stallTimeout)
	defer tick.Stop()
	for last := -1; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		v.mu.Lock()
		steps, held := v.steps, v.waiting
		v.mu.Unlock()
		if held && steps == last {
			v.stop(errLogEnd)
		}
		last = steps
	}
}

// isCutOff reports whether an event holds the result of a call that the end of its turn
// cut off.
func (s *stored) isCutOff() bool {
	return s.Content != nil && slices.ContainsFunc(s.Content.Parts, func(p *genai.Part) bool {
		if p.FunctionResponse == nil {
			return false
		}
		text, _ := p.FunctionResponse.Response["error"].(string)
		return strings.HasPrefix(text, stoppedText)
	})
}

// modelCall implements observer. The log holds the response of each call that the run
// may make.
func (v *verifier) modelCall(ctx context.Context, c *callStep) error {
	v.recorder.record(v, c)
	switch {
	case c.logged:
		return nil
	case v.complete():
		return v.divergeAtNext(c.m.n.name, "calls the model "+c.m.n.modelName)
	default:
		return v.waitAtLogEnd(ctx)
	}
}

// response implements observer. It computes again what the response means.
func (v *verifier) response(m *agentModel, a *response, calls sorted) error {
	own, edited := *a.meta, *a
	own.Path = m.n.path
	calls.note(&own)
	edited.meta = &own
	v.mu.Lock()
	v.metas[own.LLM] = &own
	v.mu.Unlock()
	return m.keepResponse(&edited)
}

// event implements observer. Where the log of an incomplete turn ends, the run leaves
// the event out, and its agent continues to where it waits. It must not wait here: the
// engine appends the events of all agents on one goroutine.
func (v *verifier) event(l *loggedEvent, ev *adksession.Event, m *meta) error {
	edited, own := *ev, *m
	if l != nil {
		return v.compare(l, &edited, &own)
	}
	if !v.complete() {
		v.atLogEnd()
		return errSkip
	}
	_, s, err := v.t.encoded(&edited, &own)
	if err != nil {
		return err
	}
	return v.divergeAtNext(s.Author, "appends "+summary(s))
}

// compare compares an event that the run would append with that of the log, l, which
// was just taken from turn.logged. It changes ev and m.
func (v *verifier) compare(l *loggedEvent, ev *adksession.Event, m *meta) error {
	v.mu.Lock()
	v.steps++
	if own := v.metas[m.LLM]; own != nil {
		*m = *own
		delete(v.metas, m.LLM)
	}
	v.mu.Unlock()
	t := v.t
	if !v.complete() && l.ev.isCutOff() { // this is where the agent was stopped
		t.putBack(l)
		v.atLogEnd()
		return errSkip
	}
	t.mu.Lock()
	last := len(t.logged[promptKey{ev.Author, ev.Branch}]) == 0
	t.mu.Unlock()
	t.setOutput(ev, m)
	t.setExtras(ev)
	t.setGoal(ev, m)
	if len(l.ev.CustomMetadata.Agentd.To) > 0 { // logs of before do not say it
		t.setTransfer(ev, m)
	}
	if full := v.ended == nil || v.ended.Code == codeLimit; full && t.stateRefusal(ev, m, l.ev) != nil {
		ev.Actions.StateDelta = nil
	}
	ev.ID, ev.Timestamp = l.ev.ID, l.ev.Timestamp
	ev.TurnComplete = l.ev.TurnComplete // a response kept by a stop lacks the engine's mark
	data, err := encode(ev, m)
	if err != nil {
		return err
	}
	err = v.compareRecord(l, data, last && !v.complete())
	if n := t.nodeOf(ev.Author); err == nil && m.LLM != "" && v.recorder == nil {
		err = v.startsRecorded(n, ev.Branch, l.seq)
	}
	v.endIfAllWait()
	return err
}

// compareRecord is a divergence if an event differs from that of the log. With loose
// only the event's content counts, not the engine's notes: the event may have been
// written when the turn was closed.
func (v *verifier) compareRecord(l *loggedEvent, data []byte, loose bool) error {
	rec := v.record(l.seq)
	want, err := jsondiff.Decode(rec.Data)
	if err != nil {
		return fmt.Errorf("record %d: %w", rec.Seq, err)
	}
	got, err := jsondiff.Decode(data)
	if err != nil {
		return err
	}
	if l.ev.CustomMetadata.Agentd.Dropped {
		markDropped(got)
	}
	if loose {
		want, got = contentOf(want), contentOf(got)
		alignCutOff(want, got)
	}
	if d := jsondiff.First(want, got); d != nil {
		return v.diverge(rec, d.Path, d.Want, d.Got)
	}
	return nil
}

// markDropped marks an event of the run whose payloads are not in the log: its results, which are from the log, lack
// them already.
func markDropped(got any) {
	ev, _ := got.(map[string]any)
	own, _ := ev["customMetadata"].(map[string]any)
	if m, ok := own["agentd"].(map[string]any); ok {
		m["dropped"] = true
	}
}

// contentOf returns the content of an event.
func contentOf(v any) any {
	ev, ok := v.(map[string]any)
	if !ok {
		return v
	}
	out := map[string]any{}
	for _, name := range []string{"author", "branch", "invocationId", "content", "customMetadata", "finishReason",
		"modelVersion"} {
		if member, ok := ev[name]; ok {
			out[name] = member
		}
	}
	actions, _ := ev["actions"].(map[string]any)
	if delta, _ := actions["stateDelta"].(map[string]any); len(delta) > 0 {
		out["stateDelta"] = delta
	}
	return out
}

// alignCutOff gives calls that were cut off in the log the result that they have in the
// run.
func alignCutOff(want, got any) {
	w, g := responsesOf(want), responsesOf(got)
	for i := range min(len(w), len(g)) {
		response, _ := w[i]["response"].(map[string]any)
		if text, _ := response["error"].(string); strings.HasPrefix(text, stoppedText) {
			w[i]["response"] = g[i]["response"]
		}
	}
}

// responsesOf returns the function responses of a decoded event.
func responsesOf(v any) []map[string]any {
	ev, _ := v.(map[string]any)
	content, _ := ev["content"].(map[string]any)
	parts, _ := content["parts"].([]any)
	var out []map[string]any
	for _, p := range parts {
		part, _ := p.(map[string]any)
		if r, ok := part["functionResponse"].(map[string]any); ok {
			out = append(out, r)
		}
	}
	return out
}
