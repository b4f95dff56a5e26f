//go:build unix

package tools_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/apzuk3/agentd/client/conf"
)

func TestReadFile(t *testing.T) {
	b := newBench(t)
	b.file("a.txt", "one\ntwo\nthree\n")
	b.file("open.txt", "one\ntwo")
	b.file("empty.txt", "")
	b.file("latin.txt", "caf\xe9\n")
	b.file("bin", "a\x00b")
	b.file("late", strings.Repeat("x", 100<<10)+"\n\x00")
	b.want("read_file", `{"path": "a.txt"}`, `{"content": "one\ntwo\nthree\n"}`)
	b.want("read_file", `{"path": "`+filepath.Join(b.dir, "a.txt")+`"}`, `{"content": "one\ntwo\nthree\n"}`)
	b.want("read_file", `{"path": "x/../a.txt"}`, `{"content": "one\ntwo\nthree\n"}`)
	b.want("read_file", `{"path": "a.txt", "offset": 1, "limit": 1}`, `{"content": "two\n", "next_offset": 2}`)
	b.want("read_file", `{"path": "a.txt", "limit": 2}`, `{"content": "one\ntwo\n", "next_offset": 2}`)
	b.want("read_file", `{"path": "a.txt", "offset": 2, "limit": 1}`, `{"content": "three\n"}`)
	b.want("read_file", `{"path": "a.txt", "limit": 99}`, `{"content": "one\ntwo\nthree\n"}`)
	b.want("read_file", `{"path": "open.txt", "offset": 1}`, `{"content": "two"}`)
	b.want("read_file", `{"path": "empty.txt"}`, `{"content": ""}`)
	b.want("read_file", `{"path": "latin.txt"}`, `{"content": "caf\ufffd\n"}`)
	b.refused("read_file", `{"path": "a.txt", "offset": 3}`, "a.txt has 3 lines: offset must be below, it is 3")
	b.refused("read_file", `{"path": "a.txt", "offset": -1}`, "at least 0")
	b.refused("read_file", `{"path": "gone"}`, "gone: there is no such file")
	b.refused("read_file", `{"path": "a.txt/x"}`, "a.txt/x: a part of the path is no folder")
	b.refused("read_file", `{"path": "."}`, "a folder, not a file")
	b.refused("read_file", `{"path": ""}`, "the path is empty")
	b.refused("read_file", `{"path": "a\u0000"}`, "NUL")
	b.refused("read_file", `{"path": "bin"}`, "bin is a binary file")
	b.refused("read_file", `{"path": "late"}`, "late is a binary file")
	b.refused("read_file", `{}`, "path")
}

// TestReadFileCaps: no more is returned than fits, whole lines where there are some, and the model can read on.
func TestReadFileCaps(t *testing.T) {
	b := newBench(t, func(c *conf.Config) { c.ToolOutput["read_file"] = conf.OutputCap{KiB: 1, Lines: 10} })
	var lines strings.Builder
	for i := range 25 {
		fmt.Fprintf(&lines, "%d\n", i)
	}
	b.file("lines", lines.String())
	size := lines.Len()
	b.want("read_file", `{"path": "lines"}`, fmt.Sprintf(
		`{"content": "0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n[cut: %d bytes, 25 lines in all]", "next_offset": 10, "truncated": true}`, size))
	b.want("read_file", `{"path": "lines", "offset": 20}`, `{"content": "20\n21\n22\n23\n24\n"}`)
	b.want("read_file", `{"path": "lines", "offset": 2, "limit": 3}`, `{"content": "2\n3\n4\n", "next_offset": 5}`)
	long := strings.Repeat("x", 700) + "\n"
	b.file("wide", long+long+long)
	b.want("read_file", `{"path": "wide", "offset": 1}`, fmt.Sprintf(
		`{"content": "%s\n[cut: 2103 bytes, 3 lines in all]", "next_offset": 2, "truncated": true}`, strings.TrimSpace(long)))
	b.file("one", strings.Repeat("é", 1000)+"\nnext\n")
	b.want("read_file", `{"path": "one"}`, fmt.Sprintf(
		`{"content": "%s\n[cut: 2006 bytes, 2 lines in all]", "next_offset": 1, "truncated": true}`, strings.Repeat("é", 512)))
	b.want("read_file", `{"path": "one", "offset": 1}`, `{"content": "next\n"}`)
	b.file("bell", strings.Repeat("\a", 1000)) // six bytes each in JSON
	if got := b.call("read_file", `{"path": "bell"}`); len(got) > 1200 || !strings.Contains(got, "cut: 1000 bytes") {
		t.Errorf("got %d bytes: %.100s", len(got), got)
	}
}

