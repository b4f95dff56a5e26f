// Package loop runs turns the way chat orchestrators ask for them: one request with the messages of a channel, one
// response with the text, the session to continue, and how it went.
//
//	resp, err := loop.Run(ctx, clnt, agent, &loop.Request{
//		Messages: []loop.Message{{Role: "user", Content: "hello"}}, ChannelID: "c1", AuthorID: "ann",
//		OnTurn:   func(text string) { post(text) },
//	})
//
// It knows turns and their events. It has no tools and opens no connections: those are the client's.
package loop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// Message is one message of a channel.
type Message struct {
	// Role is whose it is: user or assistant.
	Role string
	// Content is what it says.
	Content string
}

// Request asks for a turn.
type Request struct {
	// SessionID is the session to continue: that of an earlier Response. Empty: a new one.
	SessionID string
	// ForkSession has the turn run on a fork of the session, which stays as it is. The Response has the fork's id.
	ForkSession bool
	// Messages are those of the channel, oldest first. See BuildPrompt.
	Messages []Message
	// SystemPrompt is put behind the instruction of every agent, for this turn.
	SystemPrompt string
	// ChannelID becomes the label channel_id of the session, and AuthorID the author of the turn.
	ChannelID, AuthorID string
	// DirPath and ParentDirPath are for the tools, which find them as dir_path and parent_dir_path in
	// [client.Call.Metadata]. Models do not see them.
	DirPath, ParentDirPath string
	// PlanMode keeps tools that change something from running; see [client.WithPlanMode].
	PlanMode bool
	// Prompt is what the user says.
	Prompt string

	// The functions below may be nil. One is called at a time.

	// OnTurn is called once for each message of an agent when it is complete, the last one included. text is not empty.
	OnTurn func(text string)
	// OnToolUse is called for each tool call, of this client before its handler runs. input is a JSON object.
	OnToolUse func(name, input string)
	// OnActivity is called with ActivityModel and the model's name first, then with ActivityAgentStarted and
	// ActivityAgentEnded and the path of a sub-agent, such as root/writer.
	OnActivity func(activity, detail string)
}

// What OnActivity is called with.
const (
	ActivityModel        = "model"
	ActivityAgentStarted = "agent_started"
	ActivityAgentEnded   = "agent_ended"
)

// Response is how a turn went.
type Response struct {
	// Response is the text of the last message.
	Response string
	// SessionID is the session of the turn, for the next Request.
	SessionID string
	// Error is why the turn failed, empty if it did not.
	Error string
	// DurationMs is how long Run took, in milliseconds, a retry included.
	DurationMs int
	// NumTurns counts the responses of models.
	NumTurns int
	// StopReason is why the last response ended: end_turn, max_tokens, content_blocked or other.
	StopReason string
	// Model is the model of the last response, as its provider names it.
	Model string
}

// BuildPrompt returns what the user says to the agent: in a session Prompt or, without one, the content of the last of
// Messages; without a session all of Messages, each as "role: content" with an end of line, or, without any, Prompt.
func (r *Request) BuildPrompt() string {
	switch n := len(r.Messages); {
	case n == 0, r.SessionID != "" && r.Prompt != "":
		return r.Prompt
	case r.SessionID != "":
		return r.Messages[n-1].Content
	}
	var b strings.Builder
	for _, m := range r.Messages {
		b.WriteString(m.Role + ": " + m.Content + "\n")
	}
	return b.String()
}

// The names of what a Request says of its turn.
const (
	labelChannel      = "channel_id"
	metadataDir       = "dir_path"
	metadataParentDir = "parent_dir_path"
)

// Run runs a turn of agent, with the tools of c; in a session nil is the tree of the turn before. The response is never
// nil: that of a turn that failed, or that somebody stopped, has the session and says why, as the error does. In a
// session a turn that failed is tried once more, on the fork if it has come to one.
func Run(ctx context.Context, c *client.Client, agent *agentdv1.Agent, r *Request) (*Response, error) {
	began := time.Now()
	t := newTurn(r)
	resp, err := t.run(ctx, c, agent)
	if err != nil && r.SessionID != "" && ctx.Err() == nil && !errors.Is(err, errStopped) {
		again := newTurn(r)
		again.sessionID, again.forks = resp.SessionID, r.ForkSession && resp.SessionID == r.SessionID
		resp, err = again.run(ctx, c, agent)
	}
	resp.DurationMs = int(time.Since(began).Milliseconds())
	if err != nil {
		resp.Error = err.Error()
	}
	return resp, err
}

// errStopped is the error of a turn that somebody has stopped.
var errStopped = errors.New("the turn was stopped")

// options are those of the request, but for the session.
func (r *Request) options() []client.RunOption {
	var opts []client.RunOption
	if r.SystemPrompt != "" {
		opts = append(opts, client.WithInstruction(r.SystemPrompt))
	}
	if r.ChannelID != "" {
		opts = append(opts, client.WithLabels(map[string]string{labelChannel: r.ChannelID}))
	}
	if r.AuthorID != "" {
		opts = append(opts, client.WithAuthor(r.AuthorID))
	}
	metadata := map[string]string{}
	for key, dir := range map[string]string{metadataDir: r.DirPath, metadataParentDir: r.ParentDirPath} {
		if dir != "" {
			metadata[key] = dir
		}
	}
	if len(metadata) > 0 {
		opts = append(opts, client.WithMetadata(metadata))
	}
	if r.PlanMode {
		opts = append(opts, client.WithPlanMode())
	}
	return opts
}

// run makes one try. The response has the session of the request where the server has named none.
func (t *turn) run(ctx context.Context, c *client.Client, agent *agentdv1.Agent) (*Response, error) {
	opts := append(t.r.options(), client.WithSessionID(t.sessionID))
	if t.r.OnToolUse != nil {
		opts = append(opts, client.WithBeforeCall(t.awaitShown))
	}
	if t.forks {
		opts = append(opts, client.WithFork())
	}
	defer close(t.over)
	var failed error
	for m, err := range client.MessagesOf(t.watch(c.Run(ctx, agent, t.r.BuildPrompt(), opts...))) {
		if err != nil {
			failed = err
			break
		}
		if cutOff := !m.Completed && m.ID != ""; m.Text != "" && !cutOff {
			t.resp.Response = m.Text
			if t.r.OnTurn != nil {
				t.r.OnTurn(m.Text)
			}
		}
	}
	t.resp.SessionID = cmp.Or(t.resp.SessionID, t.sessionID)
	switch failure, ok := errors.AsType[*client.Error](failed); {
	case ok:
		t.resp.SessionID = cmp.Or(failure.SessionID, t.resp.SessionID)
	case failed == nil && t.stopped != "":
		failed = fmt.Errorf("%w: %s", errStopped, t.stopped)
	}
	return &t.resp, failed
}
