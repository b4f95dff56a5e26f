package main

import (
	"errors"
	"log/slog"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// memoryShare is how much of the memory of its container Go may take before the garbage collector works for each byte
// more. The rest is for what it does not count: SQLite's own memory, and files in the cache of the system.
const memoryShare = 0.9

// boundMemory bounds the memory of the process by that of its container, as limit says it, unless GOMEMLIMIT does.
// Where there is no container, and where it has no limit, nothing is bounded.
func boundMemory(log *slog.Logger, limit memlimit.Provider) {
	bytes, err := memlimit.SetGoMemLimitWithOpts(memlimit.WithProvider(limit), memlimit.WithRatio(memoryShare))
	none := errors.Is(err, memlimit.ErrNoLimit) || errors.Is(err, memlimit.ErrNoCgroup) ||
		errors.Is(err, memlimit.ErrCgroupsNotSupported)
	switch {
	case err != nil && !none:
		log.Debug("the memory of the container is not known", "error", err)
	case bytes > 0:
		log.Debug("memory is bounded by that of the container", "bytes", bytes)
	}
}
