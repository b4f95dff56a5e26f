package cli

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// fellBack says that another model is called.
func fellBack(f *agentdv1.ModelCallFellBack) string {
	what := "going on with"
	if f.GetMessageId() == "" {
		what = "the summary is asked of"
	}
	return fmt.Sprintf("%s failed (%s), %s %s", f.GetModel(), codeName(f.GetCode()), what, f.GetNextModel())
}

// compacted says that a summary replaces the beginning of the conversation.
func compacted(c *agentdv1.HistoryCompacted) string {
	how, out := "the prompt had", "a summary stands for the beginning of the conversation"
	switch c.GetReason() {
	case agentdv1.HistoryCompacted_REASON_OVERFLOW:
		how = "the prompt was too long:"
	case agentdv1.HistoryCompacted_REASON_REQUESTED:
		out += ", as was asked for"
	case agentdv1.HistoryCompacted_REASON_CHECKPOINT:
		out += ", since a task is done"
	case agentdv1.HistoryCompacted_REASON_UNSPECIFIED, agentdv1.HistoryCompacted_REASON_SHARE:
	}
	if c.GetPromptTokens() > 0 {
		out += fmt.Sprintf("; %s %s", how, number(c.GetPromptTokens()))
		if c.GetContextTokens() > 0 {
			out += " of " + number(c.GetContextTokens())
		}
		out += " tokens"
	}
	return out
}

// callEnded says what a model call took.
func callEnded(c *agentdv1.ModelCallEnded) string {
	out := []string{cmp.Or(c.GetModel(), c.GetServedModel(), "a model"), usage(c.GetUsage())}
	if c.GetDuration() != nil {
		out = append(out, duration(c.GetDuration().AsDuration()))
	}
	if c.GetTimeToFirstText() != nil {
		out = append(out, "first text after "+duration(c.GetTimeToFirstText().AsDuration()))
	}
	if said := outcome(c); said != "" {
		out = append(out, said)
	}
	if c.GetStopReason() > agentdv1.StopReason_STOP_REASON_STOP {
		out = append(out, word(c.GetStopReason(), "STOP_REASON_"))
	}
	return strings.Join(out, ", ")
}

// outcome says what has come of a model call; nothing for a response.
func outcome(c *agentdv1.ModelCallEnded) string {
	switch c.GetOutcome() {
	case agentdv1.ModelCallEnded_OUTCOME_SUMMARIZED:
		return "wrote a summary"
	case agentdv1.ModelCallEnded_OUTCOME_FAILED:
		return "failed"
	default:
		return ""
	}
}

// payload describes a provider's response, without its body.
func payload(p *agentdv1.RawPayloadReceived) string {
	out := fmt.Sprintf("try %d: %s responded %d, %s bytes",
		p.GetAttempt(), p.GetProvider(), p.GetStatus(), number(int64(len(p.GetBody()))))
	if p.GetContentType() != "" {
		out += " of " + p.GetContentType()
	}
	if p.GetTruncated() {
		out += ", cut"
	}
	return out
}

// remoteSession says what has become of a session on a backend.
func remoteSession(s *agentdv1.RemoteSession) string {
	words := []string{s.GetBackend()}
	for _, id := range []string{s.GetRemoteAgentId(), s.GetRemoteSessionId()} {
		if id != "" {
			words = append(words, id)
		}
	}
	if s.GetTerminal() != agentdv1.RemoteSession_TERMINAL_UNSPECIFIED {
		words = append(words, enumName(s.GetTerminal().String(), "TERMINAL_"))
	}
	out := strings.Join(words, " ")
	if s.GetReason() != "" {
		out += ": " + s.GetReason()
	}
	return out
}

// files says what a message has besides text, such as "[image/png, text]".
func files(parts []*agentdv1.Part) string {
	if len(parts) == 0 {
		return ""
	}
	var out []string
	for _, p := range parts {
		switch c := p.GetContent().(type) {
		case *agentdv1.Part_Text:
			out = append(out, "text")
		case *agentdv1.Part_Inline:
			out = append(out, c.Inline.GetMimeType())
		case *agentdv1.Part_File:
			out = append(out, c.File.GetMimeType()+" "+c.File.GetUri())
		case *agentdv1.Part_Tool:
			out = append(out, "tool "+c.Tool.GetToolName())
		}
	}
	return " [" + strings.Join(out, ", ") + "]"
}

// Payloads is a Screen that also writes the responses of providers, as JSON, one
// response a line.
type Payloads struct {
	Screen
	// Out takes the responses.
	Out io.Writer
}

// Event shows an event.
func (s Payloads) Event(event *agentdv1.RunResponse) error {
	if p := event.GetRawPayloadReceived(); p != nil {
		if err := WriteJSON(s.Out, p); err != nil {
			return err
		}
	}
	return s.Screen.Event(event)
}
