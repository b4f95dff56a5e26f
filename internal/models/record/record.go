// Package record writes model calls to a file, one JSON line each, and reads
// them back: what was asked, what came back, how often it was tried. It is for
// looking at what an agent tells its models, for tests that play it again (see
// package scripted), and for bug reports.
//
// A line never holds a provider's key, an HTTP header or an address that the
// call was sent to. It does hold prompts, tool results and responses.
//
// It also reads and writes the form in which programs on Google's ADK record calls, see Exchange.
//
// The package imports model, and knows neither providers, nor sessions, nor the
// protocol.
package record

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/apzuk3/agentd/model"
)

// Version is the form of the lines that this package writes. It reads those of the
// forms before, too: of form 1, whose requests do not say what was asked of the
// provider's cache, and whose responses do not say what the provider has run; and of
// form 2, whose usage is as the provider counted. Members that a line has besides
// those of its form are not looked at.
const Version = 3

const (
	// MaxLine bounds a line, in bytes. A call that takes more is not recorded.
	MaxLine = 32 << 20
	// MaxInline bounds inline data of a request, in bytes: of more than that, and of
	// data that holds a secret, the hash is recorded. Responses are recorded whole, but
	// for secrets.
	MaxInline = 4 << 10
)

// Line is one model call.
type Line struct {
	// Version is the form of the line.
	Version int `json:"agentd_record"`
	// Time is when the call began.
	Time time.Time `json:"time"`
	// Session, Turn, Path and MessageID say whose call it is, as far as that is
	// known: see modelcall.Info.
	Session   string   `json:"session,omitempty"`
	Turn      string   `json:"turn,omitempty"`
	Path      []string `json:"path,omitempty"`
	MessageID string   `json:"message_id,omitempty"`
	// Provider is who was asked, and Model the name that the agent has.
	Provider string `json:"provider"`
	Model    string `json:"model"`
	// Served is the name that the provider gave its model, "" if it did not.
	Served string `json:"served,omitempty"`
	// Request is what was asked: contents and config in genai's JSON form, members
	// by name, with some inline data replaced by its hash, see MaxInline; deferred and
	// cache, where there are any.
	Request json.RawMessage `json:"request"`
	// Tries are those that failed and were followed by another one.
	Tries []Try `json:"tries,omitempty"`
	// Response is nil if the call has failed.
	Response *Response `json:"response,omitempty"`
	// Error is how it has failed; nil if there is a response.
	Error *Error `json:"error,omitempty"`
	// Shown is what was shown of the response of a call that has failed, in order.
	Shown []Shown `json:"shown,omitempty"`
	// Duration is that of the whole call, all tries and waits, in milliseconds.
	Duration float64 `json:"duration_ms"`
}

// Try is a try that failed and was followed by another one.
type Try struct {
	// Try is its number, from 1.
	Try int `json:"try"`
	// Wait is the time until the next one, in milliseconds.
	Wait float64 `json:"wait_ms"`
	// Error is how it failed.
	Error *Error `json:"error"`
}

// Shown is text of one kind that was shown in one piece or several.
type Shown struct {
	// Text is the text, and Thought is true for thinking.
	Text    string `json:"text"`
	Thought bool   `json:"thought,omitempty"`
}

// Response is what a model said, complete.
type Response struct {
	// Content is in genai's JSON form; absent when the model said nothing.
	Content json.RawMessage `json:"content,omitempty"`
	// Finish is the finish reason.
	Finish string `json:"finish_reason"`
	// Usage is that of the try that succeeded.
	Usage Usage `json:"usage"`
	// Provided is what the provider has run meanwhile, and what the response cites; nil
	// for nothing.
	Provided *model.Provided `json:"provided,omitempty"`
}

// Canceled is the Error.Kind of a call whose caller left before there was a
// response, or could not keep what it reported, and Internal that of an error
// which is no model.Error.
const (
	Canceled = "canceled"
	Internal = "internal"
)

// Error is a failed try, see model.Error.
type Error struct {
	// Kind is a model.Kind, Canceled or Internal.
	Kind string `json:"kind"`
	// Provider is who failed; "" where Kind is no model.Kind.
	Provider string `json:"provider,omitempty"`
	// Status is the HTTP status, 0 if there was none.
	Status int `json:"status,omitempty"`
	// Message is the provider's, or ours.
	Message string `json:"message"`
	// RetryAfter is what the provider asked to wait, in milliseconds.
	RetryAfter float64 `json:"retry_after_ms,omitempty"`
	// Usage is what the try took, as far as it was reported.
	Usage *Usage `json:"usage,omitempty"`
}

// Model is the error as an adapter would return it; nil if Kind is no
// model.Kind.
func (e *Error) Model() *model.Error {
	if e.Kind == Canceled || e.Kind == Internal {
		return nil
	}
	out := &model.Error{
		Kind: model.Kind(e.Kind), Provider: e.Provider, Status: e.Status, Message: e.Message,
		RetryAfter: time.Duration(e.RetryAfter * float64(time.Millisecond)),
	}
	if e.Usage != nil {
		u := e.Usage.Model()
		out.Usage = &u
	}
	return out.ForCaller() // it may have been the provider's
}

// Read reads all lines. Empty ones are skipped, and so is one without its end, of a
// process that was killed or a disk that was full. Its errors name the line.
func Read(r io.Reader) ([]Line, error) {
	in := bufio.NewReader(r)
	var out []Line
	for n := 1; ; n++ {
		text, err := readLine(in, MaxLine)
		switch {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if text = bytes.TrimSpace(text); len(text) == 0 {
			continue
		}
		var l Line
		if err = json.Unmarshal(text, &l); err == nil {
			l.recount()
			err = l.check()
		} else if torn(text) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		out = append(out, l)
	}
}

// torn reports whether a line that is no JSON is a part of one, to which an end was
// given when the next one was written.
func torn(text []byte) bool {
	var v json.RawMessage
	return errors.Is(json.NewDecoder(bytes.NewReader(text)).Decode(&v), io.ErrUnexpectedEOF)
}

// readLine reads to the end of a line of at most most bytes; io.EOF, with what there is, where there is no such end.
func readLine(in *bufio.Reader, most int) ([]byte, error) {
	var line []byte
	for {
		piece, err := in.ReadSlice('\n')
		if line = append(line, piece...); len(line) > most {
			return nil, fmt.Errorf("longer than %d bytes", most)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// check refuses what is no record of a call.
func (l *Line) check() error {
	switch {
	case l.Version < 1 || l.Version > Version:
		return fmt.Errorf("agentd_record is %d, want 1 to %d: "+
			"this is no recorded model call that this version can read", l.Version, Version)
	case len(l.Request) == 0:
		return errors.New("no request")
	case (l.Response == nil) == (l.Error == nil):
		return errors.New("want a response or an error, one of them")
	}
	return nil
}
