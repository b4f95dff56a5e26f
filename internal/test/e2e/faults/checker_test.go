package faults

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/test/harness"
)

// findings takes what a check reports in place of the test.
type findings struct {
	testing.TB
	found []string
}

func (f *findings) Helper() {}

func (f *findings) Errorf(format string, args ...any) {
	f.found = append(f.found, fmt.Sprintf(format, args...))
}

// TestFaultChecker shows that the check of these tests finds what they look for,
// and nothing in a turn that is as it should be.
func TestFaultChecker(t *testing.T) {
	b := newFixture(t, everythingScripts)
	all := b.undisturbed()
	turns := harness.ReadLog(t.Context(), t, b.store, all.session)
	log := b.told(all.session, 0)
	find := func(spoil func(c *chain)) []string {
		c := *all
		c.got, c.first = nil, maps.Clone(all.first)
		for _, m := range all.got {
			c.got = append(c.got, proto.CloneOf(m))
		}
		spoil(&c)
		f := &findings{TB: t}
		c.inLog(f, slices.Clone(log), turns)
		c.stands(f, turns)
		b.counts(f, turns, log)
		return f.found
	}
	at := func(c *chain, fit func(*agentdv1.RunResponse) bool) int { return slices.IndexFunc(c.got, fit) }
	lost := func(fit func(*agentdv1.RunResponse) bool) func(c *chain) {
		return func(c *chain) { i := at(c, fit); c.got = slices.Delete(c.got, i, i+1) }
	}
	spoils := map[string]func(c *chain){
		"text is lost":         lost(isText),
		"a call is lost":       lost(isCall),
		"state is lost":        lost(func(m *agentdv1.RunResponse) bool { return m.GetStateUpdate() != nil }),
		"a call comes twice":   func(c *chain) { i := at(c, isCall); c.got = slices.Insert(c.got, i+1, c.got[i-1], c.got[i]) },
		"text differs":         func(c *chain) { c.got[at(c, isText)].GetOutputChunk().Content = "something else" },
		"a call differs":       func(c *chain) { c.got[at(c, isCall)].GetToolCall().ToolInput = "{}" },
		"a time differs":       func(c *chain) { c.got[at(c, isCall)].Time.Nanos++ },
		"the order differs":    func(c *chain) { i := at(c, isCall); c.got[i], c.got[i+1] = c.got[i+1], c.got[i] },
		"a position differs":   func(c *chain) { c.got[at(c, isCall)].Seq++ },
		"another result stood": func(c *chain) { c.first[c.got[at(c, isCall)].GetToolCall().GetToolCallId()] = "something else" },
	}
	if found := find(func(*chain) {}); len(found) != 0 {
		t.Errorf("an undisturbed turn: %q", found)
	}
	for name, spoil := range spoils {
		for _, whole := range []bool{true, false} {
			if !whole && strings.HasSuffix(name, "is lost") {
				continue // who has left early lacks some
			}
			if found := find(func(c *chain) { spoil(c); c.whole = whole }); len(found) == 0 {
				t.Errorf("%s, seen as a whole %v: nothing was found", name, whole)
			}
		}
	}

	// A model call too many, and an end that is not the last.
	b.models.mu.Lock()
	b.models.turnLocked("<turn undisturbed>").calls++
	b.models.mu.Unlock()
	if found := find(func(*chain) {}); len(found) != 1 || !strings.Contains(found[0], "8 model calls") {
		t.Errorf("a model call too many: %q", found)
	}
	log = append(log, log[1])
	if found := find(func(*chain) {}); len(found) < 2 {
		t.Errorf("a message after the end: %q", found)
	}
}
