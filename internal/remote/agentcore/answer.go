package agentcore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/remote"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/session/fault"
)

// answer reads an answer of a harness: messages in blocks, of which those of the harness's own tools have their
// results.
type answer struct {
	ctx  context.Context
	http *remote.HTTP
	take func(remote.Event) error

	role    string
	kind    string // of the block that is open
	id      string // of its tool's run
	name    string
	text    strings.Builder
	failed  bool          // the run
	open    []remote.Call // of the last message, without a result
	stopped string        // why the last message has stopped
	bytes   int
}

// maxAnswer bounds an answer, in bytes of its blocks.
const maxAnswer = 32 << 20

// Parts of an event.
type (
	startEvent struct {
		Start struct {
			ToolUse *struct {
				Name string `json:"name"`
				ID   string `json:"toolUseId"`
			} `json:"toolUse"`
			ToolResult *struct {
				ID     string `json:"toolUseId"`
				Status string `json:"status"`
			} `json:"toolResult"`
		} `json:"start"`
	}
	deltaEvent struct {
		Delta struct {
			Text       string                 `json:"text"`
			ToolUse    struct{ Input string } `json:"toolUse"`
			ToolResult []struct {
				Text string          `json:"text"`
				JSON json.RawMessage `json:"json"`
			} `json:"toolResult"`
		} `json:"delta"`
	}
	metadataEvent struct {
		Usage struct {
			Input      int64 `json:"inputTokens"`
			Output     int64 `json:"outputTokens"`
			Total      int64 `json:"totalTokens"`
			CacheRead  int64 `json:"cacheReadInputTokens"`
			CacheWrite int64 `json:"cacheWriteInputTokens"`
		} `json:"usage"`
	}
)

// read reads the answer to its end.
func (a *answer) read(body io.Reader) error {
	dec := eventstream.NewDecoder()
	for {
		m, err := dec.Decode(body, nil)
		if errors.Is(err, io.EOF) && a.stopped != "" && a.kind == "" {
			return a.end()
		}
		if err != nil {
			return a.http.Broken(a.ctx, err)
		}
		if err := a.event(m); err != nil {
			return err
		}
	}
}

// header returns a header of an event; empty for none.
func header(m eventstream.Message, name string) string {
	if v := m.Headers.Get(name); v != nil {
		return v.String()
	}
	return ""
}

// event reads an event.
func (a *answer) event(m eventstream.Message) error {
	if header(m, ":message-type") != "event" {
		return a.exception(m)
	}
	if a.bytes += len(m.Payload); a.bytes > maxAnswer {
		return &remote.Error{Code: fault.LimitExceeded, Message: "an answer has more than 32 MiB"}
	}
	if err := a.take(remote.Event{Raw: raw(m)}); err != nil {
		return err
	}
	switch header(m, ":event-type") {
	case "messageStart":
		var e struct{ Role string }
		err := json.Unmarshal(m.Payload, &e)
		a.role, a.stopped, a.kind = e.Role, "", ""
		if a.role == "assistant" {
			a.open = nil
		}
		return a.unreadable(err)
	case "contentBlockStart":
		return a.start(m.Payload)
	case "contentBlockDelta":
		return a.delta(m.Payload)
	case "contentBlockStop":
		return a.stop()
	case "messageStop":
		var e struct{ StopReason string }
		if err := json.Unmarshal(m.Payload, &e); err != nil {
			return a.unreadable(err)
		}
		a.stopped = cmp.Or(e.StopReason, "no reason given")
		return a.stop() // a block may have no end of its own
	case "metadata":
		var e metadataEvent
		if err := json.Unmarshal(m.Payload, &e); err != nil {
			return a.unreadable(err)
		}
		u := e.Usage
		prompt := u.Input + u.CacheRead + u.CacheWrite
		return a.take(remote.Event{Usage: &model.Usage{
			Prompt: prompt, Completion: u.Output, Cached: u.CacheRead, CacheWrite: u.CacheWrite,
			Total: prompt + u.Output,
		}})
	}
	return nil // of a hook, or a newer one
}

