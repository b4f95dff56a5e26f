// Package model is the seam to providers of models: what a provider must do, what it gets and what
// it returns.
//
// An adapter translates one request to its provider's wire, streams what comes back as deltas, and
// returns one response: complete, with its finish reason and its usage, or an error. A stream that
// was cut short is an error, never a short success. Adapters make no retries, and those of their
// SDKs are off: the server makes failed calls again, for all providers alike, and reports it. They
// set no timeouts either: the server ends calls that take too long, and calls of a provider that is
// silent. Each byte of its HTTP response breaks the silence, also that of a ping.
//
// Package adapter says how to write one and has what that needs; package modeltest reports whether
// one keeps the contract; package agentdhost serves it.
//
// The common form of content is that of google.golang.org/genai, the one the engine stores. What a
// provider needs back verbatim travels in the parts, see Response. References to tools in a tool's
// result are metadata of its part, see References: they are stored, replayed and recorded with it, and
// are gone once it is summarized.
//
// The package imports genai, the standard library, and what is kept of requests; it knows neither
// sessions, nor the engine, nor the protocol.
package model

import (
	"context"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/encoded"
)

// Request is one model call.
type Request struct {
	// Contents is the conversation: roles "user" and "model", tool calls as FunctionCall parts of
	// the model, their results as FunctionResponse parts of the user, matched by id. It ends with a
	// user's content. Calls share it: adapters must not change it.
	Contents []*genai.Content
	// Config holds the system instruction, the function declarations (ParametersJsonSchema), the
	// tools that the provider runs, the schema of the final response (ResponseJsonSchema) and
	// sampling settings. Never nil; adapters must not change it. An adapter passes the schema in
	// the provider's own way. Where the provider takes none, not together with tools, or refuses
	// this one, the adapter asks for it in the instructions; the caller checks the response.
	Config *genai.GenerateContentConfig
	// Cache asks the provider to keep the prompt; nil asks for nothing. Adapters must not change
	// it.
	Cache *Cache `json:"-"`
	// Deferred are the names of functions that the model sees only once it has found them: with
	// ToolSearch, or with a function of the caller whose result refers to them, see Refer. Adapters
	// of providers without such references use Load and ReferencesInWords.
	Deferred []string `json:"-"`
	// ToolSearch asks the provider to search Deferred. Adapters of providers without a search
	// refuse it. Never set without Deferred.
	ToolSearch bool `json:"-"`
	// Encoded keeps between the calls of an agent what adapters of this module have made of Contents and Config; nil
	// keeps nothing.
	Encoded *encoded.Conversation `json:"-"`
	// forgotten are functions that the model found and that Load leaves out because there are too
	// many.
	forgotten map[string]bool
}

// Delta is a piece of the response's text or of the model's thinking.
type Delta struct {
	// Text is never empty.
	Text string
	// Thought is true for thinking.
	Thought bool
}

// Response is what a model returns in one call; it is complete.
type Response struct {
	// Content has role "model" and the parts in the order the model produced
	// them: thoughts (Thought set), text, function calls, provider-run tool
	// parts (genai's own, or nothing but opaque data, see adapter.Builder).
	// Neighboring text of one kind is one part, unless a signature separates it.
	// Joined, the deltas of a kind equal the parts' text of that kind.
	//
	// A function call's Args is the decoded object (numbers as json.Number), its
	// FunctionCall.ID the provider's, or "". The metadata of its part keeps the
	// JSON text as the model wrote it, or why that is no JSON object:
	// adapter.NewCall makes such a part.
	//
	// Signatures of thoughts are in Part.ThoughtSignature. The part's metadata
	// names the provider that must get them back, see adapter.Builder and
	// adapter.Owned. An adapter sends back only its own and drops those of others.
	//
	// Nil or without parts when the model said nothing.
	Content *genai.Content
	// FinishReason is never empty.
	FinishReason genai.FinishReason
	// Usage is what the provider reported at the end of the stream.
	Usage Usage
	// Failed is what the failed tries before this one took, as far as the provider reported it. It
	// is not part of Usage. Adapters leave it empty, except for one that replays a recorded call.
	Failed []Usage
	// Model is the name of the model that served the call, as the provider reports it.
	Model string
	// Provided is what the provider ran during the call, and what the response cites; nil for
	// nothing. The server bounds it. What the provider wants back of it is in Content.
	Provided *Provided
}

// LLM is one model of one provider, with a key.
type LLM interface {
	// Generate makes one model call. It calls emit for each piece of text as it arrives, on the
	// calling goroutine, never after it returns. It returns when the provider has finished, with a
	// response that is complete, or with an error: an *Error, or the context's; see Usage.Spent.
	//
	// When ctx ends, Generate aborts the provider's request and returns promptly. Several
	// goroutines may call it at once.
	Generate(ctx context.Context, req *Request, emit func(Delta)) (*Response, error)
}

// Model is an open model: one model of one provider, with a key.
type Model struct {
	// LLM makes the calls. Required.
	LLM
	// Builtins are the builtin tools that the provider runs for this model; nil means those of the
	// provider's Description, an empty list means none.
	Builtins []string
	// Takes reports whether the adapter can send a file. It returns nil, or an *Error of
	// KindInvalid that names the media type and the provider, the one with which Generate would
	// refuse the file. The provider may still refuse what Takes accepts. Takes makes no network
	// call; several goroutines may call it at once. A nil function means that the model takes, or
	// refuses, every file.
	Takes func(File) error
}

// Provider serves models by name. Several goroutines may call its methods at once; they make no
// network call. Package modeltest checks this contract.
type Provider interface {
	// Describe describes the provider. It always returns the same, except for Description.Models;
	// callers do not change the result.
	Describe() Description
	// Open returns the model. key is the caller's own key, or "" for the server's. Its errors are
	// of type *Error. A missing key is KindAuth; the message names the environment variable and the
	// header that would hold it, see Description.MissingKey.
	Open(model, key string) (Model, error)
}
