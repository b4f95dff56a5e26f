package cluster

import (
	"testing"
	"time"

	"github.com/apzuk3/agentd/internal/test/pgserver"
)

// TestLook: from outside it is seen who lives, drains and is dead, what each owns and has taken over, and what waits.
func TestLook(t *testing.T) {
	t.Parallel()
	d := newDB(t, pgserver.URL(t))
	look := func() Survey {
		t.Helper()
		s, err := Look(t.Context(), d.pool, patience)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if s := look(); len(s.Replicas) != 0 || s.Lag != (Lag{}) {
		t.Errorf("without replicas: %+v", s)
	}
	a, b := d.join("a", ""), d.join("b", "")
	open, rest := d.sessions(3, "open", true), d.sessions(1, "rest", false)
	a.claims(open[0])
	a.claims(open[1])
	a.claims(rest[0])
	if _, err := d.pool.Exec(t.Context(), `UPDATE heads SET due_at = now() - interval '1 hour' WHERE id = $1`, open[2]); err != nil {
		t.Fatal(err)
	}
	if err := b.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := look()
	if len(s.Replicas) != 2 || s.Due != 1 || s.OldestDue < time.Hour || s.Orphans != 0 {
		t.Fatalf("looked and saw %+v", s)
	}
	if r := s.Replicas[0]; r.Name != "a" || r.Address != "http://a" || r.State != Alive || r.Sessions != 3 || r.OpenTurns != 2 || !r.Locked {
		t.Errorf("one that lives: %+v", r)
	}
	if r := s.Replicas[1]; r.State != Draining || r.Sessions != 0 || r.Takeovers != 0 || r.LastTakeover != nil {
		t.Errorf("one that drains: %+v", r)
	}
	a.kill()
	if s := look(); s.Replicas[0].State != Dead || s.Orphans != 2 || s.Replicas[1].State != Draining {
		t.Errorf("one that was killed: %+v", s)
	}
	b.takes(open[0])
	b.claims(open[0]) // once more, which is no takeover
	await(t, "the takeover is seen", func() bool { return look().Replicas[1].Takeovers == 1 })
	if r := look().Replicas[1]; r.LastTakeover == nil || r.Sessions != 1 {
		t.Errorf("behind a takeover: %+v", r)
	}
	l, err := b.Load(t.Context())
	if err != nil || l.Alive != 0 || l.Draining != 1 || l.Dead != 1 || l.Takeovers != 1 || l.Due != 1 || l.OldestDue < time.Hour {
		t.Errorf("the load is %+v, %v", l, err)
	}
}
