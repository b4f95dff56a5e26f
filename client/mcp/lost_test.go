//go:build unix

package mcp_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/apzuk3/agentd/client/mcp"
)

func serveHTTP(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s.URL
}

func count(path, word string) int {
	data, _ := os.ReadFile(path)
	return strings.Count(string(data), word)
}

// TestKilledInACall: a call under way when the server is killed is repeated if the tool says that it may be, and else
// the model reads that it may have happened. The next call works.
func TestKilledInACall(t *testing.T) {
	for tool, repeated := range map[string]bool{"wait": false, "wait_readonly": true, "wait_idempotent": true} {
		t.Run(tool, func(t *testing.T) {
			starts, log := filepath.Join(t.TempDir(), "starts"), filepath.Join(t.TempDir(), "log")
			s := build(t, map[string]any{"s": program(t, "plain", "STARTS="+starts)}, nil,
				mcp.Quick(10*time.Second, time.Minute, 20*time.Millisecond, time.Second))[0]
			pid := number(t, turn(t.Context(), t, s, "s_pid", nil).Output)
			go func() {
				eventually(t, "the call is under way", func() bool { return count(log, "called") > 0 })
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}()
			args := map[string]any{"text": log}
			if repeated {
				gives(t, s, "s_"+tool, args, "done")
			} else {
				fails(t, s, "s_"+tool, args, "was lost during the call, which may have happened")
				if n := count(log, "called"); n != 1 {
					t.Errorf("called %d times", n)
				}
			}
			gives(t, s, "s_echo", map[string]any{"text": "again"}, "again")
			if n := count(starts, "start"); n != 2 {
				t.Errorf("started %d times", n)
			}
			if state := s.State(); state.Status != mcp.StatusOK {
				t.Errorf("it is %s: %v", state.Status, state.Err)
			}
		})
	}
}

// TestKilledWeb is the same by HTTP, by either protocol: the server is away for a while and comes back.
func TestKilledWeb(t *testing.T) {
	for _, mode := range []string{"plain", "legacy"} {
		for tool, repeated := range map[string]bool{"wait": false, "wait_readonly": true} {
			t.Run(mode+" "+tool, func(t *testing.T) {
				log := filepath.Join(t.TempDir(), "log")
				f := newFront(t, mode)
				s := build(t, map[string]any{"s": f.entry()}, nil, mcp.Quick(10*time.Second, time.Minute, 100*time.Millisecond, time.Second))[0]
				back := make(chan struct{})
				go func() {
					defer close(back)
					eventually(t, "the call is under way", func() bool { return count(log, "called") > 0 })
					f.kill()
					<-time.After(150 * time.Millisecond)
					f.start(t)
				}()
				args := map[string]any{"text": log}
				if repeated {
					gives(t, s, "s_"+tool, args, "done")
				} else {
					fails(t, s, "s_"+tool, args, "was lost during the call, which may have happened")
					if n := count(log, "called"); n != 1 {
						t.Errorf("called %d times", n)
					}
				}
				<-back
				gives(t, s, "s_echo", map[string]any{"text": "again"}, "again")
				// Notices of the server arrive again.
				gives(t, s, "s_extend", nil, "extended")
				eventually(t, "the list has changed", func() bool { return strings.Contains(strings.Join(s.State().Tools, " "), "s_extra") })
			})
		}
	}
}

// TestDownBetweenCalls: a call that was never sent is made when the server is back, whatever the tool says.
func TestDownBetweenCalls(t *testing.T) {
	for _, mode := range []string{"plain", "legacy"} {
		t.Run(mode, func(t *testing.T) {
			f := newFront(t, mode)
			s := build(t, map[string]any{"s": f.entry()}, nil, mcp.Quick(10*time.Second, time.Minute, 200*time.Millisecond, time.Second))[0]
			f.kill()
			// A request on a connection that is just being closed may have been sent, and a call by it may have happened.
			time.Sleep(100 * time.Millisecond)
			back := make(chan struct{})
			go func() {
				defer close(back)
				<-time.After(100 * time.Millisecond)
				f.start(t)
			}()
			gives(t, s, "s_echo", map[string]any{"text": "late"}, "late")
			<-back
		})
	}
}

// TestComesBack: the loss of a connection that nobody uses is noticed, and what the server has then is asked anew.
func TestComesBack(t *testing.T) {
	for _, mode := range []string{"plain", "legacy"} {
		t.Run(mode, func(t *testing.T) {
			f := newFront(t, mode)
			s := build(t, map[string]any{"s": f.entry()}, nil, mcp.Quick(10*time.Second, time.Minute, 50*time.Millisecond, time.Second))[0]
			f.kill()
			f.mode = mode + " many"
			f.start(t)
			eventually(t, "it has other tools", func() bool { return slices.Contains(s.State().Tools, "s_tool050") })
		})
	}
}

// TestLostForGood: after its attempts the server has failed, with a notice; calls are tool errors.
func TestLostForGood(t *testing.T) {
	flag, starts := filepath.Join(t.TempDir(), "flag"), filepath.Join(t.TempDir(), "starts")
	var n notices
	s := build(t, map[string]any{"s": program(t, "once", "FLAG="+flag, "STARTS="+starts)}, nil,
		mcp.OnNotice(n.add), mcp.Quick(10*time.Second, time.Minute, time.Millisecond, time.Second))[0]
	if s.Status != mcp.StatusOK {
		t.Fatal(s.Err)
	}
	pid := number(t, turn(t.Context(), t, s, "s_pid", nil).Output)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	fails(t, s, "s_echo", map[string]any{"text": "x"}, "the MCP server s cannot be used", "exit status 4")
	if state := s.State(); state.Status != mcp.StatusError || !strings.Contains(state.Err.Error(), "exit status 4") {
		t.Errorf("it is %s: %v", state.Status, state.Err)
	}
	if s.Status != mcp.StatusOK {
		t.Error("what Build found has changed")
	}
	if n := count(starts, "start"); n != 6 {
		t.Errorf("started %d times, want once and 5 attempts", n)
	}
	eventually(t, "a notice", func() bool { return strings.Contains(n.all(), "the MCP server s is lost") })
}

// TestCanceled: a call that is canceled ends at once, and the server is told.
func TestCanceled(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	s := build(t, map[string]any{"s": program(t, "plain")}, nil)[0]
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		eventually(t, "the call is under way", func() bool { return count(log, "called") > 0 })
		cancel()
	}()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for _, err := range run(ctx, t, s, "s_wait", fmt.Appendf(nil, `{"text":%q}`, log)) {
			if err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
	}()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Fatal("the run does not end")
	}
	gives(t, s, "s_echo", map[string]any{"text": "x"}, "x")
}
