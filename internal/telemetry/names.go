package telemetry

import "sync"

// other is the value of a label in place of names beyond a bound.
const other = "other"

// names lets through a bounded number of distinct names. It is safe for concurrent use.
type names struct {
	most int

	mu   sync.Mutex // protects seen
	seen map[string]bool
}

func newNames(most int) *names { return &names{most: most, seen: map[string]bool{}} }

// label returns the name, or "other" for a new one beyond the bound.
func (n *names) label(name string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.seen[name] {
		return name
	}
	if len(n.seen) >= n.most {
		return other
	}
	n.seen[name] = true
	return name
}

// has reports whether the name was let through before.
func (n *names) has(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.seen[name]
}

// known returns the name if it was let through before, else "other".
func (n *names) known(name string) string {
	if n.has(name) {
		return name
	}
	return other
}

// all returns the names that were let through.
func (n *names) all() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := make([]string, 0, len(n.seen))
	for name := range n.seen {
		out = append(out, name)
	}
	return out
}
