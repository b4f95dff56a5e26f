package adkbridge

import (
	"errors"
	"slices"
	"strings"
	"testing"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
)

// TestDeferredNeedsSearch: tools can be deferred where the agent can search for
// them, and nowhere else.
func TestDeferredNeedsSearch(t *testing.T) {
	later := offer("fetch")
	later.Deferred = true
	offered := []*agentdv1.Tool{offer("search"), later, offer("calc")}
	for name, tc := range map[string]struct {
		tree *agentdv1.Agent
		want string // "" where it can run
	}{
		"searched":    {tree: llm("root", builtin("tool_search"))},
		"not used":    {tree: llm("root", tools("search"))},
		"no search":   {llm("root"), `root: tool "fetch" is deferred: an agent finds such tools with the builtin tool "tool_search", which it lacks`},
		"nothing":     {llm("root", tools("search"), builtin("tool_search")), `root: builtin tool "tool_search": none of the agent's tools is deferred`},
		"only others": {seq("root", llm("a", builtin("tool_search")), llm("b")), `root/b: tool "fetch" is deferred`},
	} {
		err := check(&script{}, &session.Spec{Agent: tc.tree, Tools: offered})
		e, ok := errors.AsType[*session.Error](err)
		switch {
		case tc.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case tc.want != "" && (!ok || e.Code != agentdv1.ErrorCode_ERROR_CODE_INVALID_AGENT_TREE || !strings.Contains(e.Message, tc.want)):
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
	tree, err := New(Config{Models: &script{}}).plan(&session.Spec{Agent: llm("root", builtin("tool_search", "google_search")), Tools: offered}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if n := tree.root; !slices.Equal(n.deferred(), []string{"fetch"}) || len(n.builtins) != 1 {
		t.Errorf("deferred %q, %d tools of genai's", n.deferred(), len(n.builtins))
	}
}
