package terminal_test

import (
	"errors"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/client/terminal"
)

func says(path, message, text string) client.EventData {
	return &client.OutputChunk{AgentPath: strings.Split(path, "/"), MessageID: message, Content: text}
}

// events yields events of the data, and then the error if there is one.
func events(fails error, list ...client.EventData) iter.Seq2[*client.Event, error] {
	return func(yield func(*client.Event, error) bool) {
		for _, data := range list {
			if !yield(&client.Event{Data: data}, nil) {
				return
			}
		}
		if fails != nil {
			yield(nil, fails)
		}
	}
}

// Each kind of event has its line, or none.
func TestPrinterLines(t *testing.T) {
	path := []string{"root", "a"}
	question := &client.Interaction{AgentPath: path, Kind: client.InteractionClarification, Question: "Which\none?"}
	approval := &client.Interaction{AgentPath: path, Kind: client.InteractionApproval, ToolName: "pay", ToolInput: []byte(`{"n": 1}`)}
	resolved := func(i client.Interaction, said *client.Resolution) client.EventData {
		i.Resolution = said
		return &client.InteractionResolved{Interaction: &i}
	}
	for want, data := range map[string]client.EventData{
		"a: hello\n":                                                        says("root/a", "m", "hello"),
		"→ look {\"a\": 1}\n":                                               &client.ToolCall{Name: "look", Input: []byte("{\"a\":\n 1}"), AgentPath: path},
		"→ look {} (not run here)\n":                                        &client.ToolCallAnnounced{Name: "look", Input: []byte("{}"), AgentPath: path},
		"… no attached client has the tool look\n":                          &client.ToolCallUnserved{Name: "look"},
		"✗ look: broken leg\n":                                              &client.ToolCallAnswered{Name: "look", Error: "broken\nleg"},
		"✗ look: no\n⚠ it was ignored\n⚠ so was that\n":                     &client.ToolCallAnswered{Name: "look", Error: "no", Warnings: []client.Warning{{Message: "it was\nignored"}, {Message: "so was that"}}},
		"⚠ a key was ignored\n":                                             &client.TurnStarted{Warnings: []client.Warning{{Code: "x", Field: "y", Message: "a key was ignored"}}},
		"✗ tool call canceled: timed out\n":                                 &client.ToolCallCanceled{ID: "c", Reason: "timed out"},
		"? a asks: Which one?\n":                                            &client.InteractionRequested{Interaction: question},
		"? a asks to call pay {\"n\": 1}\n":                                 &client.InteractionRequested{Interaction: approval},
		"! the question was answered: red\n":                                resolved(*question, client.Answer("red")),
		"! the question is no longer asked\n":                               resolved(*question, nil),
		"! the question was resolved\n":                                     resolved(*question, &client.Resolution{}),
		"! the call of pay was approved\n":                                  resolved(*approval, client.Approve()),
		"! the call of pay was denied: much\n":                              resolved(*approval, client.Deny("much")),
		"! the call of pay was denied\n":                                    resolved(*approval, client.Deny("")),
		"↻ a: the model call failed (RATE_LIMITED), trying again in 1.5s\n": &client.ModelCallRetried{AgentPath: path, Code: client.ErrRateLimited, Wait: 1500 * time.Millisecond},
		"↻ a: gpt-x failed (TIMEOUT), claude-x is called\n":                 &client.ModelCallFellBack{AgentPath: path, Code: client.ErrTimeout, Model: "gpt-x", NextModel: "claude-x"},
		"↪ finder spawned: find it\n": &client.GoalEvent{
			Kind: client.GoalEventChildSpawned, Child: &client.ChildEvent{Name: "finder", Goal: "find it"},
		},
		"↪ finder alert: a trace\n": &client.GoalEvent{
			Kind: client.GoalEventChildReported, Child: &client.ChildEvent{Name: "finder", Text: "a trace"},
		},
		"↪ finder completed: below (2 turn(s), $0.0031)\n": &client.GoalEvent{
			Kind:  client.GoalEventChildReported,
			Child: &client.ChildEvent{Name: "finder", Report: "completed", Text: "below", Ended: true, Turns: 2, CostUSD: 0.0031},
		},
		"… a: a summary stands for the beginning of the conversation\n": &client.HistoryCompacted{AgentPath: path},
		"→ web_search {} (by the provider)\n✗ web_search: no\n[1] Sun https://sun\n[2] https://sky\n": &client.ProviderToolsUsed{
			AgentPath: path, Uses: []client.ProviderToolUse{{Name: "web_search", Input: "{}", Error: "no"}},
			Citations: []client.Citation{{URI: "https://sun", Title: "Sun"}, {URI: "https://sky"}, {URI: "https://sun", Title: "Sun"}, {}},
		},
		"… waiting for the session's running turn, 2 more before\n": &client.TurnQueued{Ahead: 2},
		"> and quick [image/png, text, image/png gs://x]\n":         &client.MessageInjected{Prompt: "and\nquick", Parts: []client.Part{client.Inline("image/png", []byte("x")), client.Text("t"), client.FileURI("image/png", "gs://x")}},
		"↻ the connection is lost; trying to get it back\n":         &client.ConnectionLost{},
		"↻ the connection is back\n":                                &client.ConnectionRestored{},
		"✗ the connection did not come back in 2m0s\n":              &client.ConnectionAbandoned{After: 2 * time.Minute},
		"✗ agentd: no\n":      &client.Error{Message: "no"},
		"■ stopped: enough\n": &client.End{Reason: "enough"},
	} {
		var out strings.Builder
		p := terminal.Printer{Out: &out}
		if err := p.PrintAll(events(nil, data)); err != nil || out.String() != want {
			t.Errorf("%T: shown %q and %v, want %q", data, out.String(), err, want)
		}
	}
	for _, data := range []client.EventData{
		&client.TurnStarted{}, &client.StateUpdate{}, &client.MessageCompleted{}, &client.Transferred{}, &client.AgentStarted{}, &client.AgentEnded{}, &client.ToolCallAnswered{Name: "look", Output: "fine"},
		&client.ModelCallEnded{}, &client.RawPayloadReceived{}, &client.UnknownEvent{}, &client.End{Completed: true}, says("root", "m", ""),
	} {
		var out strings.Builder
		p := terminal.Printer{Out: &out}
		if err := p.PrintAll(events(nil, data)); err != nil || out.Len() > 0 {
			t.Errorf("%T: shown %q and %v, want nothing", data, out.String(), err)
		}
	}
}