// TestHugeFile: a file that is larger than memory costs neither memory nor a result that is too large.
func TestHugeFile(t *testing.T) {
	b := newBench(t)
	b.file("huge", strings.Repeat("line\n", 100_000))
	if got := b.call("read_file", `{"path": "huge"}`); len(got) > 300<<10 || !strings.Contains(got, "[cut: 500000 bytes, 100000 lines in all]") || !strings.Contains(got, `"next_offset":5000`) {
		t.Errorf("got %d bytes, ends with %s", len(got), got[max(len(got)-100, 0):])
	}
	if err := os.Truncate(filepath.Join(b.dir, "huge"), 64<<30); err != nil { // mostly a hole
		t.Fatal(err)
	}
	b.refused("read_file", `{"path": "huge", "offset": 99999}`, "binary")
	if got := b.call("read_file", `{"path": "huge", "limit": 1}`); !strings.Contains(got, `"content":"line\n"`) {
		t.Errorf("got %.200s", got)
	}
	if got := b.call("grep", `{"pattern": "nothing", "path": "huge"}`); !strings.Contains(got, `"matches":[]`) {
		t.Errorf("got %.200s", got)
	}
}

func TestReadManyFiles(t *testing.T) {
	b := newBench(t, func(c *conf.Config) { c.Permissions.Deny = []string{"*.env"} })
	b.file("a.go", "a\n")
	b.file("sub/b.go", "b\n")
	b.file("sub/c.txt", "c\n")
	b.file("sub/.env", "KEY=1\n")
	b.file("node_modules/x.go", "x\n")
	b.want("read_many_files", `{"paths": ["sub/c.txt", "a.go", "a.go", "gone", "sub", "sub/.env"], "pattern": "*.go"}`, `{"files": [
		{"path": "sub/c.txt", "content": "c\n"}, {"path": "a.go", "content": "a\n"}, {"path": "gone", "skipped": "missing"}, {"path": "sub", "skipped": "a directory"},
		{"path": "sub/.env", "skipped": "denied: read_many_files(`+filepath.Join(b.dir, "sub", ".env")+`) is denied: the rule \"*.env\" of permissions.deny forbids it"},
		{"path": "sub/b.go", "content": "b\n"}]}`)
	b.want("read_many_files", `{"pattern": "*", "path": "sub"}`, `{"files": [{"path": "sub/b.go", "content": "b\n"}, {"path": "sub/c.txt", "content": "c\n"}]}`)
	b.want("read_many_files", `{"pattern": "nothing"}`, `{"files": []}`)
	b.refused("read_many_files", `{}`, "give paths, or pattern, or both")
	b.refused("read_many_files", `{"pattern": "["}`, "malformed")
	for i := range 10 {
		b.file(fmt.Sprintf("large/%d", i), strings.Repeat(strings.Repeat("0123456789", 11)+"\n", 1000))
	}
	got := b.call("read_many_files", `{"pattern": "*", "path": "large"}`)
	if n := strings.Count(got, "[cut: 111000 bytes, 1000 lines in all]"); n < 4 || n > 5 || len(got) > 300<<10 || !strings.HasSuffix(got, `"truncated":true}`) {
		t.Errorf("%d files in %d bytes", n, len(got))
	}
}

