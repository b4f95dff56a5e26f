package adkbridge

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"

	"google.golang.org/genai"
	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/lineage"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/record"
)

// ModelCalls returns what the models of a turn received, call by call, in the order in
// which the calls ended: at most limit calls that ended after log.After, and whether
// there are more. It replays the turn, as Verify does, until it reaches all of them. It
// calls no model and writes nothing. A turn that has not begun has no calls.
//
// Where the engine takes another way than the log, what the calls received cannot be
// recovered: it is left out, and Contents is 0. If that holds for all calls of the
// first page, the error says what differs. A prompt that is injected during the calls
// of several agents may count for a call that did not see it.
//
// Errors that a client may see are of type *fault.Error.
func (*Runner) ModelCalls(
	ctx context.Context, log session.TurnLog, limit int,
) (calls []session.ReportedCall, more bool, err error) {
	v := &verification{sessionID: log.SessionID, hist: newHistory(), state: maps.Clone(log.State),
		recorder: newCallRecorder()}
	if v.state == nil {
		v.state = map[string]any{}
	}
	recs, err := v.skipTo(ctx, log)
	if err != nil {
		return nil, false, err
	}
	ended, err := endedCalls(log.SessionID, recs)
	if err != nil {
		return nil, false, err
	}
	ended = slices.DeleteFunc(ended, func(c endedCall) bool { return c.seq <= log.After })
	if len(ended) == 0 {
		return nil, false, nil
	}
	more = len(ended) > limit
	ended = ended[:min(len(ended), limit)]
	for _, c := range ended {
		if _, known := v.recorder.wanted[c.key]; c.key != "" && !known {
			v.recorder.wanted[c.key] = c.seq
		}
	}
	var diverged *divergence
	if len(v.recorder.wanted) > 0 {
		if diverged, err = v.turn(ctx, recs); err != nil {
			return nil, false, err
		}
	}
	if cut := v.recorder.cut; cut > 0 {
		more = true
		ended = slices.DeleteFunc(ended, func(c endedCall) bool { return c.seq >= cut })
	}
	before, err := serverText(recs)
	if err != nil {
		return nil, false, err
	}
	lost := log.After == 0 && len(v.recorder.wanted) > 0
	for _, c := range ended {
		details := v.recorder.calls[c.key]
		lost = lost && details == nil
		call := &agentdv1.ModelCallDetails{}
		proto.Merge(call, details) // a repeated call has ended twice
		call.Call = c.end
		calls = append(calls, session.ReportedCall{Seq: c.seq, Details: call, Operator: before})
	}
	if lost {
		why := fmt.Sprint(v.recorder.failed)
		if diverged != nil {
			why = diverged.String()
		}
		return nil, false, fault.Errorf(agentdv1.ErrorCode_ERROR_CODE_FAILED_PRECONDITION,
			"the prompts of turn %s cannot be rebuilt from its log: %s",
			log.TurnID, cut(why, maxShown))
	}
	return calls, more, nil
}

// serverText returns the server's own text in the instructions of a turn.
func serverText(recs []record.Record) (string, error) {
	for _, rec := range recs {
		if rec.Kind != record.KindTurnStarted {
			continue
		}
		var f record.TurnStarted
		err := unmarshal(rec.Data, &f)
		return f.Before, err
	}
	return "", nil
}

// skipTo reads the records before a turn without a replay, and returns the records from
// its start up to its end, if there is one.
func (v *verification) skipTo(ctx context.Context, log session.TurnLog) ([]record.Record, error) {
	var recs []record.Record
	var failed error
	before := func(yield func(record.Record, error) bool) {
		for rec, err := range log.Records {
			if err != nil {
				failed = err
				return
			}
			if rec.Kind == record.KindTurnStarted && rec.TurnID == log.TurnID || recs != nil {
				if recs = append(recs, withoutPayload(rec)); rec.Kind == record.KindTurnEnded &&
					rec.TurnID == log.TurnID {
					return
				}
				continue
			}
			if failed = v.applyState(rec); failed != nil || !yield(rec, nil) {
				return
			}
		}
	}
	if _, err := v.hist.load(ctx, earlierLog{records: before}); err != nil {
		return nil, err
	}
	return recs, failed
}

// withoutPayload returns a record without what a replay does not need: raw payloads
// take megabytes for each model call.
func withoutPayload(rec record.Record) record.Record {
	if rec.Kind == record.KindRawPayload {
		rec.Data = nil
	}
	return rec
}

// applyState applies the state of a record of an earlier turn.
func (v *verification) applyState(rec record.Record) error {
	switch rec.Kind {
	case record.KindTurnStarted:
		var f record.TurnStarted
		if err := unmarshal(rec.Data, &f); err != nil {
			return fmt.Errorf("record %d: %w", rec.Seq, err)
		}
		writeState(v.state, f.State)
	case record.KindEvent:
		s, err := decode(rec.Data)
		if err != nil {
			return fmt.Errorf("record %d: %w", rec.Seq, err)
		}
		writeState(v.state, durable(s.Actions.StateDelta))
	default:
	}
	return nil
}

