// Package testmain runs the tests of a package whose tests wait for the most part: for timeouts, for processes, for
// one another. It is a part of agentd, not an API.
package testmain

import (
	"flag"
	"runtime"
	"runtime/debug"
	"strconv"
	"testing"

	"go.uber.org/goleak"
)

// Run runs the tests, more of the parallel ones at a time than there are processors, and exits. It fails if a goroutine
// is left. TestMain calls it before flags are parsed: -parallel still counts.
func Run(m *testing.M) {
	debug.SetGCPercent(400) // little is alive at a time, and collecting it costs
	if err := flag.Set("test.parallel", strconv.Itoa(4*runtime.GOMAXPROCS(0))); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}
