package webhook

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// Store is a store.Store that has another one write, with each batch, what hooks are told of it.
type Store struct {
	store.Store
	cfg StoreConfig
}

// StoreConfig says what a Store does. Its functions may be called from any goroutine.
type StoreConfig struct {
	// Hooks are those that there are now. Required.
	Hooks func() []Hook
	// SessionBudget is what each session may spend at most, whatever its own budget says. Required.
	SessionBudget func() record.Budget
	// Written is called after batches with notices were written. It must not block. Required.
	Written func()
}

// NewStore returns a store over another one.
func NewStore(inner store.Store, cfg StoreConfig) *Store { return &Store{inner, cfg} }

// Append implements store.Store.
func (s *Store) Append(ctx context.Context, b store.Batch) error {
	if err := s.note(ctx, &b); err != nil {
		return err
	}
	err := s.Store.Append(ctx, b)
	if err == nil && len(b.Notices) > 0 {
		s.cfg.Written()
	}
	return err
}

// AppendMany implements store.Store.
func (s *Store) AppendMany(ctx context.Context, batches []store.Batch) []error {
	if len(s.cfg.Hooks()) == 0 {
		return s.Store.AppendMany(ctx, batches)
	}
	batches = slices.Clone(batches)
	failed := make([]error, len(batches))
	written := false
	for i := range batches {
		failed[i] = s.note(ctx, &batches[i])
		written = written || len(batches[i].Notices) > 0
	}
	if slices.ContainsFunc(failed, func(err error) bool { return err != nil }) { // one by one: no batch goes without
		for i := range batches {
			if failed[i] == nil {
				failed[i] = s.Append(ctx, batches[i])
			}
		}
		return failed
	}
	errs := s.Store.AppendMany(ctx, batches)
	if written {
		s.cfg.Written()
	}
	return errs
}

// fact is what hooks may be told of a batch.
type fact struct {
	event         Event
	turn, subject string
	rec           *record.Record
}

// note sets the notices of a batch. An error is that of a read: the batch must not be written then.
func (s *Store) note(ctx context.Context, b *store.Batch) error {
	hooks := s.cfg.Hooks()
	if len(hooks) == 0 || len(b.Records) == 0 {
		return nil
	}
	goals, err := goalFacts(b)
	if err != nil {
		return err
	}
	children, err := childFacts(b)
	if err != nil {
		return err
	}
	facts := slices.Concat(ends(b), questions(b), goals, children)
	tenant, _ := b.Names()
	if marked := func(h Hook) bool { return h.wants(BudgetMarked, tenant) }; slices.ContainsFunc(hooks, marked) {
		marks, err := s.marks(ctx, b)
		if err != nil {
			return err
		}
		more, err := s.goalMarks(ctx, b)
		if err != nil {
			return err
		}
		facts = slices.Concat(facts, marks, more)
	}
	b.Notices = nil
	for i := range hooks {
		for _, f := range facts {
			if hooks[i].wants(f.event, tenant) {
				b.Notices = append(b.Notices, f.notice(hooks[i].Name, b.SessionID))
			}
		}
	}
	return nil
}

// notice is what a hook is told of a fact. Its id is the same whenever it is made of the same fact.
func (f *fact) notice(hook, session string) store.Notice {
	at := fmt.Sprint(f.rec.Seq, " ", f.rec.Time.UnixMicro())
	return store.Notice{
		ID:   noticeID(hook, session, at, string(f.event), f.subject),
		Hook: hook, Event: string(f.event), TurnID: f.turn, Subject: f.subject, Seq: f.rec.Seq, At: f.rec.Time,
	}
}

// noticeID makes an id of what a notice is about.
func noticeID(parts ...string) string {
	h := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return "msg_" + hex.EncodeToString(h.Sum(nil)[:16])
}

// ends are the ends of turns in a batch.
func ends(b *store.Batch) (out []fact) {
	for i := range b.Records {
		switch r := &b.Records[i]; r.Kind {
		case record.KindTurnEnded, record.KindTurnDropped:
			out = append(out, fact{TurnEnded, r.TurnID, "", r})
		default:
			// Nothing else ends a turn.
		}
	}
	return out
}

// pending is the status of the row of a question that waits for a person.
const pending = "pending"

// questions are those that the records of a batch ask.
func questions(b *store.Batch) (out []fact) {
	for i := range b.Rows {
		r := &b.Rows[i]
		at := r.Seq - b.After - 1
		if r.Kind == store.RowInteraction && r.Status == pending && at >= 0 && at < int64(len(b.Records)) {
			out = append(out, fact{InteractionRequested, r.TurnID, r.ID, &b.Records[at]})
		}
	}
	return out
}
