package ledgertest

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/apzuk3/agentd/internal/ledger"
)

// agents is what a ledger does with agents of callers.
func agents(t *testing.T, l ledger.Ledger) {
	ctx := t.Context()
	add := func(tenant, name, hash string, read int64, at time.Time) (ledger.Agent, bool, error) {
		return l.AddAgent(ctx, ledger.Agent{
			Tenant: tenant, Name: name, Hash: hash, Content: []byte("{" + hash + "}\x00é"), Maker: "ann", Created: at,
		}, read, 3, 3)
	}
	must := func(tenant, name, hash string, version int64, at time.Time) ledger.Agent {
		t.Helper()
		a, made, err := add(tenant, name, hash, version-1, at)
		want := ledger.Agent{
			Tenant: tenant, Name: name, Version: version, Hash: hash, Content: []byte("{" + hash + "}\x00é"), Maker: "ann",
			Created: at, First: a.First,
		}
		if err != nil || !made || !reflect.DeepEqual(a, want) {
			t.Fatalf("added %+v, %v, %v", a, made, err)
		}
		return a
	}
	if _, err := l.Agent(ctx, "acme", "desk", 0, ""); !errors.Is(err, ledger.ErrNoAgent) {
		t.Errorf("an agent that is not there: %v", err)
	}
	one := must("acme", "desk", "aa11", 1, epoch)
	if again, made, err := add("acme", "desk", "aa11", ledger.AnyVersion, epoch.Add(time.Hour)); err != nil || made || !reflect.DeepEqual(again, one) {
		t.Errorf("the same again: %+v, %v, %v", again, made, err)
	}
	two := must("acme", "desk", "bb22", 2, epoch.Add(time.Hour))
	if two.First != epoch {
		t.Errorf("first made at %v", two.First)
	}
	var changed *ledger.ChangedError
	if _, _, err := add("acme", "desk", "cc33", 1, epoch); !errors.As(err, &changed) || changed.Version != 2 {
		t.Errorf("another version than what was read: %v", err)
	}
	if _, _, err := add("acme", "other", "cc33", 1, epoch); !errors.As(err, &changed) || changed.Version != 0 {
		t.Errorf("a version of nothing: %v", err)
	}
	three := must("acme", "desk", "aa11", 3, epoch.Add(2*time.Hour)) // what it was before is a new version
	if _, _, err := add("acme", "desk", "dd44", ledger.AnyVersion, epoch); !errors.Is(err, ledger.ErrTooMany) {
		t.Errorf("a version too many: %v", err)
	}
	for what, c := range map[string]struct {
		version int64
		prefix  string
		want    ledger.Agent
	}{"newest": {0, "", three}, "first": {1, "", one}, "by hash": {0, "bb2", two}, "the newer of a hash": {0, "aa", three}} {
		if got, err := l.Agent(ctx, "acme", "desk", c.version, c.prefix); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, %v, want %+v", what, got, err, c.want)
		}
	}
	for _, none := range []struct {
		tenant, name string
		version      int64
		prefix       string
	}{{"", "desk", 0, ""}, {"acme", "Desk", 0, ""}, {"acme", "desk", 4, ""}, {"acme", "desk", 0, "ff"}, {"acme", "desk", 1, "bb"}} {
		if _, err := l.Agent(ctx, none.tenant, none.name, none.version, none.prefix); !errors.Is(err, ledger.ErrNoAgent) {
			t.Errorf("%+v: %v", none, err)
		}
	}
	shop := must("acme", "shop", "ee55", 1, epoch) // as old as desk
	late := must("acme", "late", "ff66", 1, epoch.Add(time.Minute))
	if _, _, err := add("acme", "fourth", "aa11", ledger.AnyVersion, epoch); !errors.Is(err, ledger.ErrTooMany) {
		t.Errorf("a name too many: %v", err)
	}
	must("umbrella", "desk", "aa11", 1, epoch)
	pages(t, l, ledger.AgentQuery{Tenant: "acme"}, late, shop, three)
	pages(t, l, ledger.AgentQuery{Tenant: "acme", Name: "desk"}, three, two, one)
	archived, err := l.ArchiveAgent(ctx, "acme", "shop", epoch.Add(3*time.Hour))
	if err != nil || archived.Archived != epoch.Add(3*time.Hour) {
		t.Errorf("archived %+v, %v", archived, err)
	}
	if again, err := l.ArchiveAgent(ctx, "acme", "shop", epoch.Add(4*time.Hour)); err != nil || !reflect.DeepEqual(again, archived) {
		t.Errorf("archived again %+v, %v", again, err)
	}
	if _, err := l.ArchiveAgent(ctx, "acme", "nobody", epoch); !errors.Is(err, ledger.ErrNoAgent) {
		t.Errorf("archived nobody: %v", err)
	}
	if _, _, err := add("acme", "shop", "ee55", ledger.AnyVersion, epoch); !errors.Is(err, ledger.ErrAgentArchived) {
		t.Errorf("a version of an archived agent: %v", err)
	}
	pages(t, l, ledger.AgentQuery{Tenant: "acme"}, late, three)
	pages(t, l, ledger.AgentQuery{Tenant: "acme", Archived: true}, late, archived, three)
	pages(t, l, ledger.AgentQuery{Tenant: "acme", Name: "shop"}, archived)
	if n, err := l.RemoveAgentsOf(ctx, "acme", "ann"); err != nil || n != 0 {
		t.Errorf("forgot the maker of %d, %v", n, err)
	}
	if a, err := l.Agent(ctx, "acme", "desk", 0, ""); err != nil || a.Maker != "" {
		t.Errorf("made by %q, %v", a.Maker, err)
	}
	if err := l.RemoveAgent(ctx, "acme", "desk"); err != nil {
		t.Error(err)
	}
	if err := l.RemoveAgent(ctx, "acme", "desk"); !errors.Is(err, ledger.ErrNoAgent) {
		t.Errorf("removed twice: %v", err)
	}
	must("acme", "desk", "aa11", 1, epoch.Add(5*time.Hour)) // begins anew
	if n, err := l.RemoveAgentsOf(ctx, "acme", ""); err != nil || n != 3 {
		t.Errorf("removed %d, %v", n, err)
	}
	pages(t, l, ledger.AgentQuery{Tenant: "acme", Archived: true})
	if a, err := l.Agent(ctx, "umbrella", "desk", 0, ""); err != nil || a.Maker != "ann" {
		t.Errorf("another tenant's: %+v, %v", a, err)
	}
}

