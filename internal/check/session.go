package check

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// subject is the session that is checked.
type subject struct {
	*checker
	info  store.Info
	found int // findings of it
	order order
	index index.Index
	rows  map[rowKey]rowState
	last  record.Record // the last record that was read; Data is nil
}

// reportf reports a finding of the session, up to a bound.
func (s *subject) reportf(rule string, rec int64, want, format string, args ...any) {
	s.found++
	switch {
	case s.found <= mostFindings:
		s.report(Finding{
			Session: s.info.ID, Record: rec, Rule: rule, Found: fmt.Sprintf(format, args...), Want: want,
		})
	case s.found == mostFindings+1:
		s.report(Finding{Session: s.info.ID, Rule: ruleMore, Found: "there are more findings of this session"})
	}
}

// session checks one session.
func (c *checker) session(ctx context.Context, id string) error {
	info, err := c.db.Info(ctx, id)
	s := &subject{checker: c, info: info, rows: map[rowKey]rowState{}}
	switch {
	case errors.Is(err, store.ErrNoSession): // it was deleted meanwhile
		return nil
	case data(ctx, err):
		s.info.ID = id
		s.reportf(ruleSession, 0, "", "its head cannot be read: %v", err)
		return nil
	case err != nil:
		return err
	}
	c.sum.Sessions++
	defer c.progress()
	for _, part := range []func(context.Context) error{s.extent, s.log, s.derived, s.keys, s.inherited} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return nil
}

// extent compares the head with where the log begins and ends.
func (s *subject) extent(ctx context.Context) error {
	head := &s.info.Head
	if head.Purged < 0 || head.Purged > head.LastSeq {
		s.reportf(ruleHead, 0, fmt.Sprintf("0 to %d", head.LastSeq),
			"the head says that records up to %d are purged", head.Purged)
	}
	db, ok := s.db.(extents)
	if !ok {
		return nil
	}
	first, last, records, err := db.Extent(ctx, head.ID)
	switch {
	case data(ctx, err):
		s.reportf(ruleLog, 0, "", "its records cannot be counted: %v", err)
		return nil
	case err != nil:
		return err
	}
	if records == 0 {
		if head.LastSeq > head.Purged {
			s.reportf(ruleHead, 0, "0", "the head says that the last record is %d, and there is none", head.LastSeq)
		}
		return nil
	}
	if last != head.LastSeq {
		s.reportf(ruleHead, 0, fmt.Sprint(last),
			"the head says that the last record is %d, the log ends with record %d", head.LastSeq, last)
	}
	if first <= head.Purged {
		s.reportf(ruleHead, first, "no record up to that one",
			"the head says that records up to %d are purged", head.Purged)
	}
	return nil
}

// log reads the records and applies them.
func (s *subject) log(ctx context.Context) error {
	s.order = order{reportf: s.reportf, inherited: s.info.Inherited}
	s.index.Inherited = s.info.Inherited
	s.last.Seq = s.info.Purged
	for limit := page; ; {
		recs, err := s.db.Read(ctx, s.info.ID, s.last.Seq, limit)
		switch {
		case data(ctx, err) && limit > 1:
			limit = 1 // to find the record
			continue
		case data(ctx, err):
			if s.last.Seq++; s.last.Seq > s.info.LastSeq || s.found > mostFindings {
				return nil
			}
			s.reportf(ruleLog, s.last.Seq, "", "%s", plain(err))
			limit = page
			continue
		case err != nil:
			return err
		}
		for i := range recs {
			s.apply(recs[i])
		}
		s.sum.Records += int64(len(recs))
		s.progress()
		if store.LastPage(recs, limit) {
			return nil
		}
		limit = page
	}
}

// plain is the text of an error of a store without what the finding says itself.
func plain(err error) string {
	_, text, ok := strings.Cut(err.Error(), store.ErrDamaged.Error()+": ")
	if !ok {
		return err.Error()
	}
	return text
}

// apply checks one record.
func (s *subject) apply(rec record.Record) {
	if rec.Seq != s.last.Seq+1 {
		s.reportf(ruleLog, rec.Seq, fmt.Sprint(s.last.Seq+1), "it follows record %d", s.last.Seq)
	}
	s.last = rec
	s.last.Data = nil
	fact, err := rec.Decode(s.Decode)
	if err == nil {
		err = readable(fact)
	}
	if err != nil {
		s.reportf(ruleLog, rec.Seq, "", "it does not decode: %v", err)
		return
	}
	s.order.add(rec, fact)
	if s.info.Purged == 0 {
		s.note(rec, fact)
	}
}

// readable reads what a fact holds in a form of its own.
func readable(fact any) error {
	switch f := fact.(type) {
	case *record.TurnStarted:
		_, err := f.ReadSpec()
		return err
	case *record.TurnQueued:
		_, err := f.ReadSpec()
		return err
	default:
		return nil
	}
}

