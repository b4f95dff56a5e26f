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
// Package adapter says how to write one and has what that needs; package modeltest tells whether
// one keeps the contract; package agentdhost serves it.
//
// The common form of content is that of google.golang.org/genai, the one the engine stores. What a
// provider needs back verbatim travels in the parts, see Response. References to tools in a tool's
// result are metadata of its part, see Refer: they are stored, replayed and recorded with it, and
// are gone once it is summarized.
//
// The package imports genai and the standard library; it knows neither sessions, nor the engine,
// nor the protocol.
package model

import (
	"context"

	"google.golang.org/genai"
)

// Request is one model call.
type Request struct {
	// Contents is the conversation: roles "user" and "model", tool calls as
	// FunctionCall parts of the model, their results as FunctionResponse parts
	// of the user, matched by id. It ends on a user turn. Adapters must not
	// change it: it is shared between calls.
	Contents []*genai.Content
	// Config holds the system instruction, the function declarations
	// (ParametersJsonSchema), provider-run tools, the schema of the final answer
	// (ResponseJsonSchema) and sampling settings. Never nil. Adapters must not
	// change it. They name the schema to the provider in its own way, and where it
	// takes none, not together with the tools, or refuses this one, ask for it in
	// the instructions; whether the answer satisfies it is for the caller to check.
	Config *genai.GenerateContentConfig
	// Cache asks the provider to keep the prompt; nil asks for nothing. Adapters
	// must not change it.
	Cache *Cache `json:"-"`
	// Deferred are the names of functions that the model is told of only when it has
	// found them: with ToolSearch, or with a function of the caller's whose result
	// refers to them, see Refer. Adapters of providers that know no such references
	// ask with Load and TellReferences.
	Deferred []string `json:"-"`
	// ToolSearch asks for a search for Deferred that the provider runs. Adapters of
	// providers without one refuse it. Not without Deferred.
	ToolSearch bool `json:"-"`
	// forgotten are functions that were found and that Load has left out all the
	// same, since there were too many.
	forgotten map[string]bool
}

// Delta is a piece of the answer's text or of the model's thinking.
type Delta struct {
	// Text is never empty.
	Text string
	// Thought is true for thinking.
	Thought bool
}

// Response is a complete answer.
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
	// Nil or without parts when the model answered nothing.
	Content *genai.Content
	// FinishReason is never empty.
	FinishReason genai.FinishReason
	// Usage is what the provider reported at the end of the stream.
	Usage Usage
	// Failed is what tries took that failed before this one, as far as it was
	// reported. Not part of Usage. Adapters leave it empty, unless they play a call
	// that was recorded.
	Failed []Usage
	// Model is the name the provider says it served.
	Model string
	// Provided is what the provider has run meanwhile, and what the answer cites;
	// nil for nothing. The server bounds it. What the provider wants back of it stands in
	// Content all the same.
	Provided *Provided
}

// LLM is one model of one provider, with a key.
type LLM interface {
	// Generate makes one model call. It calls emit for each piece of text as it
	// arrives, on the calling goroutine, never after it has returned. It returns
	// when the provider has finished, with a response that is complete, or with
	// an error: an *Error, or the context's; see Spent.
	//
	// When ctx ends, Generate aborts the provider's request and returns promptly.
	// It may be called from many goroutines at once.
	Generate(ctx context.Context, req *Request, emit func(Delta)) (*Response, error)
}

// Model is an open model: one model of one provider, with a key.
type Model struct {
	// LLM makes the calls. Required.
	LLM
	// Builtins are the builtin tools that the provider runs for this model; nil means
	// those of the provider's Description, and an empty list none.
	Builtins []string
	// Takes tells for which files the adapter has a way. It returns nil, or an *Error of
	// KindInvalid that names the media type and the provider: the one with which
	// Generate would refuse the file. What it takes the provider may still refuse. It
	// makes no network call and may be called from many goroutines at once. A nil
	// function means that the model takes, or refuses, whatever it is given.
	Takes func(File) error
}

// Provider serves models by name. Its methods may be called from many goroutines at
// once, and make no network call. Package modeltest tells whether one keeps the
// contract.
type Provider interface {
	// Describe says what the provider is. It always returns the same, but for
	// Description.Models; the caller does not change what it gets.
	Describe() Description
	// Open returns the model. key is the caller's own key, or "" for the
	// server's. Its errors are of type *Error: a missing key is KindAuth and names
	// the environment variable and the header that would hold it, see adapter.MissingKey.
	Open(model, key string) (Model, error)
}
