//go:build race

package chaos

// raceFlags build the daemon as make race builds the tests: SQLite, translated from C, keeps no memory of Go's, and takes
// four times as long with the detector in it.
var raceFlags = []string{"-race", "-gcflags=modernc.org/...=-race=false"}
