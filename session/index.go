package session

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/apzuk3/agentd/session/internal/logjson"
	"github.com/apzuk3/agentd/session/internal/position"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// The index is what a session knows of its turns, and of what they ask people, for
// those who look for one without reading its log. Like the session's state it is what applying the
// records in order gives; the rows that a record changes are written in the
// append of that record.

// Status is how a turn is.
type Status int

// The states of a turn.
const (
	Pending          Status = iota + 1 // it waits for the turns before it
	Running                            // it runs
	WaitingForClient                   // nobody is asked for what it needs, or it lacks its caller's key
	WaitingForInput                    // it waits for a person, and nothing else of it goes on
	Succeeded                          // the tree has finished naturally
	Failed                             // an error has ended it
	Stopped                            // somebody has stopped it
)

// The statuses of turns in rows. What an open turn waits for is not recorded.
const (
	rowPending   = "pending"
	rowOpen      = "open"
	rowSucceeded = "succeeded"
	rowFailed    = "failed"
	rowStopped   = "canceled"
)

// recordedAs are the statuses in rows of which a turn may have one that is
// looked for.
var recordedAs = map[Status]string{
	Pending:          rowPending,
	Running:          rowOpen,
	WaitingForClient: rowOpen,
	WaitingForInput:  rowOpen,
	Succeeded:        rowSucceeded,
	Failed:           rowFailed,
	Stopped:          rowStopped,
}

// overAs are the statuses of turns that are over.
var overAs = map[string]Status{rowSucceeded: Succeeded, rowFailed: Failed, rowStopped: Stopped}

// TurnInfo is what is known of a turn.
type TurnInfo struct {
	// ID and SessionID name it.
	ID        string `json:"id"`
	SessionID string `json:"-"`
	// Status is how it is.
	Status Status `json:"-"`
	// Prompt is what the user said; parts alone stand here in words.
	Prompt string `json:"prompt"`
	// Output is the last complete answer without tool calls, see Event.Output.
	Output string `json:"output,omitempty"`
	// Structured is true when Output is JSON that satisfies the output schema of the
	// agent that gave it.
	Structured bool `json:"structured,omitempty"`
	// Model and Stop are those of the last answer of any kind, as in Event.
	Model string `json:"model,omitempty"`
	Stop  string `json:"stop,omitempty"`
	// Usage is what it has used so far.
	Usage record.Usage `json:"usage"`
	// Created is when its prompt was recorded, Started when it began to run, and
	// Ended when it was over; zero for what has not happened.
	Created time.Time `json:"created"`
	Started time.Time `json:"started,omitzero"`
	Ended   time.Time `json:"ended,omitzero"`
	// After is the position before its first message.
	After int64 `json:"after"`
	// Open are the tool calls without a result, in order, but for those about which
	// a person is asked.
	Open []record.ToolCall `json:"-"`
	// Asking is what people are asked.
	Asking []*Interaction `json:"-"`
	// End is its end, nil before.
	End *record.TurnEnded `json:"end,omitempty"`
	// Into is the turn of which its prompt has become a message, "" for none.
	Into string `json:"into,omitempty"`
	// By is the id of the principal whose prompt it is, and Warnings are about what of
	// the request was left out.
	By       string           `json:"by,omitempty"`
	Warnings []record.Warning `json:"warnings,omitempty"`

	recorded string // the status of its row
}

// row is the turn's entry of the index.
func (t *TurnInfo) row(sessionID string) (store.Row, error) {
	data, err := logjson.Marshal(t)
	return store.Row{
		Kind:      store.RowTurn,
		SessionID: sessionID,
		ID:        t.ID,
		TurnID:    t.ID,
		Seq:       position.Record(t.After + 1),
		CreatedAt: t.Created,
		Status:    t.recorded,
		Data:      data,
	}, err
}

// turnOf reads what row has written. Of a turn that is not over, the rest is in
// the session.
func turnOf(r store.Row) (*TurnInfo, error) {
	t := &TurnInfo{}
	err := logjson.Unmarshal(r.Data, t)
	t.SessionID, t.Status, t.recorded = r.SessionID, overAs[r.Status], r.Status
	return t, err
}

