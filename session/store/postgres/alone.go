package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/apzuk3/agentd/session/store"
)

// ErrInUse is why Open refuses a database that another process has opened alone.
var ErrInUse = errors.New("another agentd has the database open")

const (
	// aloneLock is the advisory lock of who has a database alone.
	aloneLock = 0x6167656e7464_02
	// aloneWait is how long a connection waits for the lock that another one of this process, which has broken, may
	// hold until the server has noticed.
	aloneWait = 5 * time.Second
	// aloneRetry is how long a try to hold the lock again waits for the next one.
	aloneRetry = 200 * time.Millisecond
)

// alone holds the lock of a database on a connection of its own; together with others, or not.
type alone struct {
	try    string // takes the lock
	cfg    *pgx.ConnConfig
	log    *slog.Logger
	cancel context.CancelFunc // ends keep
	done   chan struct{}      // closed when keep has ended
	lost   atomic.Bool        // somebody else has the lock
}

// holdAlone takes the lock, or returns ErrInUse.
func holdAlone(ctx context.Context, cc *pgx.ConnConfig, cfg *Config) (*alone, error) {
	a := &alone{try: `SELECT pg_try_advisory_lock($1)`, cfg: cc.Copy(), log: cfg.Logger, done: make(chan struct{})}
	if cfg.Together {
		a.try = `SELECT pg_try_advisory_lock_shared($1)`
	}
	// The server notices within half a minute that the machine of this process is gone.
	maps.Copy(a.cfg.RuntimeParams, map[string]string{
		"tcp_keepalives_idle": "10", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3",
	})
	conn, err := pgx.ConnectConfig(ctx, a.cfg)
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(cfg.AloneWait); ; {
		var mine bool
		err := conn.QueryRow(ctx, a.try, int64(aloneLock)).Scan(&mine)
		if err == nil && mine {
			break
		}
		if err == nil && time.Now().After(end) {
			err = ErrInUse
		}
		if err == nil {
			err = pause(ctx, aloneRetry)
		}
		if err != nil {
			return nil, errors.Join(err, conn.Close(context.WithoutCancel(ctx)))
		}
	}
	ctx, a.cancel = context.WithCancel(context.WithoutCancel(ctx))
	go a.keep(ctx, conn)
	return a, nil
}

// keep holds the lock until ctx ends. When its connection breaks it takes the lock again on another one; if somebody
// else has it by then, the store has failed.
func (a *alone) keep(ctx context.Context, conn *pgx.Conn) {
	defer close(a.done)
	for ctx.Err() == nil {
		if conn != nil {
			_, _ = conn.WaitForNotification(ctx) // there are none: the connection has ended
			_ = conn.Close(ctx)
		}
		if pause(ctx, aloneRetry) != nil {
			return
		}
		var err error
		if conn, err = pgx.ConnectConfig(ctx, a.cfg); err != nil {
			continue
		}
		var mine bool
		err = conn.QueryRow(ctx, a.try, int64(aloneLock)).Scan(&mine)
		if err == nil && !mine {
			mine, err = a.old(ctx, conn)
		}
		if err == nil && !mine {
			a.lost.Store(true)
			a.log.Error("another agentd has taken the database over while it could not be reached")
			_ = conn.Close(ctx)
			return
		}
	}
	if conn != nil {
		_ = conn.Close(context.WithoutCancel(ctx))
	}
}

// old waits for the lock as Open does: the server may hold it for the connection that has ended.
func (a *alone) old(ctx context.Context, conn *pgx.Conn) (mine bool, err error) {
	for end := time.Now().Add(aloneWait); err == nil && !mine && time.Now().Before(end); {
		if err = pause(ctx, aloneRetry); err == nil {
			err = conn.QueryRow(ctx, a.try, int64(aloneLock)).Scan(&mine)
		}
	}
	return mine, err
}

// check returns an error once somebody else has the database.
func (a *alone) check() error {
	if a != nil && a.lost.Load() {
		return fmt.Errorf("%w: %w", store.ErrFailed, ErrInUse)
	}
	return nil
}

func (a *alone) close() {
	if a != nil {
		a.cancel()
		<-a.done
	}
}

// pause waits, or returns the error of a context that ends.
func pause(ctx context.Context, d time.Duration) error {
	wait := time.NewTimer(d)
	defer wait.Stop()
	select {
	case <-wait.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
