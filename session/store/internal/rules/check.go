package rules

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// MostSpent bounds what is counted of a day, so that no sum overflows.
const MostSpent = 1 << 53

// CheckBatch refuses a batch that is malformed whatever the log says.
func CheckBatch(b *store.Batch) error {
	if len(b.Records) == 0 {
		return Malformedf("no records")
	}
	if b.Epoch < 0 {
		return Malformedf("Epoch is %d", b.Epoch)
	}
	if b.After < 0 || b.After > math.MaxInt64-int64(len(b.Records)) {
		return Malformedf("After is %d", b.After)
	}
	for i := range b.Records {
		r := &b.Records[i]
		if want := b.After + int64(i) + 1; r.Seq != want {
			return Malformedf("record %d has sequence number %d, want %d", i, r.Seq, want)
		}
		switch {
		case !r.Kind.Known():
			return Malformedf("record %d is of unknown kind %q", r.Seq, r.Kind)
		case r.TurnID == "" && (r.Kind == record.KindTurnStarted || r.Kind == record.KindTurnEnded):
			return Malformedf("record %d is of kind %q and has no turn id", r.Seq, r.Kind)
		}
	}
	if err := errors.Join(CheckShared(b.Shared), checkSpent(b), checkNotices(b.Notices), checkEvents(b)); err != nil {
		return err
	}
	if n := b.Create; n != nil {
		switch {
		case n.ID != b.SessionID:
			return Malformedf("the session to create is %q, the batch is of %q", n.ID, b.SessionID)
		case b.After != 0:
			return Malformedf("After is %d for a session to create", b.After)
		}
		if err := CheckNew(n); err != nil {
			return err
		}
	}
	if err := checkRows(b.SessionID, b.Rows); err != nil {
		return err
	}
	return CheckKey(b.SessionID, b.Key)
}

// CheckShared refuses values without a scope, and those that are not JSON.
func CheckShared(values []store.SharedValue) error {
	for i := range values {
		v := &values[i]
		if v.Scope == "" {
			return Malformedf("shared value %q has no scope", v.Key)
		}
		if v.Value != nil && !json.Valid(v.Value) {
			return Malformedf("shared value %q of %q is not JSON", v.Key, v.Scope)
		}
	}
	return nil
}

// CheckIndex refuses a batch for Index that holds what Index does not write.
func CheckIndex(b *store.Batch) error {
	if len(b.Records) > 0 || len(b.Shared) > 0 || b.Create != nil || b.Key != nil || b.Epoch != 0 ||
		b.Spent != (record.Spent{}) || len(b.Notices) > 0 {
		return Malformedf("an index has rows, usage and a last turn, nothing else")
	}
	return checkRows(b.SessionID, b.Rows)
}

// CheckFork refuses a fork that is malformed whatever the logs say.
func CheckFork(f *store.Fork) error {
	if f.Seq < 0 {
		return Malformedf("Seq is %d", f.Seq)
	}
	if err := CheckNew(&f.Into); err != nil {
		return err
	}
	if err := checkRows(f.Into.ID, f.Rows); err != nil {
		return err
	}
	return CheckKey(f.Into.ID, f.Key)
}

// CheckNew refuses a session that no store creates.
func CheckNew(n *store.NewSession) error {
	if n.ID == "" {
		return Malformedf("id is empty")
	}
	return CheckLabels(n.Labels)
}

// CheckLabels refuses labels without a key.
func CheckLabels(labels map[string]string) error {
	if v, ok := labels[""]; ok {
		return Malformedf("label of value %q has no key", v)
	}
	return nil
}

func checkRows(id string, rows []store.Row) error {
	for i := range rows {
		r := &rows[i]
		switch {
		case !knownRow(r.Kind):
			return Malformedf("row %d is of unknown kind %q", i, r.Kind)
		case r.ID == "":
			return Malformedf("row %d of kind %q has no id", i, r.Kind)
		case r.SessionID != id:
			return Malformedf("row %q is of session %q, not of %q", r.ID, r.SessionID, id)
		}
	}
	return nil
}

func knownRow(k store.RowKind) bool {
	return k == store.RowTurn || k == store.RowInteraction || k == store.RowGoal
}

