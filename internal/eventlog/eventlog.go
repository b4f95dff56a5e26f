// Package eventlog is a part of agentd, not an API: it writes and reads the event log, a table that other programs read
// with SQL.
//
// The rule: what the table has follows from the records of an append alone, and is written in the transaction of that
// append. A row says that something was said, by whom and when. It never has what was said: of a prompt, a response,
// a tool call or what a provider has searched there is no word in it; only a checkpoint of a goal says what the goal
// is and what was said last, unless the database is encrypted.
//
// # Rows
//
// A turn that starts, and a prompt that becomes a message of one, is an event of author "user". An event of the engine
// is one of its agent. Behind a response there is one for each run of a provider's tool, of the author PROVIDER/TOOL;
// the same run of a turn and a branch has one row, however often it is reported. They are no part of the history.
//
// The session of a background child has its parent's id, ":sub:" and the child's branch; that branch is in front of
// those of its events. What an agent says that another one has called as a tool is in the log of their session, and
// here of a session of that form, too.
package eventlog

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/apzuk3/agentd/internal/lineage"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

const (
	// app is the application of all events.
	app = "agentd"
	// user is the author of prompts.
	user = "user"
	// nothing is the metadata of an event of which there is nothing more to say.
	nothing = "{}"
	// sub stands between the id of a session and the branch of a child of it.
	sub = ":sub:"
)

// Engine is the engine, which knows the form of its events.
type Engine interface {
	// Said returns the fact of an event, its author, and its branch, "" at the root, with ids of calls.
	Said(data []byte) (author, branch string, fact *record.Event, err error)
}

// Source is a store that has the table. Its methods may be called from any goroutine.
type Source interface {
	// Events returns at most q.Limit events that match q, the lowest number first.
	Events(ctx context.Context, q store.EventQuery) ([]store.Event, error)
	// LastEvent returns the highest number that an event has had, 0 for none.
	LastEvent(ctx context.Context) (int64, error)
}

// Store is a store that gives what is appended events. Its methods may be called from any goroutine.
type Store struct {
	store.Store
	engine Engine
	texts  bool
	told   func()
}

// New returns the store over another one, which keeps the events of batches. Texts says whether checkpoints of goals
// may have what was said. It calls told behind each append that had any; told must not block.
func New(s store.Store, engine Engine, texts bool, told func()) *Store {
	return &Store{s, engine, texts, told}
}

// Append implements store.Store.
func (s *Store) Append(ctx context.Context, b store.Batch) error {
	if err := s.describe(&b); err != nil {
		return err
	}
	err := s.Store.Append(ctx, b)
	if err == nil && len(b.Events) > 0 {
		s.told()
	}
	return err
}

// AppendMany implements store.Store.
func (s *Store) AppendMany(ctx context.Context, batches []store.Batch) []error {
	errs := make([]error, len(batches))
	good, at := make([]store.Batch, 0, len(batches)), make([]int, 0, len(batches))
	for i := range batches {
		b := batches[i]
		if errs[i] = s.describe(&b); errs[i] == nil {
			good, at = append(good, b), append(at, i)
		}
	}
	written := false
	for j, err := range s.Store.AppendMany(ctx, good) {
		errs[at[j]] = err
		written = written || err == nil && len(good[j].Events) > 0
	}
	if written {
		s.told()
	}
	return errs
}

// describe gives a batch its events.
func (s *Store) describe(b *store.Batch) error {
	for i := range b.Records {
		if err := s.add(b, &b.Records[i]); err != nil {
			return fmt.Errorf("eventlog: record %d of session %q: %w", b.Records[i].Seq, b.SessionID, err)
		}
	}
	return nil
}

// add gives a batch the events of a record.
func (s *Store) add(b *store.Batch, rec *record.Record) error {
	author, branch, fact, turn, metadata := user, "", &record.Event{}, rec.TurnID, nothing
	switch rec.Kind {
	case record.KindTurnStarted:
	case record.KindEvent:
		var err error
		if author, branch, fact, err = s.engine.Said(rec.Data); err != nil {
			return err
		}
	case record.KindGoalCheckpointed:
		decoded, err := rec.Decode(nil)
		if err != nil {
			return err
		}
		c := decoded.(*record.GoalCheckpointed)
		author, turn = autonomous, c.Turn
		if metadata, err = metadataOf(c, s.texts); err != nil {
			return err
		}
	default:
		return nil
	}
	session, room := b.SessionID, lineage.Shown(lineage.Room(branch))
	if room != "" {
		session += sub + room
	}
	e := store.Event{
		Seq: rec.Seq, ID: fmt.Sprintf("%s%d", b.EventPrefix(), rec.Seq), App: app, SessionID: session,
		Branch: join(branchOf(b.SessionID), lineage.Shown(branch)), Author: author, Time: rec.Time, Invocation: turn,
		Metadata: metadata,
	}
	if fact.Compacted != nil {
		e.Metadata = `{"compaction": "summary"}`
		if fact.Compacted.Done {
			e.Metadata = `{"compaction": "checkpoint"}`
		}
	}
	b.Events = append(b.Events, e)
	e.Metadata = nothing
	if fact.Provided == nil {
		return nil
	}
	provider := ""
	if fact.Call != nil {
		provider = fact.Call.Provider
	}
	for i := range fact.Provided.Uses {
		use := &fact.Provided.Uses[i]
		e.Author = provider + "/" + use.Name
		e.ID = b.EventPrefix() + runOf(&e, use)
		b.Events = append(b.Events, e)
	}
	return nil
}

// runOf names a run of a provider's tool, so that the same one of a turn and a branch has the same name.
func runOf(e *store.Event, use *record.ProviderUse) string {
	sum := sha256.New()
	for _, text := range []string{e.Invocation, e.Branch, e.Author, use.Input} {
		fmt.Fprintf(sum, "%d:%s", len(text), text)
	}
	if use.Input == "" { // nothing says that two runs are the same one
		fmt.Fprintf(sum, "%d:%s", e.Seq, use.ID)
	}
	return "use-" + hex.EncodeToString(sum.Sum(nil)[:16])
}

// branchOf returns the branch of a background child from the id of its session, "" for another session.
func branchOf(sessionID string) string {
	_, rest, is := strings.Cut(sessionID, sub)
	if !is {
		return ""
	}
	return strings.ReplaceAll(rest, sub, ".")
}

// join puts a branch below another one.
func join(above, below string) string {
	if above == "" || below == "" {
		return above + below
	}
	return above + "." + below
}