func TestWriteFile(t *testing.T) {
	b := newBench(t)
	b.want("write_file", `{"path": "x/y/z.txt", "content": "hé\n"}`, `{"status": "written", "bytes": 4}`)
	b.want("write_file", `{"path": "x/y/z.txt", "content": ""}`, `{"status": "written", "bytes": 0}`)
	if got := b.text("x/y/z.txt"); got != "" {
		t.Errorf("got %q", got)
	}
	b.file("run.sh", "old")
	if err := os.Chmod(filepath.Join(b.dir, "run.sh"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("run.sh", filepath.Join(b.dir, "link")); err != nil {
		t.Fatal(err)
	}
	b.want("write_file", `{"path": "link", "content": "new"}`, `{"status": "written", "bytes": 3}`)
	info, err := os.Lstat(filepath.Join(b.dir, "run.sh"))
	if err != nil || info.Mode().Perm() != 0o755 || b.text("run.sh") != "new" {
		t.Errorf("%v, %v, %q", err, info.Mode(), b.text("run.sh"))
	}
	if to, err := os.Readlink(filepath.Join(b.dir, "link")); err != nil || to != "run.sh" {
		t.Errorf("the link is gone: %v", err)
	}
	b.refused("write_file", `{"path": "x", "content": ""}`, "x is a folder, not a file")
	b.refused("write_file", `{"path": "run.sh/x", "content": ""}`, "run.sh/x: a part of the path is no folder")
	left, err := filepath.Glob(filepath.Join(b.dir, ".*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestEditFile(t *testing.T) {
	b := newBench(t)
	b.file("a", "one two two\n")
	b.refused("edit_file", `{"path": "a", "old_string": "two", "new_string": "2"}`, "old_string occurs 2 times in a, it must occur once")
	b.refused("edit_file", `{"path": "a", "old_string": "three", "new_string": "2"}`, "old_string occurs 0 times in a, it must occur once")
	b.refused("edit_file", `{"path": "a", "old_string": "three", "new_string": "2", "replace_all": true}`, "does not occur")
	b.refused("edit_file", `{"path": "a", "old_string": "", "new_string": "2"}`, "empty")
	b.refused("edit_file", `{"path": "a", "old_string": "one", "new_string": "one"}`, "the same")
	b.refused("edit_file", `{"path": "gone", "old_string": "one", "new_string": "1"}`, "no such file")
	b.want("edit_file", `{"path": "a", "old_string": "one", "new_string": "1"}`, `{"status": "edited", "replacements": 1}`)
	b.want("edit_file", `{"path": "a", "old_string": "two", "new_string": "2", "replace_all": true}`, `{"status": "edited", "replacements": 2}`)
	if got := b.text("a"); got != "1 2 2\n" {
		t.Errorf("got %q", got)
	}
	b.file("large", strings.Repeat("x", 17<<20))
	b.refused("edit_file", `{"path": "large", "old_string": "y", "new_string": "z"}`, "at most 16777216 can be edited")
}

func TestDeleteFile(t *testing.T) {
	b := newBench(t)
	b.file("a", "x")
	b.file("dir/b", "x")
	if err := os.Symlink("dir/b", filepath.Join(b.dir, "link")); err != nil {
		t.Fatal(err)
	}
	b.want("delete_file", `{"path": "a"}`, `{"status": "deleted"}`)
	b.want("delete_file", `{"path": "a"}`, `{"status": "not there"}`)
	b.want("delete_file", `{"path": "no/such/folder"}`, `{"status": "not there"}`)
	b.want("delete_file", `{"path": "link"}`, `{"status": "deleted"}`)
	b.refused("delete_file", `{"path": "dir"}`, "dir is a folder")
	if b.text("dir/b") != "x" {
		t.Error("what the link led to is gone")
	}
}

func TestStatListGlob(t *testing.T) {
	b := newBench(t)
	b.file("a.go", "12345")
	b.file("sub/b.go", "1")
	b.file("vendor/c.go", "1")
	at := time.Date(2026, 1, 5, 9, 30, 0, 0, time.FixedZone("", 3600))
	if err := os.Chtimes(filepath.Join(b.dir, "a.go"), at, at); err != nil {
		t.Fatal(err)
	}
	b.want("stat", `{"path": "a.go"}`, `{"path": "a.go", "exists": true, "is_dir": false, "size": 5, "mod_time": "2026-01-05T08:30:00Z", "mode": "-rw-r--r--"}`)
	b.want("stat", `{"path": "gone/x"}`, `{"path": "gone/x", "exists": false, "is_dir": false, "size": 0}`)
	if got := b.call("stat", `{"path": "sub"}`); !strings.Contains(got, `"is_dir":true`) {
		t.Errorf("got %s", got)
	}
	b.want("list_dir", `{"path": "sub"}`, `{"entries": [{"name": "b.go", "is_dir": false, "size": 1}]}`)
	if got := b.call("list_dir", `{}`); !strings.Contains(got, `{"name":"sub","is_dir":true,`) || !strings.Contains(got, `{"name":"a.go","is_dir":false,"size":5}`) {
		t.Errorf("got %s", got)
	}
	b.refused("list_dir", `{"path": "a.go"}`, "a.go is no folder")
	b.refused("list_dir", `{"path": "gone"}`, "no such file or folder")
	b.want("glob", `{"pattern": "*.go"}`, `{"paths": ["a.go", "sub/b.go"]}`)
	b.want("glob", `{"pattern": "*.go", "path": "sub"}`, `{"paths": ["sub/b.go"]}`)
	b.want("glob", `{"pattern": "c.go"}`, `{"paths": []}`)
	b.want("glob", `{"pattern": "*", "path": "vendor"}`, `{"paths": ["vendor/c.go"]}`) // asked for by name
	b.refused("glob", `{"pattern": "sub/*.go"}`, `give path "sub" and pattern "*.go"`)
	b.refused("glob", `{"pattern": ""}`, "empty")
	b.refused("glob", `{"pattern": "[a"}`, "malformed")
	for i := range 600 {
		b.file(fmt.Sprintf("many/%03d", i), "")
	}
	if got := b.call("glob", `{"pattern": "*", "path": "many"}`); strings.Count(got, "many/") != 500 || !strings.HasSuffix(got, `"truncated":true}`) {
		t.Errorf("got %d paths", strings.Count(got, "many/"))
	}
	if got := b.call("list_dir", `{"path": "many"}`); strings.Count(got, "name") != 500 || !strings.HasSuffix(got, `"truncated":true}`) {
		t.Errorf("got %d entries", strings.Count(got, "name"))
	}
}

func TestGrep(t *testing.T) {
	b := newBench(t, func(c *conf.Config) { c.Permissions.Deny = []string{"*.env"} })
	b.file("a.txt", "one\r\nTwo\nthree")
	b.file("sub/b.txt", "two two\n")
	b.file("secret.env", "two\n")
	b.file("bin", "two\x00\n")
	b.file(".git/x", "two\n")
	if err := os.Symlink("a.txt", filepath.Join(b.dir, "link")); err != nil {
		t.Fatal(err)
	}
	b.want("grep", `{"pattern": "(?i)two"}`, `{"matches": [{"path": "a.txt", "line": 2, "text": "Two"}, {"path": "sub/b.txt", "line": 1, "text": "two two"}]}`)
	b.want("grep", `{"pattern": "e$", "path": "a.txt"}`, `{"matches": [{"path": "a.txt", "line": 1, "text": "one"}, {"path": "a.txt", "line": 3, "text": "three"}]}`)
	b.want("grep", `{"pattern": "two", "path": "link"}`, `{"matches": []}`)
	b.refused("grep", `{"pattern": "two", "path": "secret.env"}`, "denied")
	b.refused("grep", `{"pattern": "("}`, "no regular expression of RE2")
	b.refused("grep", `{"pattern": ""}`, "empty")
	b.refused("grep", `{"pattern": "x", "path": "gone"}`, "no such file")
	b.file("wide", strings.Repeat("x", 2<<20)+"\nafter\n")
	b.want("grep", `{"pattern": "after", "path": "wide"}`, `{"matches": [{"path": "wide", "line": 2, "text": "after"}]}`)
	if got := b.call("grep", `{"pattern": "x", "path": "wide"}`); len(got) > 2000 || !strings.Contains(got, "[cut: ") {
		t.Errorf("got %d bytes", len(got))
	}
	b.file("lines", strings.Repeat("hit\n", 6000))
	if got := b.call("grep", `{"pattern": "hit", "path": "lines"}`); strings.Count(got, "hit") != 5000 || !strings.HasSuffix(got, `"truncated":true}`) {
		t.Errorf("got %d matches", strings.Count(got, "hit"))
	}
}

// TestConfined: neither .. nor links lead out of the folders in reach, and nothing but files and folders is opened.
func TestConfined(t *testing.T) {
	far := t.TempDir()
	if err := os.WriteFile(filepath.Join(far, "secret"), []byte("hidden\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := newBench(t)
	b.file("in/a", "x\n")
	link := func(to, name string) {
		t.Helper()
		if err := os.Symlink(to, filepath.Join(b.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	link(filepath.Join(far, "secret"), "file")
	link(far, "folder")
	link("../../../../../../../../etc/passwd", "up")
	link("loop", "loop")
	link("a", "in/inner")
	if err := syscall.Mkfifo(filepath.Join(b.dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	nobody := "nobody is there to be asked"
	for _, path := range []string{"../x", "/etc/passwd", filepath.Join(far, "secret"), "in/../../x"} {
		for tool, args := range map[string]string{
			"read_file": `{"path": %q}`, "write_file": `{"path": %q, "content": "x"}`, "edit_file": `{"path": %q, "old_string": "a", "new_string": "b"}`,
			"delete_file": `{"path": %q}`, "stat": `{"path": %q}`, "list_dir": `{"path": %q}`, "grep": `{"pattern": "x", "path": %q}`, "glob": `{"pattern": "x", "path": %q}`,
			"json_query": `{"query": ".", "path": %q}`, "read_many_files": `{"pattern": "x", "path": %q}`,
		} {
			b.refused(tool, fmt.Sprintf(args, path), nobody)
		}
	}
	for _, path := range []string{"file", "up", "folder/secret", "folder/new"} {
		b.refused("read_file", fmt.Sprintf(`{"path": %q}`, path), "leads out of the folders in reach")
		b.refused("edit_file", fmt.Sprintf(`{"path": %q, "old_string": "hidden", "new_string": "b"}`, path), "lin")
		b.refused("write_file", fmt.Sprintf(`{"path": %q, "content": "x"}`, path), "lin")
	}
	b.refused("delete_file", `{"path": "folder/secret"}`, "leads out")
	b.refused("list_dir", `{"path": "folder"}`, "leads out")
	b.refused("read_file", `{"path": "loop"}`, "loop: ")
	b.refused("write_file", `{"path": "loop", "content": ""}`, "more than 16 links")
	b.want("read_file", `{"path": "in/inner"}`, `{"content": "x\n"}`)
	b.want("grep", `{"pattern": "hidden|root"}`, `{"matches": []}`)
	b.refused("read_file", `{"path": "fifo"}`, "fifo is a FIFO, not a file")
	b.refused("write_file", `{"path": "fifo", "content": ""}`, "fifo is a FIFO, not a file")
	b.refused("delete_file", `{"path": "fifo"}`, "fifo is a FIFO, not a file")
	b.want("grep", `{"pattern": "x", "path": "in"}`, `{"matches": [{"path": "in/a", "line": 1, "text": "x"}]}`)
	if data, err := os.ReadFile(filepath.Join(far, "secret")); err != nil || string(data) != "hidden\n" {
		t.Errorf("the file is %q, %v", data, err)
	}
	dev := newBench(t, func(c *conf.Config) {
		c.PathScope.AllowPaths = []conf.AllowedPath{{Path: "/dev", Access: "rw"}, {Path: far, Access: "r"}}
	})
	dev.refused("read_file", `{"path": "/dev/zero"}`, "/dev/zero is a device, not a file")
	dev.refused("write_file", `{"path": "/dev/null", "content": "x"}`, "/dev/null is a device, not a file")
	dev.want("read_file", fmt.Sprintf(`{"path": %q}`, filepath.Join(far, "secret")), `{"content": "hidden\n"}`)
	dev.refused("write_file", fmt.Sprintf(`{"path": %q, "content": "x"}`, filepath.Join(far, "secret")), nobody)
}

// TestLinkSwapped: a folder that becomes a link while files are read and written through it never leads out.
func TestLinkSwapped(t *testing.T) {
	far := t.TempDir()
	if err := os.WriteFile(filepath.Join(far, "f"), []byte("hidden"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := newBench(t)
	b.file("real/f", "fine")
	swap := filepath.Join(b.dir, "swap")
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			to := []string{far, "real"}[i%2]
			next := swap + ".next"
			if os.Symlink(to, next) != nil || os.Rename(next, swap) != nil {
				t.Error("the link is not swapped")
				return
			}
		}
	}()
	fine := 0
	for range 150 {
		got := b.call("read_file", `{"path": "swap/f"}`)
		if strings.Contains(got, "hidden") {
			t.Fatalf("read %s", got)
		}
		if strings.Contains(got, "fine") {
			fine++
		}
		b.call("write_file", `{"path": "swap/f", "content": "fine"}`)
	}
	close(stop)
	<-stopped
	if data, err := os.ReadFile(filepath.Join(far, "f")); err != nil || string(data) != "hidden" || fine == 0 {
		t.Errorf("outside is %q (%v), %d reads were fine", data, err, fine)
	}
}
