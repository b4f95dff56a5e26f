package agentfile_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/apzuk3/agentd/internal/agentfile"
)

func TestParseTrees(t *testing.T) {
	const several = `agents:
  - {name: a, llm: {model: echo, tool_names: [look]}}
  - {name: b, llm: {model: echo}}
tools:
  - {name: look, description: Looks, needs_approval: true}
`
	for name, tc := range map[string]struct {
		text   string
		agents []string
		tools  int
	}{
		"several":      {several, []string{"a", "b"}, 1},
		"one of run":   {whole, []string{"desk"}, 2},
		"agent alone":  {"name: a\nllm: {model: echo}\n", []string{"a"}, 0},
		"tools follow": {"agent: {name: a, llm: {model: echo}}\ntools: [{name: x, description: d}]\n", []string{"a"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := agentfile.ParseTrees("f.yaml", []byte(tc.text))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, a := range f.Agents {
				got = append(got, a.GetName())
			}
			if len(got) != len(tc.agents) || got[0] != tc.agents[0] || len(f.Tools) != tc.tools {
				t.Errorf("agents %q and %d tools", got, len(f.Tools))
			}
		})
	}
}

func TestParseTreesProblems(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		want []string
	}{
		"two of a name": {"agents:\n  - {name: a, llm: {model: echo}}\n  - {name: a, llm: {model: echo}}\n", []string{`3:5: two agents are called "a"`}},
		"none":          {"agents: []\n", []string{"1:9: agents: want a list of at least one agent"}},
		"no list":       {"agents: {name: a}\n", []string{"1:9: agents: want a list"}},
		"unknown":       {"agents: [{name: a, llm: {model: echo}}]\ntool: []\n", []string{`2:1: unknown field "tool"; did you mean tools?`}},
		"inside":        {"agents: [{name: a, llm: {modell: echo}}]\n", []string{`1:26: a: unknown field "modell"`}},
		"a list":        {"- a\n", []string{"1:1: a file holds a mapping"}},
		"empty":         {"", []string{"1:1: the file is empty"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := agentfile.ParseTrees("f.yaml", []byte(tc.text))
			got, ok := errors.AsType[agentfile.Problems](err)
			if !ok {
				t.Fatalf("got %v, want problems", err)
			}
			compare(t, got, tc.want)
		})
	}
}

func TestReadTrees(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a.yaml")
	if _, err := agentfile.ReadTrees(name); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if err := os.WriteFile(name, []byte(whole), 0o600); err != nil {
		t.Fatal(err)
	}
	if f, err := agentfile.ReadTrees(name); err != nil || f.Name != name || len(f.Agents) != 1 {
		t.Errorf("got %v, %v", f, err)
	}
}
