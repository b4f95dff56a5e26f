//go:build !race

package chaos

// raceFlags build the daemon as the tests are built.
var raceFlags []string
