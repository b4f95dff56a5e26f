package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"
)

// maxAdminConns is how many connections to the operator's listener may be open at once.
const maxAdminConns = 64

// admin is the operator's listener: metrics, health and profiles, without TLS and authentication.
type admin struct {
	listener net.Listener
	http     *http.Server
	served   sync.WaitGroup // the goroutine that serves
}

// startAdmin listens on the address for the operator; nil if there is none. ctx bounds the listening alone.
func (d *Daemon) startAdmin(ctx context.Context) (*admin, error) {
	if d.cfg.AdminAddr == "" {
		return nil, nil
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", d.cfg.AdminAddr)
	if d.cfg.AdminMayFail && errors.Is(err, syscall.EADDRINUSE) {
		d.log.Warn("no metrics are served: another process listens on the address for them",
			slog.String("admin_addr", d.cfg.AdminAddr))
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("daemon: listen for the operator on %q: %w", d.cfg.AdminAddr, err)
	}
	if exposed(l.Addr()) {
		d.log.Warn("other machines reach the address for metrics and profiles, which asks nobody who they are",
			slog.String("admin_addr", l.Addr().String()))
	}
	a := &admin{listener: l, http: &http.Server{
		Handler:           d.guarded(d.adminRoutes()),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second, // no WriteTimeout: whoever asks for a profile says how long it takes
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(d.log.Handler(), slog.LevelDebug),
	}}
	a.served.Go(func() { _ = a.http.Serve(limit(l, maxAdminConns)) }) // ends with close
	d.log.Info("serving the operator", slog.String("admin_addr", l.Addr().String()))
	return a, nil
}

// adminRoutes are what the operator's listener serves.
func (d *Daemon) adminRoutes() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", d.metrics.Handler())
	mux.Handle("GET /healthz", d.server.Handler())
	mux.Handle("GET /readyz", d.server.Handler())
	if d.cfg.Debug != nil {
		mux.Handle("/debug/", d.cfg.Debug)
	}
	return mux
}

// close ends the listener and the requests to it. It may be called again, and of nil.
func (a *admin) close() error {
	if a == nil {
		return nil
	}
	err := a.http.Close()
	a.served.Wait()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("daemon: close the listener for the operator: %w", err)
	}
	return nil
}

// AdminAddr returns where the daemon listens for the operator; nil before Start and where it does not.
func (d *Daemon) AdminAddr() net.Addr {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.admin == nil {
		return nil
	}
	return d.admin.listener.Addr()
}
