package webhook

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// childData is what a background agent has reported to the session that has spawned it.
type childData struct {
	Name string `json:"name"`
	// Kind is alert, or completed, failed or stopped.
	Kind string `json:"kind"`
	// Ended is true if its goal has ended; then Turns and CostUSD are what it has used, with its own children.
	Ended   bool    `json:"ended"`
	Turns   int64   `json:"turns,omitempty"`
	CostUSD float64 `json:"cost_usd,omitempty"`
	// With content.
	Text string `json:"text,omitempty"`
}

// child is what a session has of a report.
func (s *Sender) child(ctx context.Context, h *Hook, d *delivery) (*childData, error) {
	recs, err := s.cfg.Reader.Read(ctx, d.session, d.Seq-1, 1)
	switch {
	case errors.Is(err, store.ErrNoSession):
		return nil, nil
	case err != nil:
		return nil, err
	case len(recs) == 0 || recs[0].Seq != d.Seq || recs[0].Kind != record.KindChildReported: // it was purged
		return nil, nil
	}
	var f record.ChildReported
	if err := json.Unmarshal(recs[0].Data, &f); err != nil {
		return nil, unreadable(&recs[0], err)
	}
	out := &childData{Name: f.Name, Kind: cmp.Or(f.Kind, "alert"), Ended: f.End != nil}
	if f.End != nil {
		out.Turns, out.CostUSD = f.End.Totals.Turns, f.End.Totals.Cost.Dollars()
	}
	if h.Content {
		out.Text = cut(f.Text)
	}
	return out, nil
}

// childFacts are the reports of background agents in a batch.
func childFacts(b *store.Batch) (out []fact, err error) {
	for i := range b.Records {
		r := &b.Records[i]
		if r.Kind != record.KindChildReported {
			continue
		}
		var f record.ChildReported
		if err := json.Unmarshal(r.Data, &f); err != nil {
			return nil, unreadable(r, err)
		}
		if f.Kind != record.AlertStarted {
			out = append(out, fact{ChildReported, "", f.Name, r})
		}
	}
	return out, nil
}