// raw is an event as JSON.
func raw(m eventstream.Message) []byte {
	if !json.Valid(m.Payload) {
		return nil
	}
	out, err := json.Marshal(map[string]json.RawMessage{header(m, ":event-type"): m.Payload})
	if err != nil {
		return nil
	}
	return out
}

func (a *answer) unreadable(err error) error {
	if err == nil {
		return nil
	}
	return &remote.Error{Code: agentdv1.ErrorCode_ERROR_CODE_MODEL_UNAVAILABLE,
		Message: "an event cannot be read: " + err.Error()}
}

// exception is the error of a message that is no event.
func (a *answer) exception(m eventstream.Message) error {
	var said struct {
		Message string `json:"message"`
	}
	_ = json.Unmarshal(m.Payload, &said)
	kind := cmp.Or(header(m, ":exception-type"), header(m, ":error-code"), "error")
	text := cmp.Or(said.Message, header(m, ":error-message"), string(m.Payload))
	e := &remote.Error{Code: agentdv1.ErrorCode_ERROR_CODE_MODEL_UNAVAILABLE, Message: kind + ": " + remote.Cut(text)}
	switch kind {
	case "validationException":
		e.Code = fault.Invalid
	case "internalServerException":
		e.Temporary = true
	}
	return e
}

func (a *answer) start(data []byte) error {
	var e startEvent
	if err := json.Unmarshal(data, &e); err != nil {
		return a.unreadable(err)
	}
	if err := a.stop(); err != nil {
		return err
	}
	switch {
	case e.Start.ToolUse != nil:
		a.kind, a.id, a.name = "use", e.Start.ToolUse.ID, e.Start.ToolUse.Name
	case e.Start.ToolResult != nil:
		a.kind, a.id, a.failed = "result", e.Start.ToolResult.ID, e.Start.ToolResult.Status == "error"
	}
	return nil
}

func (a *answer) delta(data []byte) error {
	var e deltaEvent
	if err := json.Unmarshal(data, &e); err != nil {
		return a.unreadable(err)
	}
	if a.kind == "" && e.Delta.Text != "" { // text needs no start
		a.kind = "text"
	}
	a.text.WriteString(e.Delta.Text)
	a.text.WriteString(e.Delta.ToolUse.Input)
	for _, r := range e.Delta.ToolResult {
		a.text.WriteString(r.Text)
		a.text.Write(r.JSON)
	}
	return nil
}

// stop ends the block that is open.
func (a *answer) stop() error {
	kind, text := a.kind, a.text.String()
	a.kind = ""
	a.text.Reset()
	switch kind {
	case "text":
		if a.role == "assistant" {
			return a.take(remote.Event{Text: text})
		}
	case "use":
		a.open = append(a.open, remote.Call{ID: a.id, Name: a.name, Input: json.RawMessage(cmp.Or(text, "{}"))})
	case "result":
		return a.result(text)
	}
	return nil
}

// result is what has come of a run of a tool of the harness's own.
func (a *answer) result(text string) error {
	use := remote.Use{ID: a.id}
	if i := slices.IndexFunc(a.open, func(c remote.Call) bool { return c.ID == a.id }); i >= 0 {
		use.Name, use.Input = a.open[i].Name, string(a.open[i].Input)
		a.open = slices.Delete(a.open, i, i+1)
	}
	if a.failed {
		use.Error = cmp.Or(text, "the tool failed")
	} else if data, err := json.Marshal(text); err == nil {
		use.Output = string(data)
	}
	return a.take(remote.Event{Use: &use})
}

// end is the boundary at the end of the answer.
func (a *answer) end() error {
	stop := &remote.Stop{Terminal: remote.Terminated, Reason: "it stopped: " + remote.Cut(a.stopped)}
	switch a.stopped {
	case "end_turn":
		stop.Terminal, stop.Reason = remote.EndTurn, a.stopped
	case "tool_use":
		stop.Terminal, stop.Reason, stop.Calls = remote.RequiresAction, a.stopped, []string{}
		for _, c := range a.open {
			stop.Calls = append(stop.Calls, c.ID)
			if err := a.take(remote.Event{Call: &c}); err != nil {
				return err
			}
		}
	}
	return a.take(remote.Event{Stop: stop})
}
