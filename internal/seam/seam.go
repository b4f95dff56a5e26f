// Package seam holds what the rooms of this module share about model calls and package model
// does not show: keys of the metadata of a part, bounds, and a count of
// model.Usage that one provider alone reports.
//
// It imports genai and the standard library alone, so that package model can import it.
package seam

import (
	"errors"
	"time"
)

// Keys of Part.PartMetadata. Sessions store them; adapters do not send them to providers.
const (
	// MetaArgs is the JSON text of a function call's arguments, as the model wrote it.
	MetaArgs = "agentd.args"
	// MetaArgsError says why the arguments are no JSON object.
	MetaArgsError = "agentd.args_error"
	// MetaProvider names the provider whose opaque data the part holds.
	MetaProvider = "agentd.provider"
	// MetaModel is the model of that provider whose opaque data the part holds, for an
	// adapter that has to know.
	MetaModel = "agentd.model"
	// MetaAccount marks the account of that provider which alone can read the opaque data,
	// where there is one; it does not reveal the account's key.
	MetaAccount = "agentd.account"
	// MetaOpaque is data that the named provider wants back with this part, such as a redacted
	// thought or an item id; a JSON value of the adapter's own.
	MetaOpaque = "agentd.opaque"
	// MetaCallID is the provider's own id of a function call whose FunctionCall.ID the engine
	// has rewritten to be unique.
	MetaCallID = "agentd.call_id"
	// MetaTools are the tools to which a tool's result refers, a list of names on the part of
	// the FunctionResponse.
	MetaTools = "agentd.tools"
)

// Bounds of model.Provided. What exceeds them is left out; a longer Input or Output becomes a
// JSON string of its beginning.
const (
	// MaxUses and MaxCitations bound the lists of one response.
	MaxUses      = 128
	MaxCitations = 512
	// MaxUseValue bounds an Input and an Output, in bytes, and MaxUseText every other text.
	MaxUseValue = 16 << 10
	MaxUseText  = 2 << 10
	// MaxProvided bounds all texts of one response's Provided together, in bytes.
	MaxProvided = 512 << 10
)

const (
	// MaxLine bounds a line of a provider's stream, in bytes, unless the adapter says otherwise.
	MaxLine = 1 << 20
	// MaxRetryAfter bounds what a provider may ask to wait.
	MaxRetryAfter = 24 * time.Hour
	// MaxFunctions is how many functions a request declares at most after Request.Load, other than
	// those that it must: what all providers take (OpenAI's chat completions take no more).
	MaxFunctions = 128
)

// ErrLineTooLong is the error of reading a stream line longer than the limit, and ErrResponseTooLong
// that of reading more of a response than any honest one has. The same response would be as long
// another time.
var (
	ErrLineTooLong     = errors.New("a line of the stream is too long")
	ErrResponseTooLong = errors.New("the response is too long")
)

// Hour returns where a *model.Usage keeps the part of CacheWrite that the provider keeps for
// an hour. Package model sets it; use CacheWriteHour and WithCacheWriteHour.
var Hour func(usage any) *int64

// CacheWriteHour returns the part of u.CacheWrite that the provider keeps for an hour. U is
// model.Usage.
func CacheWriteHour[U any](u U) int64 { return *Hour(&u) }

// WithCacheWriteHour returns u with n as the part of u.CacheWrite that the provider keeps for
// an hour. U is model.Usage.
func WithCacheWriteHour[U any](u U, n int64) U {
	*Hour(&u) = n
	return u
}
