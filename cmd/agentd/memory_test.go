package main

import (
	"log/slog"
	"math"
	"runtime/debug"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// TestBoundMemory: the container's memory bounds the process, and GOMEMLIMIT wins.
func TestBoundMemory(t *testing.T) {
	was := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(was) })
	none := func() (uint64, error) { return 0, memlimit.ErrNoLimit }
	for name, tt := range map[string]struct {
		env   string
		limit memlimit.Provider
		want  int64
	}{
		"a container":          {limit: memlimit.Limit(10 << 30), want: 9 << 30},
		"without a limit":      {limit: none, want: math.MaxInt64},
		"GOMEMLIMIT":           {env: "2GiB", limit: memlimit.Limit(10 << 30), want: math.MaxInt64},
		"no limit by its name": {env: "off", limit: memlimit.Limit(10 << 30), want: math.MaxInt64},
	} {
		t.Run(name, func(t *testing.T) {
			debug.SetMemoryLimit(math.MaxInt64)
			if tt.env != "" {
				t.Setenv("GOMEMLIMIT", tt.env) // the runtime has read it before main
			}
			boundMemory(slog.New(slog.DiscardHandler), tt.limit)
			if got := debug.SetMemoryLimit(-1); got != tt.want {
				t.Errorf("the limit is %d, want %d", got, tt.want)
			}
		})
	}
}
