package session

import (
	"context"
	"fmt"

	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/refusal"
)

// place takes a place among the turns of a tenant at all servers, for a turn that is about to start, until leave is
// called. The turn that runs has one of its own.
func (m *Manager) place(ctx context.Context, payer string) (leave func(), err error) {
	if m.places == nil || payer == "" {
		return func() {}, nil
	}
	most := m.limits().MaxTenantTurns
	took, err := m.places.Take(ctx, payer, most)
	switch {
	case err != nil:
		return nil, &fault.Error{
			Code: fault.Unavailable, Err: fmt.Errorf("%w: %w", errNoRoom, err), RetryAfter: refusal.Later,
			Message: "the server cannot tell now how many turns of the tenant other servers run; try again later",
		}
	case !took:
		return nil, &fault.Error{
			Code: fault.Unavailable, Err: errNoRoom, RetryAfter: refusal.Later,
			Message: fmt.Sprintf("the tenant runs %d turns at all servers, its limit; try again later", most),
			Limit:   &fault.Limit{Name: "tenant_turns", Value: int64(most), Received: int64(most + 1)},
		}
	}
	return func() { m.places.Leave(payer) }, nil
}

// runs notes that a turn of a tenant runs, which has its place in any case.
func (m *Manager) runs(payer string) {
	if payer != "" {
		m.places.Hold(payer)
	}
}

// ran notes the end of what runs has noted.
func (m *Manager) ran(payer string) {
	if payer != "" {
		m.places.Leave(payer)
	}
}
