package daemon_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/internal/daemon"
)

// TestCurlPage runs the commands of docs/curl.md.
func TestCurlPage(t *testing.T) {
	t.Parallel() // it waits
	for _, tool := range []string{"bash", "curl"} {
		if _, err := exec.LookPath(tool); err != nil {
			if os.Getenv("CI") == "true" {
				t.Fatal(err)
			}
			t.Skip(err)
		}
	}
	page, err := os.ReadFile("../../docs/curl.md")
	if err != nil {
		t.Fatal(err)
	}
	script := strings.Builder{}
	blocks := strings.Split(string(page), "```")
	for i := 1; i < len(blocks); i += 2 {
		code, ok := strings.CutPrefix(blocks[i], "sh\n")
		if !ok {
			t.Errorf("a block that is no shell: %q", blocks[i])
		}
		script.WriteString(code)
	}
	d := start(t, daemon.Config{})
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script.String())
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "AGENTD="+d.URL(), "NO_PROXY=*")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{
		"Hello, Alice!", `"toolCallAnnounced":{`, `"end":{`, `"completed":true`, "Say hi to Bob", "TURN_STATUS_CANCELED", "enough for today",
		`"clientRef":"ticket-4711"`, `"labels":{"team":"sales"}`, "SESSION_STATE_ARCHIVED",
		`What is in these pictures?\n[image/png, 67 bytes]\n[image/jpeg, https://example.com/cat.jpg]`,
		"the same picture",
		`"code":"not_found"`, `session \"nobody\" does not exist`,
	} {
		if !strings.Contains(strings.ReplaceAll(string(out), " ", ""), strings.ReplaceAll(want, " ", "")) {
			t.Errorf("%q is not in what curl said:\n%s", want, out)
		}
	}
}
