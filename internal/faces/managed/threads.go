package managed

import (
	"context"
	"net/http"
	"slices"
	"time"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// A thread is what an agent has done in a session: one for each path of the tree that has run, and one for the root.

// thread is a thread as it is found in the log.
type thread struct {
	path    []string // nil for the root's
	created time.Time
	updated time.Time
	active  time.Duration
	since   time.Time // it runs since; zero if it does not
	status  string
	usage   agentdv1.Usage
}

// threadLog finds the threads of a session in its events.
type threadLog struct {
	state   fold
	threads []*thread
}

// of returns the thread of an agent, which it makes if there is none.
func (l *threadLog) of(path []string, at time.Time) *thread {
	if len(path) < 2 {
		path = nil
	}
	i := slices.IndexFunc(l.threads, func(t *thread) bool { return slices.Equal(t.path, path) })
	if i < 0 {
		i = len(l.threads)
		l.threads = append(l.threads, &thread{path: path, created: at, status: statusIdle})
	}
	return l.threads[i]
}

// add takes an event of agentd.
func (l *threadLog) add(e *agentdv1.RunResponse) {
	l.state.add(e)
	if e.GetTime() == nil {
		return
	}
	at := e.GetTime().AsTime()
	switch r := e.GetResponse().(type) {
	case *agentdv1.RunResponse_AgentStarted:
		l.of(r.AgentStarted.GetAgentPath(), at).updated = at
	case *agentdv1.RunResponse_ModelCallEnded:
		t := l.of(r.ModelCallEnded.GetAgentPath(), at)
		u := r.ModelCallEnded.GetUsage()
		t.usage.PromptTokens += u.GetPromptTokens()
		t.usage.CompletionTokens += u.GetCompletionTokens()
		t.usage.CachedTokens += u.GetCachedTokens()
		t.usage.CacheWriteTokens += u.GetCacheWriteTokens()
	}
	for _, t := range l.threads {
		l.note(t, at)
	}
}

// note keeps what a thread does now.
func (l *threadLog) note(t *thread, at time.Time) {
	status := statusIdle
	for _, a := range l.state.agents {
		own := slices.Equal(a.path, t.path) || t.path == nil && len(a.path) < 2
		if own && a.works {
			if status = statusRunning; a.retrying {
				status = statusRescheduling
			}
		}
	}
	if status == t.status {
		return
	}
	t.status, t.updated = status, at
	switch {
	case status == statusIdle:
		t.active += at.Sub(t.since)
		t.since = time.Time{}
	case t.since.IsZero():
		t.since = at
	}
}

// threads returns the threads of a session, the root's first.
func (f *face) threads(ctx context.Context, s *agentdv1.Session) ([]*thread, error) {
	l := &threadLog{state: fold{sessionID: s.GetId()}}
	made := s.GetCreateTime().AsTime()
	l.of(nil, made).updated = made
	req := &agentdv1.ListSessionEventsRequest{SessionId: s.GetId(), PageSize: maxEventPage}
	for {
		resp, err := f.env.Sessions.ListSessionEvents(ctx, connect.NewRequest(req))
		if err != nil {
			return nil, err
		}
		for _, e := range resp.Msg.GetEvents() {
			l.add(e.GetEvent())
		}
		if req.Cursor = resp.Msg.GetNextCursor(); !resp.Msg.GetMore() {
			return l.threads, nil
		}
	}
}

// thread returns a thread of a session by its id.
func (f *face) thread(ctx context.Context, sessionID, id string) (*thread, error) {
	s, _, err := f.session(ctx, sessionID)
	if err != nil {
		return nil, err
	}
	all, err := f.threads(ctx, s)
	if err != nil {
		return nil, err
	}
	for _, t := range all {
		if threadOf(sessionID, t.path) == id {
			return t, nil
		}
	}
	return nil, missingf("session %.80q has no thread %.80q", sessionID, id)
}

// threadObjectOf is a thread as an object.
func (s *shelf) threadObjectOf(
	ctx context.Context, of *agentdv1.Session, note *sessionNote, t *thread,
) (*threadObject, error) {
	out := &threadObject{
		ID: threadOf(of.GetId(), t.path), Type: "session_thread", SessionID: of.GetId(), Status: t.status,
		Usage: usageOf(&t.usage), CreatedAt: timeText(t.created), UpdatedAt: timeText(t.updated),
	}
	if t.path != nil {
		parent := threadOf(of.GetId(), t.path[:len(t.path)-1])
		out.ParentThreadID = &parent
	}
	if note.Archived != nil {
		out.ArchivedAt = timeText(*note.Archived)
	}
	active := t.active
	if !t.since.IsZero() {
		active += time.Since(t.since)
	}
	out.Stats = statsObject{max(0, active.Seconds()), max(0, time.Since(t.created).Seconds())}
	a, err := s.agentOf(ctx, of.GetAgentRef())
	switch {
	case err != nil:
		return nil, err
	case a == nil:
		out.Agent = (&definition{}).body(note.Agent.ID, note.Agent.Version)
	default:
		out.Agent = threadAgent(a, t.path)
	}
	return out, nil
}

func (f *face) getThread(r *http.Request) (any, error) {
	if err := queryOf(r).done(); err != nil {
		return nil, err
	}
	s, note, err := f.session(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	t, err := f.thread(r.Context(), s.GetId(), r.PathValue("thread"))
	if err != nil {
		return nil, err
	}
	return f.newShelf().threadObjectOf(r.Context(), s, note, t)
}

// listThreads lists threads in the order in which they began, which more of them do not change.
func (f *face) listThreads(r *http.Request) (any, error) {
	q := queryOf(r)
	limit := int(q.number("limit", maxEventPage, maxSessionPage))
	statuses := q.all("statuses", isSessionStatus, alternatives(sessionStatuses))
	page := q.text("page")
	if err := q.done(); err != nil {
		return nil, err
	}
	from := 0
	if err := readToken(page, &from); err != nil {
		return nil, err
	}
	s, note, err := f.session(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	all, err := f.threads(r.Context(), s)
	if err != nil {
		return nil, err
	}
	var data []any
	shelf := f.newShelf()
	for i := max(from, 0); i < len(all); i++ {
		if len(statuses) > 0 && !slices.Contains(statuses, all[i].status) {
			continue
		}
		if len(data) == limit {
			return pageOf(data, tokenOf(i)), nil
		}
		o, err := shelf.threadObjectOf(r.Context(), s, note, all[i])
		if err != nil {
			return nil, err
		}
		data = append(data, o)
	}
	return pageOf(data, ""), nil
}