// earlierLog is the log before a turn. It implements the part of handle that
// history.load uses.
type earlierLog struct {
	handle
	records iter.Seq2[record.Record, error]
}

func (earlierLog) StartSeq() int64 { return math.MaxInt64 }
func (p earlierLog) Records(context.Context, int64) iter.Seq2[record.Record, error] {
	return p.records
}

// callRecorder records what the models of one turn receive during a replay. A nil
// recorder records nothing.
type callRecorder struct {
	// Set before the run, not changed by it.
	start  map[string]any   // the state
	hist   *history         // up to the end of the turn
	events []loggedEvent    // those of the turn that agents have come to
	asked  []askedState     // by seq
	ends   map[string]int64 // the records of the responses, by "agent|branch#n"

	mu     sync.Mutex                            // protects the fields below
	wanted map[string]int64                      // the calls to take note of, by "agent|branch#n": where they ended
	calls  map[string]*agentdv1.ModelCallDetails // by "agent|branch#n"; nil for one that cannot be recovered
	texts  map[string]*sharedText                // of the calls
	bytes  int                                   // of texts
	cut    int64                                 // calls that ended here or later are not wanted any more; 0 for none

	failed error // what the run has ended with; owned by the goroutine that runs it
}

// maxTextBytes bounds the texts kept for a page, in bytes: a page with more ends early.
// It is more than a reply can hold.
const maxTextBytes = 8 << 20

// sharedText is a text that several calls have.
type sharedText struct {
	text string
	uses int
}

// askedState holds the keys of scope temp that a result of loop_continue set.
type askedState struct {
	seq  int64
	temp map[string]any
}

func newCallRecorder() *callRecorder {
	return &callRecorder{hist: newHistory(), calls: map[string]*agentdv1.ModelCallDetails{},
		texts: map[string]*sharedText{}, ends: map[string]int64{}, wanted: map[string]int64{}}
}

// begin reads the state, the history and the events of the turn before it runs.
func (r *callRecorder) begin(run *verifier, hist *history, logged []loggedEvent) {
	if r == nil {
		return
	}
	r.start = run.state
	for _, rec := range run.recs {
		if rec.Kind != record.KindToolResult {
			continue
		}
		var res record.ToolResult
		if unmarshal(rec.Data, &res) != nil { // not reached: the verifier has read it
			continue
		}
		if _, ok := run.calls[res.CallID]; ok {
			r.asked = append(r.asked, askedState{rec.Seq, tempKeys(res.State)})
		}
	}
	for _, it := range hist.items {
		own := *it // what is made on first use belongs to one history
		r.hist.add(&own, 0)
	}
	for _, l := range logged {
		r.hist.addStored(l.seq, l.ev, l.size)
		m := &l.ev.CustomMetadata.Agentd
		if m.LLM != "" {
			r.ends[m.LLM] = l.seq
		}
		if m.Injected == "" && m.Compacted == nil {
			r.events = append(r.events, l)
		}
	}
}

// end returns the record that holds the response of a call.
func (r *callRecorder) end(key string) int64 {
	if seq, ok := r.ends[key]; ok {
		return seq
	}
	return math.MaxInt64
}

// state returns the state at the start of an agent's call, which is right after the
// last event that the agent could see. A replay reaches the events of siblings in
// another order.
func (r *callRecorder) state(t *turn, at promptKey, key string) map[string]any {
	end, began := r.end(key), 0
	for i, l := range r.events {
		if l.seq < end && precedes(at.branch, l.ev.Branch) {
			began = i + 1
		}
	}
	state, asked := maps.Clone(r.start), r.asked
	applyUntil := func(before int64) {
		for ; len(asked) > 0 && asked[0].seq < before; asked = asked[1:] {
			writeState(state, asked[0].temp)
		}
	}
	for _, l := range r.events[:began] {
		applyUntil(l.seq)
		writeState(state, durable(l.ev.Actions.StateDelta))
		writeState(state, t.tempOf(l.ev))
	}
	applyUntil(end)
	return state
}

// precedes reports whether what happens on another branch is over before what follows it on mine: parallel siblings are
// not, and a call of an agent is.
func precedes(mine, other string) bool {
	return mine == "" || other == "" || mine == other || strings.HasPrefix(mine, other+".") ||
		strings.HasPrefix(lineage.Room(other), mine+".")
}

// callKey names the n-th call of an agent, from 0.
func callKey(at promptKey, n int) string { return fmt.Sprintf("%s|%s#%d", at.agent, at.branch, n) }

