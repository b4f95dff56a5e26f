//go:build race

package chaos

// raceFlags build the daemon as the tests are built.
var raceFlags = []string{"-race"}

// killStride is the stride of TestKillPoints by itself: make chaos kills at each record, but without
// the race detector.
const killStride = 9
