package daemon

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/apzuk3/agentd/internal/cluster"
	"github.com/apzuk3/agentd/internal/telemetry"
	"github.com/apzuk3/agentd/session/store/postgres"
)

// Survey is what a database says of the replicas that share it.
type Survey = cluster.Survey

// LookAtCluster reads a database of PostgreSQL for as long as watch, or until it has seen a beat of each replica; see
// cluster.Look. It is no replica.
func LookAtCluster(ctx context.Context, url Secret, watch time.Duration) (_ Survey, err error) {
	db, err := postgres.Open(ctx, string(url), postgres.Config{ReadOnly: true})
	if err != nil {
		return Survey{}, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return cluster.Look(ctx, db.Pool(), watch)
}

// seenReplicas is what the metrics say of the other replicas.
func (d *Daemon) seenReplicas(ctx context.Context) (telemetry.Replicas, bool) {
	m := d.owner.Load()
	if m == nil {
		return telemetry.Replicas{}, false
	}
	l, err := m.Load(ctx)
	if err != nil {
		d.log.Warn("sessions that are due cannot be counted", slog.String("error", err.Error()))
	}
	return telemetry.Replicas{
		Alive: l.Alive, Draining: l.Draining, Dead: l.Dead, Takeovers: l.Takeovers,
		DueKnown: err == nil, Due: l.Due, OldestDue: l.OldestDue,
	}, true
}
