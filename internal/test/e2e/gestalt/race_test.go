//go:build race

package gestalt_test

// raceFlags build the program as make race builds the tests.
var raceFlags = []string{"-race", "-gcflags=modernc.org/...=-race=false"}
