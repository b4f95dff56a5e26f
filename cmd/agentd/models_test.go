package main

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The table of models is that of the daemon's own prices, where it has some.
func TestModelsAreShown(t *testing.T) {
	prices := filepath.Join(t.TempDir(), "prices.yaml")
	if err := os.WriteFile(prices, []byte(`
date: 2026-10-10
providers:
  gemini:
    gemini-9-golden:
      price: {input: 1.5, cached: 0.15, output: 9, long_from: 200000, long: {input: 3, cached: 0.3, output: 18}}
      capabilities: {context_tokens: 1048576, output_tokens: 65536, inputs: [document, image], thinking: true, tools: true}
  anthropic:
    claude-9-golden: {price: {input: 3, cached: 0.3, cache_write: 3.75, cache_write_hour: 6, output: 15}}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	d := inProcess(t, map[string]string{"AGENTD_ADDR": "127.0.0.1:0", "AGENTD_DATA": ":memory:", "AGENTD_PRICES": prices})
	s := shell{t: t, url: d.url}
	var rows []string
	for l := range strings.Lines(s.says(true, "models")) {
		if slices.ContainsFunc([]string{"MODEL", "golden", "scripted/demo", "Context"}, func(part string) bool { return strings.Contains(l, part) }) {
			rows = append(rows, strings.Join(strings.Fields(l), " "))
		}
	}
	day := regexp.MustCompile(`of \d{4}-\d\d-\d\d to \d{4}-\d\d-\d\d,`)
	if got, want := day.ReplaceAllString(strings.Join(rows, "\n"), "of DAYS,"), `MODEL PROVIDER KEY CONTEXT READS IN $/M CACHED WRITTEN OUT
claude-9-golden anthropic bring your own - - $3 $0.3 $3.75, 1h $6 $15
gemini-9-golden gemini bring your own 1,048,576 image document $1.5 ($3) $0.15 ($0.3) - $9 ($18)
scripted/demo scripted not needed - - $0 $0 - $0
Context in tokens. List prices of DAYS, in dollars per million tokens, in brackets those of long prompts. Providers serve models of other names, too.`; got != want {
		t.Errorf("shown\n%s\nwant\n%s", got, want)
	}
	for _, m := range s.lines("models") {
		if m["name"] != "claude-9-golden" {
			continue
		}
		want := map[string]any{"date": "2026-10-10", "tiers": []any{map[string]any{
			"input": 3.0, "cached": 0.3, "output": 15.0,
			"cacheWrites": []any{map[string]any{"price": 3.75}, map[string]any{"ttl": "3600s", "price": 6.0}},
		}}}
		if !reflect.DeepEqual(m["price"], want) {
			t.Errorf("as JSON %v", m)
		}
		return
	}
	t.Error("claude-9-golden is not among the lines")
}
