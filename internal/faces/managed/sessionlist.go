package managed

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// tokenOf is what a page continues with as text that clients do not look into.
func tokenOf(v any) string { return base64.RawURLEncoding.EncodeToString(marshal(v)) }

// readToken reads what tokenOf has written; an empty text leaves v as it is.
func readToken(text string, v any) error {
	if text == "" {
		return nil
	}
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(data, v)
	}
	if err != nil {
		return badf("the parameter page is %.40q, want the next_page of the page before", text)
	}
	return nil
}

// sessionPlace is where a page of sessions ends: behind a session.
type sessionPlace struct {
	Created time.Time `json:"t"`
	ID      string    `json:"i"`
}

// compare is the order in which sessions were made; of those of one time, some order.
func (p sessionPlace) compare(s *agentdv1.Session) int {
	if n := p.Created.Compare(s.GetCreateTime().AsTime()); n != 0 {
		return n
	}
	return strings.Compare(p.ID, s.GetId())
}

// sessionQuery is what a list of sessions asks for.
type sessionQuery struct {
	req      *agentdv1.ListSessionsRequest
	within   span
	statuses []string
	limit    int
	after    *sessionPlace // nil for the first page
	rising   bool
}

var sessionStatuses = []string{statusRescheduling, statusRunning, statusIdle, statusTerminated}

func isSessionStatus(s string) bool { return slices.Contains(sessionStatuses, s) }

func readSessionQuery(r *http.Request) (*sessionQuery, error) {
	q := queryOf(r)
	out := &sessionQuery{
		req: &agentdv1.ListSessionsRequest{Labels: map[string]string{}}, within: q.created("gt", "gte", "lt", "lte"),
		statuses: q.all("statuses", isSessionStatus, alternatives(sessionStatuses)),
		limit:    int(q.number("limit", maxSessionPage, agentPage)),
		rising:   q.one("order", "desc", "asc") == "asc",
	}
	if !q.flag("include_archived") {
		out.req.States = []agentdv1.SessionState{agentdv1.SessionState_SESSION_STATE_ACTIVE}
	}
	agent, version := q.text("agent_id"), q.number("agent_version", 1<<53, 0)
	switch {
	case agent != "":
		out.req.Labels[labelAgent] = agent
		if version > 0 {
			out.req.Labels[labelVersion] = strconv.FormatInt(version, 10)
		}
	case version > 0:
		q.failf("the parameter agent_version needs agent_id")
	}
	page := q.text("page")
	if err := q.done(); err != nil {
		return nil, err
	}
	if page != "" {
		out.after = &sessionPlace{}
		if err := readToken(page, out.after); err != nil {
			return nil, err
		}
	}
	out.req.CreatedSince, out.req.CreatedBefore = out.within.sinceBefore()
	out.narrow()
	return out, nil
}

// narrow leaves out, by their times, what pages before have had.
func (q *sessionQuery) narrow() {
	if q.after == nil {
		return
	}
	at, next := timestamppb.New(q.after.Created), timestamppb.New(q.after.Created.Add(tick))
	if q.rising && (q.req.GetCreatedSince() == nil || q.req.GetCreatedSince().AsTime().Before(at.AsTime())) {
		q.req.CreatedSince = at
	}
	if !q.rising && (q.req.GetCreatedBefore() == nil || q.req.GetCreatedBefore().AsTime().After(next.AsTime())) {
		q.req.CreatedBefore = next
	}
}

// has reports whether a session is of this page, or of a later one.
func (q *sessionQuery) has(s *agentdv1.Session) bool {
	if _, err := ours(s); err != nil || !q.within.has(s.GetCreateTime().AsTime()) {
		return false
	}
	if q.after == nil {
		return true
	}
	n := q.after.compare(s)
	return q.rising && n < 0 || !q.rising && n > 0
}

// sessionPageOf is how many sessions are asked for at once.
const sessionPageOf = 200

// listSessions lists sessions, the newest first or last. SessionService has them newest first only, so the others are
// found from the end of its list; no more than a page is held.
func (f *face) listSessions(r *http.Request) (any, error) {
	q, err := readSessionQuery(r)
	if err != nil {
		return nil, err
	}
	ctx := r.Context()
	var found []*agentdv1.Session
	err = f.eachSession(ctx, q.req, func(s *agentdv1.Session) (bool, error) {
		if !q.has(s) {
			return true, nil
		}
		if len(q.statuses) > 0 {
			status, err := f.statusNow(ctx, s)
			if err != nil || !slices.Contains(q.statuses, status) {
				return true, err
			}
		}
		found = append(found, s)
		if q.rising && len(found) > q.limit+1 {
			found = found[1:]
		}
		return q.rising || len(found) <= q.limit, nil
	})
	if err != nil {
		return nil, err
	}
	if q.rising {
		slices.Reverse(found)
	}
	next := ""
	if len(found) > q.limit {
		found = found[:q.limit]
		last := found[q.limit-1]
		next = tokenOf(sessionPlace{last.GetCreateTime().AsTime(), last.GetId()})
	}
	data := make([]any, 0, len(found))
	shelf := f.newShelf()
	for _, s := range found {
		note, _ := ours(s) // has has seen it
		o, err := shelf.object(ctx, s, note)
		if err != nil {
			return nil, err
		}
		data = append(data, o)
	}
	return pageOf(data, next), nil
}

// eachSession calls do with sessions, the newest first, until it returns false. Those of one time come in the order of
// their places.
func (f *face) eachSession(
	ctx context.Context, req *agentdv1.ListSessionsRequest, do func(*agentdv1.Session) (bool, error),
) error {
	req.PageSize = sessionPageOf
	var same []*agentdv1.Session // of one time
	flush := func() (bool, error) {
		slices.SortFunc(same, func(a, b *agentdv1.Session) int { return strings.Compare(b.GetId(), a.GetId()) })
		for _, s := range same {
			if more, err := do(s); !more || err != nil {
				return false, err
			}
		}
		same = same[:0]
		return true, nil
	}
	for {
		resp, err := f.env.Sessions.ListSessions(ctx, connect.NewRequest(req))
		if err != nil {
			return err
		}
		for _, s := range resp.Msg.GetSessions() {
			if len(same) > 0 && !same[0].GetCreateTime().AsTime().Equal(s.GetCreateTime().AsTime()) {
				if more, err := flush(); !more || err != nil {
					return err
				}
			}
			same = append(same, s)
		}
		if req.PageToken = resp.Msg.GetNextPageToken(); req.GetPageToken() == "" {
			_, err := flush()
			return err
		}
	}
}
