package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"

	"github.com/apzuk3/agentd/adkbridge"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
	"github.com/apzuk3/agentd/session/store/sqlite"
)

// ReplayReport is what Replay has found.
type ReplayReport = adkbridge.Report

// Replay runs a session again on its own log; see adkbridge.Verify. Of PostgreSQL it reads one state of the session,
// also beside daemons. Of a folder, whose daemon has to be stopped, it reads a copy of the database, in the folder for
// temporary files, and writes nothing to the folder of the config.
func Replay(ctx context.Context, cfg Config, sessionID string) (rep ReplayReport, err error) {
	if cfg.StoreURL == "" {
		return replayCopy(ctx, &cfg, sessionID)
	}
	db, err := openSource(ctx, &cfg)
	if err != nil {
		return ReplayReport{}, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	err = db.Snapshot(ctx, func(ctx context.Context) (err error) {
		rep, err = replay(ctx, db, cfg.place(), sessionID)
		return err
	})
	return rep, err
}

func replayCopy(ctx context.Context, cfg *Config, sessionID string) (_ ReplayReport, err error) {
	dataDir := cfg.DataDir
	scratch, err := os.MkdirTemp("", "agentd-replay-")
	if err != nil {
		return ReplayReport{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	path, err := sqlite.Copy(ctx, filepath.Join(dataDir, databaseFile), scratch)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ReplayReport{}, fmt.Errorf("there is no database in %s", dataDir)
	case err != nil:
		return ReplayReport{}, err
	}
	// Which brings the copy's schema up to date. Wherever temporary files are, nobody else opens it.
	copied, err := sqlite.Open(ctx, path, sqlite.Config{NetworkFiles: true})
	if err != nil {
		return ReplayReport{}, err
	}
	defer func() { err = errors.Join(err, copied.Close()) }()
	db, err := newSource(ctx, copied, cfg.Encryption)
	if err != nil {
		return ReplayReport{}, err
	}
	return replay(ctx, db, dataDir, sessionID)
}

// replay runs a session of a database again, which is at a place.
func replay(ctx context.Context, db *source, place, sessionID string) (ReplayReport, error) {
	head, err := db.Info(ctx, sessionID)
	switch {
	case errors.Is(err, store.ErrNoSession):
		return ReplayReport{}, fmt.Errorf("there is no session %q in %s", sessionID, place)
	case err != nil:
		return ReplayReport{}, err
	case head.Purged > 0:
		return ReplayReport{}, fmt.Errorf("the log of session %q has been purged", sessionID)
	}
	shared, err := session.SharedState(ctx, db, head.Owner())
	if err != nil {
		return ReplayReport{}, err
	}
	return adkbridge.Verify(ctx, sessionID, logOf(ctx, db, sessionID), shared)
}

// logOf yields a session's records, a page at a time.
func logOf(ctx context.Context, db store.Store, id string) iter.Seq2[record.Record, error] {
	const page = 512
	return func(yield func(record.Record, error) bool) {
		for last := int64(0); ; {
			recs, err := db.Read(ctx, id, last, page)
			if err != nil {
				yield(record.Record{}, err)
				return
			}
			for _, rec := range recs {
				if last = rec.Seq; !yield(rec, nil) {
					return
				}
			}
			if store.LastPage(recs, page) {
				return
			}
		}
	}
}
