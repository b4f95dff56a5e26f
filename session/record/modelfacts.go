package record

import (
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// CallInfo describes a model call, besides its response and its usage.
type CallInfo struct {
	// Model is the model that was called last, as the agent names it.
	Model string `json:"model"`
	// Provider served the call. It is empty for a call that a crash has cut off and that was not retried:
	// the rest of that call is not known.
	Provider string `json:"provider"`
	// Took is the time from the first try to the end of the response. FirstText is the time to its first
	// text or thought, 0 if there was none. In nanoseconds.
	Took      time.Duration `json:"took"`
	FirstText time.Duration `json:"first_text,omitempty"`
}

// ModelFallback says that a model failed before any of its response was shown, and that the server calls
// another one.
type ModelFallback struct {
	// MessageID is the id of the response to come; empty for a summary.
	MessageID string `json:"message_id"`
	// Path runs from the root to the agent whose call it is.
	Path []string `json:"path"`
	// Model has failed, Next is called now; as the agent names them.
	Model string `json:"model"`
	Next  string `json:"next"`
	// Code and Message are what the first one failed with; the client sees them.
	Code    agentdv1.ErrorCode `json:"code"`
	Message string             `json:"message"`
	// Usage is what its tries took, but for those whose ModelRetry says so; nil where nothing was reported.
	Usage *Usage `json:"usage,omitempty"`
}

// RawPayload is a provider's response to one try of a model call, as it came.
type RawPayload struct {
	// MessageID is the id of the response to come.
	MessageID string `json:"message_id"`
	// Path runs from the root to the agent whose call it was.
	Path []string `json:"path"`
	// Attempt is the try, from 1.
	Attempt int `json:"attempt"`
	// Provider sent the response, with Status and ContentType.
	Provider    string `json:"provider"`
	Status      int    `json:"status"`
	ContentType string `json:"content_type,omitempty"`
	// Body is at most 1 MiB. Truncated is true if the response had more.
	Body      []byte `json:"body,omitempty"`
	Truncated bool   `json:"truncated,omitempty"`
}

// Provided is what a model's provider ran during the response, and what the response cites.
type Provided struct {
	Uses      []ProviderUse `json:"uses,omitempty"`
	Citations []Citation    `json:"citations,omitempty"`
}

// ProviderUse is one run of a tool by a provider. Input and Output are JSON, or empty where the provider
// does not say.
type ProviderUse struct {
	ID     string `json:"id,omitempty"`
	Name   string `json:"name"`
	Input  string `json:"input,omitempty"`
	Output string `json:"output,omitempty"`
	Error  string `json:"error,omitempty"`
}

// Citation is a source of a part of a response: the bytes from Start to End of its text, both 0 when the
// provider does not say which.
type Citation struct {
	URI   string `json:"uri,omitempty"`
	Title string `json:"title,omitempty"`
	Text  string `json:"text,omitempty"`
	Start int    `json:"start,omitempty"`
	End   int    `json:"end,omitempty"`
}

// Compacted says that a summary replaces the beginning of the conversation in the prompts of the agent's
// model.
type Compacted struct {
	// Summary is the text that the model receives.
	Summary string `json:"summary"`
	// Through is the last record that the summary replaces.
	Through int64 `json:"through"`
	// Overflow is true when the provider had refused the prompt as too long.
	Overflow bool `json:"overflow,omitempty"`
	// Asked is true when a caller had asked for it, see CompactionAsked, and Done when the model had said that a task
	// was done.
	Asked bool `json:"asked,omitempty"`
	Done  bool `json:"done,omitempty"`
	// Prompt is what the prompt took before, and Window the context that was counted with, in tokens; 0 is
	// not known.
	Prompt int64 `json:"prompt,omitempty"`
	Window int64 `json:"window,omitempty"`
}

// CompactionAsked says that a caller wants summaries in place of what the models of the session have read so far.
type CompactionAsked struct {
	// Focus is what the summaries are to keep in particular.
	Focus string `json:"focus,omitempty"`
	// By is the id of the principal who has asked.
	By string `json:"by,omitempty"`
}
