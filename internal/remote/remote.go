package remote

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/model"
)

// Spec is what an agent of a backend is made of.
type Spec struct {
	Instruction, Model string
	// Tools are the tools of the caller's clients, with the terminal one.
	Tools []Tool
	// TerminalTool is the name of the tool whose call ends the agent; empty for none.
	TerminalTool string
}

// Tool is a tool that a client of the caller runs.
type Tool struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	// Schema is that of its arguments, an object; empty for none.
	Schema json.RawMessage `json:"schema,omitempty"`
}

// Hash is the SHA-256 of the spec, in hex. Neither the order of the tools, nor that of names in their schemas counts.
func (s Spec) Hash() string {
	tools := slices.SortedFunc(slices.Values(s.Tools), func(a, b Tool) int { return cmp.Compare(a.Name, b.Name) })
	for i := range tools {
		tools[i].Schema = canonical(tools[i].Schema)
	}
	data, err := json.Marshal(struct {
		Instruction  string `json:"instruction"`
		Tools        []Tool `json:"tools"`
		Model        string `json:"model"`
		TerminalTool string `json:"terminal_tool"`
	}{s.Instruction, tools, s.Model, s.TerminalTool})
	if err != nil { // not reached: canonical has made JSON of the schemas
		data = []byte(err.Error())
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// canonical returns a JSON value with its names sorted; a text that is none as a JSON text.
func canonical(text json.RawMessage) json.RawMessage {
	if len(text) == 0 {
		return nil
	}
	var v any
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	if dec.Decode(&v) != nil {
		v = string(text)
	}
	out, err := json.Marshal(v)
	if err != nil { // not reached: v is what a decoder has made
		return nil
	}
	return out
}

// NameOf is what a backend calls the agent that is made of a spec: two specs have two names.
func NameOf(agent string, s Spec) string { return agent + "-" + s.Hash()[:8] }

// Key names the session that an agent of a turn has on its backend. One key has one session.
type Key struct {
	Tenant, Session, Turn string
	Path                  []string
}

// ID is a text of 64 hex digits that stands for the key.
func (k Key) ID() string {
	h := sha256.New()
	for _, part := range append([]string{k.Tenant, k.Session, k.Turn}, k.Path...) {
		h.Write([]byte(part))
		h.Write([]byte{0}) // no name has it
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Session is a session of a backend, and where in it the caller is.
type Session struct {
	// Agent and ID are the backend's.
	Agent, ID string
	Key       Key
	Spec      Spec
	// Cursor is the Answer.Cursor of the last exchange; empty for the first.
	Cursor string
	// Message counts the messages before the present one. The results of a message's calls belong to it.
	Message int
	// Over is true when the backend is done with the present message, and waits for nothing.
	Over bool
}

// Input is what a backend is given: a message, results, or both: then the message comes after the results. It is never
// empty.
type Input struct {
	Message string
	// Results are in the order in which the calls were asked, all of them.
	Results []Result
	// Denied are ids of the backend's own calls about which it asks, and which nobody approves.
	Denied []string
}

// Result is the result of a call.
type Result struct {
	Call  Call
	Text  string
	Error bool
}

// Call is a call of a tool of the caller's.
type Call struct {
	// ID is the backend's, unique within its session.
	ID    string          `json:"id"`
	Name  string          `json:"name"`
	Input json.RawMessage `json:"input,omitempty"` // an object
}

// Use is a run of a tool of the backend's own.
type Use struct {
	ID, Name, Input, Output, Error string
}

// Terminal is why a backend has stopped.
type Terminal int

// Why a backend stops.
const (
	EndTurn Terminal = iota + 1
	RequiresAction
	Terminated
)

// Event is one thing that a backend says. A zero field says nothing.
type Event struct {
	// ID is unique in the backend's session; an event that comes again has the same one. Empty: it comes once.
	ID string
	// Cursor is where to go on after it; empty where there is no such place.
	Cursor string
	// Heard says that the backend has something of the caller's: HeardMessage, or the id of a call whose result, or
	// denial, it has.
	Heard string
	// Text is a block of text, whole.
	Text string
	Call *Call
	// Use is a run of a tool: with its input, or, again under its ID, with what has come of it.
	Use *Use
	// Usage is what one call of a model has taken.
	Usage *model.Usage
	// Served is the model's name, as its provider has it.
	Served string
	// Stop says that the backend has stopped.
	Stop *Stop
	// Raw is the event as it came.
	Raw []byte
}

// HeardMessage is Event.Heard for a message.
const HeardMessage = "message"

// Stop is a boundary.
type Stop struct {
	Terminal Terminal
	// Reason says why, for people.
	Reason string
	// Calls are the ids of the calls that the backend waits for, in the order asked; nil is all calls since the last
	// boundary. Among them may be runs of the backend's own tools, about which it asks.
	Calls []string
}

// Driver speaks the protocol of a kind of backends. Its methods may be called from any goroutine; they return when
// their context ends. Their errors are of type *Error and hold no key.
type Driver interface {
	// Check refuses a spec that the backend cannot have, without a call of it. Its error is plain text.
	Check(Spec) error
	// Provision makes the agent of a spec, or finds the one that was made of it, and returns the backend's id. A part
	// that was made before another one failed does not stay.
	Provision(ctx context.Context, name string, spec Spec) (agent string, err error)
	// Open opens a session, and returns the backend's id. With again, one that a call before may have opened under
	// the same key is found.
	Open(ctx context.Context, s Session, again bool) (id string, err error)
	// Close ends what runs in a session. A session that has ended is no error.
	Close(ctx context.Context, s Session) error
}

// Pusher is a driver of backends that push events.
type Pusher interface {
	Driver
	// Send gives the backend an input.
	Send(ctx context.Context, s Session, in Input) error
	// Connect begins to read what the backend does from now on, or from the session's cursor on.
	Connect(ctx context.Context, s Session) (Stream, error)
	// List passes on what has happened since the session's cursor, up to an error of take, which it returns. A driver
	// whose streams begin at the cursor lists nothing.
	List(ctx context.Context, s Session, take func(Event) error) error
}

// Stream is a connection on which events come. One goroutine uses it.
type Stream interface {
	// Next waits for the next event. Any error ends the stream.
	Next() (Event, error)
	Close()
}

// Puller is a driver of backends that answer a request.
type Puller interface {
	Driver
	// Poll gives the backend an input and passes on all of its answer. The answer is over when Poll returns nil.
	Poll(ctx context.Context, s Session, in Input, take func(Event) error) error
}

// Error is why a backend did not do what it was asked.
type Error struct {
	Code agentdv1.ErrorCode
	// Message is for people. It holds no key.
	Message string
	// Temporary is true when the same may succeed later.
	Temporary bool
}

func (e *Error) Error() string { return e.Message }

// maxReason bounds the texts of backends in errors, in bytes.
const maxReason = 1024

// Cut shortens a text of a backend for an error.
func Cut(text string) string {
	if text = strings.TrimSpace(strings.ToValidUTF8(text, "\uFFFD")); len(text) <= maxReason {
		return text
	}
	return strings.ToValidUTF8(text[:maxReason], "") + "…"
}
