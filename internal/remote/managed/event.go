package managed

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/apzuk3/agentd/internal/remote"
	"github.com/apzuk3/agentd/model"
)

// event is an event of the API, with the fields that are read.
type event struct {
	ID        string          `json:"id"`
	Type      string          `json:"type"`
	Thread    *string         `json:"session_thread_id"`
	Content   []block         `json:"content"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	IsError   bool            `json:"is_error"`
	Result    string          `json:"custom_tool_use_id"`
	ToolUse   string          `json:"tool_use_id"`
	MCPUse    string          `json:"mcp_tool_use_id"`
	Usage     usage           `json:"model_usage"`
	Reason    reason          `json:"stop_reason"`
	Problem   problem         `json:"error"`
	Processed *string         `json:"processed_at"`
}

type block struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

type usage struct {
	Input      int64 `json:"input_tokens"`
	Output     int64 `json:"output_tokens"`
	CacheRead  int64 `json:"cache_read_input_tokens"`
	CacheWrite int64 `json:"cache_creation_input_tokens"`
}

type reason struct {
	Type   string   `json:"type"`
	Events []string `json:"event_ids"`
}

type problem struct {
	Type    string `json:"type"`
	Message string `json:"message"`
	Retry   struct {
		Type string `json:"type"`
	} `json:"retry_status"`
}

// read translates an event; id is "" for what is none.
func read(data []byte) (out remote.Event, id string) {
	var e event
	if json.Unmarshal(data, &e) != nil || e.ID == "" {
		return remote.Event{}, ""
	}
	out = remote.Event{ID: e.ID, Cursor: e.ID, Raw: data}
	switch e.Type {
	case "user.message":
		if e.Processed == nil { // it waits, and comes once more under the same id
			out.ID = e.ID + " queued"
		}
		out.Heard = remote.HeardMessage
	case "user.custom_tool_result":
		out.Heard = e.Result
	case "user.tool_confirmation":
		out.Heard = e.ToolUse
	case "agent.message":
		if e.Thread == nil || *e.Thread == "" { // the words of other agents are for the first one
			out.Text = e.text("\n")
		}
	case "agent.custom_tool_use":
		out.Call = &remote.Call{ID: e.ID, Name: e.Name, Input: e.Input}
	case "agent.tool_use", "agent.mcp_tool_use":
		out.Use = &remote.Use{ID: e.ID, Name: e.Name, Input: string(e.Input)}
	case "agent.tool_result", "agent.mcp_tool_result":
		out.Use = e.result()
	case "span.model_request_end":
		if !e.IsError || e.Usage != (usage{}) {
			out.Usage = e.Usage.of()
		}
	case "session.status_idle":
		out.Stop = e.Reason.stop()
	case "session.status_terminated", "session.deleted":
		out.Stop = &remote.Stop{Terminal: remote.Terminated, Reason: "the backend says " + e.Type}
	case "session.error":
		if e.Problem.Retry.Type != "retrying" {
			out.Stop = &remote.Stop{Terminal: remote.Terminated,
				Reason: remote.Cut(cmp.Or(e.Problem.Type, "error") + ": " + e.Problem.Message)}
		}
	}
	return out, e.ID
}

// text joins the blocks of text.
func (e *event) text(sep string) string {
	var all []string
	for _, b := range e.Content {
		if b.Type == "text" && b.Text != "" {
			all = append(all, b.Text)
		}
	}
	return strings.Join(all, sep)
}

// result is what has come of a run of a tool. JSON of a text is what ProviderUse has.
func (e *event) result() *remote.Use {
	use := &remote.Use{ID: cmp.Or(e.ToolUse, e.MCPUse)}
	text := e.text("\n")
	if e.IsError {
		use.Error = cmp.Or(text, "the tool failed")
		return use
	}
	if data, err := json.Marshal(text); err == nil {
		use.Output = string(data)
	}
	return use
}

// of returns the counts in our form: a prompt includes what was read from a cache or written into one.
func (u usage) of() *model.Usage {
	prompt := u.Input + u.CacheRead + u.CacheWrite
	return &model.Usage{Prompt: prompt, Completion: u.Output, Cached: u.CacheRead, CacheWrite: u.CacheWrite,
		Total: prompt + u.Output}
}

func (r reason) stop() *remote.Stop {
	switch r.Type {
	case "end_turn":
		return &remote.Stop{Terminal: remote.EndTurn, Reason: r.Type}
	case "requires_action":
		return &remote.Stop{Terminal: remote.RequiresAction, Reason: r.Type, Calls: append([]string{}, r.Events...)}
	default:
		why := remote.Cut(cmp.Or(r.Type, "no reason given"))
		return &remote.Stop{Terminal: remote.Terminated, Reason: "it stopped: " + why}
	}
}
