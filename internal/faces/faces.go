// Package faces is a part of agentd, not an API: the faces that come with it, each in a package below this one, which a
// daemon serves when it is told to.
package faces

import (
	"fmt"
	"slices"
	"strings"

	"github.com/apzuk3/agentd/internal/faces/managed"
	"github.com/apzuk3/agentd/server"
)

// known makes each face, by its name.
var known = map[string]func() server.Face{
	"managed-agents": func() server.Face { return managed.Face{} },
}

// Named returns new faces of these names, each once, in their order. Its error names those that there are.
func Named(names []string) ([]server.Face, error) { return named(known, names) }

func named(known map[string]func() server.Face, names []string) (out []server.Face, err error) {
	for i, name := range names {
		made, ok := known[name]
		switch {
		case !ok:
			return nil, fmt.Errorf("there is no face %q: %s", name, list(known))
		case !slices.Contains(names[:i], name):
			out = append(out, made())
		}
	}
	return out, nil
}

// list says which faces there are.
func list(known map[string]func() server.Face) string {
	if len(known) == 0 {
		return "this build has none"
	}
	var names []string
	for name := range known {
		names = append(names, name)
	}
	slices.Sort(names)
	return "there are " + strings.Join(names, ", ")
}
