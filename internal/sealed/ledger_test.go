package sealed

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/internal/ledger"
	"github.com/apzuk3/agentd/internal/ledger/ledgertest"
	"github.com/apzuk3/agentd/internal/ledger/sqlledger"
	"github.com/apzuk3/agentd/session/store"
	"github.com/apzuk3/agentd/session/store/sqlite"
)

// A sealed ledger does what every ledger must.
func TestLedger(t *testing.T) {
	t.Parallel()
	open := func(t *testing.T) (*sqlite.Store, ledger.Ledger) {
		s := openInner(t, t.TempDir(), sqlite.Config{})
		t.Cleanup(func() { closed(t, s) })
		return s, NewLedger(sqlledger.New(s), openRing(t, s, keys(t, "a")))
	}
	ledgertest.Run(t, func(t *testing.T) ledger.Ledger { _, l := open(t); return l })
	ledgertest.RunDatabase(t, func(t *testing.T) ledgertest.Database {
		s, l := open(t)
		return ledgertest.Database{Store: New(s, l.(*Ledger).ring), Ledger: l}
	})
}

// ledgerOf gives the values of the ledger of a database to who changes them.
func ledgerOf(s *sqlite.Store) LedgerRecoder {
	return func(ctx context.Context, c interface {
		Agent(ctx context.Context, a *ledger.Agent) error
		Object(ctx context.Context, o *ledger.Object) error
		Failed(err error) error
	},
	) (int64, error) {
		return sqlledger.Recode(ctx, s, c)
	}
}

// callers is what callers have a server keep: the canary is in all of it.
type callers struct {
	store  store.Store
	ledger ledger.Ledger
}

func (c callers) agent(tenant, name string) ledger.Agent {
	content := []byte(`{"agent":"` + canary + " " + tenant + name + `"}`)
	sum := sha256.Sum256(content)
	return ledger.Agent{Tenant: tenant, Name: name, Hash: hex.EncodeToString(sum[:]), Content: content, Created: at}
}

func (c callers) object(tenant, id string) ledger.Object {
	return ledger.Object{Tenant: tenant, Face: "f", Kind: "k", ID: id, Data: []byte(canary + " " + tenant + id)}
}

func (c callers) metadata(id string) string { return `{"of":"` + canary + " " + id + `"}` }

// put writes an agent, an object and a session of a name.
func (c callers) put(t testing.TB, tenant, name string) {
	t.Helper()
	if _, _, err := c.ledger.AddAgent(t.Context(), c.agent(tenant, name), ledger.AnyVersion, 1000, 1000); err != nil {
		t.Fatal(err)
	}
	if _, err := c.ledger.PutObject(t.Context(), c.object(tenant, name), 1000); err != nil {
		t.Fatal(err)
	}
	n := store.NewSession{ID: tenant + "/" + name, CreatedAt: at, Metadata: c.metadata(tenant + "/" + name)}
	if err := c.store.Create(t.Context(), n, nil); err != nil {
		t.Fatal(err)
	}
}

// has checks what put has written.
func (c callers) has(t testing.TB, tenant, name string) {
	t.Helper()
	want, object, id := c.agent(tenant, name), c.object(tenant, name), tenant+"/"+name
	a, err := c.ledger.Agent(t.Context(), tenant, name, 0, want.Hash[:8])
	if err != nil || !bytes.Equal(a.Content, want.Content) || a.Hash != want.Hash {
		t.Errorf("agent %s: %s %s, %v", name, a.Hash, a.Content, err)
	}
	o, err := c.ledger.Object(t.Context(), object)
	if err != nil || !bytes.Equal(o.Data, object.Data) {
		t.Errorf("object %s: %s, %v", name, o.Data, err)
	}
	i, err := c.store.Info(t.Context(), id)
	if err != nil || i.Metadata != c.metadata(id) {
		t.Errorf("session %s: %s, %v", id, i.Metadata, err)
	}
	_, made, err := c.ledger.AddAgent(t.Context(), want, ledger.AnyVersion, 1000, 1000)
	if err != nil || made {
		t.Errorf("the same agent once more: a new version: %v, %v", made, err)
	}
}

