package sqlite

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// check refuses a batch that is malformed whatever the log says.
func check(b *store.Batch) error {
	if len(b.Records) == 0 {
		return malformed("no records")
	}
	if b.Epoch < 0 {
		return malformed("Epoch is %d", b.Epoch)
	}
	if b.After < 0 || b.After > math.MaxInt64-int64(len(b.Records)) {
		return malformed("After is %d", b.After)
	}
	for i := range b.Records {
		r := &b.Records[i]
		if want := b.After + int64(i) + 1; r.Seq != want {
			return malformed("record %d has sequence number %d, want %d", i, r.Seq, want)
		}
		switch {
		case !r.Kind.Known():
			return malformed("record %d is of unknown kind %q", r.Seq, r.Kind)
		case r.TurnID == "" && (r.Kind == record.KindTurnStarted || r.Kind == record.KindTurnEnded):
			return malformed("record %d is of kind %q and has no turn id", r.Seq, r.Kind)
		}
	}
	if err := errors.Join(checkShared(b.Shared), checkSpent(b)); err != nil {
		return err
	}
	if n := b.Create; n != nil {
		switch {
		case n.ID != b.SessionID:
			return malformed("the session to create is %q, the batch is of %q", n.ID, b.SessionID)
		case b.After != 0:
			return malformed("After is %d for a session to create", b.After)
		}
		if err := checkNew(n); err != nil {
			return err
		}
	}
	if err := checkRows(b.SessionID, b.Rows); err != nil {
		return err
	}
	return checkKey(b.SessionID, b.Key)
}

// checkShared refuses values without a scope, and those that are not JSON.
func checkShared(values []store.SharedValue) error {
	for i := range values {
		v := &values[i]
		if v.Scope == "" {
			return malformed("shared value %q has no scope", v.Key)
		}
		if v.Value != nil && !json.Valid(v.Value) {
			return malformed("shared value %q of %q is not JSON", v.Key, v.Scope)
		}
	}
	return nil
}

// checkIndex refuses a batch for Index that holds what Index does not write.
func checkIndex(b *store.Batch) error {
	if len(b.Records) > 0 || len(b.Shared) > 0 || b.Create != nil || b.Key != nil || b.Epoch != 0 ||
		b.Spent != (record.Spent{}) {
		return malformed("an index has rows, usage and a last turn, nothing else")
	}
	return checkRows(b.SessionID, b.Rows)
}

// checkFork refuses a fork that is malformed whatever the logs say.
func checkFork(f *store.Fork) error {
	if f.Seq < 0 {
		return malformed("Seq is %d", f.Seq)
	}
	if err := checkNew(&f.Into); err != nil {
		return err
	}
	if err := checkRows(f.Into.ID, f.Rows); err != nil {
		return err
	}
	return checkKey(f.Into.ID, f.Key)
}

func checkNew(n *store.NewSession) error {
	if n.ID == "" {
		return malformed("id is empty")
	}
	return checkLabels(n.Labels)
}

func checkLabels(labels map[string]string) error {
	if v, ok := labels[""]; ok {
		return malformed("label of value %q has no key", v)
	}
	return nil
}

func checkRows(id string, rows []store.Row) error {
	for i := range rows {
		r := &rows[i]
		switch {
		case !knownRow(r.Kind):
			return malformed("row %d is of unknown kind %q", i, r.Kind)
		case r.ID == "":
			return malformed("row %d of kind %q has no id", i, r.Kind)
		case r.SessionID != id:
			return malformed("row %q is of session %q, not of %q", r.ID, r.SessionID, id)
		}
	}
	return nil
}

func knownRow(k store.RowKind) bool { return k == store.RowTurn || k == store.RowInteraction }

func checkKey(id string, k *store.Key) error {
	switch {
	case k == nil:
	case k.Name == "":
		return malformed("key of scope %q has no name", k.Scope)
	case k.SessionID != id:
		return malformed("key %q names session %q, not %q", k.Name, k.SessionID, id)
	}
	return nil
}

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", store.ErrMalformed, fmt.Sprintf(format, args...))
}

// turnAfter returns the turn that is open after recs if open was before, and refuses a second open turn and
// the end of one that is not open.
func turnAfter(open string, recs []record.Record) (string, error) {
	for i := range recs {
		r := &recs[i]
		switch r.Kind {
		case record.KindTurnStarted:
			if open != "" {
				return "", malformed("record %d starts turn %q while %q is open", r.Seq, r.TurnID, open)
			}
			open = r.TurnID
		case record.KindTurnEnded:
			if open != r.TurnID {
				return "", malformed("record %d ends turn %q while %q is open", r.Seq, r.TurnID, open)
			}
			open = ""
		default:
			// No other kind starts or ends a turn.
		}
	}
	return open, nil
}

// size returns roughly the bytes that b takes.
func size(b *store.Batch) int {
	n := 0
	for i := range b.Records {
		n += len(b.Records[i].Data) + 128
	}
	for i := range b.Rewrites {
		n += len(b.Rewrites[i].Data) + 128
	}
	for i := range b.Shared {
		n += len(b.Shared[i].Value) + 128
	}
	for i := range b.Rows {
		n += len(b.Rows[i].Data) + 512 // in four trees
	}
	return n
}
