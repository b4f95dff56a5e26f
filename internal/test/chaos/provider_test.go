package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apzuk3/agentd/internal/test/fakeprovider"
	"github.com/apzuk3/agentd/internal/test/providertest"
)

// made says which daemon process made a request, see process.epoch, and when the provider got it.
type made struct {
	epoch int
	at    time.Time
}

// attempt is one model call that the provider was asked for.
type attempt struct {
	made
	number int    // of the calls of its step, from 1
	digest uint64 // of the request
	prompt int64  // tokens
	fault  string // what we did to it; "" is nothing
	whole  bool   // all of the answer was written
	told   prompt
}

// provider serves OpenAI's chat completions. What it answers follows from the
// request alone, but for the number of the attempt, which is in every word: what
// a client has seen and what a log holds can be told apart by attempts.
type provider struct {
	slow  bool // pauses between the pieces of an answer
	url   string
	fault func() string // takes the fault that is due, "" if none is

	mu       sync.Mutex     // protects the fields below
	sessions int            // how many have been numbered
	scripts  map[int]script // by session
	attempts map[step][]*attempt
	downs    map[step][]made      // who asked the model which is never there
	sums     map[int][]*sum       // summaries that were asked for, by session
	bills    map[int][]bill       // what failed, by session
	results  map[string]time.Time // when a call's result was first sent back, by its key
	problems []string             // what was wrong with requests
}

// script is what is said in a session.
type script struct {
	seed  uint64
	root  *plan
	files bool // see shape
}

func newProvider(t *testing.T, slow bool) *provider {
	p := &provider{
		slow: slow, fault: func() string { return "" },
		// All numbers are of one length: so are the requests.
		sessions: 1000,
		scripts:  map[int]script{}, attempts: map[step][]*attempt{}, results: map[string]time.Time{},
		downs: map[step][]made{}, sums: map[int][]*sum{}, bills: map[int][]bill{},
	}
	_, p.url = fakeprovider.Start(t, p.answer)
	return p
}

// serve has the provider know another session and returns its number.
func (p *provider) serve(s script) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sessions++
	p.scripts[p.sessions] = s
	return p.sessions
}

// forget drops what is known about a session.
func (p *provider) forget(session int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.scripts, session)
	delete(p.sums, session)
	delete(p.bills, session)
	maps.DeleteFunc(p.downs, func(s step, _ []made) bool { return s.session == session })
	for s := range p.attempts {
		if s.session == session {
			delete(p.attempts, s)
		}
	}
	for key := range p.results {
		if strings.HasPrefix(key, fmt.Sprint(session, ".")) {
			delete(p.results, key)
		}
	}
}

// of returns the attempts at the steps of a session.
func (p *provider) of(session int) map[step][]attempt {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[step][]attempt{}
	for s, as := range p.attempts {
		if s.session != session {
			continue
		}
		for _, a := range as {
			out[s] = append(out[s], *a)
		}
	}
	return out
}

func (p *provider) resultSeen(key string) (time.Time, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, ok := p.results[key]
	return at, ok
}

func (p *provider) faultf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.problems) < 100 {
		p.problems = append(p.problems, fmt.Sprintf(format, args...))
	}
}

func (p *provider) takeProblems() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.problems
	p.problems = nil
	return out
}

// answer is a whole answer of a model.
type answer struct {
	text, thoughts     string
	calls              []chatCall
	prompt, completion int64
}

