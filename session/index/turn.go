// Package index is a part of agentd, not an API: the index of turns and interactions, what lists and
// lookups return without reading a session's log.
//
// An [Index] is the result of applying a session's records in order. The append of a record also writes the
// rows that the record changes. [Lists] reads rows, and asks the sessions in memory for what no row says:
// what an open turn waits for.
//
// It must not know how a session runs turns, nor the transport.
package index

import (
	"fmt"
	"slices"
	"strings"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/internal/logjson"
	"github.com/apzuk3/agentd/session/internal/position"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// Status is how a turn is.
type Status int

// The states of a turn.
const (
	Pending          Status = iota + 1 // it waits for the turns before it
	Running                            // it runs
	WaitingForClient                   // no client can run a tool call of it, or the caller's key is missing
	WaitingForInput                    // it waits for a person, and nothing else of it goes on
	Succeeded                          // the tree has finished naturally
	Failed                             // an error has ended it
	Stopped                            // it was stopped, see record.Receipt
)

// The statuses of turns in rows. What an open turn waits for is not recorded.
const (
	rowPending   = "pending"
	rowOpen      = "open"
	rowSucceeded = "succeeded"
	rowFailed    = "failed"
	rowStopped   = "canceled"
)

// recordedAs are the statuses in rows of which a turn may have one that is looked for.
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

// Recorded is the status of the row of a turn that has the status.
func (is Status) Recorded() string { return recordedAs[is] }

// recorded are the statuses that rows have for those that are looked for.
func recorded(want []Status) []string {
	var out []string
	for _, is := range want {
		if as := is.Recorded(); !slices.Contains(out, as) {
			out = append(out, as)
		}
	}
	return out
}

// open are the calls for clients of a turn; none of nil.
func (t *Turn) open() []record.ToolCall {
	if t == nil {
		return nil
	}
	return t.Open
}

// Turn is what is known of a turn.
type Turn struct {
	// ID and SessionID name it.
	ID        string `json:"id"`
	SessionID string `json:"-"`
	// Status is how it is.
	Status Status `json:"-"`
	// Prompt is what the user said; parts alone stand here in words.
	Prompt string `json:"prompt"`
	// Output is the last complete response without tool calls, see Event.Output.
	Output string `json:"output,omitempty"`
	// Structured is true when Output is JSON that satisfies the output schema of the agent that gave it.
	Structured bool `json:"structured,omitempty"`
	// Model and Stop are those of the last response of any kind, as in Event.
	Model string `json:"model,omitempty"`
	Stop  string `json:"stop,omitempty"`
	// Usage is what it has used so far.
	Usage record.Usage `json:"usage"`
	// Created is when its prompt was recorded, Started when it began to run, and Ended when it was over;
	// zero for what has not happened.
	Created time.Time `json:"created"`
	Started time.Time `json:"started,omitzero"`
	Ended   time.Time `json:"ended,omitzero"`
	// After is the position before its first message.
	After int64 `json:"after"`
	// Open are the tool calls without a result, in order, but for those about which a person is asked.
	Open []record.ToolCall `json:"-"`
	// Asking is what people are asked.
	Asking []*Interaction `json:"-"`
	// End is its end, nil before.
	End *record.TurnEnded `json:"end,omitempty"`
	// Into is the turn of which its prompt has become a message, "" for none.
	Into string `json:"into,omitempty"`
	// By is the id of the principal whose prompt it is, and Warnings are about what of the request was left
	// out.
	By       string           `json:"by,omitempty"`
	Warnings []record.Warning `json:"warnings,omitempty"`
	// Author and Metadata are those of record.TurnStarted; of Metadata only a turn that is not over has any.
	Author   string            `json:"author,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`

	recorded string // the status of its row
}

// row is the turn as it stands in a store.
func (t *Turn) row(sessionID string) (store.Row, error) {
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

// readTurn reads what row has written. Of a turn that is not over, the rest is in the session.
func readTurn(r store.Row) (*Turn, error) {
	t := &Turn{}
	err := logjson.Unmarshal(r.Data, t)
	t.SessionID, t.Status, t.recorded = r.SessionID, overAs[r.Status], r.Status
	return t, err
}

// began notes what the first record of a turn says besides its prompt.
func (t *Turn) began(f *record.TurnStarted) {
	t.By, t.Warnings, t.Author, t.Metadata = f.By, f.Warnings, f.Author, f.Metadata
}

func (t *Turn) event(ev *record.Event) {
	t.responded(ev)
	t.Open = append(t.Open, forClients(ev.Calls...)...)
}

// responded applies a response of a model to its turn.
func (t *Turn) responded(ev *record.Event) {
	if ev.Final() {
		t.Output, t.Structured = ev.FinalText(), ev.Structured
	}
	if ev.MessageID != "" {
		t.Model, t.Stop = ev.Model, ev.Stop
	}
}

// StopReason returns the protocol's name of Stop.
func (t *Turn) StopReason() agentdv1.StopReason { return (&record.Event{Stop: t.Stop}).StopReason() }

// StructuredOutput returns the protocol's form of a structured output; "" for text that is not
// JSON.
func (t *Turn) StructuredOutput() string { return logjson.Structured(t.Output) }

// size is about how many bytes of a message the turn takes.
func (t *Turn) size() int {
	// A value of one digit takes two bytes as JSON and eleven in a message.
	const structured = 6
	n := len(t.Prompt) + len(t.Output) + len(t.Author)
	if t.Structured {
		n += structured * len(t.Output)
	}
	metadata := 0
	for k, v := range t.Metadata {
		metadata += len(k) + len(v)
	}
	for _, c := range t.Open {
		n += c.Size() + metadata
	}
	for _, in := range t.Asking {
		n += in.Call.Size()
	}
	if t.End == nil {
		return n
	}
	return n + len(t.End.Reason) + t.End.Receipt.Size()
}

// asRecorded is what a row says of a turn that runs nowhere.
func asRecorded(row store.Row) (Turn, error) {
	t, err := readTurn(row)
	if err != nil {
		return Turn{}, fmt.Errorf("session %s: turn %s: its row: %w", row.SessionID, row.ID, err)
	}
	switch t.recorded {
	case rowOpen:
		t.Status = WaitingForClient
	case rowPending:
		t.Status = Pending
	}
	return *t, nil
}

// said is what the user has said, for lists of turns: the prompt, or if that is blank the parts, their
// files in words such as "[image/png, 68 bytes]". It is as long as the prompt, or at most maxSaid bytes.
func said(prompt string, parts record.Parts) string {
	const maxSaid = 4096
	if strings.TrimSpace(prompt) != "" || len(parts) == 0 {
		return prompt
	}
	var words []string
	for _, part := range parts {
		switch {
		case part.GetInline() != nil:
			file := part.GetInline()
			words = append(words, fmt.Sprintf("[%s, %d bytes]", file.GetMimeType(), len(file.GetData())))
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
