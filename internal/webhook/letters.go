package webhook

import (
	"context"
	"time"

	"github.com/apzuk3/agentd/session/store"
)

// Letters are the notices of a database as an operator sees them. Its methods may be called from any goroutine, also
// while a Sender runs.
type Letters struct{ queue queue }

// LettersIn returns those of a database.
func LettersIn(db DB) Letters { return Letters{queue{db}} }

// Standing is how the notices of a hook are.
type Standing struct {
	Hook          string    `json:"hook"`
	Waiting, Dead int64     `json:"-"`
	Oldest        time.Time `json:"-"` // of those that wait; zero for none
}

// Standings are those of all hooks that have notices, by their names.
func (l Letters) Standings(ctx context.Context) (map[string]Standing, error) {
	all, err := l.queue.counts(ctx)
	out := make(map[string]Standing, len(all))
	for hook, s := range all {
		out[hook] = Standing{hook, s.n[waiting], s.n[dead], s.oldest}
	}
	return out, err
}

// Letter is a notice that was given up.
type Letter struct {
	ID, Hook, Event                    string
	Tenant, Session, Turn, Interaction string
	// At is when the fact happened, Died when the notice was given up after so many attempts, the last one with Error.
	At, Died time.Time
	Attempts int64
	Error    string
}

// Dead are dead letters, the newest first, of a hook or, if that is "", of all: those behind after, nil for the first
// page.
func (l Letters) Dead(ctx context.Context, hook string, after *Letter, limit int) ([]Letter, error) {
	var before *delivery
	if after != nil {
		before = &delivery{Notice: store.Notice{ID: after.ID}, since: after.Died}
	}
	all, err := l.queue.dead(ctx, hook, before, limit)
	out := make([]Letter, len(all))
	for i := range all {
		d := &all[i]
		out[i] = Letter{
			ID: d.ID, Hook: d.Hook, Event: d.Event, Tenant: d.tenant, Turn: d.TurnID, At: d.At, Died: d.since,
			Attempts: d.attempts, Error: d.err,
		}
		_, out[i].Session = (&store.Batch{SessionID: d.session}).Names()
		if Event(d.Event) == InteractionRequested {
			out[i].Interaction = d.Subject
		}
	}
	return out, err
}

// Retry has one dead letter be sent again, and reports whether there is one of the id.
func (l Letters) Retry(ctx context.Context, id string) (bool, error) {
	n, err := l.queue.retry(ctx, id, "", time.Now())
	return n > 0, err
}

// RetryAll has all dead letters of a hook be sent again, and returns how many.
func (l Letters) RetryAll(ctx context.Context, hook string) (int64, error) {
	return l.queue.retry(ctx, "", hook, time.Now())
}

// RemoveOf removes the notices of a tenant.
func (l Letters) RemoveOf(ctx context.Context, tenant string) error {
	return l.queue.removeOf(ctx, tenant)
}
