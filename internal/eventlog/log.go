package eventlog

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/principal"
	"github.com/apzuk3/agentd/session/store"
)

// retryLater is how long a caller is asked to wait while the log cannot be read.
const retryLater = time.Second

// Log reads the event log for the principal of a context, who sees the events of its tenant. Its methods may be called
// from any goroutine.
type Log struct {
	events Source

	mu      sync.Mutex
	changed chan struct{} // closed and replaced by Tell; protected by mu
}

// NewLog returns the log of a store.
func NewLog(events Source) *Log { return &Log{events: events, changed: make(chan struct{})} }

// Tell closes what Changed has returned. It does not block.
func (l *Log) Tell() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.changed)
	l.changed = make(chan struct{})
}

// Changed returns a channel that is closed when this process appends an event next. It is a hint: what other servers
// over the database append, it does not say.
func (l *Log) Changed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

// Last returns the number of the last event of all, 0 for none.
func (l *Log) Last(ctx context.Context) (int64, error) {
	last, err := l.events.LastEvent(ctx)
	if err != nil {
		return 0, unreadable(ctx, err)
	}
	return last, nil
}

// Events returns at most limit events that match f and whose numbers are above after, the lowest number first.
func (l *Log) Events(
	ctx context.Context, after int64, f *agentdv1.EventFilter, limit int,
) ([]*agentdv1.LoggedEvent, error) {
	if f.GetTree() && f.GetSessionId() == "" {
		return nil, fault.Errorf(fault.Invalid,
			"filter.tree: which tree is meant? set filter.session_id, or leave tree out").
			Breaking("filter.tree", fault.RuleExcluded)
	}
	of := principal.Of(ctx).Tenant
	found, err := l.events.Events(ctx, store.EventQuery{
		Tenant: &of, After: after, SessionID: f.GetSessionId(), Tree: f.GetTree(), BranchPrefix: f.GetBranchPrefix(),
		Author: f.GetAuthor(), Limit: limit,
	})
	if err != nil {
		return nil, unreadable(ctx, err)
	}
	out := make([]*agentdv1.LoggedEvent, len(found))
	for i := range found {
		if out[i], err = proto(&found[i]); err != nil {
			return nil, unreadable(ctx, err)
		}
	}
	return out, nil
}

// unreadable is what a caller reads of an error of the store.
func unreadable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	e := fault.Errorf(fault.Unavailable, "the event log cannot be read now; try again later").After(retryLater)
	e.Err = fmt.Errorf("eventlog: %w", err)
	return e
}

// proto is the protocol's form of an event.
func proto(e *store.Event) (*agentdv1.LoggedEvent, error) {
	var user principal.Principal
	user.Read(e.User)
	_, session := e.Names()
	var members map[string]any
	if err := json.Unmarshal([]byte(e.Metadata), &members); err != nil {
		return nil, fmt.Errorf("metadata of event %d: %w", e.Number, err)
	}
	metadata, err := structpb.NewStruct(members)
	if err != nil {
		return nil, fmt.Errorf("metadata of event %d: %w", e.Number, err)
	}
	return &agentdv1.LoggedEvent{
		Seq: e.Number, AppName: e.App, UserId: user.ID, SessionId: session, EventId: e.ID, Branch: e.Branch,
		Author: e.Author, Timestamp: timestamppb.New(e.Time), InvocationId: e.Invocation, Metadata: metadata,
	}, nil
}