// index holds the turns that may still change: the open one, those that wait for
// their start, and those whose prompts have become messages of the open one; and
// what people are asked.
type index struct {
	turns     map[string]*TurnInfo
	asked     asked
	last      string       // the turn that was started last
	lastAs    string       // the status of its row
	usage     record.Usage // of the session
	inherited int64        // records up to this one were another session's, and their usage is
}

func newIndex(inherited int64) *index {
	return &index{turns: map[string]*TurnInfo{}, inherited: inherited}
}

// clone returns an index that changes by itself.
func (x *index) clone() *index {
	out := *x
	out.turns = maps.Clone(x.turns)
	for id, t := range x.turns {
		info := *t
		info.Open = slices.Clone(t.Open)
		out.turns[id] = &info
	}
	out.asked = x.asked.clone()
	return &out
}

// rowed is what has a row.
type rowed interface {
	row(sessionID string) (store.Row, error)
}

// note applies a record and returns what it changes the rows of.
func (x *index) note(rec record.Record, fact any) []rowed {
	var changed []rowed
	for _, t := range x.noteTurn(rec, fact) {
		changed = append(changed, t)
	}
	for _, in := range x.asked.add(rec, fact) {
		changed = append(changed, in)
		if t := x.turns[rec.TurnID]; t != nil && in.Resolution != nil && in.Resolution.Decision == record.Approve {
			t.Open = append(t.Open, in.Resolution.ApprovedCall(in.Call))
		}
	}
	return changed
}

// noteTurn is note for the turns.
func (x *index) noteTurn(rec record.Record, fact any) []*TurnInfo {
	t := x.turns[rec.TurnID]
	if u := record.UsageOf(fact); u != nil {
		if rec.Seq > x.inherited {
			x.usage = x.usage.Add(*u)
		}
		if t != nil {
			t.Usage = t.Usage.Add(*u)
		}
	}
	switch f := fact.(type) {
	case *record.TurnQueued:
		t = x.add(rec)
		t.Prompt, t.recorded = said(f.Prompt, f.Parts), rowPending
		t.By, t.Warnings = f.By, f.Warnings
		return []*TurnInfo{t}
	case *record.TurnStarted:
		if t == nil {
			t = x.add(rec)
		}
		t.Prompt, t.Started, t.recorded = said(f.Prompt, f.Parts), rec.Time, rowOpen
		t.By, t.Warnings = f.By, f.Warnings
		x.last, x.lastAs = t.ID, rowOpen
		return []*TurnInfo{t}
	case *record.Event:
		if told := x.turns[f.Injected]; told != nil {
			told.Into, told.recorded = rec.TurnID, rowOpen
			return []*TurnInfo{told}
		}
	}
	if t == nil {
		return nil
	}
	switch f := fact.(type) {
	case *record.Event:
		t.event(f)
	case *record.ToolCall:
		t.Open = append(t.Open, forClients(*f)...)
	case *record.ToolResult:
		t.Open = slices.DeleteFunc(t.Open, func(c record.ToolCall) bool { return c.ID == f.CallID })
	case *record.TurnDropped:
		return x.over(t, rec.Time, f.End())
	case *record.TurnEnded:
		changed := x.over(t, rec.Time, f)
		x.lastAs = t.recorded
		return changed
	}
	return nil
}

// add takes a turn whose first record it is.
func (x *index) add(rec record.Record) *TurnInfo {
	t := &TurnInfo{ID: rec.TurnID, Created: rec.Time, After: position.Of(rec.Seq, 0) - 1}
	x.turns[t.ID] = t
	return t
}

func (t *TurnInfo) event(ev *record.Event) {
	t.answered(ev)
	t.Open = append(t.Open, forClients(ev.Calls...)...)
}

