//go:build unix

package terminal

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// awaitInput waits until a file can be read or has ended. waits is false when the
// system cannot wait for such a file. An error is the cause of ctx's end.
func awaitInput(ctx context.Context, f *os.File) (waits bool, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return false, nil // out of descriptors; reading still works
	}
	defer func() { _ = r.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = w.Close() })
	defer func() {
		if stop() {
			_ = w.Close()
		}
	}()
	fds := []unix.PollFd{{Fd: int32(r.Fd()), Events: unix.POLLIN}, {Fd: int32(f.Fd()), Events: unix.POLLIN}}
	for {
		_, err := unix.Poll(fds, -1)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return false, nil
		case ctx.Err() != nil:
			return true, context.Cause(ctx)
		case fds[1].Revents&unix.POLLNVAL != 0:
			return false, nil
		case fds[1].Revents != 0:
			return true, nil
		}
	}
}
