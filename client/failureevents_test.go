package client_test

import (
	"context"
	"errors"
	"testing"

	"github.com/apzuk3/agentd/agentdtest"
	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// WithFailureEvents yields the error and the end of a turn that failed, once each, before
// the error of the sequence; a request that is refused has neither.
func TestFailureEvents(t *testing.T) {
	for name, tc := range map[string]struct {
		opts          []client.RunOption
		refused       bool
		failures, end int
	}{
		"without": {},
		"with":    {opts: []client.RunOption{client.WithFailureEvents()}, failures: 1, end: 1},
		"refused": {opts: []client.RunOption{client.WithFailureEvents()}, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			url := serve(t, func(_ context.Context, s *peer) error {
				if tc.refused {
					return s.fail(agentdv1.ErrorCode_ERROR_CODE_CONTENT_BLOCKED, "no", false)
				}
				return steps(
					s.started,
					func() error { return s.fail(agentdv1.ErrorCode_ERROR_CODE_CONTENT_BLOCKED, "no", false) },
					func() error { return s.end(false, "failed") },
				)
			})
			failures, ends, ended := 0, 0, false
			for event, err := range dial(t, url).Run(t.Context(), llm(), "hi", tc.opts...) {
				switch {
				case err != nil:
					if ended = true; !errors.Is(err, client.ErrContentBlocked) {
						t.Errorf("it fails with %v", err)
					}
				case event.Error != nil:
					if failures++; ends > 0 || event.Error.Code != client.ErrContentBlocked || event.Proto().GetError() == nil {
						t.Errorf("after %d ends comes %+v", ends, event)
					}
				case event.End != nil:
					if ends++; event.End.Completed || event.End.Usage == nil {
						t.Errorf("the end is %+v", event.End)
					}
				}
			}
			if failures != tc.failures || ends != tc.end || !ended {
				t.Errorf("%d errors and %d ends as events, failed: %v", failures, ends, ended)
			}
		})
	}
}

// The events of a turn are listed from its beginning or behind a position; a session is
// made under its name by its first turn; a call is canceled by the name of its turn.
func TestTurnsByName(t *testing.T) {
	d := agentdtest.Start(t, agentdtest.Config{Scripts: map[string]string{"clerk": clerkScript}})
	c, ctx := d.Client(), t.Context()
	s := c.SessionOrNew("mine", client.WithAgent(client.LLM("clerk", "scripted/clerk")))
	for _, prompt := range []string{"one", "two"} {
		if _, err := s.Send(ctx, prompt); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Session("yours", client.WithAgent(client.LLM("clerk", "scripted/clerk"))).Send(ctx, "one"); !errors.Is(err, client.ErrSessionNotFound) {
		t.Errorf("a session that is not there: %v", err)
	}
	turns := all(t, s.Turns(ctx, client.TurnFilter{}))
	first, last := turns[1].ID, turns[0].ID
	events := all(t, s.TurnEvents(ctx, first, nil))
	if _, ok := events[0].Data.(*client.TurnStarted); !ok || events[len(events)-1].End == nil || events[0].TurnID != first || events[0].SessionID != "mine" {
		t.Errorf("the first turn is %+v", events)
	}
	if rest := all(t, s.TurnEvents(ctx, first, &events[0].Seq)); len(rest) != len(events)-1 || rest[0].Seq != events[1].Seq {
		t.Errorf("behind %d are %+v", events[0].Seq, rest)
	}
	if now := all(t, s.TurnEvents(ctx, "", nil)); now[0].TurnID != last {
		t.Errorf("the last turn is %+v", now)
	}
	for _, err := range s.TurnEvents(ctx, "none", nil) {
		if !errors.Is(err, client.ErrNotFound) {
			t.Errorf("a turn that is not there: %v", err)
		}
	}
	if _, err := s.CancelTurnTool(ctx, first, "none"); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("a call that is not there: %v", err)
	}
	if err := c.SetSharedState(ctx, map[string]any{"app:page": "<b>"}); err != nil {
		t.Fatal(err)
	}
	if shared := all(t, c.SharedState(ctx, "app:")); shared[0].Value != `"<b>"` {
		t.Errorf("the value is stored as %s", shared[0].Value)
	}
}
