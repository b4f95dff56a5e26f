package proc

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Serve serves a handler on a free port of loopback until SIGTERM, and says where in the form of agentd's log.
func Serve(h http.Handler) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	slog.New(slog.NewJSONHandler(os.Stderr, nil)).Info(serving, "addr", l.Addr().String())
	if err := server.Serve(l); ctx.Err() == nil {
		return err
	}
	return nil
}
