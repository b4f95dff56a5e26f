package server_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/grpcreflect"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/server"
)

func get(t *testing.T, f *fixture, path string) (int, string) {
	t.Helper()
	resp, err := http.Get(f.url + path)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestHealth(t *testing.T) {
	var broken error
	f := serve(t, engine{run: talk}, server.Config{Ready: func(context.Context) error { return broken }})
	conn, err := grpc.NewClient(strings.TrimPrefix(f.url, "http://"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	check := func(ready bool, text string) {
		t.Helper()
		status, grpcStatus := http.StatusOK, healthv1.HealthCheckResponse_SERVING
		if !ready {
			status, grpcStatus = http.StatusServiceUnavailable, healthv1.HealthCheckResponse_NOT_SERVING
		}
		if got, body := get(t, f, "/readyz"); got != status || !strings.Contains(body, text) {
			t.Errorf("readyz %d %q, want %d %q", got, body, status, text)
		}
		if got, _ := get(t, f, "/healthz"); got != http.StatusOK {
			t.Errorf("healthz %d", got)
		}
		for _, service := range []string{"", agentdv1connect.AgentdName, agentdv1connect.SessionServiceName, agentdv1connect.ScheduleServiceName, agentdv1connect.GoalServiceName, agentdv1connect.EventServiceName} {
			resp, err := healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{Service: service})
			if err != nil || resp.GetStatus() != grpcStatus {
				t.Errorf("gRPC health of %q %v %v, want %v", service, resp, err, grpcStatus)
			}
		}
	}
	check(true, "ready")
	broken = errors.New("disk full at /some/where")
	check(false, "the store cannot take writes")
	broken = nil
	check(true, "ready")
	f.srv.Drain()
	check(false, "stopping")
	if _, err := healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{Service: "other"}); err == nil {
		t.Error("an unknown service must be an error")
	}
}

func TestReflection(t *testing.T) {
	f := serve(t, engine{run: talk}, server.Config{})
	c := grpcreflect.NewClient(f.hc, f.url)
	s := c.NewStream(t.Context())
	names, err := s.ListServices()
	if err != nil {
		t.Fatal(err)
	}
	files, err := s.FileContainingSymbol(protoreflect.FullName(agentdv1connect.AgentdName))
	if err != nil || len(files) == 0 {
		t.Errorf("no file of the service: %v", err)
	}
	if _, err := s.Close(); err != nil {
		t.Error(err)
	}
	if len(names) != 6 || string(names[0]) != agentdv1connect.AgentdName || string(names[1]) != agentdv1connect.SessionServiceName {
		t.Errorf("services %v", names)
	}
	none := serve(t, engine{run: talk}, server.Config{NoReflection: true})
	s = grpcreflect.NewClient(none.hc, none.url).NewStream(t.Context())
	if _, err := s.ListServices(); err == nil {
		t.Error("reflection must be off")
	}
	_, _ = s.Close()
}
