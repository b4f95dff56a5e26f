package adkbridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"math"
	"strings"

	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/record"
)

// Report is the result of Verify.
type Report struct {
	// Turns and Records count what was compared, up to the divergence if there is
	// one.
	Turns, Records int
	// Divergence is the first one; nil if the log is what the engine would write.
	Divergence *divergence
}

// divergence is a place where a log differs from what the engine would write.
type divergence struct {
	// Turn is the turn's id.
	Turn string
	// Seq and Kind are those of the record.
	Seq  int64
	Kind record.Kind
	// Field leads to the value within the record, as in content.parts[0].text; ""
	// is the whole of it.
	Field string
	// Recorded is what the log has there, and Replayed what the engine would write,
	// both as text, cut.
	Recorded, Replayed string
}

// String returns the divergence in one line.
func (d *divergence) String() string {
	field := ""
	if d.Field != "" {
		field = ", " + d.Field
	}
	return fmt.Sprintf("record %d (%s) of turn %s%s: the log has %s, the engine %s", d.Seq, d.Kind, d.Turn, field,
		d.Recorded, d.Replayed)
}

// Verify replays the turns of a session's log, each from its start, with the responses
// of models, the results of tools and the resolutions of people taken from the log. It
// compares what the engine would append with the log, record by record and field by
// field. It calls no model and writes nothing. state holds the current keys that
// sessions share.
//
// It does not compare ids and times of events, injected prompts, summaries, the usage
// of failed tries, starts and ends of agents in logs that have none, and the place
// where a turn was stopped, be it by a cancel, an error of a model, a budget or the end
// of the log. Of the events that end such a turn only their content counts, and a call
// that was canceled then may have had a result.
//
// The error is one of reading the log, or the context's.
func Verify(
	ctx context.Context, sessionID string, log iter.Seq2[record.Record, error], state map[string]any,
) (Report, error) {
	v := &verification{sessionID: sessionID, hist: newHistory(), state: maps.Clone(state)}
	if v.state == nil {
		v.state = map[string]any{}
	}
	var rep Report
	var turn []record.Record
	for rec, err := range log {
		if err != nil {
			return rep, err
		}
		rep.Records++
		switch {
		case rec.Kind == record.KindTurnStarted:
			turn = []record.Record{rec}
		case turn != nil:
			turn = append(turn, withoutPayload(rec))
		}
		if turn == nil || rec.Kind != record.KindTurnEnded || rec.TurnID != turn[0].TurnID {
			continue
		}
		rep.Turns++
		if rep.Divergence, err = v.turn(ctx, turn); err != nil || rep.Divergence != nil {
			return rep, err
		}
		turn = nil
	}
	if turn == nil {
		return rep, nil
	}
	rep.Turns++ // it is open
	var err error
	rep.Divergence, err = v.turn(ctx, turn)
	return rep, err
}

// verification is a log that is being verified. It is used by one goroutine.
type verification struct {
	sessionID string
	hist      *history
	state     map[string]any
	recorder  *callRecorder // nil to verify alone
}

// turn verifies one turn.
func (v *verification) turn(ctx context.Context, recs []record.Record) (*divergence, error) {
	run, err := newVerifier(v.sessionID, recs)
	if err != nil {
		return nil, err
	}
	writeState(v.state, run.started.State)
	run.state = maps.Clone(v.state)
	writeState(run.state, run.started.Temp)
	logged, err := v.hist.load(ctx, run)
	if err != nil {
		return nil, err
	}
	for _, l := range logged.events {
		writeState(v.state, durable(l.ev.Actions.StateDelta))
	}
	v.recorder.begin(run, v.hist, logged.events)
	runner := New(Config{
		Resolve: run.Resolve, Logger: slog.New(slog.DiscardHandler), Limits: Limits{ModelCalls: math.MaxInt},
	})
	t := newTurn(run, v.hist, runner, openTurn{events: logged.events})
	run.t, run.recorder = t, v.recorder
	t.observe(run)

	replayCtx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	run.stop = stop
	watched := make(chan struct{})
	go func() { // ends with the run
		defer close(watched)
		run.endStalled(replayCtx)
	}()
	err = t.outcome(replayCtx, t.runTree(replayCtx, runner))
	stop(nil)
	<-watched
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if v.recorder != nil {
		v.recorder.failed = err
	} else if run.found == nil {
		if err := run.end(ctx, err); err != nil {
			return nil, err
		}
	}
	v.hist.seal(run.StartSeq())
	return run.found, nil
}

// end compares the end of the turn with that of its run, which ended with err.
func (v *verifier) end(ctx context.Context, err error) error {
	last := v.recs[len(v.recs)-1]
	failed, _ := errors.AsType[*fault.Error](err)
	switch {
	case v.ended != nil && v.ended.Completed && err != nil && len(v.unread("")) == 0:
		_ = v.diverge(last, "completed", "true", "fails: "+cut(err.Error(), maxShown))
	case errors.Is(err, errLogEnd), v.ended == nil, v.ended.Completed, v.ended.Code == 0:
	case err == nil && v.ended.Code == codeOutput:
		_ = v.diverge(last, "code", v.ended.Code.String(), "finishes naturally")
	case err == nil:
	case failed == nil && v.ended.Code != codeInternal || failed != nil && failed.Code != v.ended.Code:
		_ = v.diverge(last, "code", v.ended.Code.String(), "fails: "+cut(err.Error(), maxShown))
	}
	if v.found != nil {
		return nil
	}
	// What closes a turn is appended by the run's end, not by the engine.
	v.closing = v.unread("")
	v.t.mu.Lock()
	v.t.logged = map[promptKey][]loggedEvent{}
	v.t.mu.Unlock()
	if v.ended != nil {
		cause := &fault.Error{Code: v.ended.Code, Message: v.ended.Message}
		if err := v.t.close(ctx, cause); err != nil && v.found == nil {
			return err
		}
	}
	if v.found == nil && v.complete() {
		v.checkLeftOver()
	}
	if v.found == nil && len(v.closing) > 0 {
		got := "does not append it"
		if err != nil && !errors.Is(err, errLogEnd) {
			got += ", it fails: " + cut(err.Error(), maxShown)
		}
		_ = v.diverge(v.record(v.closing[0].seq), "", summary(v.closing[0].ev), got)
	}
	return nil
}

// summary describes an event, bounded.
func summary(s *stored) string {
	var parts []string
	if s.Content != nil {
		for _, p := range s.Content.Parts {
			switch {
			case p.FunctionCall != nil:
				parts = append(parts, "a call of "+p.FunctionCall.Name)
			case p.FunctionResponse != nil:
				parts = append(parts, "the result of "+p.FunctionResponse.Name)
			case p.Thought:
				parts = append(parts, "a thought")
			case p.Text != "":
				parts = append(parts, fmt.Sprintf("%q", cut(p.Text, 64)))
			}
		}
	}
	if len(s.Actions.StateDelta) > 0 {
		delta, err := json.Marshal(s.Actions.StateDelta)
		if err == nil {
			parts = append(parts, "state "+cut(string(delta), 64))
		}
	}
	return cut("an event of "+s.Author+": "+strings.Join(parts, ", "), maxShown)
}
