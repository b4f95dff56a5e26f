package main

import (
	"bytes"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
)

// A server that waits for a database which does not respond ends when it is asked to.
func TestStoppedWhileItOpens(t *testing.T) {
	t.Parallel()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	signals, connected := make(chan os.Signal, 2), make(chan struct{})
	go func() { // ends with the listener
		for first := true; ; first = false {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = c.Close() })
			if first {
				close(connected)
			}
		}
	}()
	go func() {
		<-connected
		signals <- syscall.SIGTERM
	}()
	var log bytes.Buffer
	env := map[string]string{"AGENTD_STORE": "postgres://agentd@" + l.Addr().String() + "/agentd?sslmode=disable", "AGENTD_ADDR": "127.0.0.1:0"}
	if code := run(signals, []string{"serve"}, withoutAdmin(env), io.Discard, &log); code != exitOK {
		t.Errorf("exit code %d: %s", code, log.String())
	}
	if !strings.Contains(log.String(), "stopped before it served") {
		t.Errorf("the log is %s", log.String())
	}
}
