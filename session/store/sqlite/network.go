package sqlite

import "fmt"

// onNetwork tells whether a path is on a file system that other machines may use as well,
// and refuses that unless the options allow it: locks do not reach those machines, or not in
// time, and SQLite's WAL needs memory that all who have the database open share.
func onNetwork(path string, o *options) (bool, error) {
	name, err := o.network(path)
	switch {
	case err != nil:
		return false, fmt.Errorf("look at the file system: %w", err)
	case name != "" && !o.anyFiles:
		return true, fmt.Errorf("%w: %s is on %s, where a database cannot be locked against other machines "+
			"and may be damaged; choose a folder on a local disk", ErrNetwork, path, name)
	default:
		return name != "", nil
	}
}
