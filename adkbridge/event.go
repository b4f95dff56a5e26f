package adkbridge

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"

	adksession "google.golang.org/adk/v2/session"
	"google.golang.org/genai"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/lineage"
	"github.com/apzuk3/agentd/internal/remote"
	"github.com/apzuk3/agentd/model/adapter"
	"github.com/apzuk3/agentd/session/record"
)

// metaKey is where an ADK event carries our meta.
const metaKey = "agentd"

// meta is what we add to an ADK event.
type meta struct {
	// LLM is the key of the model call whose response the event is: "agent|branch#n", with
	// n counting from 0 within the turn. Empty for other events.
	LLM string `json:"llm,omitempty"`
	// Path runs from the root to the event's agent.
	Path []string `json:"path"`
	// Calls are the ids of the calls that need a result from the client.
	Calls []string `json:"calls,omitempty"`
	// Asks are the ids among Calls about which a person is asked.
	Asks []string `json:"asks,omitempty"`
	// Agents are the ids of the calls that agents of the tree serve, as tools.
	Agents []string `json:"agents,omitempty"`
	// Interactions are the ids of these interactions, in the same order. Old logs have
	// none.
	Interactions []string `json:"interactions,omitempty"`
	// To is the path of the agent to which the event transfers the turn, from the root.
	To []string `json:"to,omitempty"`
	// Last is true when the agent cannot speak again in this turn.
	Last bool `json:"last,omitempty"`
	// Structured is true when the outputText of the response satisfies the agent's output
	// schema.
	Structured bool `json:"structured,omitempty"`
	// Usage is what the model call took, without what earlier records hold.
	Usage *record.Usage `json:"usage,omitempty"`
	// Before is what earlier records hold: failed tries.
	Before *record.Usage `json:"before,omitempty"`
	// UsageForm is the form of both, 0 for the first one: see record.Usage.CountedBy.
	UsageForm int `json:"usage_form,omitempty"`
	// Call describes the model call.
	Call *record.CallInfo `json:"call,omitempty"`
	// Provided is what the model's provider has run.
	Provided *record.Provided `json:"provided,omitempty"`
	// Compacted is the summary that the event is.
	Compacted *record.Compacted `json:"compacted,omitempty"`
	// NoGain says why a summary brought nothing (noGainShare and the like), or that it
	// is asked for again (summaryCut). The event is the end of that call and holds nothing
	// else.
	NoGain string `json:"vain,omitempty"`
	// Span names the records that Compacted replaces.
	Span *span `json:"span,omitempty"`
	// Remote says where a backend's session has come to with the response.
	Remote *agentdv1.RemoteSession `json:"remote,omitempty"`
	// Rest are the calls of the backend that are still to be asked, or that the end of the agent has left open.
	Rest []remote.Call `json:"rest,omitempty"`
	// Terminal is true when the end of the response is the arguments of the terminal tool.
	Terminal bool `json:"terminal,omitempty"`
	// Context is the length of the prompt of the call's last try in tokens, cached ones
	// included, as the provider counted; 0 is unknown. See stored.context.
	Context int64 `json:"context,omitempty"`
	// Marks are the places of the deltas that showed the response.
	Marks record.Marks `json:"marks,omitempty"`
	// Goal is what the calls whose results the event holds have said of the turn's goal.
	Goal *record.GoalSaid `json:"goal,omitempty"`
	// Injected is the queued turn whose prompt the event is.
	Injected string `json:"injected,omitempty"`
	// InjectedBy is the id of the principal whose prompt it is.
	InjectedBy string `json:"injected_by,omitempty"`
	// Request is the call of an agent as a tool whose request the event is, and Forks whether the agent sees what its
	// caller had seen.
	Request string `json:"request,omitempty"`
	Forks   bool   `json:"forks,omitempty"`
	// NoText is true if the prompt has only parts.
	NoText bool `json:"no_text,omitempty"`
	// Dropped is true if what tools were given and returned is not in the event any more; see WithoutPayloads.
	Dropped bool `json:"dropped,omitempty"`
}

