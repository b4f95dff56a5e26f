package sqlitestore

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/apzuk3/agentd/session"
)

// check refuses a batch that is malformed whatever the log says.
func check(b *session.Batch) error {
	if len(b.Records) == 0 {
		return malformed("no records")
	}
	if b.After < 0 || b.After > math.MaxInt64-int64(len(b.Records)) {
		return malformed("After is %d", b.After)
	}
	for i := range b.Records {
		r := &b.Records[i]
		if want := b.After + int64(i) + 1; r.Seq != want {
			return malformed("record %d has sequence number %d, want %d", i, r.Seq, want)
		}
		switch r.Kind {
		case session.KindTurnStarted, session.KindTurnEnded:
			if r.TurnID == "" {
				return malformed("record %d is of kind %q and has no turn id", r.Seq, r.Kind)
			}
		case session.KindTurnResumed, session.KindEvent, session.KindToolCall, session.KindToolResult,
			session.KindTurnQueued, session.KindTurnDropped, session.KindModelRetry, session.KindInteractionResolved:
		default:
			return malformed("record %d is of unknown kind %q", r.Seq, r.Kind)
		}
	}
	for i := range b.Shared {
		v := &b.Shared[i]
		if v.Scope == "" {
			return malformed("shared value %q has no scope", v.Key)
		}
		if !json.Valid(v.Value) {
			return malformed("shared value %q of %q is not JSON", v.Key, v.Scope)
		}
	}
	return nil
}

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", session.ErrMalformed, fmt.Sprintf(format, args...))
}

// turnAfter returns the turn that is open after recs if open was before, and
// refuses a second open turn and the end of one that is not open.
func turnAfter(open string, recs []session.Record) (string, error) {
	for i := range recs {
		r := &recs[i]
		switch r.Kind {
		case session.KindTurnStarted:
			if open != "" {
				return "", malformed("record %d starts turn %q while %q is open", r.Seq, r.TurnID, open)
			}
			open = r.TurnID
		case session.KindTurnEnded:
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
func size(b *session.Batch) int {
	n := 0
	for i := range b.Records {
		n += len(b.Records[i].Data) + 128
	}
	for i := range b.Shared {
		n += len(b.Shared[i].Value) + 128
	}
	return n
}
