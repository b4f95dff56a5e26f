// Package modeltest is the conformance suite for model providers with an HTTP API, the built-in
// ones and others. It serves abstract responses in the provider's wire form over an HTTP server on
// the loopback, breaks them in all ways, and checks the adapter against the contract of package
// model.
//
// A provider plugs in with a Harness, which says how to open it and how its wire looks;
// examples/provider/acme does so from outside of this project. The package imports model,
// model/adapter, genai and testing, and no provider.
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
	// Encode puts a response into the provider's wire form. Required.
	Encode func(a Response) Wire
	// EncodeError is the body of an HTTP error in the provider's form. Required.
	EncodeError func(status int, code, message string) string
	// Refusals are responses, by name, that must become an error, for what only the provider's wire
	// can say: KindContextTooLong, KindBlocked, an error in the middle of a stream.
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
	// EarlyUsage: the wire counts tokens before the response is complete, so that the usage of
	// calls that are cut off, or canceled, is known.
	EarlyUsage bool
}

// Refusal is a response that must become an error.
type Refusal struct {
	// Wire is the response.
	Wire Wire
	// Kind is the kind of the error.
	Kind model.Kind
}

// Wire is a response in a provider's wire form.
type Wire struct {
	// Status is the HTTP status, 0 means 200.
	Status int
	// Header is added to the response's header; Content-Type defaults to
	// text/event-stream when there are several frames.
	Header http.Header
	// Frames are the body, cut where one event ends and the next begins. Each
	// includes its blank line.
	Frames []string
	// Needed is how many frames have to arrive before the response is complete; 0 means all of
	// them.
	Needed int
}

// Response is a response in terms all providers share.
type Response struct {
	// Pieces are sent in order, each in a frame or more of its own.
	Pieces []Piece
	// Finish is STOP, MAX_TOKENS or "" for STOP.
	Finish genai.FinishReason
	// Usage is to be reported such that the adapter returns exactly this.
	Usage model.Usage
}

// Piece is a piece of a response; one of the fields is set.
type Piece struct {
	// Text is text that is not thinking.
	Text string
	// Thought is thinking.
	Thought string
	// Call is a whole function call: the provider's id, "" for none, the function's name, and the
	// JSON text of the arguments. Calls in a row are parallel.
	Call *struct{ ID, Name, Args string }
}

// Run runs the whole suite.
func Run(t *testing.T, h Harness) {
	t.Helper()
	leak := watchLeaks(t)
	t.Run("description", h.description)
	t.Run("responses", h.responses)
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
