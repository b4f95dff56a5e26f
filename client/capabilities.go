package client

import (
	"context"
	"iter"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// Capabilities are what a server is and allows.
type Capabilities struct {
	// Version is the server's.
	Version string
	// Providers can serve models.
	Providers []ProviderInfo
	// BuiltinTools are those that the server itself knows.
	BuiltinTools []string
	// MaxPromptBytes and MaxMessageBytes bound a prompt and a message to the server.
	MaxPromptBytes, MaxMessageBytes int64
	// Retention is how long a turn waits for a client or a person.
	Retention time.Duration
	// Features are what the server knows beyond what each server has known from the
	// beginning, such as "RunRequest.ExecuteRequest.on_busy"; a request with a field that
	// the server does not know is INVALID_REQUEST.
	Features []string
	// InstructionBytes and InstructionSHA256, in hexadecimal digits, are of the text that the server puts before the
	// instruction of each agent; 0 and "" without one.
	InstructionBytes  int64
	InstructionSHA256 string

	message *agentdv1.GetCapabilitiesResponse
}

// ProviderInfo is who serves models.
type ProviderInfo struct {
	// Name is as in provider/model.
	Name string
	// HasKey is true when the server has a key for it, or it needs none; else the caller
	// brings one, see [WithProviderKey].
	HasKey bool
	// BuiltinTools are those that it runs.
	BuiltinTools []string
}

// Proto returns the message that they were made from.
func (c *Capabilities) Proto() *agentdv1.GetCapabilitiesResponse { return proto.CloneOf(c.message) }

// Capabilities returns what the server is and allows. All errors are an [*Error].
func (c *Client) Capabilities(ctx context.Context, opts ...RequestOption) (*Capabilities, error) {
	m, err := unary(ctx, c, opts, c.sessions.GetCapabilities, &agentdv1.GetCapabilitiesRequest{})
	if err != nil {
		return nil, err
	}
	return capabilitiesOf(m), nil
}

func capabilitiesOf(m *agentdv1.GetCapabilitiesResponse) *Capabilities {
	return &Capabilities{
		Version: m.GetVersion(), BuiltinTools: m.GetBuiltinTools(), MaxPromptBytes: m.GetMaxPromptBytes(),
		MaxMessageBytes: m.GetMaxMessageBytes(), Retention: m.GetRetention().AsDuration(), Features: m.GetFeatures(),
		Providers: mapped(m.GetProviders(), providerOf), message: m,
		InstructionBytes: m.GetInstructionBytes(), InstructionSHA256: m.GetInstructionSha256(),
	}
}

func providerOf(m *agentdv1.Provider) ProviderInfo {
	return ProviderInfo{Name: m.GetName(), HasKey: m.GetHasKey(), BuiltinTools: m.GetBuiltinTools()}
}

// ModelInfo is a family of models that a server knows by name.
type ModelInfo struct {
	// Name is what [LLM] takes, and Provider who serves it.
	Name, Provider string
	// Available is true when the server can serve it without a key of the caller.
	Available bool
	// ContextTokens and OutputTokens bound a request and a response; 0 is not known.
	ContextTokens, OutputTokens int64
	// Inputs are the kinds of file that it reads: image, audio, video, document.
	Inputs []string
	// Thinking, Tools and StructuredOutput are what it can do.
	Thinking, Tools, StructuredOutput bool
	// BuiltinTools are those that its provider runs.
	BuiltinTools []string
	// Price is what it costs; nil is not known.
	Price *ModelPrice
	// Source is where its price and what it can do were read; empty is not known.
	Source string
	// Retires is the day from which on it is served no more, YYYY-MM-DD; empty is not
	// known.
	Retires string

	message *agentdv1.Model
}

// Proto returns the message that it was made from.
func (m *ModelInfo) Proto() *agentdv1.Model { return proto.CloneOf(m.message) }

// Models lists the models that the server knows by name; providers serve others too.
func (c *Client) Models(ctx context.Context, opts ...RequestOption) ([]*ModelInfo, error) {
	resp, err := unary(ctx, c, opts, c.sessions.ListModels, &agentdv1.ListModelsRequest{})
	models := mapped(resp.GetModels(), modelOf)
	for _, m := range models {
		if m.Price != nil && m.Price.Date == "" {
			m.Price.Date = resp.GetPricesDate()
		}
	}
	return models, err
}

func modelOf(m *agentdv1.Model) *ModelInfo {
	can := m.GetCapabilities()
	return &ModelInfo{
		Name: m.GetName(), Provider: m.GetProvider(), Available: m.GetAvailable(), Price: modelPriceOf(m.GetPrice()),
		ContextTokens: can.GetContextTokens(), OutputTokens: can.GetOutputTokens(), Inputs: can.GetInputs(),
		Thinking: can.GetThinking(), Tools: can.GetTools(), StructuredOutput: can.GetStructuredOutput(),
		BuiltinTools: m.GetBuiltinTools(), Source: m.GetSource(), Retires: m.GetRetires(), message: m,
	}
}

// SharedStateEntry is one key of state that sessions share.
type SharedStateEntry struct {
	// Key has its scope, such as app:plan.
	Key string
	// Value is JSON text.
	Value string
	// Bytes is how much of its scope's bound it takes.
	Bytes int64
}

// SharedState lists the keys of state that sessions share and that begin with a
// prefix, such as app:, by name.
func (c *Client) SharedState(
	ctx context.Context, prefix string, opts ...RequestOption,
) iter.Seq2[SharedStateEntry, error] {
	return pages(func(token string) ([]SharedStateEntry, string, error) {
		resp, err := unary(ctx, c, opts, c.sessions.ListSharedState,
			&agentdv1.ListSharedStateRequest{Prefix: prefix, PageToken: token})
		return mapped(resp.GetEntries(), sharedOf), resp.GetNextPageToken(), err
	})
}

func sharedOf(m *agentdv1.SharedStateEntry) SharedStateEntry {
	return SharedStateEntry{Key: m.GetKey(), Value: m.GetValue(), Bytes: m.GetBytes()}
}

// SetSharedState sets keys of state that sessions share, by their names with scope, such
// as app:plan, all or none. A value is what encoding/json takes; nil removes its key.
func (c *Client) SetSharedState(ctx context.Context, values map[string]any, opts ...RequestOption) error {
	req := &agentdv1.SetSharedStateRequest{}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		text, err := marshalJSON(values[key])
		if err != nil {
			return errorf(ErrInvalidRequest, "the value of %q: %w", key, err)
		}
		req.Values = append(req.Values, &agentdv1.SharedStateValue{Key: key, Value: text})
	}
	_, err := unary(ctx, c, opts, c.sessions.SetSharedState, req)
	return err
}

// RemoveSharedState removes keys of state that sessions share, and returns those that
// were there.
func (c *Client) RemoveSharedState(ctx context.Context, keys []string, opts ...RequestOption) ([]string, error) {
	resp, err := unary(ctx, c, opts, c.sessions.RemoveSharedState, &agentdv1.RemoveSharedStateRequest{Keys: keys})
	return resp.GetRemoved(), err
}