// Agents that speak at the same time are shown one after the other; thoughts and
// questions are shown as the program wants.
func TestPrinterParts(t *testing.T) {
	list := []client.EventData{
		&client.OutputChunk{AgentPath: []string{"a"}, MessageID: "1", Content: "hm", IsThought: true},
		says("a", "1", "one "), says("b", "2", "two "), says("a", "1", "\x1b[2Jmore"), &client.ModelCallEnded{AgentPath: []string{"a"}},
		says("b", "2", "again"), &client.InteractionRequested{Interaction: &client.Interaction{AgentPath: []string{"b"}, Question: "why?"}},
		&client.End{Completed: true},
	}
	for want, p := range map[string]*terminal.Printer{
		"a: one [2Jmore\nb: two again\n? b asks: why?\n":                                           {},
		"a: hm\none [2Jmore\nb: two again\n? b asks: why?\n":                                       {Thoughts: true},
		"a: one [2Jmore\nb: two again\n":                                                           {HideQuestions: true},
		"\x1b[1ma:\x1b[0m one [2Jmore\n\x1b[1mb:\x1b[0m two again\n\x1b[2m? b asks: why?\x1b[0m\n": {Colors: true},
	} {
		var out strings.Builder
		p.Out = &out
		if err := p.PrintAll(events(nil, list...)); err != nil || out.String() != want {
			t.Errorf("shown\n%q and %v, want\n%q", out.String(), err, want)
		}
	}
}

type full struct{}

var errFull = errors.New("the disk is full")

func (full) Write([]byte) (int, error) { return 0, errFull }

// The error of the events is returned, and that of the writer ends the loop.
func TestPrintAllFails(t *testing.T) {
	var out strings.Builder
	p := terminal.Printer{Out: &out}
	broken := errors.New("broken")
	if err := p.PrintAll(events(broken, says("a", "1", "half"))); !errors.Is(err, broken) || out.String() != "a: half\n" {
		t.Errorf("shown %q and %v", out.String(), err)
	}
	left := false
	err := (&terminal.Printer{Out: full{}}).PrintAll(func(yield func(*client.Event, error) bool) {
		left = !yield(&client.Event{Data: says("a", "1", "x")}, nil)
	})
	if !errors.Is(err, errFull) || !left {
		t.Errorf("got %v, left the loop: %v", err, left)
	}
}
