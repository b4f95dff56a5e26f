package daemon

import (
	"context"
	"path/filepath"

	"github.com/apzuk3/agentd/internal/migrate"
)

// Migrated is what Migrate has done.
type Migrated = migrate.Result

// Migrate copies the database of a folder to that of cfg.StoreURL, or goes on with a copy; see migrate.Run. progress
// may be nil.
func Migrate(ctx context.Context, cfg Config, progress func(what string, done, total int64)) (Migrated, error) {
	return migrate.Run(ctx, migrate.Config{
		From: filepath.Join(cfg.DataDir, databaseFile), To: string(cfg.StoreURL), NetworkFiles: cfg.AllowNetworkFiles,
		Progress: progress,
	})
}