// What callers have a server keep is nowhere clear; what was written before is read, and sealed when all is sealed again.
func TestCallersValues(t *testing.T) {
	dir := t.TempDir()
	plain := openInner(t, dir, sqlite.Config{})
	before := callers{plain, sqlledger.New(plain)}
	for _, tenant := range []string{"", "acme"} {
		before.put(t, tenant, "before")
	}
	closed(t, plain)
	if !inFiles(t, dir) {
		t.Fatal("the canary is not in the files of a clear database")
	}
	s := openInner(t, dir, sqlite.Config{})
	ring := openRing(t, s, keys(t, "a"))
	now := callers{New(s, ring), NewLedger(sqlledger.New(s), ring)}
	for _, tenant := range []string{"", "acme"} {
		now.put(t, tenant, "after")
		now.has(t, tenant, "before")
		now.has(t, tenant, "after")
	}
	reseal := func(want string) {
		t.Helper()
		if _, err := (Sealings{s}).Add(t.Context()); err != nil {
			t.Fatal(err)
		}
		x, err := Sealings{s}.Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		result, err := ring.Seal(t.Context(), s, ledgerOf(s), x)
		if err != nil || result != want {
			t.Errorf("%q, %v, want %q", result, err, want)
		}
	}
	reseal("sealed 12 values, removed 1 old data keys")
	reseal("sealed 12 values, removed 1 old data keys") // which cannot be opened by the key before
	for _, tenant := range []string{"", "acme"} {
		now.has(t, tenant, "before")
		now.has(t, tenant, "after")
	}
	changed := now.metadata("changed")
	if i, err := now.store.Update(t.Context(), "acme/after", store.Change{Metadata: &changed}); err != nil || i.Metadata != changed {
		t.Errorf("changed: %s, %v", i.Metadata, err)
	}
	closed(t, s)
	if inFiles(t, dir) {
		t.Error("the canary is in the files")
	}
	s = openInner(t, dir, sqlite.Config{})
	defer closed(t, s)
	ring = openRing(t, s, keys(t, "a"))
	now = callers{New(s, ring), NewLedger(sqlledger.New(s), ring)}
	now.has(t, "", "after")
	if all, err := now.store.Sessions(t.Context(), store.InfoQuery{Limit: 10}); err != nil || len(all) != 4 || !strings.Contains(all[0].Metadata, canary) {
		t.Errorf("sessions %+v, %v", all, err)
	}
}

// What was moved to another place is damaged: one that checks a database finds it, and nothing else.
func TestMovedCallersValues(t *testing.T) {
	for name, query := range map[string]string{
		"an agent":    `UPDATE agent_versions SET content = (SELECT content FROM agent_versions WHERE name = 'b') WHERE name = 'a'`,
		"an object":   `UPDATE objects SET data = (SELECT data FROM objects WHERE id = 'b') WHERE id = 'a'`,
		"of a tenant": `UPDATE objects SET data = (SELECT data FROM objects WHERE tenant = 'acme' AND id = 'a') WHERE tenant = '' AND id = 'a'`,
		"metadata":    `UPDATE sessions SET metadata = (SELECT metadata FROM sessions WHERE id = '/b') WHERE id = '/a'`,
	} {
		t.Run(name, func(t *testing.T) {
			s := openInner(t, t.TempDir(), sqlite.Config{})
			defer closed(t, s)
			ring := openRing(t, s, keys(t, "a"))
			c := callers{New(s, ring), NewLedger(sqlledger.New(s), ring)}
			for _, n := range []string{"a", "b"} {
				c.put(t, "", n)
			}
			c.put(t, "acme", "a")
			execute(t, s, query)
			var found []error
			_, err := sqlledger.Recode(t.Context(), s, Opens{ring, func(err error) error { found = append(found, err); return nil }})
			if _, infoErr := c.store.Info(t.Context(), "/a"); infoErr != nil {
				found = append(found, infoErr)
			}
			want := 1
			if strings.HasPrefix(name, "an ") { // of the tenant, too
				want = 2
			}
			if err != nil || len(found) != want || !errors.Is(found[0], store.ErrDamaged) {
				t.Errorf("found %v, %v", found, err)
			}
			c.has(t, "", "b")
			if want == 1 {
				c.has(t, "acme", "a")
			}
		})
	}
}
