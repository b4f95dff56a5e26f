package gestalt_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestRealHost has a gestaltd start the package that agentd writes, as it does before it serves; a configuration with a
// key that there is not is refused. scripts/gestalt runs it.
func TestRealHost(t *testing.T) {
	gestaltd, indexeddb := os.Getenv("AGENTD_GESTALTD"), os.Getenv("AGENTD_GESTALT_INDEXEDDB")
	if gestaltd == "" || indexeddb == "" {
		fmt.Println("NOT RUN: AGENTD_GESTALTD and AGENTD_GESTALT_INDEXEDDB name no gestaltd and no IndexedDB provider")
		return
	}
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	out, err := exec.CommandContext(t.Context(), bin, "gestalt-provider", "--package="+filepath.Join(dir, "package")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	agents := filepath.Join(dir, "agents.yaml")
	if err := os.WriteFile(agents, []byte(echo), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		more, want string
		ok         bool
	}{{"", "config ok", true}, {"        nonsense: x\n", "nonsense", false}} {
		config := filepath.Join(dir, "config.yaml")
		text := fmt.Sprintf(`apiVersion: gestaltd.config/v5
server:
  baseUrl: http://127.0.0.1:8080
  encryptionKey: a-key-of-a-test
  providers:
    indexeddb: main
providers:
  indexeddb:
    main:
      source:
        path: %s
  agent:
    agentd:
      source:
        path: %s
      config:
        agents: %s
        data: %s
%s`, indexeddb, filepath.Join(dir, "package", "manifest.yaml"), agents, filepath.Join(dir, "data"), tc.more)
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), gestaltd, "validate", "--config", config, "--runtime").CombinedOutput()
		if (err == nil) != tc.ok || !strings.Contains(string(out), tc.want) {
			t.Errorf("gestaltd validate: %v, want %q\n%s", err, tc.want, out)
		}
	}
}
