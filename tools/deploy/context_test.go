package deploy_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
)

// buildContext is the folder that Docker would send of a clone, less what is not about versions.
func buildContext(t *testing.T, clone string) string {
	t.Helper()
	patterns, err := ignorefile.ReadAll(strings.NewReader(read(t, ".dockerignore")))
	if err != nil {
		t.Fatal(err)
	}
	matcher, err := patternmatcher.New(patterns)
	if err != nil {
		t.Fatal(err)
	}
	to := t.TempDir()
	err = filepath.WalkDir(clone, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(clone, path)
		if err != nil {
			return err
		}
		if ignored, err := matcher.MatchesOrParentMatches(name); err != nil || ignored {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		write(t, filepath.Join(to, name), string(text))
		return os.Chmod(filepath.Join(to, name), 0o755)
	})
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// TestImageKnowsItsCommit builds the context of `docker build .` in a clone, and asks it for the version as the
// Dockerfile does.
func TestImageKnowsItsCommit(t *testing.T) {
	t.Parallel()
	clone := t.TempDir()
	git := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir = clone
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", cmd, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	write(t, filepath.Join(clone, "scripts", "version"), read(t, "scripts/version"))
	git("init", "--quiet")
	git("config", "user.name", "somebody")
	git("config", "user.email", "somebody@example.com")
	git("config", "http.extraheader", "a secret")
	git("add", ".")
	git("commit", "--quiet", "--message", "scripts: add version")
	commit := git("rev-parse", "HEAD")
	for _, packed := range []string{"loose", "packed", "detached"} {
		switch packed {
		case "packed":
			git("pack-refs", "--all")
		case "detached":
			git("checkout", "--quiet", "--detach")
		}
		dir := buildContext(t, clone)
		for _, secret := range []string{".git/config", ".git/objects", ".git/index"} {
			if _, err := os.Lstat(filepath.Join(dir, secret)); !os.IsNotExist(err) {
				t.Errorf("%s: the context has %s", packed, secret)
			}
		}
		if got, want := version(t, dir), commit[:12]+" "+commit; got != want {
			t.Errorf("%s: the image's version is %q, want %q", packed, got, want)
		}
		if got, want := version(t, dir, "VERSION=v1.2.3"), "v1.2.3 "+commit; got != want {
			t.Errorf("%s: with a build argument it is %q, want %q", packed, got, want)
		}
	}
	if err := os.RemoveAll(filepath.Join(clone, ".git")); err != nil {
		t.Fatal(err)
	}
	if got := version(t, buildContext(t, clone)); got != "dev" {
		t.Errorf("without .git the version is %q, want dev", got)
	}
}

func version(t *testing.T, dir string, env ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "scripts/version")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "VERSION=", "COMMIT=", "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	return strings.TrimSpace(string(out))
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
