package sqlitestore

import "fmt"

// refuseNetwork refuses a path on a file system that other machines may use as well:
// locks do not reach them, or not in time, and SQLite's WAL needs memory that all who
// have the database open share.
func refuseNetwork(path string, o *options) error {
	if o.anyFiles {
		return nil
	}
	name, err := o.network(path)
	if err != nil {
		return fmt.Errorf("look at the file system: %w", err)
	}
	if name != "" {
		return fmt.Errorf("%w: %s is on %s, where a database cannot be locked against other machines and may be damaged; choose a folder on a local disk",
			ErrNetwork, path, name)
	}
	return nil
}
