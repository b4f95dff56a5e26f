//go:build !race

package chaos

// raceFlags build the daemon as the tests are built.
var raceFlags []string

// killStride is the stride of TestKillPoints by itself; make chaos kills at each record.
const killStride = 25