// event is an ADK event without its methods: ADK's own decoder would turn
// numbers into floating point.
type event adksession.Event

// stored is the form in which an event is in the log: ADK's JSON, with our meta
// below customMetadata.
type stored struct {
	event
	CustomMetadata struct {
		Agentd meta `json:"agentd"`
	} `json:"customMetadata"`
}

// encode returns the stored form. It does not change ev.
func encode(ev *adksession.Event, m *meta) ([]byte, error) {
	s := stored{event: event(*ev)}
	s.CustomMetadata.Agentd = *m
	if m.Usage != nil {
		s.CustomMetadata.Agentd.UsageForm = usageForm
	}
	s.LLMResponse.CustomMetadata = nil
	s.UsageMetadata = nil // meta holds it
	s.Timestamp = ev.Timestamp.UTC()
	// ADK shares this map among the events of one model call.
	s.Actions.StateDelta = durable(ev.Actions.StateDelta)
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(&s); err != nil {
		return nil, fmt.Errorf("encode event of %s: %w", ev.Author, err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// decode reads the stored form. It is a pure function, its result shares nothing
// with data, and it accepts anything that encode may have written, also by other
// releases: unknown fields are ignored.
func decode(data []byte) (*stored, error) {
	s := &stored{}
	if err := unmarshal(data, s); err != nil {
		return nil, fmt.Errorf("decode event: %w", err)
	}
	s.convertUsage()
	if s.Content == nil {
		return s, nil
	}
	s.Content.Parts = slices.DeleteFunc(s.Content.Parts, emptyPart)
	for _, p := range s.Content.Parts {
		// JSON loses the difference between no object and an empty one.
		if p.FunctionCall != nil && p.FunctionCall.Args == nil {
			p.FunctionCall.Args = map[string]any{}
		}
		if p.FunctionResponse != nil && p.FunctionResponse.Response == nil {
			p.FunctionResponse.Response = map[string]any{}
		}
	}
	return s, nil
}

// unmarshal reads one JSON value of the log. Numbers without a type stay as they are
// written.
func unmarshal(data []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if err := dec.Decode(v); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("data after the JSON value")
	}
	return nil
}

// usageForm is meta.UsageForm of today.
const usageForm = 2

// convertUsage has the usage of an earlier form mean what it does today.
func (s *stored) convertUsage() {
	m := &s.CustomMetadata.Agentd
	if m.UsageForm >= usageForm {
		return
	}
	if m.Usage != nil {
		*m.Usage = m.Usage.CountedBy(s.provider())
	}
	if m.Before != nil { // as the records of those tries are read, which name no provider
		*m.Before = m.Before.CountedBy("")
	}
}

// provider returns the provider of the call that the event ends, "" if unknown. Older
// events name only the model.
func (s *stored) provider() string {
	switch c := s.CustomMetadata.Agentd.Call; {
	case c != nil:
		return c.Provider
	case strings.HasPrefix(s.ModelVersion, "claude-"):
		return "anthropic"
	default:
		return ""
	}
}

// context returns the length of the prompt that the event responds to, in tokens; 0 is
// unknown. A provider that runs tools may read the prompt several times and counts
// each. For events without a Context the length is known if their call had one try.
func (s *stored) context() int64 {
	m := &s.CustomMetadata.Agentd
	switch {
	case m.Provided != nil, s.Content != nil && slices.ContainsFunc(s.Content.Parts, ranByProvider):
		return 0
	case m.Context == 0 && m.LLM != "" && m.Usage != nil && m.Usage.Calls == 1:
		return m.Usage.Prompt
	default:
		return m.Context
	}
}

// The values of meta.NoGain.
const (
	noGainShare    = "share"    // the prompt took more than its share of the context window
	noGainOverflow = "overflow" // it was refused
	noGainAsked    = "asked"    // it was asked for
	summaryCut     = "cut"      // the summary was cut at its limit, and may be longer the next time
)

// onlyUsage reports whether an event holds only the usage of a failed call.
func (s *stored) onlyUsage() bool {
	return s.CustomMetadata.Agentd.LLM == "" && s.CustomMetadata.Agentd.Compacted == nil &&
		(s.Content == nil || len(s.Content.Parts) == 0) && len(s.Actions.StateDelta) == 0
}

// isBlank reports whether an event holds nothing. The engine appends one when the
// result of loop_continue sets only keys of scope temp. Logs of earlier releases may
// hold one for each run of the turn.
func (s *stored) isBlank() bool {
	m := &s.CustomMetadata.Agentd
	return s.onlyUsage() && m.NoGain == "" && m.Injected == "" && m.Usage == nil && m.Before == nil && m.Call == nil
}

// emptyPart reports whether a part holds nothing.
func emptyPart(p *genai.Part) bool {
	return p == nil || reflect.ValueOf(*p).IsZero()
}

// durable returns a copy of the keys of a state delta that outlive the turn.
func durable(delta map[string]any) map[string]any {
	var out map[string]any
	for k, v := range delta {
		if !strings.HasPrefix(k, adksession.KeyPrefixTemp) {
			if out == nil {
				out = make(map[string]any, len(delta))
			}
			out[k] = v
		}
	}
	return out
}

// sessionEvent returns the event in the session's terms.
func (s *stored) sessionEvent() *record.Event {
	m := &s.CustomMetadata.Agentd
	ev := &record.Event{
		Path:  m.Path,
		To:    m.To,
		Last:  m.Last,
		State: maps.Clone(durable(s.Actions.StateDelta)),
		Usage: m.Usage, Before: m.Before,
		Marks: m.Marks,

		Call:      m.Call,
		Provided:  m.Provided,
		Compacted: m.Compacted,
		Remote:    m.Remote,
		Goal:      m.Goal,
	}
	if lineage.Room(s.Branch) != "" {
		ev.Branch = s.Branch
	}
	if m.Request != "" && s.Content != nil && len(s.Content.Parts) > 0 {
		ev.Request = s.Content.Parts[0].Text
	}
	if m.Injected != "" && s.Content != nil {
		ev.Injected, ev.InjectedBy = m.Injected, m.InjectedBy
		parts := s.Content.Parts
		if len(parts) > 0 && !m.NoText {
			ev.Text, parts = parts[0].Text, parts[1:]
		}
		ev.Parts = partsOf(parts)
		return ev
	}
	if m.LLM == "" {
		return ev
	}
	ev.MessageID = messageID(s.InvocationID, m.LLM)
	ev.Model, ev.Stop, ev.Structured = s.ModelVersion, string(s.FinishReason), m.Structured
	if s.Content == nil {
		return ev
	}
	var text, thoughts strings.Builder
	for _, p := range s.Content.Parts {
		if p.Thought {
			thoughts.WriteString(p.Text)
		} else {
			text.WriteString(p.Text)
		}
		if fc := p.FunctionCall; fc != nil && slices.Contains(m.Calls, fc.ID) {
			ev.Calls = append(ev.Calls, record.ToolCall{
				ID:    fc.ID,
				Name:  fc.Name,
				Input: json.RawMessage(adapter.ArgsText(p)),
				Path:  m.Path,
				Asks:  m.asks(fc),

				Branch: ev.Branch,
			})
		}
	}
	ev.Text, ev.Thoughts = text.String(), thoughts.String()
	if m.Structured {
		if out, _ := outputText(s.Content, m); out != ev.Text {
			ev.Output = out
		}
	}
	return ev
}

// messageID ties deltas to the event that completes them.
func messageID(turnID, llmKey string) string { return turnID + "/" + llmKey }
