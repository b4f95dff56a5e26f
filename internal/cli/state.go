package cli

import (
	"fmt"
	"slices"
	"strings"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// SharedState lists keys of the state that sessions share.
func (p *Printer) SharedState(entries []*agentdv1.SharedStateEntry) error {
	return list(p, entries, []string{"KEY", "BYTES", "VALUE"}, func(e *agentdv1.SharedStateEntry) []string {
		return []string{e.GetKey(), number(e.GetBytes()), e.GetValue()}
	})
}

// Removed says which of the keys that were to be removed were there.
func (p *Printer) Removed(keys []string, resp *agentdv1.RemoveSharedStateResponse) error {
	if p.JSON {
		return WriteJSON(p.Out, resp)
	}
	var b strings.Builder
	for _, key := range keys {
		said := "removed "
		if !slices.Contains(resp.GetRemoved(), key) {
			said = "not there: "
		}
		b.WriteString(said + line(key, maxDetail) + "\n")
	}
	_, err := fmt.Fprint(p.Out, b.String())
	return err
}
