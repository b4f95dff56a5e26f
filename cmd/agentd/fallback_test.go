package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// A server that is killed while a fallback model speaks: the next one begins that
// call again with the agent's own model, and turns to the fallback again; what was
// answered before, by whichever model, is not asked for again. What the model took
// that failed is counted each time that it was asked, also before a kill.
func TestKillInFallback(t *testing.T) { //nolint:tparallel // overBoth runs them side by side
	t.Parallel()
	overBoth(t, func(t *testing.T, c *carrier) {
		env, f := killable(t)
		// The agent's own model answers the second call alone.
		down := `answers:
  - {when: {step: 2}, calls: [{name: c}, {name: d}]}
  - {when: {}, usage: {prompt: 1000, total: 1000}, error: {kind: unavailable, status: 404, message: gone}}`
		if err := os.WriteFile(filepath.Join(env["AGENTD_SCRIPTS"], "down.yaml"), []byte(down), 0o600); err != nil {
			t.Fatal(err)
		}
		root := agent("scripted/down", "a", "b", "c", "d")
		root.GetLlm().FallbackModels = []string{"scripted/work"}
		speaks := func(word string) {
			f.until(func(m *agentdv1.RunResponse) bool {
				if call := m.GetToolCall(); call != nil {
					f.sendResult(call)
				}
				return strings.Contains(m.GetOutputChunk().GetContent(), word)
			})
		}

		pace(t, env, slow, slow)
		first := c.binary(t, env)
		f.t = t
		f.open(first, root)
		speaks("five") // the fallback, in the first call
		first.signal(syscall.SIGKILL)
		first.wait()
		f.drop()
		pace(t, env, fast, slow)
		second := c.binary(t, env)
		f.open(second, nil)
		speaks("result") // the fallback, in the third call
		second.signal(syscall.SIGKILL)
		second.wait()
		f.drop()
		pace(t, env, fast, fast)
		third := c.binary(t, env)
		f.open(third, nil)
		end := f.end()
		if u := end.GetUsageSummary(); !end.GetCompleted() || u.GetLlmCalls() != 3+4 || u.GetTotalUsage().GetTotalTokens()/1000 != 4 {
			t.Errorf("got %v, want a completed turn of 3 model calls and 4 that failed", end)
		}
		if want := long + " result of a, result of b, result of c, result of d"; f.text() != want {
			t.Errorf("said %q, want %q", f.text(), want)
		}
		changes := map[string]int{} // by message
		var models, tries []string
		var tokens int64
		for _, m := range f.got {
			if b := m.GetModelCallFellBack(); b != nil {
				changes[b.GetMessageId()]++
				if b.GetModel() != "scripted/down" || b.GetNextModel() != "scripted/work" || b.GetCode() != agentdv1.ErrorCode_ERROR_CODE_MODEL_UNAVAILABLE {
					t.Errorf("told %v", b)
				}
			}
			if e := m.GetModelCallEnded(); e != nil {
				models = append(models, e.GetModel())
				tries = append(tries, strconv.Itoa(int(e.GetUsage().GetModelCalls())))
				tokens += e.GetUsage().GetTotalTokens()
			}
		}
		if got := strings.Join(models, " "); got != "scripted/work scripted/down scripted/work" {
			t.Errorf("answers of %s", got)
		}
		if got := strings.Join(tries, " "); got != "3 1 3" || tokens != int64(end.GetUsageSummary().GetTotalUsage().GetTotalTokens()) {
			t.Errorf("the calls had %s tries and took %d tokens, the turn says %v", got, tokens, end.GetUsageSummary())
		}
		if len(changes) != 2 {
			t.Errorf("changes in %v, want two calls", changes)
		}
		for id, n := range changes {
			if n != 2 {
				t.Errorf("message %s changed its model %d times, want once before and once after the kill", id, n)
			}
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
		if calls, results, ended := records(t, env["AGENTD_DATA"], f.session()); calls != 3 || results != 4 || !ended {
			t.Errorf("the log holds %d model calls and %d results, ended %v; want 3, 4 and true", calls, results, ended)
		}
	})
}
