package storetest

import (
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"testing"

	"github.com/apzuk3/agentd/session/store"
)

func TestModelTwo(t *testing.T) { runShared(t, twoModels(faulty{})) }

func TestModelLosing(t *testing.T) { runLosing(t, losingModel(errReply)) }

var errReply = errors.New("the connection was lost")

// twoModels opens one model twice, of which one breaks the promises of f.
func twoModels(f faulty) func(*testing.T) (store.Store, store.Store) {
	return func(*testing.T) (store.Store, store.Store) {
		f := f
		m := newModel()
		f.model = m
		return f, m
	}
}

// losing is a model that loses replies.
type losing struct {
	*model
	lost func() (lost, persisted bool, err error)
}

// losingModel opens models that return err in place of a reply that is lost.
func losingModel(err error) func(*testing.T) (store.Store, func(bool)) {
	return func(*testing.T) (store.Store, func(bool)) {
		armed, persisted := false, false
		l := &losing{newModel(), func() (bool, bool, error) {
			was := armed
			armed = false
			return was, persisted, err
		}}
		return l, func(p bool) { armed, persisted = true, p }
	}
}

func (l *losing) write(f func() error) error {
	lost, persisted, err := l.lost()
	if !lost {
		return f()
	}
	if persisted {
		_ = f()
	}
	return err
}

func (l *losing) Append(ctx context.Context, b store.Batch) error {
	return l.write(func() error { return l.model.Append(ctx, b) })
}

func (l *losing) AppendMany(ctx context.Context, batches []store.Batch) []error {
	var errs []error
	if err := l.write(func() error { errs = l.model.AppendMany(ctx, batches); return errors.Join(errs...) }); err != nil {
		return []error{err}
	}
	return errs
}

func (l *losing) Create(ctx context.Context, n store.NewSession, key *store.Key) error {
	return l.write(func() error { return l.model.Create(ctx, n, key) })
}

func (l *losing) Fork(ctx context.Context, f store.Fork) error {
	return l.write(func() error { return l.model.Fork(ctx, f) })
}

func (l *losing) Update(ctx context.Context, id string, c store.Change) (info store.Info, err error) {
	err = l.write(func() (err error) { info, err = l.model.Update(ctx, id, c); return err })
	return info, err
}

func (l *losing) Delete(ctx context.Context, id string, lastSeq int64) error {
	return l.write(func() error { return l.model.Delete(ctx, id, lastSeq) })
}

func (l *losing) Purge(ctx context.Context, id string, lastSeq int64) error {
	return l.write(func() error { return l.model.Purge(ctx, id, lastSeq) })
}

func (l *losing) SetShared(ctx context.Context, values []store.SharedValue) error {
	return l.write(func() error { return l.model.SetShared(ctx, values) })
}

// twoFaults run the suite of two stores, or of lost replies, on stores that break a promise.
var twoFaults = map[string]func(t *testing.T){
	"the stores know nothing of each other": func(t *testing.T) {
		runShared(t, func(*testing.T) (store.Store, store.Store) { return newModel(), newModel() })
	},
	"epochs are no fence": func(t *testing.T) {
		runShared(t, twoModels(faulty{appended: func(m *model, b store.Batch) error {
			if head, err := m.Head(context.Background(), b.SessionID); err == nil {
				b.Epoch = max(b.Epoch, head.Epoch)
			}
			return m.Append(context.Background(), b)
		}}))
	},
	"what is in the log is no fence": func(t *testing.T) {
		runShared(t, twoModels(faulty{appended: func(m *model, b store.Batch) error {
			err := m.Append(context.Background(), b)
			head, headErr := m.Head(context.Background(), b.SessionID)
			if headErr == nil && b.Create == nil && b.After < head.LastSeq {
				b.Epoch = head.Epoch
				return m.Append(context.Background(), b)
			}
			return err
		}}))
	},
	"positions are not compared": func(t *testing.T) {
		runShared(t, twoModels(faulty{refused: func(err error) error { return ignore(err, store.ErrConflict) }}))
	},
	"a purge takes what it does not know": func(t *testing.T) {
		runShared(t, twoModels(faulty{purge: func(m *model, id string, _ int64) error {
			head, err := m.Head(context.Background(), id)
			if err != nil {
				return err
			}
			return m.Purge(context.Background(), id, head.LastSeq)
		}}))
	},
	"a lost reply has a name":   func(t *testing.T) { runLosing(t, losingModel(store.ErrFailed)) },
	"a lost reply is no error":  func(t *testing.T) { runLosing(t, losingModel(nil)) },
	"a lost reply is a context": func(t *testing.T) { runLosing(t, losingModel(context.Canceled)) },
}

// TestTwoNoticesFaults is like TestSuiteNoticesFaults.
func TestTwoNoticesFaults(t *testing.T) {
	if f := twoFaults[os.Getenv(faultEnv)]; f != nil {
		f(t)
		return
	}
	for name := range maps.Keys(twoFaults) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestTwoNoticesFaults$", "-test.failfast")
			cmd.Env = append(os.Environ(), faultEnv+"="+name)
			out, err := cmd.CombinedOutput()
			if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 1 {
				t.Errorf("the suite ends with %v, want exit status 1; it said:\n%s", err, out)
			}
		})
	}
}
