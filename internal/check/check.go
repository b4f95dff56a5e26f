// Package check compares what a store holds with the rules that it was written by.
//
// [Run] reads every log, applies its records as a session would, and compares the results with what stands
// beside the log: the head, the index, the usage, idempotency keys, and the parent of a fork. It reads a page
// at a time and changes nothing. A log that has findings of its own is not compared with the rest, which
// follows from it.
//
// It works on any store.Store. A store that can do more (see the interfaces in extras.go) is checked for more:
// that nothing is kept of sessions that do not exist, and that all reads of a session see one state, so that it
// may be written to meanwhile.
//
// It must not know databases, the engine, or sessions in memory. It imports packages record, store and index.
package check

import (
	"context"
	"errors"
	"fmt"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// page is how many records, rows and sessions are read at once.
const page = 256

// mostFindings is how many findings of one session are reported.
const mostFindings = 50

// Finding is something that is wrong.
type Finding struct {
	// Session is the session that it is about, "" for the whole database.
	Session string `json:"session,omitempty"`
	// Record is the sequence number of the record that it is about, 0 for none.
	Record int64 `json:"record,omitempty"`
	// Rule names what is broken, such as "log.order".
	Rule string `json:"rule"`
	// Found says what is there, Want what would be right, "" where that is not known.
	Found string `json:"found"`
	Want  string `json:"want,omitempty"`
}

// String is the finding as one line.
func (f Finding) String() string {
	place := "database"
	if f.Session != "" {
		place = fmt.Sprintf("session %q", f.Session)
	}
	if f.Record > 0 {
		place += fmt.Sprintf(", record %d", f.Record)
	}
	line := place + ": " + f.Rule + ": " + f.Found
	if f.Want != "" {
		line += "; want " + f.Want
	}
	return line
}

// The rules.
const (
	RuleFile      = "file"             // the database's own form
	ruleOrphan    = "orphan"           // rows of a session that does not exist
	ruleSession   = "session"          // what stands beside the log cannot be read
	ruleLog       = "log.record"       // a record is missing or damaged, or does not decode
	ruleOrder     = "log.order"        // a record that may not stand there
	ruleCall      = "log.call"         // calls and their results
	ruleHead      = "head"             // the head is not the log's
	ruleUsage     = "usage"            // nor the usage
	ruleIndex     = "index"            // nor the rows
	ruleKey       = "key"              // an idempotency key without what it names
	ruleShared    = "shared"           // a shared value that no session could have written
	ruleBeside    = "beside"           // an agent or an object of a face is damaged
	ruleInherited = "fork"             // what a fork has inherited is not its parent's
	ruleMore      = "further_findings" // there are more than are reported
)

// Summary counts what was checked.
type Summary struct {
	Sessions int   `json:"sessions"`
	Records  int64 `json:"records"`
	Findings int   `json:"findings"`
}

// Config says how to check.
type Config struct {
	// Decode reads the engine's own form of an event.
	Decode func(data []byte) (*record.Event, error)
	// Report receives each finding.
	Report func(Finding)
	// Progress, if not nil, is called after each page of records.
	Progress func(Summary)
}

// checker is one check.
type checker struct {
	Config
	db  store.Store
	sum Summary
}

// Run checks a store. The error is one that ended the check: what is wrong with the data is a finding.
func Run(ctx context.Context, db store.Store, cfg Config) (Summary, error) {
	c := &checker{Config: cfg, db: db}
	for _, part := range []func(context.Context) error{c.file, c.orphans, c.sessions, c.shared, c.beside} {
		if err := part(ctx); err != nil {
			return c.sum, err
		}
	}
	return c.sum, nil
}

func (c *checker) report(f Finding) {
	c.sum.Findings++
	c.Report(f)
}

func (c *checker) progress() {
	if c.Progress != nil {
		c.Progress(c.sum)
	}
}

// data says that an error is about stored data: the check reports it and continues.
func data(ctx context.Context, err error) bool {
	return err != nil && ctx.Err() == nil && errors.Is(err, store.ErrDamaged)
}

func (c *checker) file(ctx context.Context) error {
	db, ok := c.db.(integrity)
	if !ok {
		return nil
	}
	problems, err := db.Integrity(ctx)
	if data(ctx, err) {
		problems, err = []string{err.Error()}, nil
	}
	for _, p := range problems {
		c.report(Finding{Rule: RuleFile, Found: p})
	}
	return err
}

func (c *checker) orphans(ctx context.Context) error {
	db, ok := c.db.(orphans)
	if !ok {
		return nil
	}
	err := db.Orphans(ctx, func(table, id string, rows int64) {
		c.report(Finding{
			Session: id, Rule: ruleOrphan, Want: "none",
			Found: fmt.Sprintf("table %s has %d rows, and there is no such session", table, rows),
		})
	})
	if data(ctx, err) {
		c.report(Finding{Rule: ruleOrphan, Found: err.Error()})
		return nil
	}
	return err
}

// beside checks what a server keeps beside its sessions.
func (c *checker) beside(ctx context.Context) error {
	db, ok := c.db.(beside)
	if !ok {
		return nil
	}
	return db.Beside(ctx, func(err error) error {
		if !data(ctx, err) {
			return err
		}
		c.report(Finding{Rule: ruleBeside, Found: err.Error()})
		return nil
	})
}

// sessions checks each session in a snapshot of its own.
func (c *checker) sessions(ctx context.Context) error {
	for after := ""; ; {
		ids, err := c.ids(ctx, after)
		if err != nil || len(ids) == 0 {
			return err
		}
		for _, id := range ids {
			after = id
			err := c.snapshot(ctx, func(ctx context.Context) error { return c.session(ctx, id) })
			if err != nil {
				return fmt.Errorf("session %q: %w", id, err)
			}
		}
	}
}

func (c *checker) snapshot(ctx context.Context, f func(context.Context) error) error {
	if db, ok := c.db.(snapshots); ok {
		return db.Snapshot(ctx, f)
	}
	return f(ctx)
}

// ids returns the next sessions; of a store without IDs all of them, at once.
func (c *checker) ids(ctx context.Context, after string) (ids []string, err error) {
	if db, ok := c.db.(identities); ok {
		return db.IDs(ctx, after, page)
	}
	if after != "" {
		return nil, nil
	}
	for q := (store.InfoQuery{Limit: page}); ; {
		infos, err := c.db.Sessions(ctx, q)
		if err != nil || len(infos) == 0 {
			return ids, err
		}
		for i := range infos {
			ids = append(ids, infos[i].ID)
		}
		q.After = &infos[len(infos)-1]
	}
}
