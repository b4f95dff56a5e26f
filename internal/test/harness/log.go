package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// LoggedTurn is what the log says about a turn.
type LoggedTurn struct {
	Session, ID string
	Started     record.TurnStarted
	Ended       record.TurnEnded
	Answers     []loggedAnswer               // of models, in order
	Results     map[string]record.ToolResult // tool_result records by call
	ResultAt    map[string]int64             // their sequence numbers
	Responses   map[string]response          // what the models are told, by call
}

// loggedAnswer is a model's answer.
type loggedAnswer struct {
	Seq    int64
	Author string
	Calls  []string // ids
	names  []string // of the tools
	Text   string
}

// response is the result of a call in the history.
type response struct {
	Seq  int64
	Body map[string]any
}

// loggedEvent is what these tests read of an event's stored form.
type loggedEvent struct {
	Author  string `json:"author"`
	Content *struct {
		Parts []struct {
			Text         string `json:"text"`
			Thought      bool   `json:"thought"`
			FunctionCall *struct {
				ID   string `json:"id"`
				Name string `json:"name"`
			} `json:"functionCall"`
			FunctionResponse *struct {
				ID       string         `json:"id"`
				Response map[string]any `json:"response"`
			} `json:"functionResponse"`
		} `json:"parts"`
	} `json:"content"`
	CustomMetadata struct {
		Agentd struct {
			LLM string `json:"llm"` // the model call, of an answer
		} `json:"agentd"`
	} `json:"customMetadata"`
}

// ReadLog reads a session's log and checks what must be true of any: sequence
// numbers from 1 without gaps, turns one after the other, each with one end and
// nothing behind it, at most one result for each call that was made, and exactly
// one response to it in the history.
func ReadLog(ctx context.Context, t *testing.T, db store.Store, id string) []*LoggedTurn {
	t.Helper()
	const page = 64
	var turns []*LoggedTurn
	var open *LoggedTurn
	last := int64(0)
	for {
		recs, err := db.Read(ctx, id, last, page)
		if err != nil {
			t.Fatalf("session %s: %v", id, err)
		}
		for _, rec := range recs {
			if rec.Seq != last+1 {
				t.Errorf("session %s: record %d follows %d", id, rec.Seq, last)
			}
			last = rec.Seq
			if rec.Kind == record.KindTurnStarted {
				if open != nil {
					t.Errorf("session %s: record %d starts turn %s while %s runs", id, rec.Seq, rec.TurnID, open.ID)
				}
				open = &LoggedTurn{
					Session: id, ID: rec.TurnID, Results: map[string]record.ToolResult{},
					ResultAt: map[string]int64{}, Responses: map[string]response{},
				}
				turns = append(turns, open)
			}
			if open == nil || open.ID != rec.TurnID {
				t.Errorf("session %s: record %d (%s) of turn %s is outside of it", id, rec.Seq, rec.Kind, rec.TurnID)
				continue
			}
			if err := open.take(rec); err != nil {
				t.Errorf("session %s: turn %s: record %d (%s): %v\n%s", id, open.ID, rec.Seq, rec.Kind, err, rec.Data)
			}
			if rec.Kind == record.KindTurnEnded {
				open = nil
			}
		}
		if store.LastPage(recs, page) {
			break
		}
	}
	if open != nil {
		t.Errorf("session %s: turn %s has no end", id, open.ID)
	}
	VerifyLog(ctx, t, db, id)
	for _, turn := range turns {
		for _, a := range turn.Answers {
			for _, call := range a.Calls {
				if _, ok := turn.Responses[call]; !ok {
					t.Errorf("session %s: turn %s (%s): call %s has no response",
						id, turn.ID, turn.Started.Prompt, call)
				}
			}
		}
	}
	return turns
}

// take takes in one record of the turn.
func (l *LoggedTurn) take(rec record.Record) error {
	switch rec.Kind {
	case record.KindTurnStarted:
		return json.Unmarshal(rec.Data, &l.Started)
	case record.KindTurnEnded:
		return json.Unmarshal(rec.Data, &l.Ended)
	case record.KindToolResult:
		var res record.ToolResult
		if err := json.Unmarshal(rec.Data, &res); err != nil {
			return err
		}
		if _, twice := l.Results[res.CallID]; twice {
			return fmt.Errorf("a second result of call %s", res.CallID)
		}
		if !l.made(res.CallID) {
			return fmt.Errorf("a result of call %s, which nobody has made", res.CallID)
		}
		l.Results[res.CallID], l.ResultAt[res.CallID] = res, rec.Seq
		return nil
	case record.KindEvent:
		return l.event(rec)
	default:
		return nil
	}
}

func (l *LoggedTurn) event(rec record.Record) error {
	var ev loggedEvent
	if err := json.Unmarshal(rec.Data, &ev); err != nil || ev.Content == nil {
		return err
	}
	if len(ev.Content.Parts) == 0 && ev.CustomMetadata.Agentd.LLM == "" {
		return nil // no answer, but what a call took that was aborted
	}
	answer := loggedAnswer{Seq: rec.Seq, Author: ev.Author}
	responses := 0
	for _, p := range ev.Content.Parts {
		if call := p.FunctionCall; call != nil {
			if call.ID == "" || l.made(call.ID) {
				return fmt.Errorf("call id %q is not unique", call.ID)
			}
			answer.Calls = append(answer.Calls, call.ID)
			answer.names = append(answer.names, call.Name)
		}
		if r := p.FunctionResponse; r != nil {
			responses++
			if _, twice := l.Responses[r.ID]; twice {
				return fmt.Errorf("a second response to call %s", r.ID)
			}
			if !l.made(r.ID) {
				return fmt.Errorf("a response to call %s, which nobody has made", r.ID)
			}
			l.Responses[r.ID] = response{rec.Seq, r.Response}
		}
		if !p.Thought {
			answer.Text += p.Text
		}
	}
	if responses == 0 {
		l.Answers = append(l.Answers, answer)
	}
	return nil
}

// made tells whether a model has made a call of that id.
func (l *LoggedTurn) made(id string) bool {
	for _, a := range l.Answers {
		if slices.Contains(a.Calls, id) {
			return true
		}
	}
	return false
}
