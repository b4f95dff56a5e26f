package managed

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// event is an event of the protocol.
type event struct {
	id, kind string
	at       time.Time
	queued   bool // it waits: processed_at is null
	// path is that of the agent that the event is of, nil for an event of the session.
	path   []string
	fields []field
	// prompt is set on a user.message whose content is that of a turn and is still to be read, turn on each that is a
	// turn's.
	prompt, turn string
	place        place
}

// field is a field of an event besides id, type and processed_at.
type field struct {
	name  string
	value any
}

// place is where an event stands in its session: behind which event of agentd, and as which one.
type place struct {
	seq int64
	n   int
}

func (p place) compare(o place) int { return cmp.Or(cmp.Compare(p.seq, o.seq), cmp.Compare(p.n, o.n)) }

// MarshalJSON writes the fields in their order.
func (e *event) MarshalJSON() ([]byte, error) {
	var out strings.Builder
	put := func(name string, value any) {
		if out.Len() > 0 {
			out.WriteByte(',')
		}
		out.WriteString(strconv.Quote(name))
		out.WriteByte(':')
		out.Write(marshal(value))
	}
	put("id", e.id)
	put("type", e.kind)
	for _, f := range e.fields {
		put(f.name, f.value)
	}
	var processed *string
	if !e.queued {
		processed = timeText(e.at)
	}
	put("processed_at", processed)
	return []byte("{" + out.String() + "}"), nil
}

// The ids of events. Most are made of a seq and a slot: what an event of agentd becomes has slots of its own, so that
// an id stays what it is. A message of an agent is named by its message id, so that its deltas can be; a message of a
// user by its turn, which is known before anything is recorded.
const (
	slotSelf = iota
	slotRunning
	slotSpanStart
	slotSpanEnd
	slotIdle
	slotInterrupt
	slotError
	slotThinking
	slotProvider = 1 << 4 // two for each tool that a provider has run
	slotLost     = 1 << 7 // calls that got no result

	maxSlots = slotLost
)

const idPrefix = "sevt_"

// tagOf stands for a session in the ids of its events: an id of one session is none of another one.
func tagOf(sessionID string) string {
	sum := sha256.Sum256([]byte(sessionID))
	return idPrefix + hex.EncodeToString(sum[:8])
}

func eventID(sessionID string, seq int64, slot int) string {
	return fmt.Sprintf("%s%016x%02x", tagOf(sessionID), seq, slot)
}

// seqOf returns the seq of an id that was made of one and slotSelf, in a session.
func seqOf(sessionID, id string) (seq int64, ok bool) {
	digits, ok := strings.CutPrefix(id, tagOf(sessionID))
	if !ok || len(digits) != 18 || digits[16:] != "00" {
		return 0, false
	}
	n, err := strconv.ParseInt(digits[:16], 16, 64)
	return n, err == nil && n > 0 && eventID(sessionID, n, slotSelf) == id
}

func promptID(sessionID, turnID string) string { return tagOf(sessionID) + "u" + turnID }

// threadID names the thread of an agent; nil for the root.
func threadID(sessionID string, path []string) *string {
	if len(path) < 2 {
		return nil
	}
	id := threadOf(sessionID, path)
	return &id
}

// threadOf is threadID for the thread of the root too, which nil names as well.
func threadOf(sessionID string, path []string) string {
	if len(path) < 2 {
		path = nil
	}
	sum := sha256.Sum256([]byte(sessionID + "\x00" + strings.Join(path, "\x00")))
	return "sthr_" + hex.EncodeToString(sum[:12])
}

// block is a piece of content.
type block struct {
	Type   string  `json:"type"`
	Text   *string `json:"text,omitempty"`
	Source *source `json:"source,omitempty"`
}

// source is where an image or a document is.
type source struct {
	Type      string `json:"type"`
	MediaType string `json:"media_type,omitempty"`
	Data      []byte `json:"data,omitempty"`
	URL       string `json:"url,omitempty"`
}

