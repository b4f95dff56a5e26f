// Package schedule is a part of agentd, not an API: it keeps prompts and goals that a server starts by itself, and
// starts them when their time comes.
//
// # The rule
//
// A schedule is a row of the table schedules, with the time of its next run, and an object of the ledger with what each
// run starts, which is sealed where values are. A [Driver] starts what is due, by the same way as a caller, for the
// principal that has made the schedule; of several servers over one database one drives. It starts a turn or a goal
// under an idempotency key that schedule and time of the run give, and then sets the time of the next one. So a server
// that dies between the two, and two servers that both drive for a moment, start a run once.
//
// A run whose session is busy, also with a goal between two turns, waits, and its time stays. When it has started, the
// next time is the first one behind now: so runs never overlap, and of those that were missed one is made up.
//
// # What it must not know
//
// It knows neither how turns run, nor requests, nor which database it is: it has a seam to start a turn, and one to run
// statements that SQLite and PostgreSQL have in common.
package schedule
