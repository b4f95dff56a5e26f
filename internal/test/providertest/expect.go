package providertest

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Conversation is what a recording says a conversation must look like.
type Conversation struct {
	Wire Wire
	// Sessions are the conversations that the recording holds one after the other;
	// mostly one. Together their calls are the recording's model calls in order.
	Sessions []Session
}

// Session is a conversation that starts from nothing.
type Session struct {
	// Model, System, Tools and Builtins are those of the first request.
	Model, System string
	Tools         []Tool
	Builtins      []string
	// Turns are what the user said and what came of it.
	Turns []Turn
	// Needs says why this cannot be driven with text prompts and tool results
	// alone; "" if it can.
	Needs string
}

// Turn is a prompt of the user and the model calls that it led to.
type Turn struct {
	// Prompt is the user's text.
	Prompt string
	// Steps are the model calls.
	Steps []Step
}

// Step is one model call and what the client answered.
type Step struct {
	Answer
	// Results are the answers to the step's calls in the calls' order. It is empty
	// when the recording ends with the calls open; the driver then has to cancel
	// the turn once it has seen them.
	Results []ToolResult
	// Signatures are those that the recording's own request carried.
	Signatures []string
}

// ToolResult is what the client answers to a call.
type ToolResult struct {
	// ID is the call's id on the wire, "" where it has none.
	ID, Name string
	Output   string
	// IsError tells that Output is an error message.
	IsError bool
}

// Open reports whether the step's calls are never answered.
func (s Step) Open() bool { return len(s.Calls) > 0 && len(s.Results) == 0 }

// Needs says why the conversation cannot be driven with text prompts and tool
// results alone; "" if it can.
func (c *Conversation) Needs() string {
	for _, s := range c.Sessions {
		if s.Needs != "" {
			return s.Needs
		}
	}
	return ""
}

// Usage is the sum over the turn's model calls.
func (t Turn) Usage() Usage {
	var sum Usage
	for _, s := range t.Steps {
		sum = sum.Add(s.Usage)
	}
	return sum
}

// Text is what the model said in the turn, all steps joined as they are.
func (t Turn) Text() string {
	var b strings.Builder
	for _, s := range t.Steps {
		b.WriteString(s.Text)
	}
	return b.String()
}

// History returns what the request of a step must carry: everything before it.
func (s *Session) History(turn, step int) []Item {
	var items []Item
	for i, t := range s.Turns[:turn+1] {
		items = append(items, Item{Kind: User, Text: t.Prompt})
		steps := t.Steps
		if i == turn {
			steps = steps[:step]
		}
		for _, st := range steps {
			items = append(items, st.items()...)
		}
	}
	return items
}

// items are the answer and the results as a later request carries them.
func (s Step) items() []Item {
	items := slices.Clone(s.Items)
	for _, r := range s.Results {
		items = append(items, Item{Kind: Result, ID: r.ID, Name: r.Name, Text: r.Output, IsError: r.IsError})
	}
	return items
}

// Expect derives the conversation from a recording's model calls. A request that
// does not carry on where the one before ended starts a new session.
func Expect(rec *Recording) (*Conversation, error) {
	c := &Conversation{}
	for i, e := range rec.Calls() {
		u, err := url.Parse(e.URL)
		if err != nil {
			return nil, fmt.Errorf("recording %s, call %d: %w", rec.Name, i, err)
		}
		req, err := parseRequest(e.Wire, u, e.Request)
		if err != nil {
			return nil, fmt.Errorf("recording %s, call %d: %w", rec.Name, i, err)
		}
		answer, err := answerOf(e)
		if err != nil {
			return nil, fmt.Errorf("recording %s, call %d: %w", rec.Name, i, err)
		}
		if n := len(c.Sessions); c.Wire != e.Wire || n == 0 || !c.Sessions[n-1].goOn(req) {
			c.Wire = e.Wire
			c.Sessions = append(c.Sessions, begin(req))
		}
		s := &c.Sessions[len(c.Sessions)-1]
		turn := &s.Turns[len(s.Turns)-1]
		turn.Steps = append(turn.Steps, Step{Answer: answer, Signatures: req.Signatures})
	}
	if len(c.Sessions) == 0 {
		return nil, fmt.Errorf("recording %s: it has no model call", rec.Name)
	}
	return c, nil
}

// begin starts a session with its first request.
func begin(req *Request) Session {
	s := Session{Model: req.Model, System: req.System, Tools: req.Tools, Builtins: req.Builtins}
	var prompt []string
	for _, item := range req.Items {
		switch item.Kind {
		case User:
			prompt = append(prompt, item.Text)
		case Other:
			s.Needs = "media or provider-side items in a request: " + item.Text
		default:
			if s.Needs == "" {
				s.Needs = "starts with a history"
			}
		}
	}
	s.Turns = []Turn{{Prompt: strings.Join(prompt, "\n\n")}}
	return s
}

// goOn adds what a request has beyond the session so far: tool results to the
// last step, or a prompt, which starts a turn. It reports false if the request
// does not continue the session or brings anything else, or what a provider's
// tools have said.
func (s *Session) goOn(req *Request) bool {
	if slices.ContainsFunc(req.Items, func(i Item) bool { return i.Kind == Other }) {
		return false
	}
	turn := len(s.Turns) - 1
	last := &s.Turns[turn].Steps[len(s.Turns[turn].Steps)-1]
	before := canonical(append(s.History(turn, len(s.Turns[turn].Steps)-1), last.items()...))
	now := canonical(req.Items)
	if len(now) <= len(before) {
		return false
	}
	for i, item := range before {
		if item.equal(now[i]) != nil {
			return false
		}
	}
	more := now[len(before):]
	results := slices.IndexFunc(more, func(i Item) bool { return i.Kind != Result })
	if results < 0 {
		results = len(more)
	}
	prompts := more[results:]
	if results != len(last.Calls) || len(prompts) > 1 || len(prompts) == 1 && prompts[0].Kind != User {
		return false
	}
	for i, r := range more[:results] {
		// Canonical results stand in the order of the calls.
		last.Results = append(last.Results, ToolResult{
			ID: last.Calls[i].ID, Name: last.Calls[i].Name, Output: r.Text, IsError: r.IsError,
		})
	}
	if len(prompts) == 1 {
		if results > 0 {
			s.Needs = "tool results and a prompt in one request"
		}
		s.Turns = append(s.Turns, Turn{Prompt: prompts[0].Text})
	}
	return true
}
