package managed

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

const (
	maxEventPage = 1000
	// eventPageBytes is where a page of events ends early.
	eventPageBytes = 4 << 20
)

// eventPlace is where a page of events ends.
type eventPlace struct {
	// Cursor is where the last page that rises began to read: the turn of its last event begins there, or later.
	Cursor string `json:"c,omitempty"`
	Seq    int64  `json:"s"`
	N      int    `json:"n"`
}

// eventQuery is what a list of events asks for.
type eventQuery struct {
	sessionID string
	thread    string // "" for all
	types     []string
	within    span
	limit     int
	rising    bool
	after     *eventPlace // nil for the first page
}

func (f *face) readEventQuery(r *http.Request) (*eventQuery, error) {
	q := queryOf(r)
	out := &eventQuery{
		sessionID: r.PathValue("id"), thread: r.PathValue("thread"), within: q.created("gt", "gte", "lt", "lte"),
		types:  q.all("types", func(s string) bool { return s != "" }, "the type of an event"),
		limit:  int(q.number("limit", maxEventPage, maxEventPage)),
		rising: q.one("order", "asc", "desc") == "asc",
	}
	page := q.text("page")
	if err := q.done(); err != nil {
		return nil, err
	}
	if page != "" {
		out.after = &eventPlace{}
		return out, readToken(page, out.after)
	}
	return out, nil
}

// has reports whether an event is listed, wherever it stands.
func (q *eventQuery) has(e *event) bool {
	return (q.thread == "" || threadOf(q.sessionID, e.path) == q.thread) &&
		(len(q.types) == 0 || slices.Contains(q.types, e.kind)) && q.within.has(e.at)
}

// isBehind reports whether an event stands behind what pages before have had.
func (q *eventQuery) isBehind(e *event) bool {
	if q.after == nil {
		return true
	}
	n := e.place.compare(place{q.after.Seq, q.after.N})
	return q.rising && n > 0 || !q.rising && n < 0
}

func (f *face) listEvents(r *http.Request) (any, error) {
	q, err := f.readEventQuery(r)
	if err != nil {
		return nil, err
	}
	ctx := r.Context()
	if _, _, err := f.session(ctx, q.sessionID); err != nil {
		return nil, err
	}
	if q.thread != "" {
		if _, err := f.thread(ctx, q.sessionID, q.thread); err != nil {
			return nil, err
		}
	}
	found, next, err := f.eventsOf(ctx, q)
	if err != nil {
		return nil, err
	}
	data := make([]any, 0, len(found))
	for _, e := range found {
		data = append(data, e)
	}
	return pageOf(data, next), nil
}

// eventsOf returns a page of events, and the token of the next one. A page may end early, behind at least one event.
// The list that falls is read from its other end too: it holds a page, no more.
func (f *face) eventsOf(ctx context.Context, q *eventQuery) (found []*event, next string, err error) {
	reader := &sessionReader{face: f, state: fold{sessionID: q.sessionID}}
	if q.after != nil && q.rising {
		reader.clean = q.after.Cursor
	}
	size, more := 0, false
	err = reader.each(ctx, func(e *event) (bool, error) {
		if !q.has(e) || !q.isBehind(e) {
			return true, nil
		}
		if q.rising && (len(found) == q.limit || size >= eventPageBytes) {
			more = true
			return false, nil
		}
		if q.rising || e.queued {
			if listed, err := f.complete(ctx, q.sessionID, e); err != nil || !listed {
				return true, err
			}
		}
		found = append(found, e)
		size += e.size()
		for !q.rising && (len(found) > q.limit || size > eventPageBytes && len(found) > 1) {
			size -= found[0].size()
			found, more = found[1:], true
		}
		if q.rising {
			next = tokenOf(eventPlace{reader.clean, e.place.seq, e.place.n})
		}
		return true, nil
	})
	if err != nil {
		return nil, "", err
	}
	if !q.rising {
		slices.Reverse(found)
		size = 0
		for i, e := range found {
			if _, err := f.complete(ctx, q.sessionID, e); err != nil {
				return nil, "", err
			}
			if size += e.size(); size > eventPageBytes && i > 0 {
				found, more = found[:i], true
				break
			}
			next = tokenOf(eventPlace{"", e.place.seq, e.place.n})
		}
	}
	if !more {
		next = ""
	}
	return found, next, nil
}

// size is about how many bytes an event takes.
func (e *event) size() int {
	n := 200
	for _, f := range e.fields {
		if blocks, ok := f.value.([]block); ok {
			for _, b := range blocks {
				if b.Text != nil {
					n += len(*b.Text)
				}
				if b.Source != nil {
					n += len(b.Source.Data) * 4 / 3
				}
			}
		}
	}
	return n
}

// complete reads what an event lacks, and reports whether it is one of a list. A message of a user that has waited is
// listed where its turn begins, and where it was sent only while it waits, or if its turn never began.
func (f *face) complete(ctx context.Context, sessionID string, e *event) (listed bool, err error) {
	if e.kind != "user.message" || e.prompt == "" && !e.queued {
		return true, nil
	}
	turn := e.prompt
	if e.queued {
		turn = e.turn
	}
	resp, err := f.env.Sessions.GetTurn(ctx, connect.NewRequest(&agentdv1.GetTurnRequest{
		SessionId: sessionID, TurnId: turn, UserParts: true,
	}))
	if err != nil {
		return false, err
	}
	t := resp.Msg.GetTurn()
	if e.queued {
		return t.GetStartTime() == nil && t.GetInjectedInto() == "", nil
	}
	e.fields = []field{{"content", promptContent(t)}}
	e.prompt = ""
	return true, nil
}

// promptContent is the prompt of a turn as content. In place of a prompt of parts alone a turn has their description.
func promptContent(t *agentdv1.Turn) []block {
	var words []string
	for _, p := range t.GetUserParts() {
		switch in := p.GetInline(); {
		case in != nil:
			words = append(words, fmt.Sprintf("[%s, %d bytes]", in.GetMimeType(), len(in.GetData())))
		case p.GetFile() != nil:
			words = append(words, fmt.Sprintf("[%s, %s]", p.GetFile().GetMimeType(), p.GetFile().GetUri()))
		default:
			words = append(words, p.GetText())
		}
	}
	text := t.GetUserPrompt()
	if len(words) > 0 && strings.HasPrefix(strings.Join(words, "\n"), strings.TrimSuffix(text, "…")) {
		text = ""
	}
	return contentOf(text, t.GetUserParts())
}

// sessionReader reads the events of a session in order.
type sessionReader struct {
	*face
	state fold
	// clean is the cursor from which what is read now can be read again: no turn runs there.
	clean string
}

// each calls do with the events from clean on, as far as there are any, until it returns false.
func (s *sessionReader) each(ctx context.Context, do func(*event) (bool, error)) error {
	req := &agentdv1.ListSessionEventsRequest{SessionId: s.state.sessionID, Cursor: s.clean, PageSize: maxEventPage}
	for {
		resp, err := s.env.Sessions.ListSessionEvents(ctx, connect.NewRequest(req))
		if err != nil {
			return err
		}
		for _, placed := range resp.Msg.GetEvents() {
			for _, e := range s.state.add(placed.GetEvent()) {
				if more, err := do(e); !more || err != nil {
					return err
				}
			}
			if s.state.clean() {
				s.clean = placed.GetCursor()
			}
		}
		if req.Cursor = resp.Msg.GetNextCursor(); !resp.Msg.GetMore() {
			return nil
		}
	}
}