// pages reads a list one by one, and as a whole.
func pages(t *testing.T, l ledger.Ledger, q ledger.AgentQuery, want ...ledger.Agent) {
	t.Helper()
	for limit := 1; limit <= len(want)+1; limit += max(len(want), 1) {
		q.Limit, q.After = limit, nil
		var got []ledger.Agent
		for {
			page, err := l.Agents(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			if got = append(got, page...); len(page) < limit {
				break
			}
			q.After = &page[len(page)-1]
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, %d at a time: %+v, want %+v", q, limit, got, want)
		}
	}
}

// objects is what a ledger does with objects of faces.
func objects(t *testing.T, l ledger.Ledger) {
	ctx := t.Context()
	at := ledger.Object{Tenant: "acme", Face: "f", Kind: "k", ID: "a", Data: []byte("\x00é"), Maker: "ann"}
	if _, err := l.Object(ctx, at); !errors.Is(err, ledger.ErrNoObject) {
		t.Errorf("an object that is not there: %v", err)
	}
	if n, err := l.PutObject(ctx, at, 3); err != nil || n != 1 {
		t.Fatalf("version %d, %v", n, err)
	}
	var changed *ledger.ChangedError
	if _, err := l.PutObject(ctx, at, 3); !errors.As(err, &changed) || changed.Version != 1 {
		t.Errorf("a second new one: %v", err)
	}
	at.Version, at.Data = 1, []byte("two")
	if n, err := l.PutObject(ctx, at, 1); err != nil || n != 2 { // a change needs no room
		t.Errorf("version %d, %v", n, err)
	}
	at.Version = 2
	if got, err := l.Object(ctx, at); err != nil || !reflect.DeepEqual(got, at) {
		t.Errorf("%+v, %v, want %+v", got, err, at)
	}
	for i, other := range []ledger.Object{
		{Tenant: "acme", Face: "f", Kind: "k", ID: "b", Data: []byte("b"), Maker: "ben"},
		{Tenant: "acme", Face: "f", Kind: "l", ID: "a", Data: []byte("l"), Maker: "ann"},
		{Tenant: "acme", Face: "g", Kind: "k", ID: "a", Data: []byte("g"), Maker: "ann"},
		{Tenant: "umbrella", Face: "f", Kind: "k", ID: "a", Data: []byte("u"), Maker: "ann"},
	} {
		if n, err := l.PutObject(ctx, other, 3); err != nil || n != 1 {
			t.Errorf("other %d: %d, %v", i, n, err)
		}
	}
	if _, err := l.PutObject(ctx, ledger.Object{Tenant: "acme", Face: "f", Kind: "k", ID: "z", Data: []byte("z")}, 3); !errors.Is(err, ledger.ErrTooMany) {
		t.Errorf("one too many: %v", err)
	}
	list := func(after string, limit int) (ids string) {
		all, err := l.Objects(ctx, ledger.Object{Tenant: "acme", Face: "f", Kind: "k", ID: after}, limit)
		for _, o := range all {
			ids += fmt.Sprintf("%s=%s ", o.ID, o.Data)
		}
		if err != nil {
			t.Error(err)
		}
		return ids
	}
	if a, b, c := list("", 9), list("", 1), list("a", 9); a != "a=two b=b " || b != "a=two " || c != "b=b " {
		t.Errorf("lists %q, %q, %q", a, b, c)
	}
	of := func(user string) (ids string) {
		for after := (ledger.Object{Tenant: "acme"}); ; {
			page, err := l.ObjectsOf(ctx, user, after, 1)
			if err != nil {
				t.Fatal(err)
			}
			if len(page) == 0 {
				return ids
			}
			after = page[0]
			ids += after.Face + after.Kind + after.ID + " "
		}
	}
	if all, anns := of(""), of("ann"); all != "fka fkb fla gka " || anns != "fka fla gka " {
		t.Errorf("objects of the tenant %q, of ann %q", all, anns)
	}
	if err := l.RemoveObject(ctx, at); err != nil {
		t.Error(err)
	}
	if err := l.RemoveObject(ctx, at); !errors.Is(err, ledger.ErrNoObject) {
		t.Errorf("removed twice: %v", err)
	}
	if n, err := l.RemoveObjectsOf(ctx, "acme", "ann"); err != nil || n != 2 {
		t.Errorf("removed %d of ann, %v", n, err)
	}
	if n, err := l.RemoveObjectsOf(ctx, "acme", ""); err != nil || n != 1 {
		t.Errorf("removed %d, %v", n, err)
	}
	if _, err := l.Object(ctx, ledger.Object{Tenant: "umbrella", Face: "f", Kind: "k", ID: "a"}); err != nil {
		t.Errorf("another tenant's: %v", err)
	}
}
