package session_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/principal"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// byID are the methods that name a session. Each calls one for a turn that waits for a tool.
var byID = map[string]func(ctx context.Context, m *session.Manager, id, turn string) error{
	"Session": func(ctx context.Context, m *session.Manager, id, _ string) error {
		_, err := m.Session(ctx, id)
		return err
	},
	"UpdateSession": func(ctx context.Context, m *session.Manager, id, _ string) error {
		_, err := m.UpdateSession(ctx, id, store.Change{ClientRef: new("mine now")})
		return err
	},
	"DeleteSession": func(ctx context.Context, m *session.Manager, id, _ string) error { return m.DeleteSession(ctx, id) },
	"ForkSession": func(ctx context.Context, m *session.Manager, id, _ string) error {
		_, err := m.ForkSession(ctx, session.ForkRequest{SessionID: id})
		return err
	},
	"Start": func(ctx context.Context, m *session.Manager, id, _ string) error {
		_, err := m.Start(ctx, session.Request{SessionID: id, Prompt: "more", OnBusy: enqueue})
		return err
	},
	"Attach": func(ctx context.Context, m *session.Manager, id, turn string) error {
		_, _, err := m.Attach(ctx, session.AttachRequest{SessionID: id, TurnID: turn})
		return err
	},
	"observe": func(ctx context.Context, m *session.Manager, id, turn string) error {
		_, _, err := m.Attach(ctx, session.AttachRequest{SessionID: id, TurnID: turn, Observe: true})
		return err
	},
	"Events": func(ctx context.Context, m *session.Manager, id, turn string) error {
		_, _, err := m.Events(ctx, session.AttachRequest{SessionID: id, TurnID: turn}, 10, nil)
		return err
	},
	"SessionEvents": func(ctx context.Context, m *session.Manager, id, _ string) error {
		_, _, err := m.SessionEvents(ctx, id, "", 10, nil)
		return err
	},
	"WatchSession": func(ctx context.Context, m *session.Manager, id, _ string) error {
		w, err := m.WatchSession(ctx, id, "")
		if err == nil {
			w.Close()
		}
		return err
	},
	"Turn": func(ctx context.Context, m *session.Manager, id, turn string) error {
		_, err := m.Turn(ctx, id, turn)
		return err
	},
	"ListTurns": func(ctx context.Context, m *session.Manager, id, _ string) error {
		_, _, err := m.ListTurns(ctx, index.TurnQuery{SessionID: id}, "", 10)
		return err
	},
	"ListInteractions": func(ctx context.Context, m *session.Manager, id, _ string) error {
		_, _, err := m.ListInteractions(ctx, index.InteractionQuery{SessionID: id}, "", 10)
		return err
	},
	"Interaction": func(ctx context.Context, m *session.Manager, id, _ string) error {
		_, err := m.Interaction(ctx, id, "i")
		return err
	},
	"Resolve": func(ctx context.Context, m *session.Manager, id, turn string) error {
		_, err := m.Resolve(ctx, session.AttachRequest{SessionID: id, TurnID: turn}, "i", record.Resolution{Decision: record.Deny})
		return err
	},
	"SubmitResults": func(ctx context.Context, m *session.Manager, id, turn string) error {
		_, err := m.SubmitResults(ctx, session.AttachRequest{SessionID: id, TurnID: turn},
			[]session.ClientResult{{CallID: "c", Output: new("foreign")}})
		return err
	},
	"CancelCall": func(ctx context.Context, m *session.Manager, id, turn string) error {
		return m.CancelCall(ctx, session.AttachRequest{SessionID: id, TurnID: turn}, "c")
	},
	"CancelTurn": func(ctx context.Context, m *session.Manager, id, turn string) error {
		return m.CancelTurn(ctx, id, turn, "foreign")
	},
	"TurnLog": func(ctx context.Context, m *session.Manager, id, turn string) error {
		_, err := m.TurnLog(ctx, id, turn, "")
		return err
	},
}

var theTool = []*agentdv1.Tool{{Name: "tool", Description: "a tool"}}

func of(t *testing.T, tenant string) context.Context {
	return principal.With(t.Context(), principal.Principal{ID: "ann", Tenant: tenant, Role: principal.Operator})
}

// A session of another tenant does not exist for a caller, who gets what there is for an id that nobody has,
// and changes nothing. That holds whatever the ids look like, and for the server without tenants too.
func TestForeignSessionsDoNotExist(t *testing.T) {
	f := newFixture(t, memory(t), limits.Limits{})
	f.on(talk)
	acme := of(t, "acme")
	turn, err := f.m.Start(acme, session.Request{SessionID: "plan", Create: true, Agent: tree(), Tools: theTool, Prompt: "ask a"})
	if err != nil {
		t.Fatal(err)
	}
	w := turn.Watch()
	await(t, w, isCall)
	before, err := f.m.Session(acme, "plan")
	if err != nil || before.ID != "plan" || turn.SessionID() != "plan" {
		t.Fatalf("its own session is %+v of turn %q, %v", before, turn.SessionID(), err)
	}
	for _, tenant := range []string{"", "umbrella", "acme/", "Acme"} {
		for name, call := range byID {
			for _, id := range []string{"plan", "acme/plan", "acme%2Fplan", "/plan"} {
				const nobodys = "nothing-has-this-id"
				foreign, none := call(of(t, tenant), f.m, id, turn.ID()), call(of(t, tenant), f.m, nobodys, turn.ID())
				e, ok := errors.AsType[*fault.Error](foreign)
				n, nok := errors.AsType[*fault.Error](none)
				if !ok || !nok || e.Code != fault.SessionNotFound ||
					strings.ReplaceAll(e.Message, id, nobodys) != n.Message || e.Code != n.Code || e.TurnID != n.TurnID {
					t.Errorf("%s of %q by %q: %v, of an id that nobody has: %v", name, id, tenant, foreign, none)
				}
			}
		}
		ctx := of(t, tenant)
		if list, _, err := f.m.ListSessions(ctx, index.SessionQuery{Tenant: "acme"}, "", 10); err != nil || len(list) > 0 {
			t.Errorf("%q sees the sessions %+v, %v", tenant, list, err)
		}
		if list, _, err := f.m.ListTurns(ctx, index.TurnQuery{Tenant: "acme"}, "", 10); err != nil || len(list) > 0 {
			t.Errorf("%q sees the turns %+v, %v", tenant, list, err)
		}
		if list, _, err := f.m.ListInteractions(ctx, index.InteractionQuery{Tenant: "acme"}, "", 10); err != nil || len(list) > 0 {
			t.Errorf("%q sees the interactions %+v, %v", tenant, list, err)
		}
	}
	after, err := f.m.Session(acme, "plan")
	if err != nil || after.LastSeq != before.LastSeq || after.Version != before.Version {
		t.Errorf("the session was %+v, and is %+v, %v", before, after, err)
	}
	answer(t, turn)
	if e := end(t, follow(t, w)); !e.Completed {
		t.Errorf("its turn ended with %v", e)
	}
}

