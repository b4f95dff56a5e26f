package storetest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// beside are the promises about what is kept beside the logs that a faulty store
// breaks.
type beside struct {
	info   func(store.Info) store.Info // of Info, Sessions and Update
	list   func(store.InfoQuery, []store.Info) []store.Info
	rows   func(store.RowQuery, []store.Row) []store.Row
	query  func(*store.InfoQuery)
	forked func(m *model, f store.Fork) error
	delete func(m *model, id string) // before the session is deleted
	update func(*store.Change)
	index  func(m *model, b store.Batch)
	named  func(store.Key) store.Key
}

func (f faulty) Info(ctx context.Context, id string) (store.Info, error) {
	i, err := f.model.Info(f.ctx(ctx), id)
	if err == nil && f.info != nil {
		i = f.info(i)
	}
	return i, err
}

func (f faulty) Sessions(ctx context.Context, q store.InfoQuery) ([]store.Info, error) {
	if f.query != nil {
		f.query(&q)
	}
	list, err := f.model.Sessions(f.ctx(ctx), q)
	if f.list != nil {
		list = f.list(q, list)
	}
	return list, err
}

func (f faulty) Rows(ctx context.Context, q store.RowQuery) ([]store.Row, error) {
	rows, err := f.model.Rows(f.ctx(ctx), q)
	if f.rows != nil {
		rows = f.rows(q, rows)
	}
	return rows, err
}

func (f faulty) Fork(ctx context.Context, fork store.Fork) error {
	if f.forked != nil {
		if err := f.forked(f.model, fork); !errors.Is(err, errors.ErrUnsupported) {
			return err
		}
	}
	return f.model.Fork(f.ctx(ctx), fork)
}

func (f faulty) Delete(ctx context.Context, id string, lastSeq int64) error {
	if f.delete != nil {
		f.delete(f.model, id)
	}
	return f.model.Delete(f.ctx(ctx), id, lastSeq)
}

func (f faulty) Update(ctx context.Context, id string, c store.Change) (store.Info, error) {
	if f.update != nil {
		f.update(&c)
	}
	return f.model.Update(f.ctx(ctx), id, c)
}

func (f faulty) Index(ctx context.Context, b store.Batch, lastSeq int64) error {
	err := f.model.Index(f.ctx(ctx), b, lastSeq)
	if err == nil && f.index != nil {
		f.index(f.model, b)
	}
	return err
}

func (f faulty) Key(ctx context.Context, scope, name string) (store.Key, error) {
	k, err := f.model.Key(f.ctx(ctx), scope, name)
	if err == nil && f.named != nil {
		k = f.named(k)
	}
	return k, err
}

// before does something to an append and has it made then.
func before(f func(m *model, b *store.Batch)) func(*model, store.Batch) error {
	return func(m *model, b store.Batch) error {
		f(m, &b)
		return m.Append(context.Background(), b)
	}
}

// after does something when an append has answered.
func after(f func(m *model, b store.Batch, err error)) func(*model, store.Batch) error {
	return func(m *model, b store.Batch) error {
		err := m.Append(context.Background(), b)
		m.mu.Lock()
		defer m.mu.Unlock()
		f(m, b, err)
		return err
	}
}

