package main

import (
	"bytes"
	"context"
	"io"
	"syscall"
	"testing"

	"github.com/apzuk3/agentd/client"
)

// A server that was killed in the middle of a turn goes on with the session,
// whose open tool call is closed.
func TestKill(t *testing.T) {
	env := map[string]string{"AGENTD_ADDR": "127.0.0.1:0", "AGENTD_DATA": t.TempDir()}
	first := binary(t, env)
	c := newClient(t, first)
	called := make(chan struct{})
	err := client.AddTool(c, "wait", "Waits", func(ctx context.Context, _ struct{}) (any, error) {
		close(called)
		<-ctx.Done()
		return nil, ctx.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	session := make(chan string, 1)
	failed := make(chan error, 1)
	go func() {
		for ev, err := range c.Run(t.Context(), agent("scripted/demo", "wait"), "go") {
			if err != nil {
				failed <- err
				return
			}
			if ev.Started != nil {
				session <- ev.Started.SessionID
			}
		}
		failed <- nil
	}()
	id := <-session
	<-called
	first.signal(syscall.SIGKILL)
	first.wait()
	if err := <-failed; err == nil {
		t.Error("the client must be told that its stream is gone")
	}

	second := binary(t, env)
	res, err := newClient(t, second).Do(t.Context(), agent("echo"), "still there?", client.WithSessionID(id))
	if err != nil || res.Text != "still there?" || res.SessionID != id {
		t.Errorf("got %v, %v", res, err)
	}
	second.signal(syscall.SIGTERM)
	if code := second.wait(); code != exitOK {
		t.Errorf("exit code %d: %s", code, second.log)
	}
}

// Two servers do not share a data folder.
func TestDataInUse(t *testing.T) {
	env := map[string]string{"AGENTD_ADDR": "127.0.0.1:0", "AGENTD_DATA": t.TempDir()}
	binary(t, env)
	var stderr bytes.Buffer
	if code := run(nil, []string{"serve"}, env, io.Discard, &stderr); code != exitError || !bytes.Contains(stderr.Bytes(), []byte("in use")) {
		t.Errorf("exit code %d: %s", code, stderr.String())
	}
}
