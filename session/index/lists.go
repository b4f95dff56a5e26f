package index

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/apzuk3/agentd/session/internal/page"
	"github.com/apzuk3/agentd/session/internal/refusal"
	"github.com/apzuk3/agentd/session/internal/retry"
	"github.com/apzuk3/agentd/session/store"
)

// listRows is how many rows, and listSessions how many sessions, a list reads at a time.
const (
	listRows     = 16
	listSessions = 64
)

// Live is what the sessions in memory say that no row does.
type Live interface {
	// InMemory reports whether a session is in memory, or is about to be.
	InMemory(sessionID string) bool
	// TurnNow is a turn that is not over, as it is now; ok is false for any other. It reads the session
	// from its log if it is not in memory.
	TurnNow(ctx context.Context, sessionID, turnID string) (t Turn, ok bool, err error)
	// LastNow is how a turn is if it is the last one of a session in memory, and 0 if it is not; ok is
	// false for a session that is not in memory.
	LastNow(sessionID, turnID string) (is Status, ok bool)
}

// Lists finds sessions, turns and interactions. Its methods may be called from any goroutine. An error that
// a client may see is of type *fault.Error.
type Lists struct {
	Store *retry.Store
	Live  Live
	// Retention is how long a turn waits for a person.
	Retention time.Duration
	Logger    *slog.Logger
}

// Session says what is known of a session, also of one whose log is not kept any more.
func (l *Lists) Session(ctx context.Context, id string) (Session, error) {
	info, err := l.Store.Info(ctx, id)
	switch {
	case errors.Is(err, store.ErrNoSession):
		return Session{}, refusal.NoSession(id)
	case err != nil:
		return Session{}, fmt.Errorf("session %s: %w", id, err)
	}
	return l.SessionNow(ctx, info)
}

// SessionNow adds to what a store knows of a session how its last turn is.
func (l *Lists) SessionNow(ctx context.Context, info store.Info) (Session, error) {
	out := Session{Info: info, LastIs: overAs[info.LastStatus]}
	if is, ok := l.Live.LastNow(info.ID, info.LastTurn); ok { // what is written counts once it is shown
		if is == 0 && info.LastStatus == rowOpen {
			is = Running // it is just recorded
		}
		if is != 0 {
			out.LastIs = is
			return out, nil
		}
	}
	if info.LastStatus != rowOpen {
		return out, nil
	}
	var err error
	out.LastIs, err = l.waitsFor(ctx, info)
	return out, err
}

// ListSessions returns at most limit sessions, fewer if they have much to say, newest first, and the token
// of the next page, "" on the last one. page is a token of the same filter, "" for the first page.
func (l *Lists) ListSessions(
	ctx context.Context, f SessionQuery, at string, limit int,
) (sessions []Session, next string, err error) {
	hash := page.Hash(f)
	after, err := page.Read(at, hash)
	if err != nil {
		return nil, "", err
	}
	q := store.InfoQuery{
		Tenant:        &f.Tenant,
		Archived:      f.Archived,
		Labels:        f.Labels,
		ClientRef:     f.ClientRef,
		LastStatuses:  recorded(f.LastIs),
		CreatedFrom:   f.CreatedFrom,
		CreatedBefore: f.CreatedBefore,
		UpdatedFrom:   f.UpdatedFrom,
		UpdatedBefore: f.UpdatedBefore,
		Limit:         min(limit+1, listSessions),
	}
	bytes := 0
	if after != nil {
		q.After = &store.Info{Head: store.Head{ID: after.Session, CreatedAt: after.Time()}}
	}
	for {
		infos, err := l.Store.Sessions(ctx, q)
		if err != nil {
			return nil, "", fmt.Errorf("session: list sessions: %w", err)
		}
		for _, info := range infos {
			if !isOf(&info, f.Tenant, f.Maker) {
				continue
			}
			s, err := l.SessionNow(ctx, info)
			if err != nil {
				return nil, "", err
			}
			if len(f.LastIs) > 0 && !slices.Contains(f.LastIs, s.LastIs) {
				continue
			}
			if page.Full(len(sessions), limit, bytes, s.size()) {
				last := sessions[len(sessions)-1]
				return sessions, page.Token{
					Query:   hash,
					Created: last.CreatedAt.UnixMicro(),
					Session: last.ID,
				}.String(), nil
			}
			sessions = append(sessions, s)
			bytes += s.size()
		}
		if len(infos) < q.Limit {
			return sessions, "", nil
		}
		q.After = &infos[len(infos)-1]
	}
}

// isOf reports whether a principal of a tenant has created a session; "" is anybody.
func isOf(info *store.Info, tenantName, maker string) bool {
	owner := info.Owner()
	return maker == "" || owner.ID == maker && owner.Tenant == tenantName
}

// madeBy returns isOf for rows of sessions. It looks at each session once.
func (l *Lists) madeBy(tenantName, maker string) func(context.Context, *store.Row) (bool, error) {
	known := map[string]bool{}
	return func(ctx context.Context, row *store.Row) (bool, error) {
		if maker == "" {
			return true, nil
		}
		if is, ok := known[row.SessionID]; ok {
			return is, nil
		}
		info, err := l.Store.Info(ctx, row.SessionID)
		if err != nil && !errors.Is(err, store.ErrNoSession) {
			return false, fmt.Errorf("session %s: whose it is: %w", row.SessionID, err)
		}
		if len(known) >= knownMakers {
			clear(known)
		}
		known[row.SessionID] = err == nil && isOf(&info, tenantName, maker)
		return known[row.SessionID], nil
	}
}

// knownMakers is how many sessions of one list are remembered.
const knownMakers = 10_000
