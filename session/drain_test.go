package session_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/internal/prompt"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/record"
)

// twoCalls is a run that makes a model call, of a second, and then another one.
func twoCalls(ctx context.Context, r *session.Run) error {
	for _, id := range []string{"m1", "m2"} {
		done, err := r.BeginCall(ctx, record.ModelCall{Path: root, Model: "m", MessageID: id}, nil)
		if err != nil {
			return err
		}
		select {
		case <-time.After(time.Second):
			err = say(ctx, r, id, root, id)
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		done(false)
		if err != nil {
			return err
		}
	}
	return nil
}

// A stop says in one line what has become of the turns, and names those that it cut off, up to a bound.
func TestStopIsLogged(t *testing.T) {
	for name, tc := range map[string]struct {
		grace          time.Duration
		cut, suspended int
	}{"soft": {time.Minute, 0, 30}, "hard": {time.Second / 2, 30, 0}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				e := &engine{run: twoCalls}
				m, err := session.NewManager(session.Config{
					Store: memory(t), Runner: e, Logger: slog.New(slog.NewJSONHandler(&log, nil)),
				})
				if err != nil {
					t.Fatal(err)
				}
				f := &fixture{engine: e, t: t, m: m}
				for range 30 {
					f.start(session.Request{})
				}
				synctest.Wait()
				ctx, cancel := context.WithTimeout(t.Context(), tc.grace)
				defer cancel()
				for range 2 { // the second time it says nothing
					if err := m.Shutdown(ctx); err != nil {
						t.Fatal(err)
					}
				}
				_, line, _ := strings.Cut(log.String(), `"msg":"the turns have stopped",`)
				line, after, _ := strings.Cut(line, "\n")
				var got struct {
					Finished  int
					Suspended int `json:"suspended_between_steps"`
					Calls     int `json:"model_calls_cut_off"`
					Cut       int `json:"turns_cut_off"`
					Turns     []string
				}
				if err := json.Unmarshal([]byte("{"+line), &got); err != nil {
					t.Fatalf("%v: %s", err, log.String())
				}
				if got.Finished != 0 || got.Suspended != tc.suspended || got.Calls != tc.cut || got.Cut != tc.cut ||
					len(got.Turns) != min(tc.cut, 20) || strings.Contains(after, "the turns have stopped") {
					t.Errorf("the log says %s, then %q", line, after)
				}
			})
		})
	}
}

// A prompt that is queued starts with the end of the turn before it, as always, but calls no model.
func TestQueuedTurnOfAStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := memory(t)
		f := newFixture(t, db, limits.Limits{})
		started := 0
		f.on(func(ctx context.Context, r *session.Run) error {
			started++
			done, err := r.BeginCall(ctx, record.ModelCall{Path: root, Model: "m", MessageID: r.TurnID()}, nil)
			if err != nil {
				return err
			}
			defer done(false)
			time.Sleep(time.Second)
			return say(ctx, r, r.TurnID(), root, "done")
		})
		turn := f.start(session.Request{})
		if _, err := f.m.Start(t.Context(), session.Request{SessionID: turn.SessionID(), Prompt: "next", OnBusy: prompt.Enqueue}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		begun := time.Now()
		if err := f.m.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took != time.Second || started != 2 {
			t.Errorf("the stop took %v, %d turns have begun to run", took, started)
		}
		if got := logOf(t, db, turn.SessionID()); strings.Count(got, "turn_started") != 2 || strings.Count(got, "event") != 1 {
			t.Errorf("the log holds %s", got)
		}
	})
}
