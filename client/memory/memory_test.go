package memory_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/client/memory"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// sources are where layers are from, without folders.
func sources(layers []memory.Layer) string {
	var out []string
	for _, l := range layers {
		out = append(out, filepath.Base(l.Source))
	}
	return strings.Join(out, " ")
}

// TestLayers: the default, the user's file, the first of the project's files, the skills, in this order.
func TestLayers(t *testing.T) {
	home, root := t.TempDir(), t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Setenv("HOME", home)
	check := func(skills, want string) []memory.Layer {
		t.Helper()
		layers, warnings := memory.Layers(root, skills)
		if got := sources(layers); got != want || len(warnings) > 0 {
			t.Errorf("got %s (%q), want %s", got, warnings, want)
		}
		return layers
	}
	check("", "default")
	write(t, filepath.Join(root, "GEMINI.md"), "gemini")
	check("", "default GEMINI.md")
	write(t, filepath.Join(root, "CLAUDE.md"), "claude\n")
	check("", "default CLAUDE.md")
	write(t, filepath.Join(home, ".config", "agentd", "AGENTS.md"), "user")
	write(t, filepath.Join(home, ".config", "agentd", "CLAUDE.md"), "not read")
	layers := check("- a: b\n", "default AGENTS.md CLAUDE.md skills")
	if got := memory.Join(layers); got != memory.Default+"\n\nuser\n\nclaude\n\n- a: b" {
		t.Errorf("joined: %q", got)
	}
	write(t, filepath.Join(root, "AGENTS.md"), "agents")
	check("", "default AGENTS.md AGENTS.md")
	write(t, filepath.Join(root, "AGENTS.md"), "") // it counts, and says nothing
	check("", "default AGENTS.md")
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	check("", "default")
}

// TestLongFile: no more than 32 KiB count, in whole characters, and the user is told.
func TestLongFile(t *testing.T) {
	root := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	for _, text := range []string{strings.Repeat("é", 20_000), "x" + strings.Repeat("é", 20_000), strings.Repeat("😀", 10_000) + "x", "xxx" + strings.Repeat("😀", 10_000)} {
		write(t, filepath.Join(root, "CLAUDE.md"), text)
		layers, warnings := memory.Layers(root, "")
		l := layers[1]
		if !l.Truncated || l.Size != int64(len(text)) || len(l.Text) > memory.MaxFile || len(l.Text) < memory.MaxFile-3 || !strings.HasPrefix(text, l.Text) {
			t.Errorf("%d of %d bytes, truncated %v", len(l.Text), l.Size, l.Truncated)
		}
		if want := fmt.Sprintf("CLAUDE.md has %d bytes: only the first 32768 count", len(text)); len(warnings) != 1 || !strings.HasSuffix(warnings[0], want) {
			t.Errorf("warned %q, want %s", warnings, want)
		}
	}
	write(t, filepath.Join(root, "CLAUDE.md"), strings.Repeat("x", memory.MaxFile))
	if layers, warnings := memory.Layers(root, ""); layers[1].Truncated || len(warnings) > 0 {
		t.Errorf("a file that just fits: %q", warnings)
	}
}

// TestOddFiles: what is no file of the project is not read, and the user is told.
func TestOddFiles(t *testing.T) {
	root, far := t.TempDir(), t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	write(t, filepath.Join(far, "secret"), "hidden")
	at := filepath.Join(root, "AGENTS.md")
	for name, make := range map[string]func() error{
		"a link that leads out": func() error { return os.Symlink(filepath.Join(far, "secret"), at) },
		"a folder":              func() error { return os.Mkdir(at, 0o755) },
	} {
		if err := make(); err != nil {
			t.Fatal(err)
		}
		if layers, warnings := memory.Layers(root, ""); len(layers) != 1 || len(warnings) != 1 || !strings.Contains(warnings[0], at) {
			t.Errorf("%s: %v, %q", name, layers, warnings)
		}
		if err := os.Remove(at); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(root, "docs", "agents.md"), "inside")
	if err := os.Symlink("docs/agents.md", at); err != nil {
		t.Fatal(err)
	}
	if layers, warnings := memory.Layers(root, ""); len(layers) != 2 || layers[1].Text != "inside" || len(warnings) > 0 {
		t.Errorf("a link inside: %v, %q", layers, warnings)
	}
}
