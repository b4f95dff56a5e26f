// Package natsserver runs a real server of NATS in the process of a test, on loopback.
package natsserver

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// startTimeout bounds the start of a server.
const startTimeout = time.Minute

// Server is a server that keeps its address from life to life. One goroutine at a time may use it. It ends with the
// test.
type Server struct {
	t    testing.TB
	opts server.Options
	now  *server.Server // nil while it is killed
}

// Start starts a server; set, if not nil, changes its options.
func Start(t testing.TB, set func(*server.Options)) *Server {
	t.Helper()
	s := &Server{t: t, opts: server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true}}
	if set != nil {
		set(&s.opts)
	}
	s.Restart()
	s.opts.Port = s.now.Addr().(*net.TCPAddr).Port
	t.Cleanup(s.Kill)
	return s
}

// Addr is where the server listens, HOST:PORT.
func (s *Server) Addr() string { return fmt.Sprintf("127.0.0.1:%d", s.opts.Port) }

// URL is where the server is.
func (s *Server) URL() string { return fmt.Sprintf("nats://127.0.0.1:%d", s.opts.Port) }

// Received returns how many messages this life of the server has received.
func (s *Server) Received() int64 {
	s.t.Helper()
	v, err := s.now.Varz(nil)
	if err != nil {
		s.t.Fatal(err)
	}
	return v.InMsgs
}

// Kill ends the server and all its connections, unless it is killed.
func (s *Server) Kill() {
	if s.now != nil {
		s.now.Shutdown()
		s.now.WaitForShutdown()
		s.now = nil
	}
}

// Restart starts the server after Kill, at the same address.
func (s *Server) Restart() {
	s.t.Helper()
	opts := s.opts // the server changes them
	now, err := server.NewServer(&opts)
	if err != nil {
		s.t.Fatal(err)
	}
	now.Start()
	if !now.ReadyForConnections(startTimeout) {
		s.t.Fatalf("NATS is not ready after %v", startTimeout)
	}
	s.now = now
}
