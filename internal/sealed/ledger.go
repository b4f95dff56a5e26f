package sealed

import (
	"context"
	"time"

	"github.com/apzuk3/agentd/internal/ledger"
)

// Ledger is a ledger.Ledger that seals what agents say and what objects have. Names, versions, times, and the hashes
// by which agents are told apart stay clear.
type Ledger struct {
	ledger.Ledger
	ring *Ring
}

var _ ledger.Ledger = (*Ledger)(nil)

// NewLedger returns a ledger over another one, with the keys of a ring.
func NewLedger(inner ledger.Ledger, ring *Ring) *Ledger { return &Ledger{inner, ring} }

// AddAgent implements ledger.Ledger.
func (l *Ledger) AddAgent(
	ctx context.Context, a ledger.Agent, read int64, names, versions int,
) (_ ledger.Agent, made bool, err error) {
	w, err := l.ring.write(ctx, 1)
	if err != nil {
		return ledger.Agent{}, false, err
	}
	defer w.end()
	a.Content = w.seal(agentPlace(&a), a.Content)
	out, made, err := l.Ledger.AddAgent(ctx, a, read, names, versions)
	return l.agent(ctx, out, made, err)
}

// Agent implements ledger.Ledger.
func (l *Ledger) Agent(
	ctx context.Context, tenant, name string, version int64, prefix string,
) (ledger.Agent, error) {
	a, err := l.Ledger.Agent(ctx, tenant, name, version, prefix)
	a, _, err = l.agent(ctx, a, false, err)
	return a, err
}

// Agents implements ledger.Ledger.
func (l *Ledger) Agents(ctx context.Context, q ledger.AgentQuery) ([]ledger.Agent, error) {
	all, err := l.Ledger.Agents(ctx, q)
	for i := range all {
		if err == nil {
			err = l.ring.openAgent(ctx, &all[i])
		}
	}
	if err != nil {
		return nil, err
	}
	return all, nil
}

// ArchiveAgent implements ledger.Ledger.
func (l *Ledger) ArchiveAgent(ctx context.Context, tenant, name string, at time.Time) (ledger.Agent, error) {
	a, err := l.Ledger.ArchiveAgent(ctx, tenant, name, at)
	a, _, err = l.agent(ctx, a, false, err)
	return a, err
}

// agent opens what the other ledger returns.
func (l *Ledger) agent(ctx context.Context, a ledger.Agent, made bool, err error) (ledger.Agent, bool, error) {
	if err == nil {
		err = l.ring.openAgent(ctx, &a)
	}
	if err != nil {
		return ledger.Agent{}, false, err
	}
	return a, made, nil
}

// PutObject implements ledger.Ledger.
func (l *Ledger) PutObject(ctx context.Context, o ledger.Object, most int) (version int64, err error) {
	w, err := l.ring.write(ctx, 1)
	if err != nil {
		return 0, err
	}
	defer w.end()
	o.Data = w.seal(objectPlace(&o), o.Data)
	return l.Ledger.PutObject(ctx, o, most)
}

// Object implements ledger.Ledger.
func (l *Ledger) Object(ctx context.Context, o ledger.Object) (ledger.Object, error) {
	out, err := l.Ledger.Object(ctx, o)
	if err == nil {
		err = l.ring.openObject(ctx, &out)
	}
	if err != nil {
		return ledger.Object{}, err
	}
	return out, nil
}

// Objects implements ledger.Ledger.
func (l *Ledger) Objects(ctx context.Context, o ledger.Object, limit int) ([]ledger.Object, error) {
	all, err := l.Ledger.Objects(ctx, o, limit)
	return l.objects(ctx, all, err)
}

// ObjectsOf implements ledger.Ledger.
func (l *Ledger) ObjectsOf(
	ctx context.Context, user string, after ledger.Object, limit int,
) ([]ledger.Object, error) {
	all, err := l.Ledger.ObjectsOf(ctx, user, after, limit)
	return l.objects(ctx, all, err)
}

func (l *Ledger) objects(ctx context.Context, all []ledger.Object, err error) ([]ledger.Object, error) {
	for i := range all {
		if err == nil {
			err = l.ring.openObject(ctx, &all[i])
		}
	}
	if err != nil {
		return nil, err
	}
	return all, nil
}

func (r *Ring) openAgent(ctx context.Context, a *ledger.Agent) (err error) {
	a.Content, err = r.open(ctx, agentPlace(a), a.Content)
	return within(err, "version %d of agent %q", a.Version, a.Name)
}

func (r *Ring) openObject(ctx context.Context, o *ledger.Object) (err error) {
	o.Data, err = r.open(ctx, objectPlace(o), o.Data)
	return within(err, "object %q of kind %q of face %q", o.ID, o.Kind, o.Face)
}

// The version of an agent is known only when it is written, so its place has the hash of what it says.
func agentPlace(a *ledger.Agent) []byte { return place("agent\x00", a.Tenant, a.Name, a.Hash) }

func objectPlace(o *ledger.Object) []byte { return place("object\x00", o.Tenant, o.Face, o.Kind, o.ID) }

// Agent seals a version of an agent again.
func (c *resealing) Agent(ctx context.Context, a *ledger.Agent) error {
	at := agentPlace(a)
	data, key, err := c.again(ctx, at, a.Content)
	if key != nil {
		a.Content = key.seal(at, data)
	}
	return within(err, "version %d of agent %q", a.Version, a.Name)
}

// Object seals an object again.
func (c *resealing) Object(ctx context.Context, o *ledger.Object) error {
	at := objectPlace(o)
	data, key, err := c.again(ctx, at, o.Data)
	if key != nil {
		o.Data = key.seal(at, data)
	}
	return within(err, "object %q of kind %q of face %q", o.ID, o.Kind, o.Face)
}

// Opens opens values and changes none: an argument for a LedgerRecoder. Failed receives those that do not open.
type Opens struct {
	Ring *Ring
	Fail func(error) error
}

// Agent opens a version of an agent.
func (o Opens) Agent(ctx context.Context, a *ledger.Agent) error {
	opened := *a
	return o.Ring.openAgent(ctx, &opened)
}

// Object opens an object.
func (o Opens) Object(ctx context.Context, x *ledger.Object) error {
	opened := *x
	return o.Ring.openObject(ctx, &opened)
}

// Failed implements the argument of a LedgerRecoder.
func (o Opens) Failed(err error) error { return o.Fail(err) }

// LedgerRecoder gives each value of a ledger to c as Recoder.Recode does; see sqlledger.Recode.
type LedgerRecoder func(ctx context.Context, c interface {
	Agent(ctx context.Context, a *ledger.Agent) error
	Object(ctx context.Context, o *ledger.Object) error
	Failed(err error) error
}) (changed int64, err error)