// The same id in two tenants is two sessions, each with its own turns, names and `app:` state.
func TestOneIDInTwoTenants(t *testing.T) {
	f := newFixture(t, memory(t), limits.Limits{})
	seen := map[string]any{}
	f.on(func(_ context.Context, r *session.Run) error {
		if r.SessionID() != "plan" {
			t.Errorf("the engine runs session %q", r.SessionID())
		}
		seen[r.Spec().Prompt] = r.State()["app:motto"]
		return nil
	})
	tenants := []string{"", "acme", "umbrella", "a/b%"}
	for _, tenant := range tenants {
		ctx := of(t, tenant)
		if err := f.m.SetShared(ctx, map[string]any{"app:motto": "of " + tenant}); err != nil {
			t.Fatal(err)
		}
		req := session.Request{
			SessionID: "plan", Create: true, TurnID: "first", Agent: tree(), Prompt: "by " + tenant,
			Once: session.Once{Key: "k", Content: "same"},
		}
		turn, err := f.m.Start(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		msgs := follow(t, turn.Watch())
		if id := msgs[0].GetExecute().GetSessionId(); id != "plan" {
			t.Errorf("%q gets messages of session %q", tenant, id)
		}
		<-turn.Done()
		repeated, ok := errors.AsType[*session.Repeated](func() error { _, err := f.m.Start(ctx, req); return err }())
		if !ok || repeated.SessionID != "plan" {
			t.Errorf("%q: a repeat is %+v", tenant, repeated)
		}
		fork, err := f.m.ForkSession(ctx, session.ForkRequest{SessionID: "plan"})
		if err != nil || fork.ForkedFrom != "plan" || strings.Contains(fork.ID, "/") {
			t.Errorf("%q: the fork is %+v, %v", tenant, fork, err)
		}
	}
	for _, tenant := range tenants {
		if seen["by "+tenant] != "of "+tenant {
			t.Errorf("%q reads app:motto of %v", tenant, seen["by "+tenant])
		}
		sessions, _, err := f.m.ListSessions(of(t, tenant), index.SessionQuery{}, "", 10)
		var ids []string
		for _, s := range sessions {
			ids = append(ids, s.ID)
		}
		if err != nil || len(ids) != 2 || !slices.Contains(ids, "plan") {
			t.Errorf("%q has the sessions %q, %v", tenant, ids, err)
		}
		turns, _, err := f.m.ListTurns(of(t, tenant), index.TurnQuery{SessionID: "plan"}, "", 10)
		if err != nil || len(turns) != 1 || turns[0].SessionID != "plan" || turns[0].ID != "first" {
			t.Errorf("%q has the turns %+v, %v", tenant, turns, err)
		}
	}
	if err := f.m.DeleteSession(of(t, "acme"), "plan"); err != nil {
		t.Fatal(err)
	}
	for _, tenant := range tenants {
		if _, err := f.m.Session(of(t, tenant), "plan"); (err == nil) == (tenant == "acme") {
			t.Errorf("after acme has deleted its session, %q gets %v", tenant, err)
		}
	}
}

// A turn of a tenant that was open when the server died goes on, for its tenant.
func TestTenantsTurnsAreResumed(t *testing.T) {
	db := memory(t)
	f := newFixture(t, db, limits.Limits{})
	f.on(talk)
	acme := of(t, "acme")
	turn, err := f.m.Start(acme, session.Request{SessionID: "plan", Create: true, Agent: tree(), Tools: theTool, Prompt: "ask a"})
	if err != nil {
		t.Fatal(err)
	}
	await(t, turn.Watch(), isCall)
	f.stop()
	next := newFixture(t, db, limits.Limits{})
	next.on(talk)
	if err := next.m.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := next.m.Attach(of(t, "umbrella"), session.AttachRequest{SessionID: "plan"}); code(err) != fault.SessionNotFound {
		t.Errorf("a foreign client attaches: %v", err)
	}
	again, w, err := next.m.Attach(acme, session.AttachRequest{SessionID: "plan", Starter: true})
	if err != nil {
		t.Fatal(err)
	}
	await(t, w, isCall)
	answer(t, again)
	if e := end(t, follow(t, w)); !e.Completed {
		t.Errorf("it ended with %v", e)
	}
}