// record records the next call, if it is wanted and its instruction can be filled in.
// It does not change cfg, which ADK made for the call.
func (r *callRecorder) record(run *verifier, c *callStep) {
	if !r.wants(c.key) {
		return
	}
	m, at, key, cfg := c.m, promptKey{c.m.n.name, c.branch}, c.key, c.config
	own := *cfg
	own.Tools = slices.Clone(cfg.Tools)
	if s := cfg.SystemInstruction; s != nil {
		own.SystemInstruction = &genai.Content{Role: s.Role}
		for _, p := range s.Parts {
			part := *p
			own.SystemInstruction.Parts = append(own.SystemInstruction.Parts, &part)
		}
	}
	if m.fillInstruction(&own, r.state(m.t, at, key)) != nil {
		r.keep(run, key, nil)
		return
	}
	m.configure(&own)
	contents, summary := r.hist.promptBefore(at, m.since(), r.end(key))
	req := &model.Request{Contents: contents, Config: &own, Deferred: m.n.deferred(), ToolSearch: m.n.toolSearch}
	call := &agentdv1.ModelCallDetails{
		Instruction: m.instructionOf(req.Config),
		Generation:  m.n.spec.GetGeneration(),
		Contents:    int32(min(len(contents), math.MaxInt32)),
		Summary:     summary,
	}
	for _, f := range req.Load().Functions() {
		call.ToolNames = append(call.ToolNames, f.Name)
	}
	for _, name := range m.n.spec.GetBuiltinTools() {
		if _, ok := providerTools[name]; ok {
			call.ToolNames = append(call.ToolNames, name)
		}
	}
	r.keep(run, key, call)
}

// instructionOf is the instruction of a call with this configuration.
func (m *agentModel) instructionOf(cfg *genai.GenerateContentConfig) string {
	if m.n.kind == remoteKind {
		return m.remoteSpec().Instruction
	}
	return adapter.Text(cfg.SystemInstruction)
}

// wants reports whether a call is to be recorded.
func (r *callRecorder) wants(key string) bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.wanted[key]
	return ok
}

// keep records what a call received, nil if that cannot be recovered, and drops the
// last calls while their texts exceed the bound.
func (r *callRecorder) keep(run *verifier, key string, call *agentdv1.ModelCallDetails) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.wanted[key]; !ok {
		return
	}
	if call != nil {
		call.Instruction, call.Summary = r.internLocked(call.GetInstruction()), r.internLocked(call.GetSummary())
	}
	r.calls[key] = call
	for r.bytes > maxTextBytes && len(r.wanted) > 1 {
		r.dropLocked()
	}
	if len(r.calls) == len(r.wanted) { // the rest of the turn is not needed
		run.stop(errLogEnd)
	}
}

// dropLocked drops the call that ended last.
func (r *callRecorder) dropLocked() {
	last := ""
	for key, seq := range r.wanted {
		if last == "" || seq > r.wanted[last] {
			last = key
		}
	}
	r.cut = r.wanted[last]
	if call := r.calls[last]; call != nil {
		r.releaseLocked(call.GetInstruction())
		r.releaseLocked(call.GetSummary())
	}
	delete(r.wanted, last)
	delete(r.calls, last)
}

// hasAll reports whether the run has reached all wanted calls. Parallel agents reach
// their last calls in no order.
func (r *callRecorder) hasAll() bool {
	if r == nil {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.calls) == len(r.wanted)
}

// internLocked returns the first text that was the same, and counts who uses it.
func (r *callRecorder) internLocked(text string) string {
	first := r.texts[text]
	if first == nil {
		first = &sharedText{text: text}
		r.texts[text] = first
		r.bytes += len(text)
	}
	first.uses++
	return first.text
}

// releaseLocked drops one use of a text.
func (r *callRecorder) releaseLocked(text string) {
	first := r.texts[text]
	if first.uses--; first.uses == 0 {
		delete(r.texts, text)
		r.bytes -= len(text)
	}
}

// promptBefore returns the prompt of a key as it was before a record was appended,
// and the summary that it begins with, "" if it does not.
func (h *history) promptBefore(key promptKey, since, seq int64) (contents []*genai.Content, summary string) {
	h.mu.Lock() // its items are those of past, too
	defer h.mu.Unlock()
	past := newHistory()
	past.items, past.forks = h.items, h.forks
	if seq < math.MaxInt64 {
		past.items = h.items[:h.afterLocked(seq-1)]
	}
	for _, it := range past.items {
		if it.compacted != nil && it.author == key.agent && it.branch == key.branch && it.span.Since == since {
			summary = it.compacted.Summary
		}
	}
	return past.prompt(key.agent, key.branch, since), summary
}

// endedCall is a call of the turn that has ended.
type endedCall struct {
	seq int64  // of the record that ended it
	key string // "agent|branch#n"; "" for one that wrote a summary
	end *agentdv1.ModelCallEnded
}

// endedCalls returns the ended calls of a turn. A failed call has no response: it is
// the last call that its agent reached.
func endedCalls(sessionID string, recs []record.Record) ([]endedCall, error) {
	var out []endedCall
	responses := map[promptKey]int{}
	for _, rec := range recs {
		if rec.Kind != record.KindEvent {
			continue
		}
		s, err := decode(rec.Data)
		if err != nil {
			return nil, fmt.Errorf("record %d: %w", rec.Seq, err)
		}
		at, key := promptKey{s.Author, s.Branch}, s.CustomMetadata.Agentd.LLM
		switch {
		case key != "":
			responses[at]++
		case s.onlyUsage() && s.CustomMetadata.Agentd.NoGain == "":
			key = callKey(at, responses[at])
		}
		if end := s.sessionEvent().CallEnded(sessionID); end != nil {
			out = append(out, endedCall{rec.Seq, key, end})
		}
	}
	return out, nil
}
