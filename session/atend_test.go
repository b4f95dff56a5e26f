package session_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync/atomic"
	"testing"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// dying is a store that takes a number of appends and then none: the next one fails, and
// if lost is set it is written all the same.
type dying struct {
	store.Store
	left atomic.Int64
	lost bool
}

func (s *dying) Append(ctx context.Context, b store.Batch) error {
	switch left := s.left.Add(-1); {
	case left >= 0:
		return s.Store.Append(ctx, b)
	case left == -1 && s.lost:
		_ = s.Store.Append(ctx, b)
	}
	return errDead
}

func (s *dying) SetAttempts(ctx context.Context, id string, n int64, waits bool) error {
	if s.left.Load() < 0 {
		return errDead
	}
	return s.Store.SetAttempts(ctx, id, n, waits)
}

// closes is the text of the events that close a turn.
const closes = "cancelled"

// addAtEnd hands over an event.
func addAtEnd(ctx context.Context, r *session.Run, ev *record.Event) error {
	data, err := json.Marshal(ev)
	if err != nil {
		return err
	}
	return r.AppendAtEnd(ctx, data, ev)
}

// failing asks for calls, says something and fails, which cancels the calls.
func failing(ctx context.Context, r *session.Run) error {
	ev := &record.Event{Path: root}
	for i := range 3 {
		ev.Calls = append(ev.Calls, record.ToolCall{ID: fmt.Sprint("c", i), Name: "tool", Input: json.RawMessage("{}"), Path: root})
	}
	n, err := eventsOf(ctx, r)
	if err == nil && n == 0 {
		err = add(ctx, r, ev)
	}
	if err == nil && n <= 1 {
		err = say(ctx, r, "m", root, "one ", "two")
	}
	if err != nil {
		return err
	}
	late := context.WithoutCancel(ctx)
	for i, call := range ev.Calls {
		if _, ok := r.Result(call.ID); ok {
			continue
		}
		ev := &record.Event{Path: root, Text: closes, State: map[string]any{fmt.Sprint("k", i): i, "app:closed": i}}
		if err := addAtEnd(late, r, ev); err != nil {
			return err
		}
	}
	return errors.New("the model is gone")
}

// closings returns how many events of a log close its turn, and whether the turn has its
// end; the last of them precedes that.
func closings(t *testing.T, store store.Store, id string) (n int, ended bool) {
	t.Helper()
	log, err := store.Read(t.Context(), id, 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	for i, rec := range log {
		switch rec.Kind {
		case record.KindEvent:
			var ev record.Event
			if err := json.Unmarshal(rec.Data, &ev); err != nil {
				t.Fatal(err)
			}
			if ev.Text == closes {
				n++
			}
		case record.KindTurnEnded:
			ended = true
			if n > 0 && log[i-1].Kind != record.KindEvent {
				t.Errorf("%s precedes the end, want what closes the turn", log[i-1].Kind)
			}
		default:
		}
	}
	return n, ended
}

// TestKilledAtTheEnd: wherever around its end a turn's process dies, the log holds all of
// what the run has handed over for the end together with the end, or nothing of it and
// the turn continues.
func TestKilledAtTheEnd(t *testing.T) {
	died := 0
	for _, lost := range []bool{false, true} {
		for n := int64(1); ; n++ {
			store := memory(t)
			mortal := &dying{Store: store, lost: lost}
			mortal.left.Store(n)
			first := newFixture(t, mortal, limits.Limits{})
			first.on(failing)
			turn := first.start(session.Request{})
			<-turn.Done()
			whole := mortal.left.Load() >= 0
			closed, ended := closings(t, store, turn.SessionID())
			if want := map[bool]int{true: 3}[ended]; closed != want {
				t.Errorf("killed at append %d (written: %v): the log has %d results for the end, and the end: %v", n, lost, closed, ended)
			}
			if !ended {
				second := newFixture(t, store, limits.Limits{})
				second.on(failing)
				if err := second.m.Recover(t.Context()); err != nil {
					t.Fatal(err)
				}
				_, w, err := second.m.Attach(t.Context(), session.AttachRequest{SessionID: turn.SessionID()})
				if err != nil {
					t.Fatal(err)
				}
				follow(t, w)
				if closed, ended := closings(t, store, turn.SessionID()); closed != 3 || !ended {
					t.Errorf("killed at append %d (written: %v): then the log has %d results for the end, and the end: %v", n, lost, closed, ended)
				}
			}
			if whole {
				break
			}
			died++
		}
	}
	if died < 4 {
		t.Errorf("the process died %d times", died)
	}
}

// TestStateAtTheEnd: keys that are written with the end are in the state of the turn that
// starts with it; those that do not fit are refused before.
func TestStateAtTheEnd(t *testing.T) {
	f := newFixture(t, memory(t), limits.Limits{MaxOwnKeys: 3})
	queued := make(chan struct{})
	f.on(func(ctx context.Context, r *session.Run) error {
		if r.Spec().Prompt == "next" {
			state := r.State()
			if want := map[string]any{"a": 1, "b": 2, "c": 3, "app:x": "y"}; !maps.Equal(state, want) {
				t.Errorf("the next turn starts with %v, want %v", state, want)
			}
			return nil
		}
		<-queued
		for _, state := range []map[string]any{{"a": 1, "b": 2, "app:x": "y"}, {"c": 3}} {
			if err := addAtEnd(ctx, r, &record.Event{Path: root, State: state}); err != nil {
				t.Error(err)
			}
		}
		if err := addAtEnd(ctx, r, &record.Event{Path: root, State: map[string]any{"d": 4}}); code(err) != agentdv1.ErrorCode_ERROR_CODE_LIMIT_EXCEEDED {
			t.Errorf("a fourth key: %v, want a refusal", err)
		}
		ev := &record.Event{Path: root, Calls: []record.ToolCall{{ID: "c", Name: "tool"}}}
		if err := addAtEnd(ctx, r, ev); err == nil {
			t.Error("calls are taken")
		}
		return nil
	})
	turn := f.start(session.Request{})
	next := f.start(session.Request{SessionID: turn.SessionID(), Prompt: "next", OnBusy: enqueue})
	close(queued)
	if got := follow(t, next.Watch()); !end(t, got).Completed {
		t.Errorf("the next turn: %v", got)
	}
	want := "turn_started turn_queued event event turn_ended turn_started turn_ended"
	if got := logOf(t, f.store, turn.SessionID()); got != want {
		t.Errorf("the log has %s, want %s", got, want)
	}
}

// TestSuspendedAtTheEnd: a turn that is suspended while its run fails ends later, and
// what the run has handed over for the end is dropped.
func TestSuspendedAtTheEnd(t *testing.T) {
	store := memory(t)
	f := newFixture(t, store, limits.Limits{})
	added := make(chan struct{})
	f.on(func(ctx context.Context, r *session.Run) error {
		if err := addAtEnd(ctx, r, &record.Event{Path: root, Text: closes}); err != nil {
			t.Error(err)
		}
		close(added)
		<-ctx.Done()
		return errors.New("the model is gone")
	})
	turn := f.start(session.Request{})
	<-added
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if err := f.m.Shutdown(stopped); err != nil {
		t.Fatal(err)
	}
	<-turn.Done()
	if n, ended := closings(t, store, turn.SessionID()); n != 0 || ended {
		t.Errorf("the log has %d results for the end, and the end: %v; want neither", n, ended)
	}
}
