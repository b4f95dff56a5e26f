package main

import (
	"runtime/debug"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRelease(t *testing.T) {
	t.Parallel()
	const revision = "0123456789abcdef0123456789abcdef01234567"
	clone := []debug.BuildSetting{{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: revision}}
	for name, tc := range map[string]struct {
		version, commit string
		info            *debug.BuildInfo
		want            string
	}{
		"told by the linker": {"v1.2.3", revision, &debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Version: "(devel)"}},
			"v1.2.3 (commit 0123456789ab, go1.26.8)"},
		"the linker before the clone": {"v1.2.3", "fedcba9", &debug.BuildInfo{GoVersion: "go1.26.8", Settings: clone},
			"v1.2.3 (commit fedcba9, go1.26.8)"},
		"a commit alone": {"", "fedcba9", &debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Version: "(devel)"}},
			"fedcba9 (commit fedcba9, go1.26.8)"},
		"go install of a version": {"", "", &debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Version: "v1.2.3"}},
			"v1.2.3 (go1.26.8)"},
		"go build in a clone": {"", "", &debug.BuildInfo{GoVersion: "go1.26.8", Settings: clone,
			Main: debug.Module{Version: "v1.2.4-0.20261101120000-0123456789ab+dirty"}},
			"v1.2.4-0.20261101120000-0123456789ab+dirty (commit 0123456789ab, go1.26.8)"},
		"a clone without a module version": {"", "", &debug.BuildInfo{GoVersion: "go1.26.8", Settings: clone, Main: debug.Module{Version: "(devel)"}},
			"0123456789ab (commit 0123456789ab, go1.26.8)"},
		"go build -buildvcs=false": {"", "", &debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Version: "(devel)"}}, "(devel) (go1.26.8)"},
		"nothing":                  {"", "", nil, "(devel)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, releaseOf(tc.version, tc.commit, tc.info).String()); diff != "" {
				t.Error(diff)
			}
		})
	}
}
