// Package models knows which models a server has.
//
// A [Registry] finds the provider of a model name, opens the model, and says what is known of
// it: its price, what it can do. [Ref.Guarded] puts around the open model what every call needs,
// see package modelcall.
//
// It knows neither sessions, nor the engine, nor the protocol.
package models
