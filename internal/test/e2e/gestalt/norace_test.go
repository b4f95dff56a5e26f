//go:build !race

package gestalt_test

// raceFlags build the program as the tests are built.
var raceFlags []string
