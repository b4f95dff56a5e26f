// Package webhook is a part of agentd, not an API: it tells servers that an operator names what happens to sessions, by
// signed requests of HTTP.
//
// # The rule
//
// What is to be told is a row of the table notices, which [Store] has the store write in the transaction of the records
// that state it: neither a crash nor another owner of a session parts the two. A [Sender] takes rows that are due, one
// server at a time, sends them, and removes those that were received. A row that fails is tried again after a wait that
// doubles, up to [GiveUp]; then, or when the receiver says that it is gone, it is a dead letter, which an operator
// lists and sends again. So each fact arrives at least once, under an id that does not change, and in any order.
//
// Whoever takes a row notes so with a time until which it is his. A server that dies in the middle of a request leaves
// rows that are sent again when that time is over, or at its next start if it is alone.
//
// # Where requests go
//
// An address is checked when it is dialed, after its name was looked up: it must be public, or in one of the networks
// that the hook allows. No proxy is used, and no redirect is followed. What a receiver responds is read up to a bound
// and not kept.
//
// # What it must not know
//
// It knows neither how turns run, nor who calls, nor which database it is: it has a seam to read sessions by, and one
// to run statements that SQLite and PostgreSQL have in common. It holds secrets, and shows none.
package webhook