func textBlock(s string) block { return block{Type: "text", Text: &s} }

// contentOf is a text and what stands behind it as content.
func contentOf(text string, parts []*agentdv1.Part) []block {
	var out []block
	if text != "" {
		out = append(out, textBlock(text))
	}
	for _, p := range parts {
		switch c := p.GetContent().(type) {
		case *agentdv1.Part_Text:
			out = append(out, textBlock(c.Text))
		case *agentdv1.Part_Inline:
			src := &source{Type: "base64", MediaType: c.Inline.GetMimeType(), Data: c.Inline.GetData()}
			out = append(out, block{Type: fileType(src.MediaType), Source: src})
		case *agentdv1.Part_File:
			src := &source{Type: "url", URL: c.File.GetUri()}
			out = append(out, block{Type: fileType(c.File.GetMimeType()), Source: src})
		case *agentdv1.Part_Tool:
			out = append(out, textBlock(c.Tool.GetToolName()))
		}
	}
	if out == nil {
		return []block{}
	}
	return out
}

// fileType is the type of the block for a file.
func fileType(mime string) string {
	if strings.HasPrefix(mime, "image/") {
		return "image"
	}
	return "document"
}

// jsonObject is a text that should be a JSON object; any other text becomes one.
func jsonObject(text string) json.RawMessage {
	if fields, err := objectOf([]byte(text)); err == nil && fields != nil {
		return json.RawMessage(text)
	}
	if text == "" {
		return json.RawMessage("{}")
	}
	return marshal(map[string]string{"text": text})
}

// modelUsage is what one model call took.
type modelUsage struct {
	InputTokens              int64 `json:"input_tokens"`
	OutputTokens             int64 `json:"output_tokens"`
	CacheReadInputTokens     int64 `json:"cache_read_input_tokens"`
	CacheCreationInputTokens int64 `json:"cache_creation_input_tokens"`
}

func modelUsageOf(u *agentdv1.Usage) modelUsage {
	sum := usageOf(u)
	return modelUsage{sum.InputTokens, sum.OutputTokens, sum.CacheReadInputTokens, u.GetCacheWriteTokens()}
}

// stopReason is why a session is idle.
type stopReason struct {
	Type     string   `json:"type"`
	EventIDs []string `json:"event_ids,omitempty"`
}

// retryStatus is what comes of an error.
type retryStatus struct {
	Type string `json:"type"`
}

// turnError is an error of a turn.
type turnError struct {
	Type        string      `json:"type"`
	Message     string      `json:"message"`
	RetryStatus retryStatus `json:"retry_status"`
}

// turnErrors are the types of errors of turns; any other is an unknown_error.
var turnErrors = map[agentdv1.ErrorCode]string{
	agentdv1.ErrorCode_ERROR_CODE_RATE_LIMITED:      "model_rate_limited_error",
	agentdv1.ErrorCode_ERROR_CODE_MODEL_UNAVAILABLE: "model_overloaded_error",
	agentdv1.ErrorCode_ERROR_CODE_UNAVAILABLE:       "model_overloaded_error",
	agentdv1.ErrorCode_ERROR_CODE_TIMEOUT:           "model_request_failed_error",
	agentdv1.ErrorCode_ERROR_CODE_AUTH_FAILED:       "model_request_failed_error",
	agentdv1.ErrorCode_ERROR_CODE_CONTENT_BLOCKED:   "model_request_failed_error",
	agentdv1.ErrorCode_ERROR_CODE_CONTEXT_TOO_LONG:  "model_request_failed_error",
	agentdv1.ErrorCode_ERROR_CODE_OUTPUT_INVALID:    "model_request_failed_error",
}

func turnErrorOf(code agentdv1.ErrorCode, message, status string) turnError {
	return turnError{cmp.Or(turnErrors[code], "unknown_error"), message, retryStatus{status}}
}
