package session_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/record"
)

// addLater hands over an event for the next append, and returns its sequence number.
func addLater(ctx context.Context, r *session.Run, ev *record.Event) (int64, error) {
	data, err := json.Marshal(ev)
	if err != nil {
		return 0, err
	}
	rec, err := r.AppendLater(ctx, data, ev)
	return rec.Seq, err
}

// spoken is a model's response.
func spoken(id string) *record.Event {
	return &record.Event{
		MessageID: id, Path: root, Text: id, Usage: &record.Usage{Prompt: 3, Completion: 2, Total: 5, Calls: 1},
	}
}

// TestAppendLater: what nobody waits for comes into the log with the next append, before what that writes and under
// the number that it was promised; the response of a model comes before another call of a model begins, and all of it
// before the end of a run.
func TestAppendLater(t *testing.T) {
	broken := errors.New("the model is gone")
	for name, tt := range map[string]struct {
		run     func(ctx context.Context, r *session.Run, later func(*record.Event)) error
		appends int64
		log     string
	}{
		"with the next event": {
			run: func(ctx context.Context, r *session.Run, later func(*record.Event)) error {
				later(&record.Event{Path: root})
				later(&record.Event{Path: root})
				return add(ctx, r, spoken("a"))
			},
			appends: 3, log: "turn_started event event event turn_ended",
		},
		"with the end": {
			run: func(_ context.Context, _ *session.Run, later func(*record.Event)) error {
				later(&record.Event{Path: root})
				later(spoken("a"))
				return nil
			},
			appends: 2, log: "turn_started event event turn_ended",
		},
		"a run that fails": {
			run: func(_ context.Context, _ *session.Run, later func(*record.Event)) error {
				later(spoken("a"))
				return broken
			},
			appends: 3, log: "turn_started event turn_ended",
		},
		"results, before a call": {
			run: func(ctx context.Context, r *session.Run, later func(*record.Event)) error {
				later(&record.Event{Path: root})
				done, err := r.BeginCall(ctx, record.ModelCall{Path: root}, nil)
				if err != nil {
					return err
				}
				defer done(false)
				return add(ctx, r, spoken("a"))
			},
			appends: 3, log: "turn_started event event turn_ended",
		},
		"a response, before a call": {
			run: func(ctx context.Context, r *session.Run, later func(*record.Event)) error {
				later(spoken("a"))
				done, err := r.BeginCall(ctx, record.ModelCall{Path: root}, nil)
				if err != nil {
					return err
				}
				done(false)
				if n, err := eventsOf(ctx, r); err != nil || n != 1 {
					t.Errorf("when another call begins the log has %d events (%v), want the response", n, err)
				}
				return nil
			},
			appends: 3, log: "turn_started event turn_ended",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &faulty{Store: memory(t)}
			f := newFixture(t, s, limits.Limits{})
			f.on(func(ctx context.Context, r *session.Run) error {
				next := r.StartSeq()
				return tt.run(ctx, r, func(ev *record.Event) {
					next++
					if seq, err := addLater(ctx, r, ev); err != nil || seq != next {
						t.Errorf("it is to be record %d (%v), want %d", seq, err, next)
					}
				})
			})
			turn := f.start(session.Request{})
			<-turn.Done()
			if got := logOf(t, f.store, turn.SessionID()); got != tt.log {
				t.Errorf("the log has %s, want %s", got, tt.log)
			}
			if got := s.appends.Load(); got != tt.appends {
				t.Errorf("there were %d appends, want %d", got, tt.appends)
			}
		})
	}
}

// TestLaterSuspended: a turn that is suspended has what it handed over in its log, and goes on behind it.
func TestLaterSuspended(t *testing.T) {
	s := memory(t)
	f := newFixture(t, s, limits.Limits{})
	added := make(chan struct{})
	f.on(func(ctx context.Context, r *session.Run) error {
		if _, err := addLater(ctx, r, spoken("a")); err != nil {
			t.Error(err)
		}
		close(added)
		<-ctx.Done()
		return context.Cause(ctx)
	})
	turn := f.start(session.Request{})
	<-added
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if err := f.m.Shutdown(stopped); err != nil {
		t.Fatal(err)
	}
	<-turn.Done()
	if got, want := logOf(t, s, turn.SessionID()), "turn_started event"; got != want {
		t.Errorf("the log has %s, want %s", got, want)
	}
}

// TestLaterOfOthers: what another goroutine appends takes along what waits, and comes behind it.
func TestLaterOfOthers(t *testing.T) {
	f := newFixture(t, memory(t), limits.Limits{})
	asked, waits := make(chan struct{}), make(chan struct{})
	f.on(func(ctx context.Context, r *session.Run) error {
		ev := &record.Event{Path: root, Calls: []record.ToolCall{{ID: "c", Name: "tool", Input: json.RawMessage(`{}`), Path: root}}}
		if err := add(ctx, r, ev); err != nil {
			return err
		}
		<-asked
		if _, err := addLater(ctx, r, &record.Event{Path: root, Text: "waits"}); err != nil {
			return err
		}
		close(waits)
		_, err := r.Await(ctx, "c")
		return err
	})
	turn := f.start(session.Request{})
	w := turn.Watch()
	await(t, w, isCall)
	close(asked)
	<-waits
	if err := turn.SubmitResult(t.Context(), session.ClientResult{CallID: "c", Output: new("fine")}); err != nil {
		t.Fatal(err)
	}
	if got := follow(t, w); !end(t, got).Completed {
		t.Errorf("the turn: %v", got)
	}
	if got, want := logOf(t, f.store, turn.SessionID()), "turn_started event event tool_result turn_ended"; got != want {
		t.Errorf("the log has %s, want %s", got, want)
	}
}
