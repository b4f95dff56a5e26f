package server_test

import (
	"runtime/debug"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // little is alive at a time, and collecting it costs
	goleak.VerifyTestMain(m)
}
