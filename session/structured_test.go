package session_test

import (
	"context"
	"errors"
	"testing"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/record"
)

// answerOf is a response of an agent below the root.
func answerOf(agent, text string, structured bool) *record.Event {
	return &record.Event{
		MessageID: agent + text, Path: []string{"root", agent}, Text: text, Structured: structured,
		Model: "model of " + agent, Stop: "STOP", Usage: &record.Usage{Calls: 1},
	}
}

// TestStructuredOutput ends a turn with the value of its last response, if that has
// one, for every watcher from every position.
func TestStructuredOutput(t *testing.T) {
	calls := answerOf("b", `{"a":2}`, false)
	calls.Calls = []record.ToolCall{{ID: "c1", Name: "tool", Input: []byte("{}"), Path: calls.Path}}
	empty := answerOf("b", "", false)
	empty.Stop = "MAX_TOKENS"
	for _, tc := range []struct {
		name   string
		events []*record.Event
		err    error
		want   string // JSON; "" for none
		output string
		model  string
		stop   string
	}{
		{
			name: "one", events: []*record.Event{answerOf("a", `{"m":{},"n":[1,null,"x"]}`, true)},
			want: `{"m":{},"n":[1,null,"x"]}`, output: `{"m":{},"n":[1,null,"x"]}`, model: "model of a", stop: "STOP",
		},
		{name: "text", events: []*record.Event{answerOf("a", `{"a":1}`, false)}, output: `{"a":1}`, model: "model of a", stop: "STOP"},
		{name: "text before it", events: []*record.Event{answerOf("a", "hi", false), answerOf("b", `{"a":1}`, true)}, want: `{"a":1}`, output: `{"a":1}`, model: "model of b", stop: "STOP"},
		{name: "text after it", events: []*record.Event{answerOf("a", `{"a":1}`, true), answerOf("b", "hi", false)}, output: "hi", model: "model of b", stop: "STOP"},
		{name: "two", events: []*record.Event{answerOf("a", `{"a":1}`, true), answerOf("b", `{"a":2}`, true)}, want: `{"a":2}`, output: `{"a":2}`, model: "model of b", stop: "STOP"},
		{name: "calls after it", events: []*record.Event{answerOf("a", `{"a":1}`, true), calls}, want: `{"a":1}`, output: `{"a":1}`, model: "model of b", stop: "STOP"},
		{name: "nothing after it", events: []*record.Event{answerOf("a", `{"a":1}`, true), empty}, want: `{"a":1}`, output: `{"a":1}`, model: "model of b", stop: "MAX_TOKENS"},
		{name: "digits beyond float64", events: []*record.Event{answerOf("a", `{"a":9007199254740993}`, true)}, want: `{"a":9007199254740993}`, output: `{"a":9007199254740993}`, model: "model of a", stop: "STOP"},
		{name: "failed", events: []*record.Event{answerOf("a", `{"a":1}`, true)}, err: errors.New("boom"), output: `{"a":1}`, model: "model of a", stop: "STOP"},
		{name: "no answer"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFixture(t, memory(t), limits.Limits{WatchItems: 2})
			f.on(func(ctx context.Context, r *session.Run) error {
				return add(ctx, r, answerOf("a", `{"before":true}`, true))
			})
			first := f.start(session.Request{})
			follow(t, first.Watch())
			f.on(func(ctx context.Context, r *session.Run) error {
				for _, ev := range tc.events {
					if err := add(ctx, r, ev); err != nil {
						return err
					}
					for _, c := range ev.Calls {
						if _, err := r.Await(ctx, c.ID); err != nil {
							return err
						}
					}
				}
				return tc.err
			})
			turn := f.start(session.Request{SessionID: first.SessionID()})
			answerAll(t, turn, turn.Watch())
			check := func(what string, got *agentdv1.RunResponse_EndResponse) {
				t.Helper()
				if text := got.GetStructuredOutput(); text != tc.want {
					t.Errorf("%s: structured output %s, want %s", what, text, tc.want)
				}
			}
			msgs := follow(t, turn.Watch())
			check("all", end(t, msgs))
			for _, m := range msgs[:len(msgs)-1] {
				if m.GetSeq() > 0 {
					check("from "+m.String(), end(t, follow(t, attach(t, f, turn, &m.Seq))))
				}
			}
			turns, _, err := f.m.ListTurns(t.Context(), index.TurnQuery{SessionID: turn.SessionID()}, "", 9)
			if err != nil || len(turns) != 2 {
				t.Fatalf("turns %v, %v", turns, err)
			}
			got := turns[0]
			if got.Output != tc.output || got.Model != tc.model || got.Stop != tc.stop {
				t.Errorf("turn %+v", got)
			}
			if got.Structured != (tc.want != "" || tc.err != nil) {
				t.Errorf("structured is %v", got.Structured)
			}
			if !turns[1].Structured || turns[1].Output != `{"before":true}` {
				t.Errorf("the turn before: %+v", turns[1])
			}
		})
	}
}
