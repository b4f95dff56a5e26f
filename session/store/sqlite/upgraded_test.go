package sqlite

import "testing"

// A database that has come to this schema by migrations has no problem for a check: the check compares schemas
// with what a new database gets.
func TestUpgradedDatabaseHasNoProblems(t *testing.T) {
	dir := t.TempDir()
	mustClose(t, open(t, dir, withMigrations(known(t))))
	s := open(t, dir)
	defer mustClose(t, s)
	if problems, err := s.Integrity(t.Context()); err != nil || len(problems) > 0 {
		t.Errorf("problems: %q, %v", problems, err)
	}
}
