package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	codeBlock = regexp.MustCompile("(?s)```.*?```")
	heading   = regexp.MustCompile(`(?m)^(#+) (.*)$`)
	link      = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	noAnchor  = regexp.MustCompile(`[^\p{L}\p{N}_\- ]`)
)

// Every page has one title, and what it links to within the repository is there.
func TestPagesLinkToWhatIsThere(t *testing.T) {
	pages := []string{"../../README.md", "../../CONTRIBUTING.md", "../../CHANGELOG.md", "../../ts/README.md", "../../examples/web/README.md"}
	docs, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(docs) == 0 {
		t.Fatalf("%d pages, %v", len(docs), err)
	}
	text, anchors := map[string]string{}, map[string][]string{}
	for _, page := range append(pages, docs...) {
		data, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		text[page] = codeBlock.ReplaceAllString(string(data), "")
		titles := 0
		for _, h := range heading.FindAllStringSubmatch(text[page], -1) {
			if h[1] == "#" {
				titles++
			}
			anchors[page] = append(anchors[page], strings.ReplaceAll(noAnchor.ReplaceAllString(strings.ToLower(h[2]), ""), " ", "-"))
		}
		if titles != 1 {
			t.Errorf("%s has %d titles", page, titles)
		}
	}
	for page, words := range text {
		for _, l := range link.FindAllStringSubmatch(words, -1) {
			file, anchor, _ := strings.Cut(l[1], "#")
			if strings.Contains(file, ":") {
				continue // elsewhere
			}
			target := page
			if file != "" {
				target = filepath.Join(filepath.Dir(page), file)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s: %v", page, l[1], err)
			} else if anchor != "" && !slices.Contains(anchors[target], anchor) {
				t.Errorf("%s links to %s, which has no such heading", page, l[1])
			}
		}
	}
}
