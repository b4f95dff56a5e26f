package postgres

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"log/slog"
	"net"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed migrations/*.sql
var migrations embed.FS

const (
	// oldestServer is server_version_num of PostgreSQL 14, the first with COMPRESSION lz4.
	oldestServer = 140000
	// connectTimeout bounds a try to connect, unless the URL has connect_timeout.
	connectTimeout = 5 * time.Second
)

// open returns a store whose writers do not run yet.
func open(ctx context.Context, url string, cfg *Config) (*Store, error) {
	plain, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cc := pool.ConnConfig
	if cc.ConnectTimeout == 0 {
		cc.ConnectTimeout = connectTimeout
	}
	dialer := &net.Dialer{KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3,
	}}
	cc.DialFunc, cc.OnNotice = dialer.DialContext, heed
	if _, isSet := plain.RuntimeParams["pool_max_conns"]; !isSet {
		pool.MaxConns = readers
	}
	src, err := fs.Sub(migrations, "migrations")
	if err == nil {
		err = prepare(ctx, cc, src, cfg)
	}
	if err != nil {
		return nil, err
	}
	s := &Store{seed: maphash.MakeSeed(), owner: cfg.Owner, only: cfg.ReadOnly}
	if s.pool, err = pgxpool.NewWithConfig(ctx, pool); err != nil {
		return nil, err
	}
	s.beside = newBeside(s.pool)
	if s.only {
		return s, nil
	}
	own := pool.Copy()
	own.MaxConns, own.MinConns, own.MinIdleConns = writers, 0, 0
	if s.appends, err = pgxpool.NewWithConfig(ctx, own); err != nil {
		err = errors.Join(err, s.beside.db.Close())
		s.pool.Close()
		return nil, err
	}
	for i := range s.writers {
		s.writers[i] = newWriter(s.appends, cfg.Timeout)
	}
	if cfg.Alone || cfg.Together {
		if s.alone, err = holdAlone(ctx, cc, cfg); err != nil {
			s.appends.Close()
			err = errors.Join(err, s.beside.db.Close())
			s.pool.Close()
			return nil, err
		}
	}
	return s, nil
}

// prepare looks at the server and brings the schema up to date.
func prepare(ctx context.Context, cc *pgx.ConnConfig, src fs.FS, cfg *Config) (err error) {
	db := stdlib.OpenDB(*cc)
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := inspect(ctx, db, cfg.Logger); err != nil {
		return err
	}
	if err := finished(ctx, db, cfg); err != nil {
		return err
	}
	want, err := newest(src)
	if err != nil {
		return err
	}
	have, err := schemaOf(ctx, db)
	switch {
	case err != nil:
		return err
	case have == want:
		return nil
	case have > want:
		return newer(ctx, db, have, want)
	case cfg.ReadOnly && have == 0:
		return errors.New("it is no database of agentd: it has no tables of one")
	case cfg.ReadOnly:
		return fmt.Errorf("the schema of the database is of version %d, this program reads version %d: "+
			"an older agentd has written it; start this version first, or use the older one", have, want)
	}
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 300)) // seconds, times
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(goose.DialectPostgres, db, src, goose.WithSessionLocker(locker),
		goose.WithDisableGlobalRegistry(true), goose.WithSlog(slog.New(slog.DiscardHandler)))
	if err != nil {
		return fmt.Errorf("migrations: %w", err)
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("bring the schema from version %d to %d: %w", have, want, named(ctx, err))
	}
	if have == 0 {
		cfg.Logger.Info("new, empty database", slog.String("host", cc.Host), slog.String("database", cc.Database))
	}
	return nil
}

// inspect refuses a server that cannot keep the promises of this package, and warns of settings that break one.
func inspect(ctx context.Context, db *sql.DB, log *slog.Logger) error {
	var version int
	var encoding, fsync, commit string
	var standby bool
	err := db.QueryRowContext(ctx, `SELECT current_setting('server_version_num')::int, pg_is_in_recovery(),
		current_setting('server_encoding'), current_setting('fsync'), current_setting('synchronous_commit')`).
		Scan(&version, &standby, &encoding, &fsync, &commit)
	switch {
	case err != nil:
		return err
	case version < oldestServer:
		return fmt.Errorf("the server is of version %d, want PostgreSQL %d or later", version/10000, oldestServer/10000)
	case encoding != "UTF8":
		return fmt.Errorf("the encoding of the database is %s, want UTF8", encoding)
	case standby:
		return errors.New("the server is a standby: add target_session_attrs=read-write to the URL, with all hosts")
	case fsync == "off" || commit == "off" || commit == "local":
		log.Warn("the server may lose what it has acknowledged",
			slog.String("fsync", fsync), slog.String("synchronous_commit", commit))
	}
	return nil
}

// finished refuses a database that is half of a copy.
func finished(ctx context.Context, db *sql.DB, cfg *Config) error {
	var made, over bool
	err := db.QueryRowContext(ctx, `SELECT to_regclass('agentd_migration') IS NOT NULL`).Scan(&made)
	if err == nil && made && !cfg.Migration {
		err = db.QueryRowContext(ctx, `SELECT finished_at IS NOT NULL FROM agentd_migration`).Scan(&over)
		if err == nil && !over {
			err = errors.New("agentd migrate has not finished this database: run it again, until it says so")
		}
	}
	return err
}

// newest returns the version of the schema that this program knows.
func newest(src fs.FS) (version int64, err error) {
	files, err := fs.Glob(src, "*.sql")
	for _, name := range files {
		v, err := goose.NumericComponent(name)
		if err != nil {
			return 0, err
		}
		version = max(version, v)
	}
	return version, err
}

// schemaOf returns the version of the schema of a database, 0 for an empty one.
func schemaOf(ctx context.Context, db *sql.DB) (version int64, err error) {
	var made bool
	err = db.QueryRowContext(ctx, `SELECT to_regclass('goose_db_version') IS NOT NULL`).Scan(&made)
	if err == nil && made {
		err = db.QueryRowContext(ctx, `SELECT coalesce(max(version_id), 0) FROM goose_db_version
			WHERE is_applied`).Scan(&version)
	}
	if err != nil {
		return 0, fmt.Errorf("read the schema version: %w", err)
	}
	return version, nil
}

// newer decides on a schema that a newer program has made.
func newer(ctx context.Context, db *sql.DB, have, want int64) error {
	var oldest int64
	if err := db.QueryRowContext(ctx, `SELECT oldest FROM compatible`).Scan(&oldest); err != nil {
		return fmt.Errorf("read which programs may use the schema: %w", err)
	}
	if oldest > want {
		return fmt.Errorf("the schema of the database is of version %d and needs a program that knows version %d, "+
			"this one knows %d: a newer agentd has written it", have, oldest, want)
	}
	return nil
}
