package sqlite

import "fmt"

// onNetwork reports whether a path is on a file system that other machines may use too, and refuses such a
// path unless the options allow it. Locks do not reach those machines, or not in time, and SQLite's WAL
// needs memory that all processes with the database open share.
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
