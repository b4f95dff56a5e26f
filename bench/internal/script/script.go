// Package script is what a user turn of a benchmark is: the prompt holds what the model is to answer, so that the
// fake model, the driver and the check of what was heard agree without talking to each other. It knows no wire and no
// server.
package script

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

const (
	// Mark begins a script within a request; the last one in it is that of the turn that runs.
	Mark = "bench:"
	// Tool is the name of the one tool; its input has a number n and a wait in microseconds.
	Tool = "work"
	// ToolDescription is what the model is told of it.
	ToolDescription = "Does a piece of work and returns its result."
	// Agent is the name of the one agent.
	Agent = "worker"
	// Instruction is that of the agent.
	Instruction = "You are a worker. Do what the user asks with the work tool, and answer in few words."
	// GeminiModel is its model, where that is one of Gemini.
	GeminiModel = "gemini-2.5-flash"
	// Schema is what the tool takes.
	Schema = `{"type":"object","properties":{"n":{"type":"integer"},"wait":{"type":"integer"}},"required":["n","wait"]}`
	// stampLen is the length of the time before a piece of text, in nanoseconds since 1970, and of the space behind it.
	stampLen = 20
	// pieceLen is the length of a piece of text without a time.
	pieceLen = 7
	// maxCount bounds each number of a script.
	maxCount = 1_000_000
)

// Script is one user turn. Each of Rounds model calls asks for Calls tool calls at once; one more says Chunks pieces
// of text.
type Script struct {
	// Chunks are the pieces of the text, sent one Every, or all at once if it is 0.
	Chunks int
	Every  time.Duration
	// Stamped has each piece begin with the time at which it is sent.
	Stamped bool
	// Rounds and Calls are the tool rounds before the text; each tool takes Wait.
	Rounds, Calls int
	Wait          time.Duration
	// Turn counts the user turns of the conversation, from 1, and Past the tool results before this one: a request
	// that does not hold all of them is refused.
	Turn, Past int
}

// Usage is what a model call, or all of a turn, has taken.
type Usage struct{ Prompt, Completion int64 }

// Prompt is what the user says.
func (s Script) Prompt() string {
	return fmt.Sprintf(Mark+"chunks=%d every=%d stamped=%d rounds=%d calls=%d wait=%d turn=%d past=%d;",
		s.Chunks, s.Every.Microseconds(), b2i(s.Stamped), s.Rounds, s.Calls, s.Wait.Microseconds(), s.Turn, s.Past)
}

// Parse reads a script that begins text.
func Parse(text string) (Script, error) {
	body, ok := strings.CutPrefix(text, Mark)
	if !ok {
		return Script{}, fmt.Errorf("script: %.60q does not begin with %q", text, Mark)
	}
	if body, _, ok = strings.Cut(body, ";"); !ok {
		return Script{}, fmt.Errorf("script: %.60q has no end", text)
	}
	var n [8]int
	names := [...]string{"chunks", "every", "stamped", "rounds", "calls", "wait", "turn", "past"}
	fields := strings.Fields(body)
	if len(fields) != len(names) {
		return Script{}, fmt.Errorf("script: %q has %d fields, not %d", body, len(fields), len(names))
	}
	for i, field := range fields {
		value, ok := strings.CutPrefix(field, names[i]+"=")
		v, err := strconv.Atoi(value)
		// A wait is in microseconds, and a tool may take minutes.
		if !ok || err != nil || v < 0 || (v > maxCount && names[i] != "wait") {
			return Script{}, fmt.Errorf("script: %q: field %d is not %s=N", body, i, names[i])
		}
		n[i] = v
	}
	return Script{
		Chunks: n[0], Every: time.Duration(n[1]) * time.Microsecond, Stamped: n[2] == 1,
		Rounds: n[3], Calls: n[4], Wait: time.Duration(n[5]) * time.Microsecond, Turn: n[6], Past: n[7],
	}, nil
}

// Piece is the i-th piece of the text. With a time it has zeros in its place.
func (s Script) Piece(i int) string {
	if s.Stamped {
		return fmt.Sprintf("%0*d %06d ", stampLen-1, 0, i)
	}
	return fmt.Sprintf("%06d ", i)
}

// Text is the whole text.
func (s Script) Text() string {
	var b strings.Builder
	for i := range s.Chunks {
		b.WriteString(s.Piece(i))
	}
	return b.String()
}

// Stamp writes a time over the zeros of a piece.
func Stamp(piece []byte, at time.Time) {
	n := at.UnixNano()
	for i := stampLen - 2; i >= 0; i-- {
		piece[i] = byte('0' + n%10)
		n /= 10
	}
}

// Strip takes the times out of a text whose pieces have them, and returns them.
func Strip(text string) (plain string, stamps []time.Time, err error) {
	const whole = stampLen + pieceLen
	if len(text)%whole != 0 {
		return "", nil, fmt.Errorf("script: a text of %d bytes is not made of pieces of %d", len(text), whole)
	}
	var b strings.Builder
	for ; text != ""; text = text[whole:] {
		n, err := strconv.ParseInt(text[:stampLen-1], 10, 64)
		if err != nil {
			return "", nil, fmt.Errorf("script: a piece begins with %q, not with a time", text[:stampLen-1])
		}
		stamps = append(stamps, time.Unix(0, n))
		b.WriteString(text[stampLen:whole])
	}
	return b.String(), stamps, nil
}

// ModelCalls is how many model calls the turn takes.
func (s Script) ModelCalls() int { return s.Rounds + 1 }

// ToolCalls is how many tool calls the turn has.
func (s Script) ToolCalls() int { return s.Rounds * s.Calls }

// CallUsage is what the model says that the call after so many rounds has taken.
func (s Script) CallUsage(round int) Usage {
	completion := s.Calls
	if round >= s.Rounds {
		completion = s.Chunks
	}
	return Usage{Prompt: int64(10*s.Turn + s.Past + round*s.Calls), Completion: int64(completion)}
}

// TurnUsage is what the whole turn takes.
func (s Script) TurnUsage() Usage {
	var sum Usage
	for round := range s.ModelCalls() {
		u := s.CallUsage(round)
		sum.Prompt += u.Prompt
		sum.Completion += u.Completion
	}
	return sum
}

// Args are the arguments of the n-th tool call of the conversation, from 0.
func (s Script) Args(n int) string {
	return fmt.Sprintf(`{"n":%d,"wait":%d}`, n, s.Wait.Microseconds())
}

// Result is what the n-th tool call of the conversation returns.
func Result(n int) string { return fmt.Sprintf("result-%d.", n) }

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
