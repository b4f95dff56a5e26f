package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"

	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
)

const (
	// smallMessageBytes bounds requests of health and reflection.
	smallMessageBytes = 64 << 10
	// shortTimeout bounds an exchange of health or reflection as a whole.
	shortTimeout = time.Minute
	// readyTimeout bounds the question whether the server is ready.
	readyTimeout = 3 * time.Second
)

// short bounds the time and the bytes of everything but Run, and contains its
// panics.
func (s *Server) short(next http.Handler) http.Handler {
	bounded := http.MaxBytesHandler(next, skipFactor*smallMessageBytes)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		deadline := time.Now().Add(shortTimeout)
		_ = rc.SetReadDeadline(deadline) // not supported: the server's own limits hold
		_ = rc.SetWriteDeadline(deadline)
		defer func() {
			if p := recover(); p != nil {
				s.panicked(r.URL.Path, p)
				panic(http.ErrAbortHandler) // cuts the exchange off, unlogged
			}
		}()
		bounded.ServeHTTP(w, r)
	})
}

// ready returns why turns cannot be served, nil if they can.
func (s *Server) ready(ctx context.Context) error {
	if s.drain.Err() != nil {
		return errors.New("stopping")
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if err := s.now().Ready(ctx); err != nil {
		s.log.Warn("not ready", slog.String("error", err.Error()))
		return errors.New("the store cannot take writes")
	}
	return nil
}

// healthz reports that the process serves.
func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, "ok\n")
}

// readyz reports whether turns can be served: 200, or 503 with the reason.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if err := s.ready(r.Context()); err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, err.Error()+"\n")
		return
	}
	_, _ = io.WriteString(w, "ready\n")
}

// healthChecker is the gRPC health service. It reports the same as readyz.
type healthChecker struct{ s *Server }

func (c healthChecker) Check(ctx context.Context, req *grpchealth.CheckRequest) (*grpchealth.CheckResponse, error) {
	switch req.Service {
	case "", agentdv1connect.AgentdName, agentdv1connect.SessionServiceName, agentdv1connect.EventServiceName,
		agentdv1connect.GoalServiceName, agentdv1connect.ScheduleServiceName, grpchealth.HealthV1ServiceName:
	default:
		return nil, connect.NewError(connect.CodeNotFound, errors.New("unknown service"))
	}
	status := grpchealth.StatusServing
	if c.s.ready(ctx) != nil {
		status = grpchealth.StatusNotServing
	}
	return &grpchealth.CheckResponse{Status: status}, nil
}

// panicked logs a panic of ours that was contained.
func (s *Server) panicked(where string, p any) {
	s.log.Error("panic contained", slog.String("where", where), slog.Any("panic", p),
		slog.String("stack", string(debug.Stack())))
}
