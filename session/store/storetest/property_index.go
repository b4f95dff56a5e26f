package storetest

import (
	"reflect"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

func maybe[T any](t *rapid.T, what string, draw func() T) *T {
	if rapid.Bool().Draw(t, what) {
		return new(draw())
	}
	return nil
}

// at draws a time of the run; many are equal to the microsecond.
func (c *comparison) at(t *rapid.T) time.Time {
	return c.hour.Add(time.Duration(rapid.IntRange(0, 5000).Draw(t, "nanoseconds")))
}

func (c *comparison) labels(t *rapid.T) map[string]string {
	keys, values := rapid.SampledFrom([]string{"k", "l"}), rapid.SampledFrom([]string{"x", "y", ""})
	return rapid.MapOfN(keys, values, 0, 2).Draw(t, "labels")
}

// ref draws a name that no other run has.
func (c *comparison) ref(t *rapid.T) string {
	if name := rapid.SampledFrom([]string{"", "r", "s"}).Draw(t, "ref"); name != "" {
		return c.prefix + name
	}
	return ""
}

// tenant draws whose sessions are listed; see id.
func (c *comparison) tenant(t *rapid.T) *string {
	return rapid.SampledFrom([]*string{nil, new(""), new(c.prefix + "t"), new(c.prefix + "u")}).Draw(t, "tenant")
}

func (*comparison) status(t *rapid.T) string {
	return rapid.SampledFrom([]string{"", "runs", "over"}).Draw(t, "status")
}

func (*comparison) turn(t *rapid.T) string {
	return rapid.SampledFrom([]string{"t", "u"}).Draw(t, "turn")
}

func (*comparison) kind(t *rapid.T) store.RowKind {
	return rapid.SampledFrom([]store.RowKind{store.RowTurn, store.RowInteraction, store.RowGoal}).Draw(t, "kind")
}

func (*comparison) keyName(t *rapid.T) string {
	return rapid.SampledFrom([]string{"1", "2", "3", "4", "5"}).Draw(t, "name")
}

// lastSeq draws where a log ends, now and then wrongly.
func (c *comparison) lastSeq(t *rapid.T, id string) int64 {
	head, err := c.model.Head(c.t.Context(), id)
	if err != nil || rapid.IntRange(0, 4).Draw(t, "wrong") == 0 {
		return int64(rapid.IntRange(0, 6).Draw(t, "last"))
	}
	return head.LastSeq
}

func (c *comparison) newSession(t *rapid.T, id string) store.NewSession {
	return store.NewSession{
		ID:        id,
		CreatedAt: c.at(t),
		Creator:   "c",
		Labels:    c.labels(t),
		ClientRef: c.ref(t),
		Budget:    c.budget(t),

		DropToolPayloads: rapid.Bool().Draw(t, "drop payloads"),
		Agent:            rapid.SampledFrom([]string{"", "a@1", "b@2"}).Draw(t, "agent"),
		Metadata:         c.metadata(t),
	}
}

func (*comparison) metadata(t *rapid.T) string {
	return rapid.SampledFrom([]string{"", `{"a":1}`, `{"b":"x"}`}).Draw(t, "metadata")
}

func (*comparison) budget(t *rapid.T) record.Budget {
	return rapid.SampledFrom([]record.Budget{{}, {Tokens: 1}, {ModelCalls: 2, Cost: 3, Wall: 4}}).Draw(t, "budget")
}

func (c *comparison) key(t *rapid.T, id string) *store.Key {
	if rapid.IntRange(0, 3).Draw(t, "key") > 0 {
		return nil
	}
	return &store.Key{
		Scope: c.scope(t), Name: c.keyName(t), SessionID: id,
		Content: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "content"), ID: c.turn(t),
	}
}

// indexed draws what a batch says to those who do not read the log.
func (c *comparison) indexed(t *rapid.T, id string) store.Batch {
	b := store.Batch{SessionID: id, LastTurn: c.turn(t), LastStatus: c.status(t)}
	b.Usage = record.Usage{
		Total: rapid.Int64Range(0, 3).Draw(t, "total"),
		Cost:  record.NanoUSD(rapid.Int64Range(0, 1e9).Draw(t, "cost")),
	}
	for range rapid.IntRange(0, 3).Draw(t, "rows") {
		b.Rows = append(b.Rows, store.Row{
			Kind: c.kind(t), SessionID: id, ID: c.turn(t), TurnID: c.turn(t),
			Seq: rapid.Int64Range(1, 3).Draw(t, "seq"), CreatedAt: c.at(t), Status: c.status(t),
			Data: rapid.SliceOfN(rapid.Byte(), 0, 3).Draw(t, "data"),
		})
	}
	return b
}

func (c *comparison) update(t *rapid.T) {
	id := c.id(t)
	change := store.Change{
		Labels:    c.labels(t),
		ClientRef: maybe(t, "set the ref", func() string { return c.ref(t) }),
		Archived:  maybe(t, "set archived", func() bool { return rapid.Bool().Draw(t, "archived") }),
		Budget:    maybe(t, "set the budget", func() record.Budget { return c.budget(t) }),
		Metadata:  maybe(t, "set the metadata", func() string { return c.metadata(t) }),
		Version:   rapid.SampledFrom([]int64{0, 1, 2, 3}).Draw(t, "version"),
	}
	if rapid.Bool().Draw(t, "set the time") {
		change.At = c.at(t)
	}
	got, err := c.store.Update(c.t.Context(), id, change)
	want, wantErr := c.model.Update(c.t.Context(), id, change)
	c.agree("Update", err, wantErr)
	if !reflect.DeepEqual(got, want) {
		c.t.Fatalf("Update(%q, %+v) = %+v, want %+v", id, change, got, want)
	}
}

