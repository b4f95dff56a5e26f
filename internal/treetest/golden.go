package treetest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/aymanbagabas/go-udiff"
)

// head begins the transcript of a case in a golden file.
const head = "=== "

// Golden is a file of transcripts, beside the file of cases.
type Golden struct {
	// Name is the file's.
	Name  string
	texts map[string]string // by case
	order []string
}

// ReadGolden reads the transcripts of a suite; there may be none.
func (s *Suite) ReadGolden() (*Golden, error) {
	g := &Golden{Name: baseOf(s.Name) + ".test.golden", texts: map[string]string{}}
	data, err := os.ReadFile(g.Name)
	if errors.Is(err, fs.ErrNotExist) {
		return g, nil
	}
	if err != nil {
		return nil, err
	}
	name, at := "", 0
	for l := range strings.Lines(string(data)) {
		at++
		if title, ok := strings.CutPrefix(l, head); ok {
			name = strings.TrimRight(title, "\r\n")
			if _, twice := g.texts[name]; twice {
				return nil, fmt.Errorf("%s:%d:1: there are two transcripts of %q", g.Name, at, name)
			}
			g.order = append(g.order, name)
			g.texts[name] = ""
			continue
		}
		if name == "" {
			return nil, fmt.Errorf("%s:%d:1: want %sNAME, the name of a case", g.Name, at, head)
		}
		g.texts[name] += strings.TrimRight(l, "\r\n") + "\n"
	}
	for name, text := range g.texts {
		g.texts[name] = strings.TrimRight(text, "\n") + "\n"
	}
	return g, nil
}

// Diff is where a transcript differs from the golden one, "" if it does not. A case without one differs.
func (g *Golden) Diff(c *Case, got string) string {
	want, ok := g.texts[c.Name]
	if !ok {
		return fmt.Sprintf("%s has no transcript of it: agentd test --update writes it\n", g.Name)
	}
	return udiff.Unified(g.Name, "this run", want, strings.TrimRight(got, "\n")+"\n")
}

// Set replaces a transcript.
func (g *Golden) Set(c *Case, text string) { g.texts[c.Name] = text }

// Stale are the transcripts of cases that a suite does not have.
func (g *Golden) Stale(s *Suite) []string {
	var out []string
	for _, name := range g.order {
		if !slices.ContainsFunc(s.Cases, func(c *Case) bool { return c.Name == name }) {
			out = append(out, name)
		}
	}
	return out
}

// Write writes the transcripts of a suite's cases, in their order, and no others.
func (g *Golden) Write(s *Suite) error {
	var out strings.Builder
	for _, c := range s.Cases {
		if text, ok := g.texts[c.Name]; ok {
			if out.Len() > 0 {
				out.WriteString("\n")
			}
			out.WriteString(head + c.Name + "\n" + strings.TrimRight(text, "\n") + "\n")
		}
	}
	return os.WriteFile(g.Name, []byte(out.String()), 0o644) //nolint:gosec // a source file, as those beside it
}