// derived compares what stands beside the log with what follows from it.
func (s *subject) derived(ctx context.Context) error {
	switch {
	case s.info.Purged > 0:
		return s.purged(ctx)
	case s.found > 0:
		return nil
	}
	s.order.end()
	head := &s.info
	for _, f := range []struct{ what, found, want string }{
		{"the open turn", head.OpenTurn, s.order.open},
		{"the last turn", head.LastTurn, s.index.Last},
		{"the status of the last turn", head.LastStatus, s.index.LastAs},
	} {
		if f.found != f.want {
			s.reportf(ruleHead, 0, fmt.Sprintf("%q", f.want), "the head says that %s is %q", f.what, f.found)
		}
	}
	if head.Attempts < store.AttemptsClosing {
		s.reportf(ruleHead, 0, "at least -1", "the head says that the open turn ran %d times", head.Attempts)
	}
	if !sameUsage(head.Usage, s.index.Usage) {
		s.reportf(ruleUsage, 0, text(s.index.Usage), "the session's usage is %s", text(head.Usage))
	}
	return s.compareRows(ctx)
}

// purged finds rows of a log that is gone.
func (s *subject) purged(ctx context.Context) error {
	return s.eachRow(ctx, func(row store.Row) {
		s.reportf(ruleIndex, row.Seq, "none", "the log is purged, and there is a row of %s %q", row.Kind, row.ID)
	})
}

// sameUsage reports whether two sums are equal, or differ as sums do that were counted by an earlier
// release: without what was cached in the prompt, or without thoughts in the completion.
func sameUsage(stored, log record.Usage) bool {
	stored, log = stored.CountedBy(""), log.CountedBy("")
	if stored == log {
		return true
	}
	prompt, completion := log.Prompt-stored.Prompt, log.Completion-stored.Completion
	if prompt < 0 || prompt > log.Cached || completion < 0 || completion > log.Thoughts {
		return false
	}
	stored.Prompt, stored.Completion, stored.Total = log.Prompt, log.Completion, log.Total
	return stored == log
}

// text is a value as JSON.
func text(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// keys checks that idempotency keys name turns that exist. The turns of a purged log are not known.
func (s *subject) keys(ctx context.Context) error {
	db, ok := s.db.(keys)
	if !ok || s.info.Purged > 0 {
		return nil
	}
	for after := (store.Key{}); ; {
		all, err := db.Keys(ctx, s.info.ID, after, page)
		if data(ctx, err) {
			s.reportf(ruleKey, 0, "", "its idempotency keys cannot be read: %s", plain(err))
			return nil
		}
		if err != nil || len(all) == 0 {
			return err
		}
		for _, after = range all {
			if _, ok := s.rows[rowKey{store.RowTurn, after.ID}]; after.ID != "" && !ok && s.found == 0 {
				s.reportf(ruleKey, 0, "a turn of the session", "idempotency key %q names turn %q", after.Name, after.ID)
			}
		}
	}
}

// inherited compares the first records of a fork with those of its parent, if that still has them.
func (s *subject) inherited(ctx context.Context) error {
	own := &s.info
	switch {
	case own.Inherited < 0, own.Inherited > own.LastSeq, own.Inherited > 0 && own.ForkedFrom == "":
		s.reportf(ruleInherited, 0, fmt.Sprintf("0 to %d, with a parent", own.LastSeq),
			"it has inherited %d records of session %q", own.Inherited, own.ForkedFrom)
		return nil
	case own.Inherited == 0, own.Purged > 0, s.found > 0:
		return nil
	}
	parent, err := s.db.Info(ctx, own.ForkedFrom)
	switch {
	case errors.Is(err, store.ErrNoSession), data(ctx, err):
		return nil // it was deleted, or has a finding of its own
	case err != nil:
		return err
	case parent.Purged > 0, parent.CreatedAt.After(own.CreatedAt): // or another session has its id
		return nil
	case parent.LastSeq < own.Inherited:
		s.reportf(ruleInherited, 0, fmt.Sprintf("at most %d", parent.LastSeq),
			"it has inherited %d records, its parent %q has %d", own.Inherited, parent.ID, parent.LastSeq)
		return nil
	}
	return s.compareLogs(ctx, parent.ID)
}

// compareLogs compares the inherited records with those of the parent, which has as many.
func (s *subject) compareLogs(ctx context.Context, parent string) error {
	for after := int64(0); after < s.info.Inherited; {
		limit := int(min(page, s.info.Inherited-after))
		own, err := s.db.Read(ctx, s.info.ID, after, limit)
		if err != nil {
			return err
		}
		theirs, err := s.db.Read(ctx, parent, after, limit)
		if data(ctx, err) {
			return nil // a finding of the parent
		}
		if err != nil {
			return err
		}
		n := min(len(own), len(theirs))
		if n == 0 {
			return nil
		}
		for i := range n {
			if !sameRecord(own[i], theirs[i]) {
				s.reportf(ruleInherited, own[i].Seq, fmt.Sprintf("that of session %q", parent),
					"it is not the record that was inherited")
				return nil
			}
		}
		after += int64(n)
	}
	return nil
}

func sameRecord(a, b record.Record) bool {
	return a.Seq == b.Seq && a.TurnID == b.TurnID && a.Kind == b.Kind && a.Time.Equal(b.Time) &&
		bytes.Equal(a.Data, b.Data)
}
