package faults

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestFaultDocs checks that docs/faults.md has a row for each fault, and names
// tests that exist.
func TestFaultDocs(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/faults.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`([a-z][a-z0-9/]*)\\.((?:Test|Benchmark)\\w+)`").FindAllStringSubmatch(string(text), -1)
	if len(named) < 80 {
		t.Errorf("only %d tests are named", len(named))
	}
	code := map[string]string{}
	for _, m := range named {
		dir, name := m[1], m[2]
		if code[dir] == "" {
			files, err := filepath.Glob(filepath.Join("..", "..", "..", "..", filepath.FromSlash(dir), "*_test.go"))
			if err != nil || len(files) == 0 {
				t.Errorf("%s has no tests (%v)", dir, err)
			}
			for _, file := range files {
				data, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				code[dir] += string(data)
			}
		}
		if !strings.Contains(code[dir], "\nfunc "+name+"(") {
			t.Errorf("%s has no %s", dir, name)
		}
	}
	for _, row := range []string{"F01", "F05", "F06", "F16", "F17", "F19", "F26", "F30", "F35"} {
		if !strings.Contains(string(text), "\n| "+row+" |") {
			t.Errorf("%s has no row", row)
		}
	}
}
