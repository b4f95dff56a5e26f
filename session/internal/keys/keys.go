// Package keys is what a caller's own provider keys are in memory. It knows neither callers nor providers.
package keys

import "log/slog"

// Secret is a provider key. It prints as *** and does not marshal.
type Secret string

// String hides the value.
func (Secret) String() string { return "***" }

// GoString hides the value.
func (Secret) GoString() string { return "***" }

// LogValue hides the value.
func (Secret) LogValue() slog.Value { return slog.StringValue("***") }

// MarshalText hides the value.
func (Secret) MarshalText() ([]byte, error) { return []byte("***"), nil }

// Of are a caller's own provider keys by provider name. They live in memory,
// for one turn.
type Of map[string]Secret
