package contract_test

import (
	"regexp"
	"strings"
	"testing"
)

var (
	namedTest = regexp.MustCompile("`([a-z][a-z0-9/]*)\\.(Test\\w+)`")
	lineNames = regexp.MustCompile(`(?m)^\| (C\d+b?)? \| .*$`)
)

// TestAcceptance: each line of docs/acceptance.md names tests that exist, or says that there is none yet; and no promise
// is left out.
func TestAcceptance(t *testing.T) {
	text := source(t, root+"/docs/acceptance.md")
	code, lines := map[string]string{}, map[string]int{}
	for _, line := range lineNames.FindAllStringSubmatch(text, -1) {
		lines[line[1]]++
		named := namedTest.FindAllStringSubmatch(line[0], -1)
		if len(named) == 0 && !strings.Contains(line[0], "no test yet") {
			t.Errorf("no test is named by %s", line[0])
		}
		for _, m := range named {
			dir, name := m[1], m[2]
			if code[dir] == "" {
				for _, path := range paths(t, root+"/"+dir+"/*_test.go") {
					code[dir] += source(t, path)
				}
			}
			if !strings.Contains(code[dir], "\nfunc "+name+"(t *testing.T)") {
				t.Errorf("%s has no test %s", dir, name)
			}
		}
	}
	for want := range strings.FieldsSeq("C23 C24 C25 C26 C27 C28 C29 C29b C30 C31 C32 C33 C34 C35 C36 C37 C38 C39") {
		if lines[want] == 0 {
			t.Errorf("there is no line of %s", want)
		}
	}
}
