package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/apzuk3/agentd/session"
)

// loggedTurn is what the log says about a turn.
type loggedTurn struct {
	session, id string
	started     session.TurnStarted
	ended       session.TurnEnded
	answers     []loggedAnswer                // of models, in order
	results     map[string]session.ToolResult // tool_result records by call
	resultAt    map[string]int64              // their sequence numbers
	responses   map[string]response           // what the models are told, by call
}

// loggedAnswer is a model's answer.
type loggedAnswer struct {
	seq    int64
	author string
	calls  []string // ids
	names  []string // of the tools
	text   string
}

// response is the result of a call in the history.
type response struct {
	seq  int64
	body map[string]any
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

// readLog reads a session's log and checks what must be true of any: sequence
// numbers from 1 without gaps, turns one after the other, each with one end and
// nothing behind it, at most one result for each call that was made, and exactly
// one response to it in the history.
func readLog(ctx context.Context, t *testing.T, store session.Store, id string) []*loggedTurn {
	t.Helper()
	const page = 64
	var turns []*loggedTurn
	var open *loggedTurn
	last := int64(0)
	for {
		recs, err := store.Read(ctx, id, last, page)
		if err != nil {
			t.Fatalf("session %s: %v", id, err)
		}
		for _, rec := range recs {
			if rec.Seq != last+1 {
				t.Errorf("session %s: record %d follows %d", id, rec.Seq, last)
			}
			last = rec.Seq
			if rec.Kind == session.KindTurnStarted {
				if open != nil {
					t.Errorf("session %s: record %d starts turn %s while %s runs", id, rec.Seq, rec.TurnID, open.id)
				}
				open = &loggedTurn{
					session: id, id: rec.TurnID, results: map[string]session.ToolResult{},
					resultAt: map[string]int64{}, responses: map[string]response{},
				}
				turns = append(turns, open)
			}
			if open == nil || open.id != rec.TurnID {
				t.Errorf("session %s: record %d (%s) of turn %s is outside of it", id, rec.Seq, rec.Kind, rec.TurnID)
				continue
			}
			if err := open.take(rec); err != nil {
				t.Errorf("session %s: turn %s: record %d (%s): %v\n%s", id, open.id, rec.Seq, rec.Kind, err, rec.Data)
			}
			if rec.Kind == session.KindTurnEnded {
				open = nil
			}
		}
		if session.LastPage(recs, page) {
			break
		}
	}
	if open != nil {
		t.Errorf("session %s: turn %s has no end", id, open.id)
	}
	verifyLog(ctx, t, store, id)
	for _, turn := range turns {
		for _, a := range turn.answers {
			for _, call := range a.calls {
				if _, ok := turn.responses[call]; !ok {
					t.Errorf("session %s: turn %s (%s): call %s has no response", id, turn.id, turn.started.Prompt, call)
				}
			}
		}
	}
	return turns
}

// take takes in one record of the turn.
func (l *loggedTurn) take(rec session.Record) error {
	switch rec.Kind {
	case session.KindTurnStarted:
		return json.Unmarshal(rec.Data, &l.started)
	case session.KindTurnEnded:
		return json.Unmarshal(rec.Data, &l.ended)
	case session.KindToolResult:
		var res session.ToolResult
		if err := json.Unmarshal(rec.Data, &res); err != nil {
			return err
		}
		if _, twice := l.results[res.CallID]; twice {
			return fmt.Errorf("a second result of call %s", res.CallID)
		}
		if !l.made(res.CallID) {
			return fmt.Errorf("a result of call %s, which nobody has made", res.CallID)
		}
		l.results[res.CallID], l.resultAt[res.CallID] = res, rec.Seq
		return nil
	case session.KindEvent:
		return l.event(rec)
	default:
		return nil
	}
}

func (l *loggedTurn) event(rec session.Record) error {
	var ev loggedEvent
	if err := json.Unmarshal(rec.Data, &ev); err != nil || ev.Content == nil {
		return err
	}
	if len(ev.Content.Parts) == 0 && ev.CustomMetadata.Agentd.LLM == "" {
		return nil // no answer, but what a call took that was aborted
	}
	answer := loggedAnswer{seq: rec.Seq, author: ev.Author}
	responses := 0
	for _, p := range ev.Content.Parts {
		if call := p.FunctionCall; call != nil {
			if call.ID == "" || l.made(call.ID) {
				return fmt.Errorf("call id %q is not unique", call.ID)
			}
			answer.calls = append(answer.calls, call.ID)
			answer.names = append(answer.names, call.Name)
		}
		if r := p.FunctionResponse; r != nil {
			responses++
			if _, twice := l.responses[r.ID]; twice {
				return fmt.Errorf("a second response to call %s", r.ID)
			}
			if !l.made(r.ID) {
				return fmt.Errorf("a response to call %s, which nobody has made", r.ID)
			}
			l.responses[r.ID] = response{rec.Seq, r.Response}
		}
		if !p.Thought {
			answer.text += p.Text
		}
	}
	if responses == 0 {
		l.answers = append(l.answers, answer)
	}
	return nil
}

// made tells whether a model has made a call of that id.
func (l *loggedTurn) made(id string) bool {
	for _, a := range l.answers {
		if slices.Contains(a.calls, id) {
			return true
		}
	}
	return false
}
