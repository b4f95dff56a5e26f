package mcp_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/client/mcp"
)

func TestName(t *testing.T) {
	long := strings.Repeat("x", 80)
	for _, tc := range []struct{ server, tool, want string }{
		{"files", "read", "files_read"},
		{"my-server", "a.b/c d", "my_server_a_b_c_d"},
		{"日本", "é", "____"},
		{"7zip", "list", "_7zip_list"},
		{"a", strings.Repeat("x", 62), "a_" + strings.Repeat("x", 62)},
		{"a", strings.Repeat("x", 63), "a_" + strings.Repeat("x", 56) + "76cc72"},
		{"a", long, "a_" + strings.Repeat("x", 56) + "27e752"},
	} {
		if got := mcp.Name(tc.server, tc.tool); got != tc.want {
			t.Errorf("%s, %.70s: got %s, want %s", tc.server, tc.tool, got, tc.want)
		}
	}
	give := mcp.Names()
	first, second := give("a", "b_c"), give("a_b", "c")
	if first != "a_b_c" || !regexp.MustCompile(`^a_b_c[0-9a-f]{6}$`).MatchString(second) {
		t.Errorf("got %s and %s", first, second)
	}
	if give("a", "b_c") != first || give("a_b", "c") != second {
		t.Error("names do not last")
	}
}

var modelName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)

// FuzzName: each name is one that models take, the same each time, and no other tool's.
func FuzzName(f *testing.F) {
	f.Add("files", "read", "files_read", "")
	f.Add("a", "b_c", "a_b", "c")
	f.Add("1", strings.Repeat("é", 40), "1", strings.Repeat("è", 40))
	f.Fuzz(func(t *testing.T, server1, tool1, server2, tool2 string) {
		give := mcp.Names()
		one, two := give(server1, tool1), give(server2, tool2)
		if same := server1 == server2 && tool1 == tool2; same != (one == two) {
			t.Errorf("%q and %q of %q are %s and %s", tool1, tool2, fmt.Sprint(server1, server2), one, two)
		}
		for _, name := range []string{one, two} {
			if !modelName.MatchString(name) {
				t.Errorf("%s is no name", name)
			}
		}
		if mcp.Name(server1, tool1) != one || give(server2, tool2) != two {
			t.Error("names do not last")
		}
	})
}