type chatCall struct {
	ID       string `json:"id,omitempty"`
	Index    int    `json:"index"`
	Type     string `json:"type,omitempty"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// answerOf is what the provider says in an attempt at a step.
func answerOf(seed uint64, p *plan, s step, number int, prompt int64) answer {
	a := p.act(seed, s)
	out := answer{text: s.String(), prompt: prompt}
	for i := range a.words {
		out.text += fmt.Sprintf(" w%d:%d", i, number)
	}
	for i := range a.thoughts {
		out.thoughts += fmt.Sprintf("t%d:%d ", i, number)
	}
	call := func(name, args string) {
		c := chatCall{ID: fmt.Sprint("call_", len(out.calls)), Index: len(out.calls), Type: "function"} // the same ids in every answer
		c.Function.Name, c.Function.Arguments = name, args
		out.calls = append(out.calls, c)
	}
	for i, tool := range a.tools {
		call(tool, fmt.Sprintf(`{"key":%q}`, s.toolKey(i)))
	}
	for _, name := range a.asks {
		request := "work for " + s.agent
		if p.errand != nil { // the agent that is called knows the turn by nothing else
			request += fmt.Sprintf(" in turn %d", s.turn)
		}
		call(name, fmt.Sprintf(`{"request":%q}`, request))
	}
	for _, said := range a.says {
		name, args, _ := strings.Cut(said, " ")
		call(name, args)
	}
	if a.to != "" {
		call("transfer_to_agent", fmt.Sprintf(`{"agent_name":%q}`, a.to))
	}
	if a.exit {
		call("exit_loop", "{}")
	}
	out.completion = int64(a.words + a.thoughts + 5*len(out.calls))
	return out
}

// chatRequest is what the provider reads of a request.
type chatRequest struct {
	Model    string        `json:"model"`
	Tools    []chatTool    `json:"tools"`
	Messages []chatMessage `json:"messages"`
}

type chatMessage struct {
	Role       string     `json:"role"`
	Content    content    `json:"content"`
	ToolCalls  []chatCall `json:"tool_calls"`
	ToolCallID string     `json:"tool_call_id"`
}

var (
	systemMark = regexp.MustCompile(`chaos session=(\d+) turn=(\d+|goal) agent=(\w+);`)
	stepMark   = regexp.MustCompile(`<(\d+)\.(\d+)\.(\w+)\.(\d+)>`)
)

func stepOf(match []string) step {
	number := func(s string) int { n, _ := strconv.Atoi(s); return n } // digits, see the patterns
	return step{number(match[1]), number(match[2]), match[3], number(match[4])}
}

// stepOfRequest finds out which step a request is for: the turn stands in the
// instruction, and of its own answers of the turn the agent is told.
func stepOfRequest(req *chatRequest) (step, error) {
	if len(req.Messages) == 0 {
		return step{}, fmt.Errorf("no messages")
	}
	m := systemMark.FindStringSubmatch(req.Messages[0].Content.text)
	if m == nil {
		return step{}, fmt.Errorf("no mark in the instruction %q", req.Messages[0].Content.text)
	}
	s := stepOf(append(m, "0"))
	if m[2] == "goal" {
		s.turn = turnOfGoal(req, s.session)
	}
	own, summary := map[step]bool{}, false
	for _, msg := range req.Messages {
		told := strings.Contains(msg.Content.text, "<summary>")
		summary = summary || told
		if msg.Role != "assistant" && !told {
			continue
		}
		for _, m := range stepMark.FindAllStringSubmatch(msg.Content.text, -1) {
			if o := stepOf(m); o.session == s.session && o.turn == s.turn && o.agent == s.agent {
				own[o] = true
				s.n = max(s.n, o.n+1)
			}
		}
	}
	if len(own) != s.n && !summary {
		return step{}, fmt.Errorf("step %s is asked for with %d answers before it", s, len(own))
	}
	return s, nil
}

// checkHistory says what is wrong with a conversation: each call has one result,
// right behind it, and it is what the tool has returned, or says that there is
// none. It returns the keys of the calls whose results are there.
func checkHistory(req *chatRequest) (answered []string, err error) {
	open := map[string]string{} // keys by id
	for i, m := range req.Messages {
		if m.Role == "tool" {
			key, ok := open[m.ToolCallID]
			if !ok {
				return nil, fmt.Errorf("message %d of %d: a result of %q, which is not open", i, len(req.Messages), m.ToolCallID)
			}
			delete(open, m.ToolCallID)
			switch {
			case key == "": // not one of the client's tools
			case m.Content.text == toolOutput(key), strings.Contains(m.Content.text, toolError(key)):
				answered = append(answered, key)
			case !strings.Contains(m.Content.text, `"error"`):
				return nil, fmt.Errorf("message %d of %d: call %s has the result %q", i, len(req.Messages), key, m.Content.text)
			}
			continue
		}
		if len(open) > 0 {
			return nil, fmt.Errorf("message %d of %d: calls %v have no result", i, len(req.Messages), open)
		}
		for _, c := range m.ToolCalls {
			var args struct{ Key string }
			if err := json.Unmarshal([]byte(c.Function.Arguments), &args); err != nil {
				return nil, fmt.Errorf("message %d of %d: arguments %q: %w", i, len(req.Messages), c.Function.Arguments, err)
			}
			if _, twice := open[c.ID]; twice {
				return nil, fmt.Errorf("message %d of %d: two calls %q", i, len(req.Messages), c.ID)
			}
			open[c.ID] = args.Key
		}
	}
	if len(open) > 0 {
		return nil, fmt.Errorf("the calls %v at the end have no result", open)
	}
	return answered, nil
}

// begin takes in a request.
func (p *provider) begin(c *fakeprovider.Call) (*attempt, answer, error) {
	body := c.Body
	var req chatRequest
	if err := json.Unmarshal(body, &req); err != nil {
		return nil, answer{}, err
	}
	key := strings.TrimPrefix(c.Key(), keyPrefix)
	epoch, err := strconv.Atoi(key)
	if err != nil {
		return nil, answer{}, fmt.Errorf("key %q: %w", key, err)
	}
	by := made{epoch, time.Now()}
	if who, agent, ok := summaryOf(&req); ok {
		return p.summarise(who, agent, by, body, &req)
	}
	s, err := stepOfRequest(&req)
	if err != nil {
		return nil, answer{}, err
	}
	answered, err := checkHistory(&req)
	if err != nil {
		return nil, answer{}, fmt.Errorf("step %s: %w", s, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	script, ok := p.scripts[s.session]
	if !ok || script.root.find(s.agent) == nil {
		return nil, answer{}, fmt.Errorf("step %s of no session", s)
	}
	if err := checkPictures(&req, script.files); err != nil {
		return nil, answer{}, fmt.Errorf("step %s: %w", s, err)
	}
	if req.Model == downModel {
		p.downs[s] = append(p.downs[s], by)
		return nil, answer{}, p.charge(s.session, s, by)
	}
	for _, key := range answered {
		if _, ok := p.results[key]; !ok {
			p.results[key] = by.at
		}
	}
	h := fnv.New64a()
	_, _ = h.Write(body)
	a := &attempt{made: by, number: len(p.attempts[s]) + 1, digest: h.Sum64(), prompt: int64(len(body) / 4), told: promptOf(&req)}
	p.attempts[s] = append(p.attempts[s], a)
	return a, answerOf(script.seed, script.root.find(s.agent), s, a.number, a.prompt), nil
}

// answer answers one model call.
func (p *provider) answer(_ context.Context, c *fakeprovider.Call) fakeprovider.Reply {
	a, ans, err := p.begin(c)
	if down, ok := errors.AsType[downError](err); ok {
		return fakeprovider.Reply{Events: []string{down.Error()}}
	}
	if err != nil {
		p.faultf("%v", err)
		return fakeprovider.Reply{Status: http.StatusBadRequest, Message: "a request that the test does not understand"}
	}
	fault := p.fault()
	p.mu.Lock()
	a.fault = fault
	p.mu.Unlock()
	if fault == faultStatus {
		return fakeprovider.Reply{Status: []int{500, 502, 503}[rand.IntN(3)], Message: "out of order"}
	}
	reply := ans.reply()
	if fault != "" { // always before the answer is complete
		_, essential := fakeprovider.Render(providertest.OpenAIChat, reply)
		reply.CutAfter = new(rand.IntN(essential))
		reply.Drop = fault == faultReset
		reply.Reset = reply.Drop
	}
	if p.slow {
		reply.Before = func(ctx context.Context, sent int) error {
			if sent > 0 && !rest(ctx, time.Duration(rand.IntN(3000))*time.Microsecond) {
				return ctx.Err()
			}
			return nil
		}
	}
	reply.Done = func(err error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		a.whole = err == nil
	}
	return reply
}

// The faults of a provider.
const (
	faultStatus = "5xx"
	faultCut    = "truncated"
	faultReset  = "reset"
)

// reply is what the provider sends: a word in each event.
func (a answer) reply() fakeprovider.Reply {
	reply := fakeprovider.Reply{
		Text: strings.SplitAfter(a.text, " "), Model: "gpt-chaos",
		Usage: providertest.Usage{Prompt: a.prompt, Completion: a.completion, Total: a.prompt + a.completion},
	}
	for word := range strings.SplitAfterSeq(a.thoughts, " ") {
		if word != "" {
			reply.Thoughts = append(reply.Thoughts, word)
		}
	}
	for _, c := range a.calls {
		reply.Calls = append(reply.Calls, providertest.ToolCall{ID: c.ID, Name: c.Function.Name, Args: c.Function.Arguments})
	}
	return reply
}

// The script is the same each time, and an answer holds what the act says.
func TestAnswers(t *testing.T) {
	for _, sh := range shapes() {
		steps := sh.root.steps(7, 1, tries, sh.asks, "")
		if len(steps) == 0 || !slices.Equal(steps, sh.root.steps(7, 1, tries, sh.asks, "")) {
			t.Errorf("%s: steps %v", sh.name, steps)
		}
		for _, s := range steps {
			a := answerOf(7, sh.root.find(s.agent), s, 3, 9)
			pieces, essential := fakeprovider.Render(providertest.OpenAIChat, a.reply())
			if m := stepMark.FindStringSubmatch(a.text); m == nil || stepOf(m) != s {
				t.Errorf("%s: step %s says %q", sh.name, s, a.text)
			}
			if all := strings.Join(pieces, ""); essential <= 0 || essential >= len(all) || strings.Count(all, "w0:3") != 1 {
				t.Errorf("%s: step %s: %d of %q", sh.name, s, essential, all)
			}
		}
	}
}
