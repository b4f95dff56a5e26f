package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

func TestModel(t *testing.T) {
	runOpen(t, func(*testing.T) store.Store { return newModel() }, openTests)
}

func TestModelDurable(t *testing.T) {
	runDurable(t, keepModels())
}

func TestModelFull(t *testing.T) { runFull(t, fullModel(faulty{})) }

func TestModelFailing(t *testing.T) { runFailing(t, failingModel(faulty{})) }

// fullModel opens models of little space that break the promises of f.
func fullModel(f faulty) func(*testing.T) (store.Store, func()) {
	return func(*testing.T) (store.Store, func()) {
		f.model = newModel()
		f.space = 410 << 10
		return f, func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.space = 4 << 20
		}
	}
}

// failingModel opens models that can fail, and that break the promises of f.
func failingModel(f faulty) func(*testing.T, string) (store.Store, func(bool)) {
	kept := map[string]*model{}
	return func(_ *testing.T, dir string) (store.Store, func(bool)) {
		if kept[dir] == nil {
			kept[dir] = newModel()
		}
		f.model = kept[dir]
		f.failed = false // opened anew
		m := f.model
		return f, func(persisted bool) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.failing, m.persists = true, persisted
		}
	}
}

// spaceFaults are promises about failures, broken one at a time.
var spaceFaults = map[string]faulty{
	"full has no name": {refused: func(err error) error { return swap(err, store.ErrFull, errors.New("no space")) }},
	"full is failed":   {refused: func(err error) error { return swap(err, store.ErrFull, store.ErrFailed) }},
	"full writes a part": {appended: func(m *model, b store.Batch) error {
		err := m.Append(context.Background(), b)
		if errors.Is(err, store.ErrFull) {
			b.Records, b.Shared = b.Records[:1], nil
			_ = m.Append(context.Background(), b)
		}
		return err
	}},
	"full writes shared": {appended: func(m *model, b store.Batch) error {
		err := m.Append(context.Background(), b)
		if errors.Is(err, store.ErrFull) {
			m.mu.Lock()
			for _, v := range b.Shared {
				m.values[v.Scope][v.Key] = v.Value
			}
			m.mu.Unlock()
		}
		return err
	}},
	"failed has no name": {refused: func(err error) error { return swap(err, store.ErrFailed, errors.New("EIO")) }},
	"failed is tried again": {appended: func(m *model, b store.Batch) error {
		m.mu.Lock()
		m.failed = false
		m.mu.Unlock()
		return errors.ErrUnsupported
	}},
}

// keepModels opens the same model for the same directory.
func keepModels() func(*testing.T, string) store.Store {
	kept := map[string]*model{}
	return func(_ *testing.T, dir string) store.Store {
		if kept[dir] == nil {
			kept[dir] = newModel()
		}
		return kept[dir]
	}
}

// faulty is a store that breaks one promise.
type faulty struct {
	*model
	appended func(m *model, b store.Batch) error
	read     func([]record.Record) []record.Record
	head     func(store.Head) store.Head
	shared   func(map[string]json.RawMessage) map[string]json.RawMessage
	opened   func([]store.Head) []store.Head
	idle     func([]store.Head) []store.Head
	purge    func(m *model, id string, lastSeq int64) error
	create   func(err error) error
	refused  func(err error) error
	many     func(m *model, batches []store.Batch) []error
	deaf     bool // to contexts
	beside
}

