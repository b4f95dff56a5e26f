package main

import (
	"cmp"
	"fmt"
	"runtime/debug"
	"strings"
)

// version and commit are set by the linker: scripts/build and .goreleaser.yaml.
var version, commit string

// release is what a binary knows of its origin.
type release struct {
	version string // a tag, a pseudo-version, a commit, or "(devel)"
	commit  string // at most 12 digits; empty if unknown
	golang  string // version of Go; empty if unknown
}

// thisRelease is the release of the running binary.
func thisRelease() release {
	info, _ := debug.ReadBuildInfo()
	return releaseOf(version, commit, info)
}

// releaseOf takes what the linker was told, and what the go command has recorded where it was told nothing. A nil
// info is one without a record.
func releaseOf(version, commit string, info *debug.BuildInfo) release {
	if info == nil {
		info = &debug.BuildInfo{}
	}
	if commit == "" {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				commit = s.Value
			}
		}
	}
	commit = commit[:min(12, len(commit))]
	module := info.Main.Version
	if module == "(devel)" {
		module = ""
	}
	return release{cmp.Or(version, module, commit, "(devel)"), commit, info.GoVersion}
}

// String is such as "v1.2.3 (commit 0123456789ab, go1.26.8)".
func (r release) String() string {
	var about []string
	if r.commit != "" {
		about = append(about, "commit "+r.commit)
	}
	if r.golang != "" {
		about = append(about, r.golang)
	}
	if len(about) == 0 {
		return r.version
	}
	return fmt.Sprintf("%s (%s)", r.version, strings.Join(about, ", "))
}

type versionCmd struct{}

// Run prints the version.
func (versionCmd) Run(p *process) error {
	_, err := fmt.Fprintln(p.stdout, "agentd", thisRelease())
	return err
}
