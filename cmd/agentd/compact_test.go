package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// A server that is killed while a summary is written has it written again; one
// that is killed behind it continues with it.
func TestKillInCompaction(t *testing.T) { //nolint:tparallel // overBoth runs them side by side
	t.Parallel()
	overBoth(t, func(t *testing.T, c *carrier) {
		env, f := killable(t)
		note := strings.Repeat("x", 500)
		// The script of a server says how long a summary takes, and how slowly it
		// speaks.
		script := func(summary, word string) {
			text := `answers:
  - {when: {system: "memory of an AI agent"}, text: "a and b were called", delay: ` + summary + `}
  - {when: {after_tool: d}, text: " {{tool_result \"c\"}}, {{tool_result \"d\"}}"}
  - {when: {after_tool: c}, text: "` + long + `", chunk_delay: ` + word + `, calls: [{name: d}]}
  - {when: {after_tool: b}, calls: [{name: c, args: {note: ` + note + `}}], usage: {prompt: 900}}
  - {when: {after_tool: a}, calls: [{name: b, args: {note: ` + note + `}}]}
  - {when: {}, calls: [{name: a, args: {note: ` + note + `}}]}`
			if err := os.WriteFile(filepath.Join(env["AGENTD_SCRIPTS"], "tidy.yaml"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		root := agent("scripted/tidy", "a", "b", "c", "d")
		root.GetLlm().Compaction = &agentdv1.Compaction{AtShare: 0.8, ContextTokens: 1000}
		until := func(fit func(*agentdv1.RunResponse) bool) {
			f.until(func(m *agentdv1.RunResponse) bool {
				if call := m.GetToolCall(); call != nil {
					f.state = &structpb.Struct{Fields: map[string]*structpb.Value{"last": structpb.NewStringValue(call.GetToolName())}}
					f.sendResult(call)
				}
				return fit(m)
			})
		}
		kill := func(s *served) {
			s.signal(syscall.SIGKILL)
			s.wait()
			f.drop()
		}

		script("1h", fast)
		first := c.binary(t, env)
		f.t = t
		f.open(first, root)
		// The state changes with the event that has the result: the summary is next.
		until(func(m *agentdv1.RunResponse) bool {
			return m.GetStateUpdate().GetStateDelta().GetFields()["last"].GetStringValue() == "c"
		})
		kill(first)
		script(fast, slow)
		second := c.binary(t, env)
		f.open(second, nil)
		until(func(m *agentdv1.RunResponse) bool { return strings.Contains(m.GetOutputChunk().GetContent(), "five") })
		kill(second)
		script(fast, fast)
		third := c.binary(t, env)
		f.open(third, nil)
		if end := f.end(); !end.GetCompleted() || end.GetUsageSummary().GetLlmCalls() != 6 {
			t.Errorf("got %v, want a completed turn of 6 model calls", end)
		}
		if want := long + " result of c, result of d"; f.text() != want {
			t.Errorf("said %q, want %q", f.text(), want)
		}
		summaries := map[int64]string{}
		for _, m := range f.got {
			if h := m.GetHistoryCompacted(); h != nil {
				summaries[m.GetSeq()] = h.GetSummary()
			}
		}
		if len(summaries) != 1 {
			t.Errorf("told of summaries %v, want one", summaries)
		}
		for _, tool := range f.tools {
			if n := f.asked[tool.GetName()]; n != 1 {
				t.Errorf("tool %s was asked for %d times", tool.GetName(), n)
			}
		}
		third.signal(syscall.SIGTERM)
		if code := third.wait(); code != exitOK {
			t.Errorf("exit code %d: %s", code, third.log)
		}
		if calls, results, ended := records(t, env["AGENTD_DATA"], f.session()); calls != 6 || results != 4 || !ended {
			t.Errorf("the log holds %d model calls and %d results, ended %v; want 6, 4 and true", calls, results, ended)
		}
	})
}