func (f faulty) ctx(ctx context.Context) context.Context {
	if f.deaf {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

func (f faulty) Create(ctx context.Context, n store.NewSession, key *store.Key) error {
	err := f.model.Create(f.ctx(ctx), n, key)
	if f.create != nil {
		err = f.create(err)
	}
	return err
}

func (f faulty) Append(ctx context.Context, b store.Batch) error {
	if f.appended != nil {
		if err := f.appended(f.model, b); !errors.Is(err, errors.ErrUnsupported) {
			return err
		}
	}
	err := f.model.Append(f.ctx(ctx), b)
	if err != nil && f.refused != nil {
		err = f.refused(err)
	}
	return err
}

func (f faulty) Read(ctx context.Context, id string, after int64, limit int) ([]record.Record, error) {
	recs, err := f.model.Read(f.ctx(ctx), id, after, limit)
	if f.read != nil {
		recs = f.read(recs)
	}
	return recs, err
}

func (f faulty) Head(ctx context.Context, id string) (store.Head, error) {
	h, err := f.model.Head(f.ctx(ctx), id)
	if err == nil && f.head != nil {
		h = f.head(h)
	}
	return h, err
}

func (f faulty) Shared(ctx context.Context, scope string) (map[string]json.RawMessage, error) {
	m, err := f.model.Shared(f.ctx(ctx), scope)
	if f.shared != nil {
		m = f.shared(m)
	}
	return m, err
}

func (f faulty) Idle(ctx context.Context, before time.Time, limit int) ([]store.Head, error) {
	heads, err := f.model.Idle(f.ctx(ctx), before, limit)
	if f.idle != nil {
		heads = f.idle(heads)
	}
	return heads, err
}

func (f faulty) Purge(ctx context.Context, id string, lastSeq int64) error {
	if f.purge != nil {
		return f.purge(f.model, id, lastSeq)
	}
	return f.model.Purge(f.ctx(ctx), id, lastSeq)
}

func (f faulty) OpenTurns(ctx context.Context, after string, limit int) ([]store.Head, error) {
	heads, err := f.model.OpenTurns(f.ctx(ctx), after, limit)
	if f.opened != nil {
		heads = f.opened(heads)
	}
	return heads, err
}

// AppendMany breaks no promise but its own.
func (f faulty) AppendMany(ctx context.Context, batches []store.Batch) []error {
	if f.many != nil {
		return f.many(f.model, batches)
	}
	return f.model.AppendMany(f.ctx(ctx), batches)
}

// faults are promises broken one at a time; the suite has to notice each.
var faults = map[string]faulty{
	"owners are not fenced": {appended: func(m *model, b store.Batch) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		if s := m.sessions[b.SessionID]; s != nil {
			s.epoch = min(s.epoch, max(0, b.Epoch))
		}
		return errors.ErrUnsupported
	}},
	"a fence has the name of a conflict": {refused: func(err error) error {
		return swap(err, store.ErrFenced, store.ErrConflict)
	}},
	"epochs are forgotten": {head: func(h store.Head) store.Head {
		h.Epoch = 0
		return h
	}},
	"a batch takes others along": {many: func(m *model, batches []store.Batch) []error {
		errs := make([]error, len(batches))
		for i, b := range batches {
			if errs[i] = m.Append(context.Background(), b); errs[i] != nil {
				return slices.Concat(errs[:i], slices.Repeat(errs[i:i+1], len(batches)-i))
			}
		}
		return errs
	}},
	"batches behind the first are lost": {many: func(m *model, batches []store.Batch) []error {
		return append(m.AppendMany(context.Background(), batches[:min(1, len(batches))]),
			make([]error, max(0, len(batches)-1))...)
	}},
	"attempts are forgotten": {head: func(h store.Head) store.Head {
		h.Attempts = 0
		return h
	}},
	"a wait that an append does not end": {appended: func(m *model, b store.Batch) error {
		waits := false
		m.mu.Lock()
		if s := m.sessions[b.SessionID]; s != nil {
			waits = s.waits
		}
		m.mu.Unlock()
		err := m.Append(context.Background(), b)
		if waits {
			m.sessions[b.SessionID].waits = true
		}
		return err
	}},
	"a shared value that is removed becomes null": {appended: func(m *model, b store.Batch) error {
		b.Shared = slices.Clone(b.Shared)
		for i := range b.Shared {
			if b.Shared[i].Value == nil {
				b.Shared[i].Value = []byte("null")
			}
		}
		return m.Append(context.Background(), b)
	}},
	"idle sessions in no order": {idle: func(heads []store.Head) []store.Head {
		slices.Reverse(heads)
		return heads
	}},
	"purge of an open turn": {purge: func(m *model, id string, lastSeq int64) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		if s := m.sessions[id]; s != nil && lastSeq == int64(len(s.log)) {
			s.purged = lastSeq
			return nil
		}
		return store.ErrConflict
	}},
	"purge that does nothing": {purge: func(*model, string, int64) error { return nil }},
	"append overwrites": {appended: func(m *model, b store.Batch) error {
		m.mu.Lock()
		if s := m.sessions[b.SessionID]; s != nil && b.After < int64(len(s.log)) && b.After >= 0 {
			s.log = s.log[:b.After]
		}
		m.mu.Unlock()
		return errors.ErrUnsupported
	}},
	"part of a batch": {appended: func(m *model, b store.Batch) error {
		if len(b.Records) > 400 {
			b.Records = b.Records[:400]
		}
		return m.Append(context.Background(), b)
	}},
	"conflict writes shared": {appended: func(m *model, b store.Batch) error {
		err := m.Append(context.Background(), b)
		if errors.Is(err, store.ErrConflict) {
			m.mu.Lock()
			for _, v := range b.Shared {
				m.values[v.Scope] = map[string]json.RawMessage{v.Key: v.Value}
			}
			m.mu.Unlock()
		}
		return err
	}},
	"repeat refused": {appended: func(m *model, b store.Batch) error {
		head, err := m.Head(context.Background(), b.SessionID)
		if err == nil && len(b.Records) > 0 && b.After >= 0 && b.After < head.LastSeq && wellFormed(b) {
			return store.ErrConflict
		}
		return errors.ErrUnsupported
	}},
	"every repeat accepted": {refused: func(err error) error {
		if errors.Is(err, store.ErrConflict) {
			return nil
		}
		return err
	}},
	"malformed is conflict":  {refused: func(error) error { return store.ErrConflict }},
	"malformed is accepted":  {refused: func(err error) error { return ignore(err, store.ErrMalformed) }},
	"unknown is conflict":    {refused: func(err error) error { return swap(err, store.ErrNoSession, store.ErrConflict) }},
	"create twice":           {create: func(err error) error { return ignore(err, store.ErrSessionExists) }},
	"limit ignored":          {read: func(r []record.Record) []record.Record { return append(r, r...) }},
	"record lost":            {read: func(r []record.Record) []record.Record { return slices.Delete(r, min(len(r), 8), min(len(r), 9)) }},
	"last of many lost":      {read: func(r []record.Record) []record.Record { return r[:min(len(r), 700)] }},
	"order":                  {read: func(r []record.Record) []record.Record { slices.Reverse(r); return r }},
	"data cut at NUL":        {read: eachRecord(func(r *record.Record) { r.Data = cutNUL(r.Data) })},
	"large data cut":         {read: eachRecord(func(r *record.Record) { r.Data = r.Data[:min(len(r.Data), 1<<20)] })},
	"time in seconds":        {read: eachRecord(func(r *record.Record) { r.Time = r.Time.Truncate(time.Second) })},
	"time in milliseconds":   {read: eachRecord(func(r *record.Record) { r.Time = r.Time.Truncate(time.Millisecond) })},
	"time local":             {read: eachRecord(func(r *record.Record) { r.Time = r.Time.In(time.FixedZone("x", 60)) })},
	"kind lost":              {read: eachRecord(func(r *record.Record) { r.Kind = record.KindEvent })},
	"turn lost":              {read: eachRecord(func(r *record.Record) { r.TurnID = "turn" })},
	"open turn never set":    {head: func(h store.Head) store.Head { h.OpenTurn = ""; return h }},
	"creation time lost":     {head: func(h store.Head) store.Head { h.CreatedAt = epoch; return h }},
	"last seq behind":        {head: func(h store.Head) store.Head { h.LastSeq = min(h.LastSeq, 5); return h }},
	"shared lost":            {shared: func(map[string]json.RawMessage) map[string]json.RawMessage { return nil }},
	"open turns unordered":   {opened: func(h []store.Head) []store.Head { slices.Reverse(h); return h }},
	"open turns incomplete":  {opened: func(h []store.Head) []store.Head { return h[:min(len(h), 3)] }},
	"contexts not respected": {deaf: true},
}

