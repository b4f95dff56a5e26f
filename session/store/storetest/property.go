package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

var modelTests = []test{
	{"Model", func(t *testing.T, s store.Store) {
		run := 0
		rapid.Check(t, func(rt *rapid.T) {
			// One store serves all runs: each has ids, above those of the runs before, scopes, and an hour
			// of its own.
			run++
			c := &comparison{
				t: rt, store: s, model: newModel(), prefix: fmt.Sprintf("run%06d-", run),
				hour: epoch.Add(time.Duration(run) * time.Hour),
			}
			rt.Repeat(map[string]func(*rapid.T){
				"":          func(*rapid.T) {},
				"create":    c.create,
				"append":    c.append,
				"repeat":    c.repeat,
				"head":      c.head,
				"read":      c.read,
				"shared":    c.shared,
				"openTurns": c.openTurns,
				"purge":     c.purge,
				"setShared": c.setShared,
				"attempts":  c.setAttempts,
				"update":    c.update,
				"delete":    c.remove,
				"fork":      c.fork,
				"index":     c.index,
				"info":      func(rt *rapid.T) { c.compareInfo(c.id(rt)) },
				"sessions":  c.sessions,
				"rows":      c.rows,
				"key":       func(rt *rapid.T) { c.compareKey(c.scope(rt), c.keyName(rt)) },
			})
			c.everything()
		})
	}},
}

// comparison does the same to a store and to the model.
type comparison struct {
	t      *rapid.T
	store  store.Store
	model  *model
	prefix string
	hour   time.Time
	tried  []store.Batch // for repeat
}

// names are the ends of the ids of a run: two sessions of no tenant, and one of a tenant.
var names = []string{"a", "b", "t/a"}

func (c *comparison) id(t *rapid.T) string {
	return c.prefix + rapid.SampledFrom(names).Draw(t, "id")
}

func (c *comparison) scope(t *rapid.T) string {
	return c.prefix + rapid.SampledFrom([]string{"app", "user:u"}).Draw(t, "scope")
}

func (c *comparison) create(t *rapid.T) {
	n := c.newSession(t, c.id(t))
	key := c.key(t, n.ID)
	c.agree("Create", c.store.Create(c.t.Context(), n, key), c.model.Create(c.t.Context(), n, key))
}

// append draws a batch that mostly fits: now and then it is after another record, numbered wrongly, or of a
// turn that cannot start or end.
func (c *comparison) append(t *rapid.T) {
	b := c.indexed(t, c.id(t))
	if head, err := c.model.Head(c.t.Context(), b.SessionID); err == nil {
		b.Epoch = head.Epoch + rapid.SampledFrom([]int64{0, 0, 0, 0, 0, 0, 0, 0, 1, -1}).Draw(t, "epoch")
		b.After = max(0, head.LastSeq+rapid.SampledFrom([]int64{0, 0, 0, 0, 0, 0, -1, -2, 1}).Draw(t, "off"))
	}
	kinds := []record.Kind{
		record.KindEvent, record.KindToolResult,
		record.KindTurnStarted, record.KindTurnEnded, record.KindTurnEnded,
	}
	for i := range rapid.IntRange(1, 4).Draw(t, "records") {
		b.Records = append(b.Records, record.Record{
			Seq:    b.After + int64(i) + 1,
			TurnID: rapid.SampledFrom([]string{"t", "t", "t", "u"}).Draw(t, "turn"),
			Kind:   rapid.SampledFrom(kinds).Draw(t, "kind"),
			Time:   c.hour.Add(time.Duration(rapid.IntRange(0, 1500).Draw(t, "nanoseconds"))),
			Data:   rapid.SliceOfN(rapid.Byte(), 0, 3).Draw(t, "data"),
		})
	}
	if rapid.IntRange(0, 9).Draw(t, "spoil") == 0 {
		b.Records[len(b.Records)-1].Seq++
	}
	for range rapid.IntRange(0, 2).Draw(t, "values") {
		b.Shared = append(b.Shared, c.sharedValue(t))
	}
	if rapid.IntRange(0, 3).Draw(t, "rewrite") == 0 {
		b.Rewrites = c.rewrites(t, b.SessionID)
	}
	b.Attempts = rapid.Int64Range(0, 2).Draw(t, "attempts")
	b.Key = c.key(t, b.SessionID)
	_, err := c.model.Head(c.t.Context(), b.SessionID)
	if err != nil && rapid.Bool().Draw(t, "create") || rapid.IntRange(0, 9).Draw(t, "create again") == 0 {
		b.Create = new(c.newSession(t, b.SessionID))
	}
	c.tried = append(c.tried, b)
	c.agree("Append", c.store.Append(c.t.Context(), b), c.model.Append(c.t.Context(), b))
}

// rewrites are records of a log with other data; now and then one is of another turn.
func (c *comparison) rewrites(t *rapid.T, id string) []record.Record {
	log, err := c.model.Read(c.t.Context(), id, 0, 3)
	if err != nil {
		return nil
	}
	for i := range log {
		log[i].Data = rapid.SliceOfN(rapid.Byte(), 0, 3).Draw(t, "data")
	}
	if len(log) > 0 && rapid.IntRange(0, 9).Draw(t, "of another turn") == 0 {
		log[0].TurnID += "x"
	}
	return log
}

// sharedValue may be one without a value, which removes its key.
func (c *comparison) sharedValue(t *rapid.T) store.SharedValue {
	v := store.SharedValue{Scope: c.scope(t), Key: rapid.SampledFrom([]string{"k", "l"}).Draw(t, "key")}
	if n := rapid.IntRange(-30, 99).Draw(t, "value"); n >= 0 {
		v.Value = fmt.Append(nil, n)
	}
	return v
}

