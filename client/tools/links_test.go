//go:build unix

package tools_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/client/conf"
	"github.com/apzuk3/agentd/client/permit"
	"github.com/apzuk3/agentd/client/tools"
)

// TestDeniedByLink: a deny rule holds for a file by whatever link it is named.
func TestDeniedByLink(t *testing.T) {
	b := newBench(t, func(c *conf.Config) { c.Permissions.Deny = []string{"*.env", "secret/*"} })
	b.file(".env", "KEY=canary\n")
	b.file("secret/key", "canary\n")
	b.file("open/x", "fine\n")
	for link, to := range map[string]string{"config": ".env", "folder": "secret", "open/up": "../.env", "twice": "config", "plain": "open/x"} {
		if err := os.Symlink(to, filepath.Join(b.dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"config", "folder/key", "open/up", "twice", "./config", "open/../config"} {
		for tool, a := range map[string]string{
			"read_file": args(t, "path", path), "write_file": args(t, "path", path, "content", "x"), "grep": args(t, "path", path, "pattern", "canary"),
			"edit_file": args(t, "path", path, "old_string", "canary", "new_string", "x"), "read_many_files": args(t, "paths", []string{path}), "json_query": args(t, "path", path, "query", "."),
		} {
			if got := b.call(tool, a); !strings.Contains(got, "denied") || strings.Contains(got, "canary") {
				t.Errorf("%s(%s): %s", tool, path, got)
			}
		}
	}
	b.refused("write_file", args(t, "path", "folder/new", "content", "x"), "denied")
	b.want("grep", args(t, "path", "folder", "pattern", "canary"), `{"matches": []}`)
	b.want("glob", args(t, "path", "folder", "pattern", "*"), `{"paths": []}`)
	b.want("read_file", args(t, "path", "plain"), `{"content": "fine\n"}`)
	if b.text(".env") != "KEY=canary\n" || b.text("secret/key") != "canary\n" {
		t.Error("a file was written")
	}
}

type always struct{}

func (always) AskApproval(context.Context, permit.PromptRequest) (permit.Decision, error) {
	return permit.Always, nil
}

// TestAlwaysForNewFile: a file that is not there yet can be written where a person has permitted it for good.
func TestAlwaysForNewFile(t *testing.T) {
	b := newBench(t)
	gate, err := permit.New(b.cfg, always{})
	if err != nil {
		t.Fatal(err)
	}
	reg, err := tools.Build(b.cfg, gate, tools.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reg.Close() }()
	b.reg = reg
	at := filepath.Join(t.TempDir(), "new.txt")
	for range 2 {
		b.want("write_file", args(t, "path", at, "content", "x"), `{"status": "written", "bytes": 1}`)
	}
	b.want("read_file", args(t, "path", at), `{"content": "x"}`)
}
