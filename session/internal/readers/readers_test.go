package readers_test

import (
	"slices"
	"testing"

	"github.com/apzuk3/agentd/session/internal/readers"
)

func TestReaders(t *testing.T) {
	var r readers.Readers[int]
	of := func(id string) (got []int) {
		r.Of(id, func(reader int) { got = append(got, reader) })
		slices.Sort(got)
		return got
	}
	if got := of("a"); got != nil {
		t.Errorf("nobody reads, got %v", got)
	}
	r.Remove("a", 1)
	for _, reader := range []int{1, 2, 2} {
		r.Add("a", reader)
	}
	r.Add("b", 3)
	r.Add("c", 4)
	if got := of("a"); !slices.Equal(got, []int{1, 2}) {
		t.Errorf("readers of a: %v, want 1 and 2", got)
	}
	all := map[int]string{}
	r.All(func(id string, reader int) { all[reader] = id })
	if len(all) != 4 || all[2] != "a" || all[3] != "b" {
		t.Errorf("all readers: %v", all)
	}
	r.Remove("a", 2)
	r.Remove("a", 2)
	r.Remove("b", 3)
	if got := of("a"); !slices.Equal(got, []int{1}) {
		t.Errorf("readers of a: %v, want 1", got)
	}
	r.Remove("a", 1)
	r.Remove("c", 4)
	if r.All(func(id string, _ int) { t.Errorf("somebody reads %s", id) }); of("a") != nil {
		t.Error("somebody reads a")
	}
}
