package session_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/store"
)

// A turn that asks a person stays in memory while another waits for it, but not
// for ever.
func TestQuestionThatNobodyAnswersWithAPromptBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{Retention: 24 * time.Hour})
		f.on(func(ctx context.Context, r *session.Run) error {
			if r.Spec().Prompt == "later" {
				return talk(ctx, r)
			}
			return curious(ctx, r)
		})
		if err := f.m.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		turn := f.start(session.Request{})
		w := turn.Watch()
		await(t, w, isAsked)
		w.Close()
		next := f.start(session.Request{SessionID: turn.SessionID(), Prompt: "later", OnBusy: enqueue})
		time.Sleep(23 * time.Hour)
		if info, err := f.m.Turn(t.Context(), turn.SessionID(), turn.ID()); err != nil || info.Status != index.WaitingForInput {
			t.Errorf("after 23 h it is %+v, %v", info, err)
		}
		time.Sleep(3 * time.Hour)
		info, err := f.m.Turn(t.Context(), turn.SessionID(), turn.ID())
		if err != nil || info.Status != index.Stopped || !strings.Contains(info.End.Reason, "expired") {
			t.Errorf("after 26 h it is %+v, %v", info, err)
		}
		if info, err := f.m.Turn(t.Context(), turn.SessionID(), next.ID()); err != nil || info.Status != index.Succeeded {
			t.Errorf("the prompt behind it: %+v, %v", info, err)
		}
	})
}

// counting is a store that says how much a list has read at once.
type counting struct {
	store.Store
	most atomic.Int64
}

func (s *counting) Rows(ctx context.Context, q store.RowQuery) ([]store.Row, error) {
	rows, err := s.Store.Rows(ctx, q)
	n := 0
	for _, r := range rows {
		n += len(r.Data)
	}
	s.most.Store(max(s.most.Load(), int64(n)))
	return rows, err
}

// A list of turns holds little more than it returns, however many are asked for,
// and so does a list of sessions.
func TestListsAreBounded(t *testing.T) {
	store := &counting{Store: memory(t)}
	f := newFixture(t, store, limits.Limits{})
	f.on(talk)
	id := f.create(session.Names{}).ID
	for range 40 {
		f.run(id, strings.Repeat("x", 200<<10))
	}
	if _, _, err := f.m.ListTurns(t.Context(), index.TurnQuery{SessionID: id}, "", 1000); err != nil {
		t.Fatal(err)
	}
	if n := store.most.Load(); n > 8<<20 {
		t.Errorf("%d bytes were read at once", n)
	}
	labels := map[string]string{}
	for i := range 64 {
		labels[fmt.Sprint(i)] = strings.Repeat("l", 1024)
	}
	for range 40 {
		f.create(session.Names{Labels: labels})
	}
	got := 0
	for page := ""; ; {
		list, next, err := f.m.ListSessions(t.Context(), index.SessionQuery{}, page, 1000)
		if err != nil {
			t.Fatal(err)
		}
		size := 0
		for _, s := range list {
			for k, v := range s.Labels {
				size += len(k) + len(v)
			}
		}
		if size > 2<<20 {
			t.Errorf("a page of sessions has %d bytes", size)
		}
		got += len(list)
		if page = next; page == "" {
			break
		}
	}
	if got != 41 {
		t.Errorf("%d sessions, want 41", got)
	}
}