// CheckRowQuery refuses a query that no store takes.
func CheckRowQuery(q *store.RowQuery) error {
	if q.Limit > 0 && !knownRow(q.Kind) {
		return Malformedf("unknown kind %q", q.Kind)
	}
	return CheckLimit(q.Limit)
}

// CheckLimit refuses a limit of a list that is not positive.
func CheckLimit(n int) error {
	if n <= 0 {
		return Malformedf("limit is %d, want at least 1", n)
	}
	return nil
}

// CheckKey refuses a key that does not name the session; k may be nil.
func CheckKey(id string, k *store.Key) error {
	switch {
	case k == nil:
	case k.Name == "":
		return Malformedf("key of scope %q has no name", k.Scope)
	case k.SessionID != id:
		return Malformedf("key %q names session %q, not %q", k.Name, k.SessionID, id)
	}
	return nil
}

// Malformedf returns a store.ErrMalformed that says why.
func Malformedf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", store.ErrMalformed, fmt.Sprintf(format, args...))
}

// TurnAfter returns the turn that is open after recs if open was before, and refuses a second open turn and
// the end of one that is not open.
func TurnAfter(open string, recs []record.Record) (string, error) {
	for i := range recs {
		r := &recs[i]
		switch r.Kind {
		case record.KindTurnStarted:
			if open != "" {
				return "", Malformedf("record %d starts turn %q while %q is open", r.Seq, r.TurnID, open)
			}
			open = r.TurnID
		case record.KindTurnEnded:
			if open != r.TurnID {
				return "", Malformedf("record %d ends turn %q while %q is open", r.Seq, r.TurnID, open)
			}
			open = ""
		default:
			// No other kind starts or ends a turn.
		}
	}
	return open, nil
}

// Size returns roughly the bytes that b takes.
func Size(b *store.Batch) int {
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
	for i := range b.Events {
		n += len(b.Events[i].Metadata) + 768 // in five trees
	}
	return n + 512*len(b.Notices)
}

// checkNotices refuses what nobody could find or send.
func checkNotices(all []store.Notice) error {
	for i := range all {
		if n := &all[i]; n.ID == "" || n.Hook == "" || n.Event == "" {
			return Malformedf("notice %d needs an id, a hook and an event (%q, %q, %q)", i, n.ID, n.Hook, n.Event)
		}
	}
	return nil
}

// checkEvents refuses events that Purge and Delete would not find, and those of records that are not in the batch.
func checkEvents(b *store.Batch) error {
	for i := range b.Events {
		e := &b.Events[i]
		switch {
		case !strings.HasPrefix(e.ID, b.EventPrefix()):
			return Malformedf("event %q is not of session %q", e.ID, b.SessionID)
		case e.Seq <= b.After || e.Seq > b.After+int64(len(b.Records)):
			return Malformedf("event %q is of record %d, which is not in the batch", e.ID, e.Seq)
		case e.App == "" || e.SessionID == "" || e.Author == "":
			return Malformedf("event %q has no application, session or author", e.ID)
		case !strings.HasPrefix(e.Metadata, "{") || !json.Valid([]byte(e.Metadata)):
			return Malformedf("the metadata of event %q is no JSON object", e.ID)
		}
	}
	return nil
}

// checkSpent refuses what is not an amount.
func checkSpent(b *store.Batch) error {
	if b.Spent.Tokens < 0 || b.Spent.Cost < 0 {
		return Malformedf("spent are %d tokens and %v", b.Spent.Tokens, b.Spent.Cost)
	}
	return nil
}

// Fenced is the refusal of a batch by a session that an owner of a higher epoch writes to.
func Fenced(b *store.Batch, epoch int64) error {
	return fmt.Errorf("%w: its epoch is %d, that of the batch %d", store.ErrFenced, epoch, b.Epoch)
}

// SameButData reports whether a store that has the one record would return it for the other, whatever their data.
func SameButData(a, b *record.Record) bool {
	return a.Seq == b.Seq && a.TurnID == b.TurnID && a.Kind == b.Kind && a.Time.UnixMicro() == b.Time.UnixMicro()
}
