package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/apzuk3/agentd/internal/ledger"
	"github.com/apzuk3/agentd/internal/ledger/sqlledger"
	"github.com/apzuk3/agentd/internal/sealed"
	"github.com/apzuk3/agentd/session/principal"
	"github.com/apzuk3/agentd/session/store"
)

// Encryption says with which keys a database is encrypted. The zero value encrypts nothing.
type Encryption = sealed.Config

// ErrNoKeys is why a database that is encrypted is not opened without its keys.
var ErrNoKeys = sealed.ErrNoKeys

// NewEncryptionKey returns a line of Encryption.KeysFile, with a new key.
func NewEncryptionKey(id string) (string, error) { return sealed.NewKey(id) }

// sealedStore returns what sessions are kept in: the store, or one that seals what it writes to it.
func (d *Daemon) sealedStore(ctx context.Context) (store.Store, error) {
	db, ok := d.store.(sealed.DB)
	if !ok {
		if !d.cfg.Encryption.IsZero() {
			return nil, errors.New("daemon: Encryption needs a store with Transact and View, as that of a DataDir has")
		}
		return d.store, nil
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	err := d.maySeal()
	if err != nil {
		return nil, err
	}
	if d.replica != nil {
		d.ring, err = sealed.OpenShared(ctx, db, d.cfg.Encryption, d.replica.member, d.log)
	} else {
		d.ring, err = sealed.Open(ctx, db, d.cfg.Encryption, d.log)
	}
	if err != nil {
		return nil, fmt.Errorf("daemon: %w", err)
	}
	d.sealer.Store(d.ring)
	if d.ring == nil {
		return d.store, nil
	}
	return sealed.New(d.store, d.ring), nil
}

// reloadKeys reads the file of keys again.
func (d *Daemon) reloadKeys() error {
	if d.ring == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	return d.ring.Reload(ctx, d.log)
}

// followEvery is how often one of several daemons looks for a new data key.
const followEvery = time.Second

// sealing seals all values again when it is asked to, until ctx ends. What a process does not finish, the next one
// does. Of several daemons one does it, and the others seal with the data key that it has made.
func (d *Daemon) sealing(ctx context.Context, db sealed.Recoder) {
	every := erasureEvery
	if d.replica != nil {
		every = followEvery
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		err := d.ring.Follow(ctx)
		if err == nil && d.isFirst() {
			_, err = d.seal(ctx, db)
		}
		if err != nil && ctx.Err() == nil {
			d.log.Error("values could not be sealed again; it is tried again", slog.String("error", err.Error()))
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// seal does the next sealing that was asked for; more is false if there is none.
func (d *Daemon) seal(ctx context.Context, db sealed.Recoder) (more bool, err error) {
	x, err := sealed.Sealings{DB: db}.Open(ctx)
	if err != nil || x.ID == 0 {
		return false, err
	}
	result, err := d.ring.Seal(ctx, db, beside(db), x)
	if err != nil {
		return false, fmt.Errorf("sealing %d: %w", x.ID, err)
	}
	d.log.Info("all values were sealed again", slog.Int64("sealing", x.ID), slog.String("result", result))
	return true, nil
}

// beside returns what gives the values of the ledger in a database to who changes them.
func beside(db sqlledger.Eraser) sealed.LedgerRecoder {
	return func(ctx context.Context, c interface {
		Agent(ctx context.Context, a *ledger.Agent) error
		Object(ctx context.Context, o *ledger.Object) error
		Failed(err error) error
	},
	) (int64, error) {
		return sqlledger.Recode(ctx, db, c)
	}
}

// Reseal seals all values of a database under a new data key: those that are clear, and those of older data keys, which
// are removed. A daemon that runs does it; else this process does. ctx bounds the wait; it goes on. left are files
// beside the database that may have clear values.
func Reseal(ctx context.Context, cfg Config) (result string, left []string, err error) {
	l, err := openLedger(ctx, &cfg)
	if err != nil {
		return "", nil, err
	}
	if l.alone {
		if err := l.Close(); err != nil {
			return "", nil, err
		}
		result, err = resealAlone(ctx, cfg)
	} else {
		result, err = l.reseal(ctx)
		err = errors.Join(err, l.Close())
	}
	if err == nil && cfg.StoreURL == "" {
		left, err = copiesBeside(cfg.DataDir)
	}
	return result, left, err
}

// askForSealing notes that all values are to be sealed again.
func askForSealing(ctx context.Context, db sealed.DB, l ledger.Ledger) (id int64, err error) {
	if id, err = (sealed.Sealings{DB: db}).Add(ctx); err != nil {
		return 0, err
	}
	return id, l.AddEntries(ctx, []ledger.Entry{{
		Time: time.Now(), Principal: osUser(), Role: principal.Operator, From: "local",
		Action: "reseal", Subject: fmt.Sprint(id), Outcome: "ok",
	}})
}

// reseal has the daemon that runs seal all values again.
func (l *Ledger) reseal(ctx context.Context) (string, error) {
	id, err := askForSealing(ctx, l.store, l.ledger)
	if err != nil {
		return "", err
	}
	tick := time.NewTicker(erasurePoll)
	defer tick.Stop()
	for {
		x, err := sealed.Sealings{DB: l.store}.Get(ctx, id)
		if err != nil || !x.Ended.IsZero() {
			return x.Result, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return "", fmt.Errorf("sealing %d is not over; the server continues: %w", id, context.Cause(ctx))
		}
	}
}

// resealAlone seals the values of a database that no daemon has open. It runs no turn.
func resealAlone(ctx context.Context, cfg Config) (result string, err error) {
	cfg.HandlerOnly = true
	d, err := New(cfg)
	if err != nil {
		return "", err
	}
	defer func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		err = errors.Join(err, d.Shutdown(now))
	}()
	db, ok := d.store.(sealed.Recoder)
	if !ok || d.ring == nil {
		return "", errors.New("there are no encryption keys: want --encryption-keys or --encryption-command")
	}
	id, err := askForSealing(ctx, db, d.ledger)
	for more := true; more && err == nil; {
		more, err = d.seal(ctx, db)
	}
	if err != nil {
		return "", err
	}
	x, err := sealed.Sealings{DB: db}.Get(ctx, id)
	return x.Result, err
}

// copiesBeside returns the copies of a database that are beside it: from before upgrades, and what Restore has kept.
func copiesBeside(dataDir string) ([]string, error) {
	path := filepath.Join(dataDir, databaseFile)
	files, err := filepath.Glob(escapeGlob(path) + "*")
	return slices.DeleteFunc(files, func(name string) bool {
		return slices.Contains([]string{"", "-wal", "-shm", ".lock"}, strings.TrimPrefix(name, path))
	}), err
}

// escapeGlob is a pattern that matches a path alone.
func escapeGlob(path string) string {
	return strings.NewReplacer(`*`, `[*]`, `?`, `[?]`, `[`, `[[]`).Replace(path)
}
