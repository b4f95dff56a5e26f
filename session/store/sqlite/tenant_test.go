package sqlite

import (
	"bytes"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// A database from before tenants were part of ids has the sessions of each under the tenant of their creator,
// with all that belongs to them; what had no tenant stays as it is.
func TestTenantsOfOlderDatabases(t *testing.T) {
	dir := t.TempDir()
	before := known(t)
	for name := range before {
		if name >= "00008" {
			delete(before, name)
		}
		if name == "00007_epoch.sql" { // writes need the tables
			_, spent, _ := bytes.Cut(known(t)["00010_spent.sql"].Data, []byte("-- +goose Up"))
			_, counts, _ := bytes.Cut(known(t)["00012_session_counts.sql"].Data, []byte("-- +goose Up"))
			counts, _, _ = bytes.Cut(counts, []byte("INSERT"))
			_, drops, _ := bytes.Cut(known(t)["00014_drop_payloads.sql"].Data, []byte("-- +goose Up"))
			_, says, _ := bytes.Cut(known(t)["00016_metadata.sql"].Data, []byte("-- +goose Up"))
			_, runs, _ := bytes.Cut(known(t)["00018_agents.sql"].Data, []byte("-- +goose Up"))
			runs, _, _ = bytes.Cut(runs, []byte("CREATE"))
			_, log, _ := bytes.Cut(known(t)["00022_eventlog.sql"].Data, []byte("-- +goose Up"))
			log, _, _ = bytes.Cut(log, []byte("CREATE INDEX"))
			_, notices, _ := bytes.Cut(known(t)["00024_notices.sql"].Data, []byte("-- +goose Up"))
			log = slices.Concat(log, notices)
			before[name] = &fstest.MapFile{Data: slices.Concat(before[name].Data, spent, counts, drops, says, runs, log)}
		}
	}
	s := open(t, dir, withMigrations(before))
	ctx := t.Context()
	for id, creator := range map[string]string{"plain": "ann", "mine": "acme/ann", "yours": "u%2Fv/bob"} {
		key := &store.Key{Scope: creator + ":session", Name: "k", SessionID: id}
		n := store.NewSession{ID: id, CreatedAt: start, Creator: creator, Labels: map[string]string{"k": "v"}}
		if err := s.Create(ctx, n, key); err != nil {
			t.Fatal(err)
		}
		b := store.Batch{SessionID: id, Records: []record.Record{
			{Seq: 1, TurnID: "t", Kind: record.KindTurnStarted, Time: start, Data: []byte(`{"n":1}`)},
			{Seq: 2, TurnID: "t", Kind: record.KindTurnEnded, Time: start, Data: []byte(`{"n":2}`)},
		}}
		b.Rows = []store.Row{{Kind: store.RowTurn, SessionID: id, ID: "t", TurnID: "t", Seq: 1, CreatedAt: start, Data: []byte("{}")}}
		mustAppend(t, s, b)
		f := store.Fork{From: id, Seq: 2, Into: store.NewSession{ID: "fork-of-" + id, CreatedAt: start, Creator: creator}}
		if err := s.Fork(ctx, f); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.SetShared(ctx, []store.SharedValue{{Scope: "app", Key: "motto", Value: []byte(`"all"`)}}); err != nil {
		t.Fatal(err)
	}
	mustClose(t, s)
	execSQL(t, dir, "DROP TABLE notices", "DROP TABLE agent_eventlog", "DROP TABLE spent", "DROP TABLE session_counts",
		"ALTER TABLE sessions DROP COLUMN drop_payloads",
		"ALTER TABLE sessions DROP COLUMN metadata", "ALTER TABLE sessions DROP COLUMN agent")

	s = open(t, dir)
	defer mustClose(t, s)
	for id, c := range map[string]struct{ key, tenant, creator, app string }{
		"plain": {"plain", "", "ann", "app"},
		"mine":  {"acme/mine", "acme", "acme/ann", "app:acme"},
		"yours": {"u%2Fv/yours", "u/v", "u%2Fv/bob", "app:u%2Fv"},
	} {
		recs, err := s.Read(ctx, c.key, 0, 10)
		if err != nil || len(recs) != 2 || string(recs[1].Data) != `{"n":2}` {
			t.Errorf("%s: the log is %v, %v", id, recs, err)
		}
		key, err := s.Key(ctx, c.creator+":session", "k")
		if err != nil || key.SessionID != c.key {
			t.Errorf("%s: the key is %+v, %v", id, key, err)
		}
		if row, err := s.Row(ctx, store.RowTurn, c.key, "t"); err != nil || row.SessionID != c.key {
			t.Errorf("%s: the row is %+v, %v", id, row, err)
		}
		list, err := s.Sessions(ctx, store.InfoQuery{Tenant: &c.tenant, Limit: 10})
		if err != nil || len(list) != 2 {
			t.Fatalf("%s: the tenant has the sessions %+v, %v", id, list, err)
		}
		list, err = s.Sessions(ctx, store.InfoQuery{Tenant: &c.tenant, Labels: map[string]string{"k": "v"}, Limit: 10})
		if err != nil || len(list) != 1 || list[0].ID != c.key || list[0].Creator != c.creator {
			t.Errorf("%s: the session is %+v, %v", id, list, err)
		}
		fork := c.key[:len(c.key)-len(id)] + "fork-of-" + id
		if info, err := s.Info(ctx, fork); err != nil || info.ForkedFrom != c.key {
			t.Errorf("%s: the fork is %+v, %v", id, info, err)
		}
		if app, err := s.Shared(ctx, c.app); err != nil || string(app["motto"]) != `"all"` {
			t.Errorf("%s: the shared state is %s, %v", id, app, err)
		}
		mustAppend(t, s, store.Batch{SessionID: c.key, After: 2, Records: []record.Record{
			{Seq: 3, TurnID: "u", Kind: record.KindTurnStarted, Time: start, Data: []byte("{}")},
		}})
	}
	// The sessions of a tenant from before are counted.
	for tenant, of := range map[string]store.NewSession{
		"acme": {ID: "acme/more", CreatedAt: start, MaxOfTenant: 2}, "u/v": {ID: "u%2Fv/more", CreatedAt: start, MaxOfTenant: 2},
	} {
		if err := s.Create(ctx, of, nil); !of.IsTooMany(err) {
			t.Errorf("a third session of %s: %v", tenant, err)
		}
	}
	if all, err := s.Sessions(ctx, store.InfoQuery{Limit: 10}); err != nil || len(all) != 6 {
		t.Errorf("there are %d sessions, %v", len(all), err)
	}
}

// TestMiscounted: a check finds sessions of tenants that are not counted right.
func TestMiscounted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	for _, id := range []string{"acme/a", "acme/b", "umbrella/a", "u%2Fv/a", "plain"} {
		mustCreate(t, s, id)
	}
	if problems, err := s.Integrity(t.Context()); err != nil || len(problems) > 0 {
		t.Errorf("%q, %v", problems, err)
	}
	mustClose(t, s)
	execSQL(t, dir, "UPDATE session_counts SET sessions = 3 WHERE tenant = 'acme'",
		"DELETE FROM session_counts WHERE tenant = 'umbrella'", "INSERT INTO session_counts VALUES ('gone', 1)")
	s = open(t, dir)
	defer mustClose(t, s)
	problems, err := s.Integrity(t.Context())
	slices.Sort(problems)
	want := []string{
		"the tenant acme has 2 sessions, and 3 are counted", "the tenant gone has 0 sessions, and 1 are counted",
		"the tenant umbrella has 1 sessions, and 0 are counted",
	}
	if err != nil || !slices.Equal(problems, want) {
		t.Errorf("%q, %v, want %q", problems, err, want)
	}
}