func eachRecord(f func(*record.Record)) func([]record.Record) []record.Record {
	return func(recs []record.Record) []record.Record {
		for i := range recs {
			f(&recs[i])
		}
		return recs
	}
}

func cutNUL(b []byte) []byte {
	if i := slices.Index(b, 0); i >= 0 {
		return b[:i]
	}
	return b
}

func ignore(err, target error) error {
	if errors.Is(err, target) {
		return nil
	}
	return err
}

func swap(err, from, to error) error {
	if errors.Is(err, from) {
		return to
	}
	return err
}

const faultEnv = "STORETEST_FAULT"

// TestSuiteNoticesFaults runs the suite on each faulty store in a process of
// its own, where it must fail.
func TestSuiteNoticesFaults(t *testing.T) {
	for name := range merged(faults, besideFaults, spaceFaults) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFaulty$", "-rapid.nofailfile", "-test.failfast")
			cmd.Env = append(os.Environ(), faultEnv+"="+name)
			out, err := cmd.CombinedOutput()
			if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 1 {
				t.Errorf("the suite ends with %v, want exit status 1; it said:\n%s", err, out)
			}
		})
	}
}

func merged(all ...map[string]faulty) map[string]faulty {
	out := map[string]faulty{}
	for _, m := range all {
		maps.Copy(out, m)
	}
	return out
}

// TestFaulty is the child of TestSuiteNoticesFaults.
func TestFaulty(t *testing.T) {
	name, ok := os.LookupEnv(faultEnv)
	if !ok {
		return
	}
	if f, ok := spaceFaults[name]; ok {
		runFull(t, fullModel(f))
		runFailing(t, failingModel(f))
		return
	}
	runOpen(t, func(*testing.T) store.Store {
		f := merged(faults, besideFaults)[name]
		f.model = newModel()
		return f
	}, openTests)
}

// TestDurableSuiteNoticesLoss is like TestSuiteNoticesFaults for a store that
// forgets.
func TestDurableSuiteNoticesLoss(t *testing.T) {
	if os.Getenv(faultEnv) != "" {
		runDurable(t, func(*testing.T, string) store.Store { return newModel() })
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestDurableSuiteNoticesLoss$")
	cmd.Env = append(os.Environ(), faultEnv+"=loss")
	out, err := cmd.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 1 {
		t.Errorf("the suite ends with %v, want exit status 1; it said:\n%s", err, out)
	}
}