func (c *comparison) setShared(t *rapid.T) {
	values := []store.SharedValue{c.sharedValue(t), c.sharedValue(t)}
	c.agree("SetShared", c.store.SetShared(c.t.Context(), values), c.model.SetShared(c.t.Context(), values))
}

func (c *comparison) setAttempts(t *rapid.T) {
	id, attempts, waits := c.id(t), rapid.Int64Range(-1, 9).Draw(t, "attempts"), rapid.Bool().Draw(t, "waits")
	err := c.store.SetAttempts(c.t.Context(), id, attempts, waits)
	c.agree("SetAttempts", err, c.model.SetAttempts(c.t.Context(), id, attempts, waits))
}

// repeat does an earlier append again, perhaps a part of it.
func (c *comparison) repeat(t *rapid.T) {
	if len(c.tried) == 0 {
		t.Skip("nothing to repeat")
	}
	b := rapid.SampledFrom(c.tried).Draw(t, "batch")
	from := rapid.IntRange(0, len(b.Records)-1).Draw(t, "from")
	b.After += int64(from)
	b.Records = b.Records[from:]
	c.agree("repeated Append", c.store.Append(c.t.Context(), b), c.model.Append(c.t.Context(), b))
}

func (c *comparison) head(t *rapid.T) {
	id := c.id(t)
	got, err := c.store.Head(c.t.Context(), id)
	want, wantErr := c.model.Head(c.t.Context(), id)
	c.agree("Head", err, wantErr)
	if got != want {
		c.t.Fatalf("Head(%q) = %+v, want %+v", id, got, want)
	}
}

func (c *comparison) read(t *rapid.T) {
	c.compareLog(c.id(t), rapid.Int64Range(0, 20).Draw(t, "after"), rapid.IntRange(0, 20).Draw(t, "limit"))
}

func (c *comparison) compareLog(id string, after int64, limit int) {
	got, err := c.store.Read(c.t.Context(), id, after, limit)
	want, wantErr := c.model.Read(c.t.Context(), id, after, limit)
	c.agree("Read", err, wantErr)
	if !slices.EqualFunc(got, want, same) {
		c.t.Fatalf("Read(%q after %d, limit %d) = %v, want %v", id, after, limit, got, want)
	}
}

func (c *comparison) shared(t *rapid.T) { c.compareShared(c.scope(t)) }

func (c *comparison) compareShared(scope string) {
	got, err := c.store.Shared(c.t.Context(), scope)
	want, wantErr := c.model.Shared(c.t.Context(), scope)
	c.agree("Shared", err, wantErr)
	if fmt.Sprintf("%s", got) != fmt.Sprintf("%s", want) { // fmt sorts the keys
		c.t.Fatalf("Shared(%q) = %s, want %s", scope, got, want)
	}
}

func (c *comparison) openTurns(t *rapid.T) {
	after := c.prefix + rapid.SampledFrom(append([]string{""}, names...)).Draw(t, "after")
	c.compareOpenTurns(after, rapid.IntRange(1, 4).Draw(t, "limit"))
}

func (c *comparison) compareOpenTurns(after string, limit int) {
	got, err := c.store.OpenTurns(c.t.Context(), after, limit)
	want, wantErr := c.model.OpenTurns(c.t.Context(), after, limit)
	c.agree("OpenTurns", err, wantErr)
	if !slices.Equal(got, want) {
		c.t.Fatalf("OpenTurns(%q, %d) = %+v, want %+v", after, limit, got, want)
	}
}

func (c *comparison) purge(t *rapid.T) {
	id := c.id(t)
	lastSeq := int64(rapid.IntRange(0, 6).Draw(t, "last"))
	if head, err := c.model.Head(c.t.Context(), id); err == nil && rapid.Bool().Draw(t, "right") {
		lastSeq = head.LastSeq
	}
	c.agree("Purge", c.store.Purge(c.t.Context(), id, lastSeq), c.model.Purge(c.t.Context(), id, lastSeq))
}

func (c *comparison) compareIdle() {
	before := c.hour.Add(time.Second)
	all, err := c.store.Idle(c.t.Context(), before, 10000)
	want, wantErr := c.model.Idle(c.t.Context(), before, 10000)
	c.agree("Idle", err, wantErr)
	got := slices.DeleteFunc(all, func(h store.Head) bool { return !strings.HasPrefix(h.ID, c.prefix) })
	if !slices.Equal(got, want) {
		c.t.Fatalf("Idle = %+v, want %+v", got, want)
	}
}

// everything compares all that can be seen.
func (c *comparison) everything() {
	for _, name := range names {
		c.compareLog(c.prefix+name, 0, 1000)
		c.compareInfo(c.prefix + name)
	}
	c.compareSessions(store.InfoQuery{Limit: 2})
	for _, kind := range []store.RowKind{store.RowTurn, store.RowInteraction, store.RowGoal} {
		c.compareRows(store.RowQuery{Kind: kind, Limit: 2})
	}
	c.compareShared(c.prefix + "app")
	c.compareShared(c.prefix + "user:u")
	c.compareOpenTurns(c.prefix, 10)
	c.compareIdle()
}

// agree compares errors: both none, both the same of those that have a name, or both without one.
func (c *comparison) agree(what string, got, want error) {
	for _, named := range []error{
		store.ErrConflict, store.ErrFenced, store.ErrNoSession, store.ErrSessionExists,
		store.ErrMalformed, store.ErrKeyTaken, store.ErrNotFound,
	} {
		if errors.Is(got, named) != errors.Is(want, named) {
			c.t.Fatalf("%s: error is %v, want %v", what, got, want)
		}
	}
	if (got == nil) != (want == nil) {
		c.t.Fatalf("%s: error is %v, want %v", what, got, want)
	}
}
