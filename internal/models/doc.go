// Package models knows which models a server has and what surrounds each call of one.
//
// A [Registry] finds the provider of a model name, opens the model, and says what is known of
// it: its price, what it can do. [Ref.Guarded] puts around the open model what no adapter does by
// itself, from the inside out: [Guard] holds a call to its limits and an answer to the contract of
// package model, whatever an adapter does; files that the model does not take are told in words; a
// [Breaker] suspends the calls of a model that keeps failing; [Again] makes failed calls again.
//
// It knows neither sessions, nor the engine, nor the protocol.
package models
