// Package modeltest is the conformance suite that every networked provider
// runs: it serves abstract answers in the provider's wire form over a real HTTP
// server on the loopback, breaks them in all ways, and holds what the adapter
// makes of it against the contract of package model.
//
// A provider plugs in with a Harness, which says how to open it and how its
// wire looks; examples/provider/acme is one that stands outside of this project's
// own. The package imports model, genai and testing, and no provider.
package modeltest

import (
	"net/http"
	"testing"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/model"
)

// Harness plugs a provider into the suite. Its functions may be called from
// many goroutines at once.
type Harness struct {
	// Open returns a provider that calls baseURL (without a slash at its end) and
	// whose server key is serverKey, "" for none. Required.
	Open func(t testing.TB, baseURL, serverKey string) model.Provider
	// Model is a name the provider opens. Required.
	Model string
	// Encode puts an answer into the provider's wire form. Required.
	Encode func(a Answer) Wire
	// EncodeError is the body of an HTTP error in the provider's form. Required.
	EncodeError func(status int, code, message string) string
	// Refusals are answers by the kind they have to become, for what only the
	// provider knows how to say: KindContextTooLong, KindBlocked, an error in the
	// middle of a stream.
	Refusals map[string]Refusal
	// Can says what the provider's wire can express.
	Can Can
}

// Can says what a provider's wire can express; cases it cannot are left out.
type Can struct {
	// Thoughts: thinking is streamed.
	Thoughts bool
	// CallsWithoutID: a call may come without an id.
	CallsWithoutID bool
	// CallIDs: a call may come with an id.
	CallIDs bool
	// BadArgs: arguments travel as text, which may be no JSON.
	BadArgs bool
	// ArgsText: the text of arguments arrives byte for byte.
	ArgsText bool
	// CachedUsage and ThoughtsUsage: the wire counts cached tokens and thoughts.
	CachedUsage, ThoughtsUsage bool
	// CacheWriteUsage: the wire counts tokens written into the cache.
	CacheWriteUsage bool
	// EarlyUsage: the wire counts tokens before the answer is complete, so that what
	// calls took that are cut off, or canceled, is known.
	EarlyUsage bool
}

// Refusal is an answer that must become an error.
type Refusal struct {
	// Wire is the answer.
	Wire Wire
	// Kind is the kind it has to become.
	Kind model.Kind
}

// Wire is an answer in a provider's wire form.
type Wire struct {
	// Status is the HTTP status, 0 means 200.
	Status int
	// Header is added to the answer's header; Content-Type defaults to
	// text/event-stream when there are several frames.
	Header http.Header
	// Frames are the body, cut where one event ends and the next begins. Each
	// includes its blank line.
	Frames []string
	// Needed is how many frames have to arrive for the answer to be complete; 0
	// means all of them.
	Needed int
}

// Answer is an answer in terms all providers share.
type Answer struct {
	// Pieces are sent in order, each in a frame or more of its own.
	Pieces []Piece
	// Finish is STOP, MAX_TOKENS or "" for STOP.
	Finish genai.FinishReason
	// Usage is to be reported such that the adapter returns exactly this.
	Usage model.Usage
}

// Piece is a piece of an answer; one of the fields is set.
type Piece struct {
	// Text is answer text.
	Text string
	// Thought is thinking.
	Thought string
	// Call is a whole function call. Calls in a row are parallel.
	Call *Call
}

// Call is a function call.
type Call struct {
	// ID is the provider's id, "" for none.
	ID string
	// Name is the function's name.
	Name string
	// Args is the JSON text of the arguments.
	Args string
}

// Run runs the whole suite.
func Run(t *testing.T, h Harness) {
	t.Helper()
	leak := watchLeaks(t)
	t.Run("description", h.description)
	t.Run("answers", h.answers)
	t.Run("requests", h.requests)
	t.Run("deferred", h.deferred)
	t.Run("schemas", h.schemas)
	t.Run("keys", h.keys)
	t.Run("statuses", h.statuses)
	t.Run("refusals", h.refusals)
	t.Run("broken", h.broken)
	t.Run("truncated", h.truncated)
	t.Run("cancel", h.cancel)
	leak()
}