func (c *comparison) remove(t *rapid.T) {
	id := c.id(t)
	lastSeq := c.lastSeq(t, id)
	c.agree("Delete", c.store.Delete(c.t.Context(), id, lastSeq), c.model.Delete(c.t.Context(), id, lastSeq))
}

func (c *comparison) fork(t *rapid.T) {
	f := store.Fork{From: c.id(t), Into: c.newSession(t, c.id(t)), LastTurn: c.turn(t), LastStatus: c.status(t)}
	f.Seq = rapid.Int64Range(0, c.lastSeq(t, f.From)).Draw(t, "at")
	f.At = f.Seq + rapid.Int64Range(0, 2).Draw(t, "behind")
	f.OpenTurn = rapid.SampledFrom([]string{"", "", "t"}).Draw(t, "open")
	f.Rows, f.Key = c.indexed(t, f.Into.ID).Rows, c.key(t, f.Into.ID)
	c.agree("Fork", c.store.Fork(c.t.Context(), f), c.model.Fork(c.t.Context(), f))
}

func (c *comparison) index(t *rapid.T) {
	b := c.indexed(t, c.id(t))
	lastSeq := c.lastSeq(t, b.SessionID)
	c.agree("Index", c.store.Index(c.t.Context(), b, lastSeq), c.model.Index(c.t.Context(), b, lastSeq))
}

func (c *comparison) compareInfo(id string) {
	got, err := c.store.Info(c.t.Context(), id)
	want, wantErr := c.model.Info(c.t.Context(), id)
	c.agree("Info", err, wantErr)
	if !reflect.DeepEqual(got, want) {
		c.t.Fatalf("Info(%q) = %+v, want %+v", id, got, want)
	}
}

func (c *comparison) compareKey(scope, name string) {
	got, err := c.store.Key(c.t.Context(), scope, name)
	want, wantErr := c.model.Key(c.t.Context(), scope, name)
	c.agree("Key", err, wantErr)
	if got != want {
		c.t.Fatalf("Key(%q, %q) = %+v, want %+v", scope, name, got, want)
	}
}

func (c *comparison) sessions(t *rapid.T) {
	q := store.InfoQuery{
		Tenant:       c.tenant(t),
		Archived:     maybe(t, "by archived", func() bool { return rapid.Bool().Draw(t, "archived") }),
		ClientRef:    c.ref(t),
		Labels:       c.labels(t),
		LastStatuses: rapid.SliceOfN(rapid.SampledFrom([]string{"", "runs", "over"}), 0, 2).Draw(t, "statuses"),
		Limit:        rapid.IntRange(1, 3).Draw(t, "limit"),
	}
	if rapid.Bool().Draw(t, "by update") {
		q.UpdatedFrom, q.UpdatedBefore = c.at(t), c.at(t)
	}
	if rapid.Bool().Draw(t, "by creation") {
		q.CreatedFrom, q.CreatedBefore = c.at(t), c.at(t)
	}
	c.compareSessions(q)
}

func (c *comparison) compareSessions(q store.InfoQuery) {
	if q.CreatedFrom.IsZero() {
		q.CreatedFrom, q.CreatedBefore = c.hour, c.hour.Add(time.Hour) // the run's own
	}
	for {
		got, err := c.store.Sessions(c.t.Context(), q)
		want, wantErr := c.model.Sessions(c.t.Context(), q)
		c.agree("Sessions", err, wantErr)
		if len(got) != len(want) || len(got) > 0 && !reflect.DeepEqual(got, want) {
			c.t.Fatalf("Sessions(%+v) = %+v, want %+v", q, got, want)
		}
		if len(got) < q.Limit {
			return
		}
		q.After = &got[len(got)-1]
	}
}

func (c *comparison) rows(t *rapid.T) {
	q := store.RowQuery{
		Tenant:   c.tenant(t),
		Kind:     c.kind(t),
		Statuses: rapid.SliceOfN(rapid.SampledFrom([]string{"", "runs", "over"}), 0, 3).Draw(t, "statuses"),
		Limit:    rapid.IntRange(1, 3).Draw(t, "limit"),
	}
	if rapid.Bool().Draw(t, "by session") {
		q.SessionID = c.id(t)
	}
	if rapid.Bool().Draw(t, "by turn") {
		q.TurnID = c.turn(t)
	}
	if rapid.Bool().Draw(t, "by creation") {
		q.CreatedFrom, q.CreatedBefore = c.at(t), c.at(t)
	}
	c.compareRows(q)
}

func (c *comparison) compareRows(q store.RowQuery) {
	if q.CreatedFrom.IsZero() {
		q.CreatedFrom, q.CreatedBefore = c.hour, c.hour.Add(time.Hour) // the run's own
	}
	for {
		got, err := c.store.Rows(c.t.Context(), q)
		want, wantErr := c.model.Rows(c.t.Context(), q)
		c.agree("Rows", err, wantErr)
		if !slices.EqualFunc(got, want, sameRow) {
			c.t.Fatalf("Rows(%+v) = %+v, want %+v", q, got, want)
		}
		if len(got) < q.Limit {
			return
		}
		q.After = &got[len(got)-1]
	}
}