// besideFaults are promises about what is kept beside the logs, broken one at a
// time.
var besideFaults = map[string]faulty{
	"append without rows":  {appended: before(func(_ *model, b *store.Batch) { b.Rows = nil })},
	"append without key":   {appended: before(func(_ *model, b *store.Batch) { b.Key = nil })},
	"append without usage": {appended: before(func(_ *model, b *store.Batch) { b.Usage = record.Usage{} })},
	"append creates what there is": {appended: before(func(m *model, b *store.Batch) {
		if h, err := m.Head(context.Background(), b.SessionID); err == nil && h.LastSeq == 0 {
			b.Create = nil
		}
	})},
	"refused append creates": {appended: after(func(m *model, b store.Batch, err error) {
		if errors.Is(err, store.ErrKeyTaken) && b.Create != nil {
			m.sessions[b.SessionID] = newModelSession(*b.Create)
		}
	})},
	"repeat writes rows": {appended: after(func(m *model, b store.Batch, err error) {
		if err == nil {
			m.sessions[b.SessionID].write(b.Rows)
		}
	})},
	"conflict writes rows": {appended: after(func(m *model, b store.Batch, err error) {
		if errors.Is(err, store.ErrConflict) {
			m.sessions[b.SessionID].write(b.Rows)
		}
	})},
	"rows begin anew": {appended: after(func(m *model, b store.Batch, err error) {
		if s := m.sessions[b.SessionID]; err == nil && s.log[len(s.log)-1].Seq == b.After+int64(len(b.Records)) {
			for _, r := range b.Rows {
				r.CreatedAt = micro(r.CreatedAt)
				s.rows[rowName{r.Kind, r.ID}] = r
			}
		}
	})},
	"key taken is conflict": {refused: func(err error) error { return swap(err, store.ErrKeyTaken, store.ErrConflict) }},
	"key taken is ignored":  {refused: func(err error) error { return ignore(err, store.ErrKeyTaken) }},
	"key without content":   {beside: beside{named: func(k store.Key) store.Key { k.Content = ""; return k }}},
	"key without id":        {beside: beside{named: func(k store.Key) store.Key { k.ID = ""; return k }}},

	"labels lost":       {beside: beside{info: func(i store.Info) store.Info { i.Labels = nil; return i }}},
	"version stays":     {beside: beside{info: func(i store.Info) store.Info { i.Version = 1; return i }}},
	"cost is rounded":   {beside: beside{info: func(i store.Info) store.Info { i.Usage.Cost -= i.Usage.Cost % 10; return i }}},
	"budget rounded":    {beside: beside{info: func(i store.Info) store.Info { i.Budget.Cost -= i.Budget.Cost % 10; return i }}},
	"inherited unknown": {beside: beside{info: func(i store.Info) store.Info { i.Inherited = 0; return i }}},

	"update of any version":  {beside: beside{update: func(c *store.Change) { c.Version = 0 }}},
	"update keeps a budget":  {beside: beside{update: func(c *store.Change) { c.Budget = nil }}},
	"update without time":    {beside: beside{update: func(c *store.Change) { c.At = time.Time{} }}},
	"update keeps the label": {beside: beside{update: func(c *store.Change) { c.Labels = nonempty(c.Labels) }}},

	"sessions oldest first": {beside: beside{list: func(_ store.InfoQuery, l []store.Info) []store.Info {
		slices.Reverse(l)
		return l
	}}},
	"sessions paged by time alone": {beside: beside{list: func(q store.InfoQuery, l []store.Info) []store.Info {
		return slices.DeleteFunc(l, func(i store.Info) bool { return q.After != nil && i.CreatedAt.Equal(q.After.CreatedAt) })
	}}},
	"tenant ignored":      {beside: beside{query: func(q *store.InfoQuery) { q.Tenant = nil }}},
	"archived ignored":    {beside: beside{query: func(q *store.InfoQuery) { q.Archived = nil }}},
	"one label is enough": {beside: beside{query: func(q *store.InfoQuery) { delete(q.Labels, "half") }}},
	"ref ignored":         {beside: beside{query: func(q *store.InfoQuery) { q.ClientRef = "" }}},
	"status ignored":      {beside: beside{query: func(q *store.InfoQuery) { q.LastStatuses = nil }}},
	"update time ignored": {beside: beside{query: func(q *store.InfoQuery) { q.UpdatedFrom = time.Time{} }}},
	"end is included":     {beside: beside{query: func(q *store.InfoQuery) { q.CreatedBefore = q.CreatedBefore.Add(time.Microsecond) }}},

	"rows oldest first": {beside: beside{rows: func(_ store.RowQuery, r []store.Row) []store.Row {
		slices.Reverse(r)
		return r
	}}},
	"rows paged by time alone": {beside: beside{rows: func(q store.RowQuery, r []store.Row) []store.Row {
		return slices.DeleteFunc(r, func(r store.Row) bool { return q.After != nil && r.CreatedAt.Equal(q.After.CreatedAt) })
	}}},
	"rows of one session alone": {beside: beside{rows: func(_ store.RowQuery, r []store.Row) []store.Row {
		return slices.DeleteFunc(r, func(x store.Row) bool { return x.SessionID != r[0].SessionID })
	}}},

	"fork is a name": {beside: beside{forked: func(m *model, f store.Fork) error {
		err := m.Fork(context.Background(), f)
		if err == nil {
			m.sessions[f.Into.ID].log = m.sessions[f.From].log
		}
		return err
	}}},
	"fork of less": {beside: beside{forked: func(m *model, f store.Fork) error {
		f.Seq = min(f.Seq, 16)
		return m.Fork(context.Background(), f)
	}}},
	"fork of what is gone": {beside: beside{forked: func(m *model, f store.Fork) error {
		if s := m.sessions[f.From]; s != nil {
			was := s.purged
			s.purged = 0
			defer func() { s.purged = was }()
		}
		return m.Fork(context.Background(), f)
	}}},
	"fork looks at its parent first": {beside: beside{forked: func(m *model, f store.Fork) error {
		if f.Into.ID != "" && f.Seq >= 0 && m.sessions[f.From] == nil {
			return store.ErrNoSession
		}
		return errors.ErrUnsupported
	}}},
	"fork without rows": {beside: beside{forked: func(m *model, f store.Fork) error {
		f.Rows = nil
		return m.Fork(context.Background(), f)
	}}},
	"delete of any log": {beside: beside{delete: func(m *model, id string) {
		if s := m.sessions[id]; s != nil {
			s.log, s.rows = nil, map[rowName]store.Row{}
		}
	}}},
	"delete leaves keys": {beside: beside{delete: func(m *model, id string) {
		for name, k := range m.keys {
			if k.SessionID == id {
				k.SessionID += "?"
				m.keys[name] = k
			}
		}
	}}},
	"index adds": {beside: beside{index: func(m *model, b store.Batch) {
		m.sessions[b.SessionID].write([]store.Row{row(askRow, b.SessionID, "i", 1, "asks")})
	}}},
	"purge leaves rows": {purge: func(m *model, id string, lastSeq int64) error {
		s := m.sessions[id]
		if s == nil {
			return store.ErrNoSession
		}
		rows := s.rows
		s.rows = map[rowName]store.Row{}
		err := m.Purge(context.Background(), id, lastSeq)
		s.rows = rows
		return err
	}},
	"purge takes keys": {purge: func(m *model, id string, lastSeq int64) error {
		err := m.Purge(context.Background(), id, lastSeq)
		if err == nil {
			clear(m.keys)
		}
		return err
	}},
}

func nonempty(labels map[string]string) map[string]string {
	out := map[string]string{}
	for key, value := range labels {
		if value != "" {
			out[key] = value
		}
	}
	return out
}
