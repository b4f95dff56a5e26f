package gestalt_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/apzuk3/agentd/internal/agentfile"
	"github.com/apzuk3/agentd/internal/gestalt"
)

const deploy = "../../deploy/gestalt/"

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// The files of deploy/gestalt are what the program writes, but for the sums of programs, which a release has.
func TestDeploy(t *testing.T) {
	if diff := cmp.Diff(gestalt.ConfigSchema, read(t, deploy+"agent_config.json")); diff != "" {
		t.Errorf("the schema (-program +file):\n%s", diff)
	}
	want := gestalt.Manifest("v0.0.0",
		gestalt.Artifact{OS: "linux", Arch: "amd64", Path: "agentd", SHA256: strings.Repeat("0", 64)})
	if diff := cmp.Diff(want, read(t, deploy+"manifest.yaml")); diff != "" {
		t.Errorf("the manifest (-program +file):\n%s", diff)
	}
	if _, err := agentfile.ReadTrees(deploy + "agents.yaml"); err != nil {
		t.Error(err)
	}
	var schema struct {
		Properties           map[string]any
		Required             []string
		AdditionalProperties *bool
	}
	if err := json.Unmarshal([]byte(gestalt.ConfigSchema), &schema); err != nil {
		t.Fatal(err)
	}
	keys := []string{"agents", "data", "default_agent", "payloads"} // TestConfigure has the program name them
	if diff := cmp.Diff(keys, slices.Sorted(maps.Keys(schema.Properties))); diff != "" ||
		!slices.Equal(schema.Required, []string{"agents"}) || schema.AdditionalProperties == nil || *schema.AdditionalProperties {
		t.Errorf("the schema allows:\n%s", diff)
	}
}

// A host takes semantic versions, and no others.
func TestManifestVersion(t *testing.T) {
	for version, want := range map[string]string{
		"v1.2.3": "1.2.3", "v0.1.0-5-gabc.1+dirty": "0.1.0-5-gabc.1+dirty", "(devel)": "0.0.0+devel", "0123456789ab": "0.0.0+0123456789ab",
		"": "0.0.0", "v1.2": "0.0.0+12", "1.2.3-": "0.0.0+123-",
	} {
		if text := gestalt.Manifest(version, gestalt.Artifact{}); !strings.Contains(text, fmt.Sprintf("version: %q\n", want)) {
			t.Errorf("version %q, want %q in\n%s", version, want, text)
		}
	}
}

func TestWritePackage(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte("a program"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "new", "package")
	for range 2 { // it may be there
		if err := gestalt.WritePackage(dir, program, "v1.2.3"); err != nil {
			t.Fatal(err)
		}
	}
	sum := sha256.Sum256([]byte("a program"))
	name := "agentd"
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	want := gestalt.Manifest("1.2.3", gestalt.Artifact{OS: runtime.GOOS, Arch: runtime.GOARCH, Path: name, SHA256: hex.EncodeToString(sum[:])})
	if diff := cmp.Diff(want, read(t, filepath.Join(dir, "manifest.yaml"))); diff != "" {
		t.Error(diff)
	}
	if got := read(t, filepath.Join(dir, "agent_config.json")); got != gestalt.ConfigSchema {
		t.Error("the schema is another one")
	}
	info, err := os.Stat(filepath.Join(dir, name))
	if err != nil || runtime.GOOS != "windows" && info.Mode().Perm()&0o111 == 0 {
		t.Errorf("the program: %v, %v", info, err)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 3 {
		t.Errorf("files: %v, %v", files, err)
	}
	if err := gestalt.WritePackage(dir, filepath.Join(dir, "nobody"), "1"); err == nil {
		t.Error("a program that there is not was packed")
	}
}
