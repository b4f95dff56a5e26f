package gestalt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"
)

const (
	// parentEvery is how often it is looked whether the host is still there.
	parentEvery = 500 * time.Millisecond
	// grace is how long model calls that are under way are waited for when the process stops: the host kills it 2 s
	// after SIGTERM.
	grace = 600 * time.Millisecond
	// stopWithin bounds the stop. The database needs no more time: the next start goes on from it as it is.
	stopWithin = 1300 * time.Millisecond
)

// Serve listens on the host's socket until ctx ends or the host is gone, and stops then: turns are suspended, and the
// next process goes on with them. An error is why it could not serve.
func (p *Provider) Serve(ctx context.Context) error {
	l, err := listen(ctx, p.cfg.Env.Socket)
	if err != nil {
		return err
	}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	srv := &http.Server{
		Handler: p.handler(), Protocols: protocols, ReadHeaderTimeout: 5 * time.Second,
		ErrorLog: slog.NewLogLogger(p.log.Handler(), slog.LevelDebug),
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }() // ends with srv.Close below
	p.log.Info("serving a Gestalt host", slog.String("socket", p.cfg.Env.Socket), slog.String("version", p.cfg.Version))
	err = p.wait(ctx, served)
	stopped := make(chan error, 1)
	go func() { // ends with the stop; what takes longer than stopWithin ends with the process
		soft, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer cancel()
		stopped <- p.stop(soft)
	}()
	timer := time.NewTimer(stopWithin)
	defer timer.Stop()
	select {
	case failed := <-stopped:
		err = errors.Join(err, failed)
	case <-timer.C:
		p.log.Warn("the stop takes too long: what is left is done by the next start")
	}
	return errors.Join(err, srv.Close())
}

// wait returns when the process has to stop.
func (p *Provider) wait(ctx context.Context, served <-chan error) error {
	tick := time.NewTicker(parentEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-served:
			return fmt.Errorf("gestalt: serve: %w", err)
		case <-tick.C:
			if err := p.failed(); err != nil {
				return err
			}
			if parent := os.Getppid(); p.cfg.Env.Parent != 0 && parent != p.cfg.Env.Parent {
				p.log.Info("the host is gone", slog.Int("parent", parent))
				return nil
			}
		}
	}
}

// failed is why the daemon is of no use any more; nil if it is.
func (p *Provider) failed() error {
	if p.current.Load() == nil {
		return nil
	}
	select {
	case err := <-p.backend.Failed:
		return err
	default:
		return nil
	}
}

// listen binds the host's socket, in place of one that a process left which was killed.
func listen(ctx context.Context, path string) (net.Listener, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("gestalt: GESTALT_PLUGIN_SOCKET: %w", err)
	case info.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("gestalt: GESTALT_PLUGIN_SOCKET is %s, which is no socket", path)
	default:
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("gestalt: GESTALT_PLUGIN_SOCKET: %w", err)
		}
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("gestalt: GESTALT_PLUGIN_SOCKET: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("gestalt: GESTALT_PLUGIN_SOCKET: %w", err), l.Close())
	}
	return l, nil
}
