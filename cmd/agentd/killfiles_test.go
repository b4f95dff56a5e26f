package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// A turn that was killed while a tool waited continues with the files of its prompt
// and of its results, and its log is what the engine would write again.
func TestKillFiles(t *testing.T) { //nolint:tparallel // overBoth runs them side by side
	t.Parallel()
	overBoth(t, func(t *testing.T, c *carrier) {
		env, f := killable(t)
		f.t = t
		script := `answers:
  - {calls: [{name: a}]}
  - {calls: [{name: b}]}
  - {text: "{{last_user}} | {{tool_result \"a\"}} | {{tool_result \"b\"}}"}
`
		if err := os.WriteFile(filepath.Join(env["AGENTD_SCRIPTS"], "files.yaml"), []byte(script), 0o600); err != nil {
			t.Fatal(err)
		}
		picture := bytes.Repeat([]byte{0, 255}, 50)
		f.parts = []*agentdv1.Part{
			{Content: &agentdv1.Part_Inline{Inline: &agentdv1.InlineData{MimeType: "image/png", Data: picture}}},
			{Content: &agentdv1.Part_File{File: &agentdv1.FileUri{MimeType: "video/mp4", Uri: "gs://b/film"}}},
		}
		first := c.binary(t, env)
		f.open(first, agent("scripted/files", "a", "b"))
		f.until(func(m *agentdv1.RunResponse) bool {
			call := m.GetToolCall()
			if call.GetToolName() == "a" {
				f.sendResult(call)
			}
			return call.GetToolName() == "b"
		})
		first.signal(syscall.SIGKILL)
		first.wait()
		f.drop()
		second := c.binary(t, env)
		f.open(second, nil)
		if end := f.end(); !end.GetCompleted() || end.GetUsageSummary().GetLlmCalls() != 3 {
			t.Errorf("got %v, want a completed turn of 3 model calls", end)
		}
		const files = "\n[image/png, 100 bytes]\n[video/mp4, gs://b/film]"
		if want := "go" + files + " | result of a" + files + " | result of b" + files; f.text() != want {
			t.Errorf("said %q, want %q", f.text(), want)
		}
		second.signal(syscall.SIGTERM)
		if code := second.wait(); code != exitOK {
			t.Errorf("exit code %d: %s", code, second.log)
		}
		var stdout, stderr bytes.Buffer
		if code := run(nil, []string{"replay", "--data", env["AGENTD_DATA"], f.session()}, env, &stdout, &stderr); code != exitOK || !strings.HasPrefix(stdout.String(), "equal, 1 turn") {
			t.Errorf("replay: exit code %d: %s%s", code, stdout.String(), stderr.String())
		}
	})
}
