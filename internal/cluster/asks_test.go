package cluster

import (
	"errors"
	"testing"

	"github.com/apzuk3/agentd/internal/test/pgserver"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/store"
)

// TestAsks has members ask the owner of a session, which hears it with its beat and answers under its epoch.
func TestAsks(t *testing.T) {
	t.Parallel()
	d := newDB(t, pgserver.URL(t))
	a, b := d.join("a", ""), d.join("b", "")
	id := d.sessions(1, "s", true)[0]
	claim, err := a.Claim(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(wants bool, want int64) {
		t.Helper()
		if settled, heard, err := b.Ask(t.Context(), id, wants); err != nil || !heard || settled != want {
			t.Errorf("asked: %d, %v, %v; want %d", settled, heard, err, want)
		}
	}
	settle := func(m *member, epoch, settled int64) {
		t.Helper()
		if err := m.Settle(t.Context(), id, epoch, settled); err != nil {
			t.Error(err)
		}
	}
	heard := func(m *member, want ...asked) {
		t.Helper()
		await(t, "what others ask is heard", func() bool {
			var got []asked
			m.Asked(func(key string, follows bool, settled int64, wants string) {
				got = append(got, asked{key, follows, settled, wants})
			})
			return len(got) == len(want) && (len(want) == 0 || got[0] == want[0])
		})
	}
	ask(false, 0)
	heard(a, asked{key: id, follows: true})
	heard(b)
	settle(a, claim.Epoch, 7)
	settle(a, claim.Epoch-1, 9) // of an epoch that is over
	settle(b, claim.Epoch, 9)   // of a member that does not own it
	ask(false, 7)
	ask(true, 7)
	heard(a, asked{key: id, follows: true, settled: 7, wants: "http://b"})
	if err := a.Release(t.Context(), id, claim.Epoch, session.Never); err != nil {
		t.Fatal(err)
	}
	heard(a)
	if _, err := b.Claim(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	ask(false, 0) // another epoch
	heard(b, asked{key: id, follows: true})
	if _, _, err := b.Ask(t.Context(), "nobody's", false); !errors.Is(err, store.ErrNoSession) {
		t.Errorf("of no session: %v", err)
	}
	// What is old is void, and removed; what is of a session that is deleted goes with it.
	if _, err := d.pool.Exec(t.Context(), `UPDATE asks SET followed_at = now() - interval '1 hour', wanted_at = NULL`); err != nil {
		t.Fatal(err)
	}
	await(t, "what is void is removed", func() bool {
		for _, m := range []*member{a, b} {
			if _, err := m.Due(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
		}
		var n int
		err := d.pool.QueryRow(t.Context(), `SELECT count(*) FROM asks`).Scan(&n)
		return err == nil && n == 0
	})
	// Nobody asks beside one that does not hear it.
	if _, err := d.pool.Exec(t.Context(), `UPDATE replicas SET features = '{f}' WHERE id = $1`, a.ID()); err != nil {
		t.Fatal(err)
	}
	await(t, "a member is seen that does not hear what is asked", func() bool {
		_, heard, err := b.Ask(t.Context(), id, false)
		return err == nil && !heard
	})
}
