// Package fake is a model for benchmarks. It speaks the wires of Gemini, OpenAI (chat completions and responses) and
// Anthropic, as package fakeprovider does, whose events it renders before they are needed: an answer is one write of
// bytes that are there. The last script in a request says what the answer is. A request that does not hold what it
// must is refused.
package fake

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/apzuk3/agentd/bench/internal/script"
	"github.com/apzuk3/agentd/internal/test/fakeprovider"
	"github.com/apzuk3/agentd/internal/test/providertest"
)

const (
	// maxBody is the longest request that is read, in bytes.
	maxBody = 64 << 20
	// maxAnswers is how many rendered answers are kept; then all are forgotten.
	maxAnswers = 4096
	// CountsPath is where the counts are; a POST sets them to zero.
	CountsPath = "/counts"
)

// results is what each tool result in a request has once, by the wire.
var results = map[providertest.Wire][]byte{
	providertest.Gemini:          []byte(`"functionResponse"`),
	providertest.OpenAIChat:      []byte(`"role":"tool"`),
	providertest.OpenAIResponses: []byte(`"function_call_output"`),
	providertest.Anthropic:       []byte(`"tool_result"`),
}

// Counts is what the model has answered.
type Counts struct {
	// Answered are the calls whose answer was begun, Refused those whose request was wrong, and Left those of the first
	// whose caller was gone before the end. Who has heard an answer finds it counted.
	Answered, Refused, Left int
	// LeftAt is when the last of those that left was found to be gone.
	LeftAt time.Time
	// Why is the first refusal.
	Why string
}

// Model answers model calls. The zero value is ready.
type Model struct {
	mu      sync.Mutex // protects the fields below
	answers map[key]*answer
	counts  Counts

	bodies sync.Pool
}

// key is what an answer depends on.
type key struct {
	wire   providertest.Wire
	script script.Script
	round  int
}

// answer is a rendered answer.
type answer struct {
	// events are the event stream in the pieces that are sent one by one, and stamps where a piece has its time; -1
	// is nowhere.
	events [][]byte
	stamps []int
}

// ServeHTTP answers a model call, or says what was answered.
func (m *Model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == CountsPath {
		m.serveCounts(w, r)
		return
	}
	wire := providertest.WireOf(r.URL.Path)
	buf, _ := m.bodies.Get().(*bytes.Buffer)
	if buf == nil {
		buf = new(bytes.Buffer)
	}
	defer m.bodies.Put(buf)
	buf.Reset()
	if _, err := buf.ReadFrom(io.LimitReader(r.Body, maxBody)); err != nil {
		return // the caller is gone
	}
	s, round, err := judge(wire, buf.Bytes())
	if err != nil {
		m.count(func(c *Counts) {
			if c.Refused++; c.Why == "" {
				c.Why = err.Error()
			}
		})
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		body := providertest.ErrorBody(wire, http.StatusBadRequest, "bench", err.Error())
		_, _ = w.Write(body) //nolint:gosec // no browser reads it
		return
	}
	m.count(func(c *Counts) { c.Answered++ })
	w.Header()["Content-Type"] = eventStream
	if err := m.answer(wire, s, round).send(w, r, s.Every); err != nil {
		gone := time.Now()
		m.count(func(c *Counts) { c.Left, c.LeftAt = c.Left+1, gone })
	}
}

var eventStream = []string{"text/event-stream"}

