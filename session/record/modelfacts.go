package record

import (
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// CallInfo is what is known of a model call besides its answer and its usage.
type CallInfo struct {
	// Model is the model that was called last, as the agent names it.
	Model string `json:"model"`
	// Provider served it. Empty for a call that a crash has cut off and that was not
	// made again: what else was of it is not known.
	Provider string `json:"provider"`
	// Took is from the first try to the end of the answer, FirstText to its first
	// text or thought, 0 when there was none. In nanoseconds.
	Took      time.Duration `json:"took"`
	FirstText time.Duration `json:"first_text,omitempty"`
}

// ModelFallback says that a model has failed before anything of its answer was
// shown, and that another one is called.
type ModelFallback struct {
	// MessageID is the one of the answer to come; empty for a summary.
	MessageID string `json:"message_id"`
	// Path runs from the root to the agent whose call it is.
	Path []string `json:"path"`
	// Model has failed, Next is called now; as the agent names them.
	Model string `json:"model"`
	Next  string `json:"next"`
	// Code and Message are what the first one failed with; the client sees them.
	Code    agentdv1.ErrorCode `json:"code"`
	Message string             `json:"message"`
	// Usage is what its tries took, but for those whose ModelRetry says so; nil where
	// nothing was reported.
	Usage *Usage `json:"usage,omitempty"`
}

// RawPayload is a provider's answer to one try of a model call as it came.
type RawPayload struct {
	// MessageID is the one of the answer to come.
	MessageID string `json:"message_id"`
	// Path runs from the root to the agent whose call it was.
	Path []string `json:"path"`
	// Attempt is the try, from 1.
	Attempt int `json:"attempt"`
	// Provider answered, with Status and ContentType.
	Provider    string `json:"provider"`
	Status      int    `json:"status"`
	ContentType string `json:"content_type,omitempty"`
	// Body is at most MaxRawBody bytes; Truncated tells that there was more.
	Body      []byte `json:"body,omitempty"`
	Truncated bool   `json:"truncated,omitempty"`
}

// MaxRawBody is how much of a provider's answer a RawPayload holds, in bytes.
const MaxRawBody = 1 << 20

// Provided is what a model's provider has run while the model answered, and what
// the answer cites.
type Provided struct {
	Uses      []ProviderUse `json:"uses,omitempty"`
	Citations []Citation    `json:"citations,omitempty"`
}

// ProviderUse is one run of a tool by a provider. Input and Output are JSON, or
// empty where the provider does not say.
type ProviderUse struct {
	ID     string `json:"id,omitempty"`
	Name   string `json:"name"`
	Input  string `json:"input,omitempty"`
	Output string `json:"output,omitempty"`
	Error  string `json:"error,omitempty"`
}

// Citation is a source of a part of an answer: the bytes from Start to End of its
// text, both 0 when the provider does not say which.
type Citation struct {
	URI   string `json:"uri,omitempty"`
	Title string `json:"title,omitempty"`
	Text  string `json:"text,omitempty"`
	Start int    `json:"start,omitempty"`
	End   int    `json:"end,omitempty"`
}

// Compacted says that a summary stands for the beginning of the conversation that
// the agent's model is told.
type Compacted struct {
	// Summary is what the model is told.
	Summary string `json:"summary"`
	// Through is the last record that the summary stands for.
	Through int64 `json:"through"`
	// Overflow is true when the provider had refused the prompt as too long.
	Overflow bool `json:"overflow,omitempty"`
	// Prompt is what the prompt took before, and Window the context that was counted
	// with, in tokens; 0 is not known.
	Prompt int64 `json:"prompt,omitempty"`
	Window int64 `json:"window,omitempty"`
}
