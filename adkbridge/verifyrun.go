package adkbridge

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"maps"
	"slices"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/jsondiff"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/record"
)

// This file implements handle and Models by the log: what a run has in place of a
// session.

// Resolve is Config.Resolve of a verification. Every model is the log.
func (v *verifier) Resolve(string, map[string]string) (Model, error) {
	return Model{
		Provider: "log", Builtins: slices.Collect(maps.Keys(providerTools)),
		Cost: func(model.Usage) record.NanoUSD { return 0 },
	}, nil
}

func (v *verifier) SessionID() string  { return v.sessionID }
func (v *verifier) TurnID() string     { return v.recs[0].TurnID }
func (v *verifier) Spec() *record.Spec { return v.spec }
func (*verifier) Keys() session.Keys   { return nil }

// CompactionAsked says that nobody asks: the summaries of the log stand already.
func (*verifier) CompactionAsked() (seq int64, focus string) { return 0, "" }

func (v *verifier) State() map[string]any { return maps.Clone(v.state) }
func (v *verifier) StartSeq() int64       { return v.recs[0].Seq }

func (v *verifier) Records(_ context.Context, _ int64) iter.Seq2[record.Record, error] {
	return func(yield func(record.Record, error) bool) {
		for _, rec := range v.recs {
			if !yield(rec, nil) {
				return
			}
		}
	}
}

func (*verifier) Delta(record.Delta)                                {}
func (*verifier) Marks(string) record.Marks                         { return nil }
func (*verifier) Retrying(context.Context, record.ModelRetry) error { return nil }
func (*verifier) Injected() []session.Injected                      { return nil }
func (*verifier) Raw(context.Context, record.RawPayload) error      { return nil }

// RemoteSession implements handle: no backend is called.
func (*verifier) RemoteSession(context.Context, *agentdv1.RemoteSession) error { return nil }

// FellBack implements handle: the model of a verifier never fails.
func (*verifier) FellBack(context.Context, record.ModelFallback) error { return nil }

// Wait implements handle.
func (*verifier) Wait(ctx context.Context, _ bool, wait func(context.Context) error) error {
	return wait(ctx)
}

// BeginCall implements handle. It is not reached: modelCall stops each call whose
// response the log does not hold.
func (*verifier) BeginCall(context.Context, record.ModelCall, func() record.Spent) (func(bool), error) {
	return nil, errors.New("a turn of the log calls no model")
}

func (v *verifier) Await(ctx context.Context, id string) (record.ToolResult, error) {
	res, ok := v.results[id]
	if ok {
		return res, nil
	}
	if v.complete() {
		return res, v.diverge(v.recs[len(v.recs)-1], "", "no result of call "+id+" before it", "waits for one")
	}
	return res, v.waitAtLogEnd(ctx)
}

func (v *verifier) Ask(ctx context.Context, call record.ToolCall) (record.ToolResult, error) {
	rec, ok := v.calls[call.ID]
	switch {
	case !ok && v.complete():
		return record.ToolResult{}, v.diverge(v.recs[len(v.recs)-1], "", "no call "+call.ID+" before it",
			"asks for a call of "+call.Name)
	case !ok:
		return record.ToolResult{}, v.waitAtLogEnd(ctx)
	}
	want, err := jsondiff.Decode(rec.Data)
	if err != nil {
		return record.ToolResult{}, err
	}
	var logged record.ToolCall
	if err := unmarshal(rec.Data, &logged); err != nil {
		return record.ToolResult{}, err
	}
	if call.Asks != nil && logged.Asks != nil { // the id is the session's
		asks := *call.Asks
		asks.ID, call.Asks = logged.Asks.ID, &asks
	}
	data, err := json.Marshal(call)
	if err != nil {
		return record.ToolResult{}, err
	}
	got, err := jsondiff.Decode(data)
	if err != nil {
		return record.ToolResult{}, err
	}
	if d := jsondiff.First(want, got); d != nil {
		return record.ToolResult{}, v.diverge(rec, d.Path, d.Want, d.Got)
	}
	return v.Await(ctx, call.ID)
}

// Append implements handle: an event that closes the turn. The run announces its own
// events to event.
func (v *verifier) Append(_ context.Context, data []byte, _ *record.Event) (record.Record, error) {
	s, err := decode(data)
	if err != nil {
		return record.Record{}, err
	}
	i := slices.IndexFunc(v.closing, func(l loggedEvent) bool {
		return l.ev.Author == s.Author && l.ev.Branch == s.Branch &&
			l.ev.CustomMetadata.Agentd.LLM == s.CustomMetadata.Agentd.LLM &&
			slices.Equal(responses(l.ev.Content), responses(s.Content))
	})
	if i < 0 {
		return record.Record{}, v.diverge(v.recs[len(v.recs)-1], "", "nothing before it", "appends "+summary(s))
	}
	l := v.closing[i]
	v.closing = slices.Delete(v.closing, i, i+1)
	if err := v.compareRecord(&l, data, true); err != nil {
		return record.Record{}, err
	}
	return v.record(l.seq), nil
}

// AppendLater implements handle.
func (v *verifier) AppendLater(ctx context.Context, data []byte, ev *record.Event) (record.Record, error) {
	return v.Append(ctx, data, ev)
}

// AppendAtEnd implements handle. Later turns read only their own records, so the
// history takes the event here.
func (v *verifier) AppendAtEnd(ctx context.Context, data []byte, ev *record.Event) error {
	rec, err := v.Append(ctx, data, ev)
	if err != nil {
		return err
	}
	s, err := decode(data)
	if err == nil {
		v.t.apply(rec.Seq, s, len(data), nil)
	}
	return err
}

// AgentsChanged implements handle. The run announces each start and end to
// agentChanged.
func (*verifier) AgentsChanged(context.Context, record.AgentsChanged) error { return nil }

// AgentsChangedAtEnd implements handle.
func (*verifier) AgentsChangedAtEnd(record.AgentsChanged) error { return nil }

func (v *verifier) ResultNow(id string) (record.ToolResult, bool) { return v.Result(id) }

func (v *verifier) Result(id string) (record.ToolResult, bool) {
	res, ok := v.results[id]
	return res, ok
}

func (v *verifier) Resolved(id string) (record.Resolution, bool) {
	said, ok := v.resolved[id]
	return said, ok
}

// noChild is why no child is asked for: what the calls of a log have brought is in it, but for those at its end.
func (v *verifier) noChild(ctx context.Context) error {
	if v.complete() {
		return v.diverge(v.recs[len(v.recs)-1], "", "nothing before it", "asks for a child")
	}
	return v.waitAtLogEnd(ctx)
}

// Spawn implements handle, as the methods below.
func (v *verifier) Spawn(ctx context.Context, _ session.Spawn) (*session.Child, string, error) {
	return nil, "", v.noChild(ctx)
}

// Children is described at Spawn.
func (v *verifier) Children(ctx context.Context) ([]*session.Child, error) {
	return nil, v.noChild(ctx)
}

// AwaitChild is described at Spawn.
func (v *verifier) AwaitChild(ctx context.Context, _ string) error { return v.noChild(ctx) }

// StopChild is described at Spawn.
func (v *verifier) StopChild(ctx context.Context, _ *session.Child) error { return v.noChild(ctx) }

// TellChild is described at Spawn.
func (v *verifier) TellChild(ctx context.Context, _ *session.Child, _, _ string) error {
	return v.noChild(ctx)
}