// over lets go of a turn that is over, and of those whose prompts it has taken
// up.
func (x *index) over(t *TurnInfo, at time.Time, end *record.TurnEnded) []*TurnInfo {
	t.Ended, t.End, t.Open = at, end, nil
	switch {
	case end.Completed:
		t.recorded = rowSucceeded
	case end.Code != 0:
		t.recorded = rowFailed
	default:
		t.recorded = rowStopped
	}
	changed := []*TurnInfo{t}
	for _, told := range x.turns {
		if told.Into == t.ID {
			told.recorded = t.recorded
			changed = append(changed, told)
		}
	}
	for _, c := range changed {
		delete(x.turns, c.ID)
	}
	slices.SortFunc(changed, func(a, b *TurnInfo) int { return cmp.Compare(a.After, b.After) })
	return changed
}

// indexed collects the rows of a log, from its beginning.
type indexed struct {
	*index
	rows map[rowKey]store.Row
}

type rowKey struct {
	kind store.RowKind
	id   string
}

// add applies the next record.
func (x *indexed) add(sessionID string, rec record.Record, fact any) error {
	for _, changed := range x.note(rec, fact) {
		row, err := changed.row(sessionID)
		if err != nil {
			return err
		}
		x.rows[rowKey{row.Kind, row.ID}] = row
	}
	return nil
}

// openTurn is the turn that has started and not ended, or "".
func (x *index) openTurn() string {
	if x.lastAs == rowOpen {
		return x.last
	}
	return ""
}

// readIndex returns what the log says up to a record.
func (s *Session) readIndex(records iter.Seq2[record.Record, error], inherited, upTo int64, as string) (*indexed, error) {
	x := &indexed{index: newIndex(inherited), rows: map[rowKey]store.Row{}}
	for rec, err := range records {
		if err != nil {
			return nil, err
		}
		if rec.Seq > upTo {
			break
		}
		fact, err := s.decode(rec)
		if err != nil {
			return nil, err
		}
		if err := x.add(as, rec, fact); err != nil {
			return nil, err
		}
	}
	return x, nil
}

// indexAll makes the index of sessions that are older than it. One whose log
// cannot be read has none.
func (m *Manager) indexAll(ctx context.Context) error {
	for after := ""; ; {
		heads, err := m.store.Unindexed(ctx, after, readPage)
		if err != nil {
			return fmt.Errorf("session: find sessions without an index: %w", err)
		}
		if after == "" && len(heads) > 0 {
			m.log.LogAttrs(ctx, slog.LevelInfo, "sessions of an earlier version are indexed, once")
		}
		for _, head := range heads {
			after = head.ID
			if err := m.makeIndex(ctx, head); err != nil {
				m.log.LogAttrs(ctx, slog.LevelWarn, "a session is left without an index", slog.String("session", head.ID), slog.String("error", err.Error()))
			}
		}
		if len(heads) < readPage {
			return nil
		}
	}
}

func (m *Manager) makeIndex(ctx context.Context, head store.Head) error {
	s := newSession(m.store, m.runner, m.limits, head.ID) // only read from
	x, err := s.readIndex(s.records(ctx, 0, readPage), 0, head.LastSeq, head.ID)
	if err != nil {
		return err
	}
	b := store.Batch{SessionID: head.ID, Rows: slices.Collect(maps.Values(x.rows)), Usage: x.usage, LastTurn: x.last, LastStatus: x.lastAs}
	return m.store.Index(ctx, b, head.LastSeq)
}

// said is what the user has said, for lists of turns: the prompt, or if that is
// blank the parts, their files in words such as "[image/png, 68 bytes]". It is as
// long as the prompt, or at most maxSaid bytes.
func said(prompt string, parts record.Parts) string {
	const maxSaid = 4096
	if strings.TrimSpace(prompt) != "" || len(parts) == 0 {
		return prompt
	}
	var words []string
	for _, part := range parts {
		switch {
		case part.GetInline() != nil:
			words = append(words, fmt.Sprintf("[%s, %d bytes]", part.GetInline().GetMimeType(), len(part.GetInline().GetData())))
		case part.GetFile() != nil:
			words = append(words, fmt.Sprintf("[%s, %s]", part.GetFile().GetMimeType(), part.GetFile().GetUri()))
		default:
			words = append(words, part.GetText())
		}
	}
	text := strings.Join(words, "\n")
	if len(text) > maxSaid {
		text = strings.ToValidUTF8(text[:maxSaid-len("…")], "") + "…"
	}
	return text
}
