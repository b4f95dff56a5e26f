package main

import (
	"context"
	"os/signal"
	"syscall"

	"github.com/apzuk3/agentd/session/store"
)

const canWearOut = true

// wearOut appends while the kernel refuses to let a file grow.
func wearOut(ctx context.Context, store store.Store, b store.Batch) error {
	signal.Ignore(syscall.SIGXFSZ)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 4096, Max: 4096}); err != nil {
		return err
	}
	return store.Append(ctx, b)
}
