package schedule

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"regexp"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/ledger"
	"github.com/apzuk3/agentd/internal/newid"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/principal"
	"github.com/apzuk3/agentd/session/record"
)

const (
	// mostSchedules is how many schedules a tenant may have.
	mostSchedules = 1000
	// mostBytes bounds what a run starts.
	mostBytes = 256 << 10
	// face and kind are those of the objects of the ledger. No face of a server may be called so.
	face, kind = "agentd/schedules", "execute"
)

var idRule = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$`)

// Config is what a Registry works with. All of it is required.
type Config struct {
	DB DB
	// Objects keeps what runs start.
	Objects ledger.Objects
	// Check refuses a tree that no turn may run, for the principal of the context.
	Check func(ctx context.Context, spec *record.Spec) error
}

// Registry keeps schedules. Its methods may be called from any goroutine; they are for the principal of the context. An
// error that a client may see is a *fault.Error.
type Registry struct {
	cfg   Config
	table table
	made  func() // called after a schedule was made
}

// New returns a registry. made is called after a schedule was made, and must not block.
func New(cfg Config, made func()) *Registry { return &Registry{cfg, table{cfg.DB}, made} }

func durationOf(d time.Duration) *durationpb.Duration { return durationpb.New(d) }

func timeOf(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// told is a schedule as clients read it.
func told(r *row, w work) *agentdv1.Schedule {
	out := &agentdv1.Schedule{
		Id: r.id, SessionId: r.session, Execute: w.ex, Goal: w.goal, CreatedBy: r.maker, CreateTime: timeOf(r.created),
		NextTime: timeOf(r.next), LastTime: timeOf(r.last), LastTurnId: r.turn, LastError: r.err, Runs: r.runs,
	}
	r.timing.proto(out)
	return out
}

// Create makes a schedule.
func (g *Registry) Create(
	ctx context.Context, req *agentdv1.CreateScheduleRequest,
) (*agentdv1.Schedule, error) {
	if id := req.GetId(); id != "" && !idRule.MatchString(id) {
		return nil, fault.Errorf(fault.Invalid, "id: a schedule is called by 1 to 128 of A-Z, a-z, 0-9 and . _ : @ -, "+
			"a letter or a digit first").Breaking("id", fault.RuleFormat)
	}
	when, err := timingOf(req)
	if err != nil {
		return nil, err
	}
	now := time.Now().UTC().Truncate(timesKept)
	all, err := when.times(now)
	if err != nil {
		return nil, err
	}
	w, err := workOf(req)
	if err != nil {
		return nil, err
	}
	if err := g.check(ctx, w); err != nil {
		return nil, err
	}
	ex, at := w.execute()
	when.Goal = w.goal != nil
	content, err := w.encoded()
	switch {
	case err != nil:
		return nil, err
	case len(content) > mostBytes:
		return nil, fault.Errorf(fault.LimitExceeded, "%s takes %d bytes, at most %d are allowed",
			at, len(content), mostBytes).
			Breaking(at, fault.RuleRange).Over("schedule_bytes", mostBytes, len(content))
	}
	by := principal.Of(ctx)
	r := &row{
		tenant: by.Tenant, id: req.GetId(), maker: by.ID, session: ex.GetSessionId(), timing: when, created: now,
		next: all.next(now),
	}
	if r.id == "" {
		r.id = newid.Session(now)
	}
	if r.session == "" {
		r.session = newid.Session(now)
	}
	if !when.At.IsZero() {
		r.next = when.At // also one that has passed
	}
	r.due = r.next
	return g.keep(ctx, r, w, content)
}

// keep writes a schedule: first what it starts, so that no row is without.
func (g *Registry) keep(
	ctx context.Context, r *row, w work, content []byte,
) (*agentdv1.Schedule, error) {
	switch before, err := g.table.get(ctx, r.tenant, r.id); {
	case err == nil:
		return g.repeated(ctx, &before, r, content)
	case !errors.Is(err, errNone):
		return nil, err
	}
	o := object(r.tenant, r.id)
	o.Data, o.Maker = content, r.maker
	// What a schedule of this id has left that is gone, or was never there.
	if err := g.cfg.Objects.RemoveObject(ctx, o); err != nil && !errors.Is(err, ledger.ErrNoObject) {
		return nil, err
	}
	_, err := g.cfg.Objects.PutObject(ctx, o, mostSchedules)
	if err == nil {
		err = g.table.add(ctx, r, mostSchedules)
	}
	if _, changed := errors.AsType[*ledger.ChangedError](err); changed || errors.Is(err, errExists) {
		return nil, fault.Errorf(fault.Conflict, "schedule %q is being made by another request: read it", r.id).
			Breaking("id", fault.RuleConflict)
	}
	if errors.Is(err, ledger.ErrTooMany) || errors.Is(err, errTooMany) {
		return nil, fault.Errorf(fault.LimitExceeded, "there are %d schedules, as many as there may be: delete some",
			mostSchedules).Over("schedules", mostSchedules, mostSchedules+1)
	}
	if err != nil {
		return nil, err
	}
	g.made()
	return told(r, w), nil
}

// repeated is the answer to a request for a schedule that there is.
func (g *Registry) repeated(ctx context.Context, before, r *row, content []byte) (*agentdv1.Schedule, error) {
	o, err := g.cfg.Objects.Object(ctx, object(r.tenant, r.id))
	if err != nil && !errors.Is(err, ledger.ErrNoObject) {
		return nil, err
	}
	same := before.timing.Cron == r.timing.Cron && before.timing.Zone == r.timing.Zone &&
		before.timing.Every == r.timing.Every && before.timing.At.Equal(r.timing.At) &&
		before.timing.Goal == r.timing.Goal && before.maker == r.maker
	if err != nil || !same || !bytes.Equal(o.Data, content) {
		return nil, fault.Errorf(fault.Conflict, "there is a schedule %q that says something else: delete it first",
			r.id).
			Breaking("id", fault.RuleConflict)
	}
	w, err := decoded(o.Data, before.timing.Goal)
	if err != nil {
		return nil, err
	}
	return told(before, w), nil
}

func object(tenant, id string) ledger.Object {
	return ledger.Object{Tenant: tenant, Face: face, Kind: kind, ID: id}
}

// notFound is the refusal of a schedule that there is not.
func notFound(id string) error {
	return fault.Errorf(fault.NotFound, "there is no schedule %.200q; ScheduleService.List says which there are", id)
}

// Get returns a schedule.
func (g *Registry) Get(ctx context.Context, id string) (*agentdv1.Schedule, error) {
	r, err := g.table.get(ctx, principal.Of(ctx).Tenant, id)
	var w work
	if err == nil {
		w, err = startedBy(ctx, g.cfg.Objects, &r)
	}
	if errors.Is(err, errNone) || errors.Is(err, ledger.ErrNoObject) {
		return nil, notFound(id)
	}
	if err != nil {
		return nil, err
	}
	return told(&r, w), nil
}

// List returns a page of schedules, and what the next page begins with, "" for none.
func (g *Registry) List(
	ctx context.Context, token string, limit int,
) (out []*agentdv1.Schedule, next string, err error) {
	after, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return nil, "", fault.Errorf(fault.Invalid,
			"page_token is none of this list: send the next_page_token of the page before").
			Breaking("page_token", fault.RuleFormat)
	}
	all, err := g.table.page(ctx, principal.Of(ctx).Tenant, string(after), limit+1)
	if err != nil {
		return nil, "", err
	}
	for i := range all {
		if i == limit {
			return out, base64.RawURLEncoding.EncodeToString([]byte(all[i-1].id)), nil
		}
		out = append(out, told(&all[i], listed(all[i].timing.Goal)))
	}
	return out, "", nil
}

// Delete removes a schedule.
func (g *Registry) Delete(ctx context.Context, id string) error {
	tenant := principal.Of(ctx).Tenant
	switch err := g.table.remove(ctx, tenant, id); {
	case errors.Is(err, errNone):
		return notFound(id)
	case err != nil:
		return err
	}
	if err := g.cfg.Objects.RemoveObject(ctx, object(tenant, id)); err != nil && !errors.Is(err, ledger.ErrNoObject) {
		return err
	}
	return nil
}

// RemoveOf removes the schedules of a tenant, or those that its user has made if that is not "", and returns how many.
// What they start is an object of the ledger, which removes it by itself.
func (g *Registry) RemoveOf(ctx context.Context, tenant, user string) (int64, error) {
	return g.table.removeOf(ctx, tenant, user)
}
