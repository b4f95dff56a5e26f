package deploy_test

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestReleaseBuildsAsScriptsDo compares what goreleaser builds with scripts/build and scripts/targets. Whether goreleaser
// takes its file, scripts/release --check tells.
func TestReleaseBuildsAsScriptsDo(t *testing.T) {
	t.Parallel()
	var config struct {
		Builds []struct {
			Env, Flags, Ldflags, Goos, Goarch []string
		}
		Archives []struct{ Files []struct{ Src string } }
	}
	if err := yaml.Unmarshal([]byte(read(t, ".goreleaser.yaml")), &config); err != nil {
		t.Fatal(err)
	}
	if len(config.Builds) != 1 || len(config.Archives) != 1 {
		t.Fatalf("%+v, want one build and one archive", config)
	}
	build := config.Builds[0]
	script := read(t, "scripts/build")
	for _, flag := range slices.Concat(build.Env, build.Flags) {
		if name, value, _ := strings.Cut(flag, "="); !strings.Contains(script, name+"="+value) && !strings.Contains(script, name+" "+value) {
			t.Errorf("goreleaser builds with %s, scripts/build does not", flag)
		}
	}
	for _, part := range []string{"-s -w", "-X main.version=", "-X main.commit="} {
		if !strings.Contains(build.Ldflags[0], part) || !strings.Contains(script, part) {
			t.Errorf("-ldflags: want %q in .goreleaser.yaml, which has %q, and in scripts/build", part, build.Ldflags)
		}
	}
	targets := read(t, "scripts/targets")
	_, vetted, _ := strings.Cut(targets, "|| set --")
	vetted, _, _ = strings.Cut(vetted, "\n")
	var built []string
	for _, system := range build.Goos {
		for _, machine := range build.Goarch {
			built = append(built, system+"/"+machine)
		}
	}
	if want := strings.Fields(vetted); !slices.Equal(want, built) {
		t.Errorf("goreleaser builds for %q, scripts/targets without arguments vets for %q", built, want)
	}
	shipped := map[string]bool{}
	for _, file := range config.Archives[0].Files {
		files, err := filepath.Glob(filepath.Join(root, file.Src))
		if err != nil || len(files) == 0 {
			t.Errorf("the archives hold %s: there is none", file.Src)
		}
		for _, path := range files {
			shipped[filepath.Clean(path)] = true
		}
	}
	err := filepath.WalkDir(filepath.Join(root, "deploy"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !shipped[filepath.Clean(path)] {
			t.Errorf("the archives lack %s", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestWorkflows: actions are pinned to commits, and only a release pushes or signs.
func TestWorkflows(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob(root + "/.github/workflows/*.yml")
	if err != nil || len(paths) < 2 {
		t.Fatalf("workflows: %q, %v", paths, err)
	}
	pinned := regexp.MustCompile(`^(\./|[\w./-]+@[0-9a-f]{40}$)`)
	for _, path := range paths {
		text := read(t, ".github/workflows/"+filepath.Base(path))
		var workflow struct {
			Permissions map[string]string
			Jobs        map[string]struct {
				Uses        string
				Permissions map[string]string
				Steps       []struct{ Uses, Run string }
			}
		}
		if err := yaml.Unmarshal([]byte(text), &workflow); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		for name, job := range workflow.Jobs {
			uses := []string{job.Uses}
			for _, step := range job.Steps {
				uses = append(uses, step.Uses)
			}
			for _, action := range uses {
				if action != "" && !pinned.MatchString(action) {
					t.Errorf("%s: %s uses %s, want a commit", path, name, action)
				}
			}
		}
		if filepath.Base(path) == "release.yml" {
			continue
		}
		if writes := regexp.MustCompile(`: write\b|cosign|secrets\.`).FindString(text); writes != "" {
			t.Errorf("%s has %q, which is for release.yml alone", path, writes)
		}
	}
}
