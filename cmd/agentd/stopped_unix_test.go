//go:build unix

package main

import (
	"context"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// TestStopped (F39) stops the process for some seconds, as the suspend of its machine does,
// while a model speaks, while tools are awaited, and while nobody is there: streams and turns continue,
// nothing is lost, and nothing ends.
func TestStopped(t *testing.T) {
	t.Parallel()
	const stopped = 1500 * time.Millisecond // longer than the times below
	env, f := killable(t)
	pace(t, env, slow, fast)
	env["AGENTD_HANDOVER_GRACE"], env["AGENTD_IDLE_TURN"] = "1s", "1s"
	s := binary(t, env)
	stop := func() {
		s.signal(syscall.SIGSTOP)
		time.Sleep(stopped)
		s.signal(syscall.SIGCONT)
	}
	f.open(s, agent("scripted/work", "a", "b", "c", "d"))
	f.until(func(m *agentdv1.RunResponse) bool { return strings.Contains(m.GetOutputChunk().GetContent(), "three") })
	stop()
	first := f.until(func(m *agentdv1.RunResponse) bool { return m.GetToolCall() != nil })
	f.until(func(m *agentdv1.RunResponse) bool { return m.GetToolCall() != nil })
	stop()
	f.sendResult(first.GetToolCall())
	f.flushed()
	f.drop() // while b waits
	stop()

	c := newClient(t, s)
	var mu sync.Mutex // tools run at the same time
	for _, name := range []string{"a", "b", "c", "d"} {
		err := client.AddTool(c, name, "a tool", func(context.Context, struct{}) (any, error) {
			mu.Lock()
			defer mu.Unlock()
			f.asked[name]++
			return "result of " + name, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	said, ends := "", 0
	for event, err := range c.Attach(t.Context(), f.session()) {
		if err != nil {
			t.Fatal(err)
		}
		if event.End != nil {
			ends++
			if !event.End.Completed {
				t.Errorf("the turn ended with %v", event.End)
			}
		}
		if event.OutputChunk != nil {
			said += event.OutputChunk.Content
		}
	}
	s.signal(syscall.SIGTERM)
	if code := s.wait(); code != exitOK {
		t.Errorf("exit code %d: %s", code, s.log)
	}
	calls, results, ended := records(t, env["AGENTD_DATA"], f.session())
	if ends != 1 || calls != 3 || results != 4 || !ended {
		t.Errorf("%d ends, the log holds %d model calls and %d results, ended %v: %s", ends, calls, results, ended, s.log)
	}
	if f.asked["a"] != 1 || f.asked["c"] != 1 || f.asked["d"] != 1 {
		t.Errorf("the tools were called %v times", f.asked)
	}
	if !strings.HasSuffix(said, "result of d") {
		t.Errorf("said %q", said)
	}
}

// TestToolTimeoutWhileStopped (F39): a tool call's time runs while the process is stopped, and the
// call is over as soon as it continues.
func TestToolTimeoutWhileStopped(t *testing.T) {
	t.Parallel()
	env, f := killable(t)
	env["AGENTD_TOOL_TIMEOUT"] = "2s"
	s := binary(t, env)
	f.open(s, agent("scripted/work", "a", "b", "c", "d"))
	f.until(func(m *agentdv1.RunResponse) bool { return m.GetToolCall() != nil })
	s.signal(syscall.SIGSTOP)
	time.Sleep(2500 * time.Millisecond)
	s.signal(syscall.SIGCONT)
	cancelled := f.until(func(m *agentdv1.RunResponse) bool { return m.GetToolCallCanceled() != nil })
	if why := cancelled.GetToolCallCanceled().GetReason(); !strings.Contains(why, "no result within 2s") {
		t.Errorf("the call is over for %q", why)
	}
	f.until(func(m *agentdv1.RunResponse) bool { return m.GetEnd() != nil || m.GetToolCall().GetToolName() == "d" })
	f.drop()
}