// judge reads what a request asks for: its last script, and how many rounds of it are over.
func judge(wire providertest.Wire, body []byte) (s script.Script, round int, err error) {
	mark, ok := results[wire]
	if !ok {
		return s, 0, errors.New("the path is of no wire")
	}
	at := bytes.LastIndex(body, []byte(script.Mark))
	if at < 0 {
		return s, 0, errors.New("the request has no script")
	}
	turn := body[at:]
	if s, err = script.Parse(string(turn[:min(len(turn), 256)])); err != nil {
		return s, 0, err
	}
	if s.Stamped && wire != providertest.Gemini {
		return s, 0, errors.New("only Gemini's wire says a text once, so only there a piece can have its time")
	}
	if n := bytes.Count(body, []byte(script.Mark)); n != s.Turn {
		return s, 0, fmt.Errorf("the request has %d user turns, and %d are behind it", n, s.Turn)
	}
	if n := bytes.Count(body[:at], mark); n != s.Past {
		return s, 0, fmt.Errorf("the request has %d tool results before the turn, not %d", n, s.Past)
	}
	given := bytes.Count(turn, mark)
	if given == 0 {
		return s, 0, nil
	}
	if s.Calls == 0 || given%s.Calls != 0 || given/s.Calls > s.Rounds {
		return s, 0, fmt.Errorf("the request has %d tool results in the turn, of %d rounds with %d",
			given, s.Rounds, s.Calls)
	}
	for n := given - s.Calls; n < given; n++ {
		if want := script.Result(s.Past + n); bytes.Count(turn, []byte(want)) != 1 {
			return s, 0, fmt.Errorf("the request has %q %d times", want, bytes.Count(turn, []byte(want)))
		}
	}
	return s, given / s.Calls, nil
}

// answer returns the rendered answer; it renders one that is new.
func (m *Model) answer(wire providertest.Wire, s script.Script, round int) *answer {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := key{wire, s, round}
	if a := m.answers[k]; a != nil {
		return a
	}
	if m.answers == nil || len(m.answers) >= maxAnswers {
		m.answers = map[key]*answer{}
	}
	a := render(wire, s, round)
	m.answers[k] = a
	return a
}

func render(wire providertest.Wire, s script.Script, round int) *answer {
	u := s.CallUsage(round)
	reply := fakeprovider.Reply{
		Model: "bench",
		Usage: providertest.Usage{Prompt: u.Prompt, Completion: u.Completion, Total: u.Prompt + u.Completion},
	}
	if round < s.Rounds {
		for i := range s.Calls {
			n := s.Past + round*s.Calls + i
			reply.Calls = append(reply.Calls,
				providertest.ToolCall{ID: fmt.Sprintf("call_%d", n), Name: script.Tool, Args: s.Args(n)})
		}
	} else {
		for i := range s.Chunks {
			reply.Text = append(reply.Text, s.Piece(i))
		}
	}
	events, _ := fakeprovider.Render(wire, reply)
	if s.Every == 0 && !s.Stamped {
		return &answer{events: [][]byte{[]byte(strings.Join(events, ""))}, stamps: []int{-1}}
	}
	a := &answer{}
	for _, event := range events {
		at, piece := -1, len(a.events)
		if s.Stamped && round >= s.Rounds && piece < s.Chunks {
			at = strings.Index(event, s.Piece(piece))
		}
		a.events, a.stamps = append(a.events, []byte(event)), append(a.stamps, at)
	}
	return a
}

// send sends the answer, one event each so often.
func (a *answer) send(w http.ResponseWriter, r *http.Request, every time.Duration) error {
	flush := http.NewResponseController(w).Flush
	timer := time.NewTimer(every)
	defer timer.Stop()
	// The pace is kept by the clock: what one event is late by is not added to the next.
	next := time.Now()
	for i, event := range a.events {
		if every > 0 && i > 0 {
			next = next.Add(every)
			timer.Reset(time.Until(next))
			select {
			case <-timer.C:
			case <-r.Context().Done():
				return r.Context().Err()
			}
		}
		if at := a.stamps[i]; at >= 0 {
			event = bytes.Clone(event)
			script.Stamp(event[at:], time.Now())
		}
		if _, err := w.Write(event); err != nil { //nolint:gosec // no browser reads it
			return err
		}
		// The last piece is flushed with the end of the body.
		if i == len(a.events)-1 {
			return nil
		}
		if err := flush(); err != nil {
			return err
		}
	}
	return nil
}

func (m *Model) count(add func(*Counts)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	add(&m.counts)
}

func (m *Model) serveCounts(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	counts := m.counts
	if r.Method == http.MethodPost {
		m.counts = Counts{}
	}
	m.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(counts)
}
