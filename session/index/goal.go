package index

import (
	"context"
	"fmt"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/goal"
	"github.com/apzuk3/agentd/session/internal/logjson"
	"github.com/apzuk3/agentd/session/internal/page"
	"github.com/apzuk3/agentd/session/internal/team"
	"github.com/apzuk3/agentd/session/internal/tenant"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// Goal is what is known of a goal.
type Goal struct {
	// ID and SessionID name it.
	ID        string `json:"id"`
	SessionID string `json:"-"`
	// Text is what is to be reached.
	Text string `json:"goal"`
	// Status is how it is, and Reason why it has ended.
	Status agentdv1.GoalStatus `json:"status"`
	Reason agentdv1.GoalReason `json:"reason,omitempty"`
	// Totals, Final and Detail are those of the last checkpoint, and Message why the last turn has failed or the goal
	// has ended.
	Totals  record.GoalTotals `json:"totals,omitzero"`
	Final   string            `json:"final_text,omitempty"`
	Detail  string            `json:"done_detail,omitempty"`
	Message string            `json:"message,omitempty"`
	// Turn is the turn under way, "" for none.
	Turn string `json:"turn,omitempty"`
	// Wait is what it waits for, and Until when that ends.
	Wait  agentdv1.GoalWait `json:"wait,omitempty"`
	Until time.Time         `json:"until,omitzero"`
	// Waiting is how many messages wait for its next turn.
	Waiting int `json:"waiting,omitempty"`
	// Parent is whose child the session is, nil for none. Alerted is the record of the last alert for it, and Below
	// what children of the session count as spent.
	Parent  *record.GoalParent `json:"parent,omitempty"`
	Alerted int64              `json:"alerted,omitempty"`
	Below   record.Spent       `json:"below,omitzero"`
	// EndSeq is the record of its end, 0 before.
	EndSeq int64 `json:"end_seq,omitempty"`
	// Started is when it began, and Ended when it ended; Took is how long that was, in nanoseconds.
	Started time.Time     `json:"-"`
	Ended   time.Time     `json:"ended,omitzero"`
	Took    time.Duration `json:"took,omitempty"`

	// Seq is the record of its beginning, and Cursor what WatchSession begins with it by; only Manager fills that in.
	Seq    int64  `json:"-"`
	Cursor string `json:"-"`
}

// goalStatuses are the statuses of goals in rows.
var goalStatuses = map[agentdv1.GoalStatus]string{
	agentdv1.GoalStatus_GOAL_STATUS_RUNNING:   "running",
	agentdv1.GoalStatus_GOAL_STATUS_PAUSED:    "paused",
	agentdv1.GoalStatus_GOAL_STATUS_STOPPED:   "stopped",
	agentdv1.GoalStatus_GOAL_STATUS_COMPLETED: "completed",
	agentdv1.GoalStatus_GOAL_STATUS_FAILED:    "failed",
}

// GoalRunning is the status of the row of a goal that goes on by itself, and GoalPaused that of one that may again.
const (
	GoalRunning = "running"
	GoalPaused  = "paused"
)

// goalOf returns what a session knows of its goal.
func goalOf(s *goal.State) *Goal {
	g := &Goal{
		ID: s.F.ID, Text: s.F.Goal, Status: s.Status(), Totals: s.Totals, Final: s.Final, Detail: s.Detail,
		Message: s.Failure, Turn: s.Turn, Wait: s.Wait, Until: s.Until, Waiting: s.Waiting(), Started: s.Started,
		Parent: s.F.Parent, Alerted: s.Alerted, Below: s.Below(), Seq: s.Seq,
	}
	if s.End != nil {
		g.EndSeq = s.EndSeq
		g.Reason, g.Ended, g.Took, g.Message = s.End.Reason, s.Ended, s.End.Took, s.End.Message
	}
	return g
}

// row is the goal as it stands in a store.
func (g *Goal) row(sessionID string) (store.Row, error) {
	data, err := logjson.Marshal(g)
	return store.Row{
		Kind: store.RowGoal, SessionID: sessionID, ID: g.ID, Seq: g.Seq, CreatedAt: g.Started,
		Status: goalStatuses[g.Status], Data: data,
	}, err
}

// ReadGoal reads the row of a goal.
func ReadGoal(r store.Row) (*Goal, error) {
	g := &Goal{}
	if err := logjson.Unmarshal(r.Data, g); err != nil {
		return nil, fmt.Errorf("session %s: goal %s: its row: %w", r.SessionID, r.ID, err)
	}
	g.SessionID, g.Started, g.Seq = r.SessionID, r.CreatedAt, r.Seq
	return g, nil
}

// Goal returns the session's goal as it stands. A fork has none of its parent's.
func (x *Index) Goal() goal.State {
	if x.goal.Seq <= x.Inherited {
		return goal.State{Team: x.goal.Team}
	}
	return x.goal
}

// Team returns the session's children as they stand.
func (x *Index) Team() team.State { return x.goal.Team }

// noteGoal applies a record to the goal and returns it if that changes its row.
func (x *Index) noteGoal(rec record.Record, fact any) []entry {
	switch fact.(type) {
	case *record.ChildSpawned, *record.ChildReported:
		if rec.Seq <= x.Inherited { // the children are those of the other session
			return nil
		}
	}
	if !x.goal.Apply(rec, fact) || x.goal.Seq == 0 || x.goal.Seq <= x.Inherited {
		return nil
	}
	return []entry{goalOf(&x.goal)}
}

// GoalQuery says which goals; what is zero does not matter.
type GoalQuery struct {
	// Tenant is whom the session has to belong to, "" is nobody.
	Tenant string
	// Maker is the id of the principal that has to have created the session. Those of others cost a look each.
	Maker string `json:",omitempty"`
	// SessionID is the key of the session they belong to.
	SessionID string
	// Statuses are those of which a goal has to have one.
	Statuses []agentdv1.GoalStatus
}

// Goal returns the last goal of a session. That there is none is a *fault.Error of code NOT_FOUND.
func (l *Lists) Goal(ctx context.Context, sessionID string) (*Goal, error) {
	if _, err := l.Known(ctx, sessionID); err != nil {
		return nil, err
	}
	rows, err := l.Store.Rows(ctx, store.RowQuery{Kind: store.RowGoal, SessionID: sessionID, Limit: 1})
	switch {
	case err != nil:
		return nil, fmt.Errorf("session %s: its goal: %w", sessionID, err)
	case len(rows) == 0:
		return nil, fault.Errorf(fault.NotFound, "session_id: session %q has no goal", tenant.ID(sessionID))
	}
	return ReadGoal(rows[0])
}

// ListGoals returns at most limit goals, newest first, fewer if they are large, and the token of the next page, "" on
// the last one. page is a token of the same query, "" for the first page.
func (l *Lists) ListGoals(
	ctx context.Context, q GoalQuery, at string, limit int,
) (list []*Goal, next string, err error) {
	hash := page.Hash(q)
	after, err := page.Read(at, hash)
	if err != nil {
		return nil, "", err
	}
	if q.SessionID != "" {
		if _, err := l.Known(ctx, q.SessionID); err != nil {
			return nil, "", err
		}
	}
	rq := store.RowQuery{
		Kind: store.RowGoal, Tenant: &q.Tenant, SessionID: q.SessionID, Limit: min(limit+1, listRows),
	}
	for _, is := range q.Statuses {
		rq.Statuses = append(rq.Statuses, goalStatuses[is])
	}
	if after != nil {
		rq.After = &store.Row{CreatedAt: after.Time(), SessionID: after.Session, Seq: after.Seq, ID: after.ID}
	}
	bytes, listed := 0, l.madeBy(q.Tenant, q.Maker)
	var last *store.Row // of the list
	for {
		rows, err := l.Store.Rows(ctx, rq)
		if err != nil {
			return nil, "", fmt.Errorf("session: list goals: %w", err)
		}
		for _, row := range rows {
			rq.After = &row
			if ok, err := listed(ctx, &row); err != nil {
				return nil, "", err
			} else if !ok {
				continue
			}
			if page.Full(len(list), limit, bytes, len(row.Data)) {
				return list, page.Token{
					Query: hash, Created: last.CreatedAt.UnixMicro(), Session: last.SessionID, Seq: last.Seq,
					ID: last.ID,
				}.String(), nil
			}
			g, err := ReadGoal(row)
			if err != nil {
				return nil, "", err
			}
			list, last = append(list, g), &row
			bytes += len(row.Data)
		}
		if rq.IsLast(rows) {
			return list, "", nil
		}
	}
}
