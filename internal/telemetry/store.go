package telemetry

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// Store returns the store with its appends measured, and with the ends of turns counted that they write.
func (m *Metrics) Store(s store.Store) store.Store { return &measured{s, m} }

type measured struct {
	store.Store
	m *Metrics
}

// Append implements store.Store.
func (s *measured) Append(ctx context.Context, b store.Batch) error {
	began := time.Now()
	err := s.Store.Append(ctx, b)
	s.m.appends.WithLabelValues(appended(err)).Observe(time.Since(began).Seconds())
	if err == nil {
		s.m.endsOf(&b)
	}
	return err
}

// appended names the outcome of an append.
func appended(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, store.ErrFull):
		return "full"
	case errors.Is(err, store.ErrFailed):
		return "failed"
	case errors.Is(err, store.ErrConflict):
		return "conflict"
	}
	return "error"
}

// endsOf counts the turns that a batch ends. Their rows have the statuses.
func (m *Metrics) endsOf(b *store.Batch) {
	for _, rec := range b.Records {
		if rec.Kind != record.KindTurnEnded && rec.Kind != record.KindTurnDropped {
			continue
		}
		for _, row := range b.Rows {
			if row.Kind == store.RowTurn && row.ID == rec.TurnID {
				m.ended.WithLabelValues(ending(row.Status)).Inc()
				break
			}
		}
		if rec.Kind == record.KindTurnEnded {
			m.limitOf(rec)
		}
	}
}

// ending is the label of a status of a row; see package index.
func ending(status string) string {
	switch status {
	case "succeeded", "failed", "canceled":
		return status
	}
	return other
}

// limitOf counts the limit that has ended a turn, if one has.
func (m *Metrics) limitOf(rec record.Record) {
	var end record.TurnEnded
	if json.Unmarshal(rec.Data, &end) == nil && end.Limit != nil {
		m.LimitHit(end.Limit.Name)
	}
}
