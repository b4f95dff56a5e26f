package session_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/record"
)

// Bytes is what a page may hold unless one entry alone is larger.
const Bytes = 2 << 20

// asksMuch is a turn that asks a client and a person for calls whose arguments have
// so many bytes, three each, and waits for them.
func asksMuch(bytes int) func(ctx context.Context, r *session.Run) error {
	return func(ctx context.Context, r *session.Run) error {
		input := json.RawMessage(`"` + strings.Repeat("x", bytes) + `"`)
		ev := &record.Event{MessageID: "m1", Path: root, Usage: &record.Usage{Calls: 1}}
		for i := range 3 {
			ev.Calls = append(ev.Calls, record.ToolCall{ID: fmt.Sprintf("c%d", i), Name: "tool", Input: input, Path: root},
				record.ToolCall{ID: fmt.Sprintf("q%d", i), Name: "tool", Input: input, Path: root, Asks: &record.Question{Kind: approval}})
		}
		if events, err := eventsOf(ctx, r); err != nil || events == 0 && add(ctx, r, ev) != nil {
			return err
		}
		_, err := r.Await(ctx, "q0")
		return err
	}
}

// TestPagesOfLargeCalls: pages of turns and of interactions are bounded in bytes
// also where what turns ask for is large, and together they hold every entry once.
func TestPagesOfLargeCalls(t *testing.T) {
	const turns, bytes = 3, 300 << 10
	f := newFixture(t, memory(t), limits.Limits{})
	f.engine.on(asksMuch(bytes))
	for range turns {
		await(t, f.start(session.Request{}).Watch(), isAsked)
	}
	pages(t, "turns", turns, func(page string) (sizes []int, next string, err error) {
		list, next, err := f.m.ListTurns(t.Context(), index.TurnQuery{}, page, 1000)
		for _, turn := range list {
			size := 0
			for _, c := range turn.Open {
				size += len(c.Input)
			}
			for _, in := range turn.Asking {
				size += len(in.Call.Input)
			}
			if size < 6*bytes {
				t.Errorf("turn %s: calls of %d bytes, want %d", turn.ID, size, 6*bytes)
			}
			sizes = append(sizes, size)
		}
		return sizes, next, err
	})
	pages(t, "interactions", 3*turns, func(page string) (sizes []int, next string, err error) {
		q := index.InteractionQuery{Statuses: []agentdv1.InteractionStatus{asking}}
		list, next, err := f.m.ListInteractions(t.Context(), q, page, 1000)
		for _, in := range list {
			sizes = append(sizes, len(in.Call.Input))
		}
		return sizes, next, err
	})
}

// TestPagesOfLargeSessions: pages of sessions are bounded in bytes.
func TestPagesOfLargeSessions(t *testing.T) {
	const sessions = 32
	f := newFixture(t, memory(t), limits.Limits{})
	labels := map[string]string{}
	for i := range 64 {
		labels[fmt.Sprintf("%063d", i)] = strings.Repeat("x", 1024)
	}
	for range sessions {
		f.create(session.Names{Labels: labels})
	}
	pages(t, "sessions", sessions, func(page string) (sizes []int, next string, err error) {
		list, next, err := f.m.ListSessions(t.Context(), index.SessionQuery{}, page, 1000)
		for _, s := range list {
			size := 0
			for k, v := range s.Labels {
				size += len(k) + len(v)
			}
			sizes = append(sizes, size)
		}
		return sizes, next, err
	})
}

// pages reads a list to its end.
func pages(t *testing.T, what string, want int, list func(page string) (sizes []int, next string, err error)) {
	t.Helper()
	got, page := 0, ""
	for {
		sizes, next, err := list(page)
		if err != nil {
			t.Fatal(err)
		}
		sum := 0
		for _, size := range sizes {
			sum += size
		}
		if sum > Bytes && len(sizes) > 1 || len(sizes) == 0 && next != "" {
			t.Errorf("a page of %d %s with %d bytes, at most %d are allowed", len(sizes), what, sum, Bytes)
		}
		got += len(sizes)
		if page = next; page == "" {
			break
		}
	}
	if got != want {
		t.Errorf("%d %s, want %d", got, what, want)
	}
}
