package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"google.golang.org/genai"
)

// maxCallID bounds a call's id, in bytes, at what every provider takes.
const maxCallID = 40

// idMap maps the ids of function calls, as the engine wrote them, to others.
type idMap map[string]string

// history is what Names knows of a conversation: the calls in it. It grows with the conversation, and belongs to one
// request at a time.
type history struct {
	of     []*genai.Content
	own    idMap           // the providers' ids, "" where a provider gave none, or another would refuse it
	uses   map[string]int  // of ids, as an engine's and as a provider's
	called map[string]bool // the names of the functions
	alone  map[string]bool // ids that were asked for and are no call's

	table *table   // the newest
	short struct { // the newest of ofLength, after so many contents
		ids   idMap
		after int
	}
	// state is a number that no other history has or had. It is another one as soon as an id, or a name, goes out as
	// something else than before.
	state uint64
}

// states counts those of all histories.
var states atomic.Uint64

func newHistory() *history {
	return &history{own: idMap{}, uses: map[string]int{}, called: map[string]bool{}, alone: map[string]bool{},
		state: states.Add(1)}
}

// changed notes that what goes out is not what went out.
func (h *history) changed() { h.state = states.Add(1) }

// begins reports whether the conversation that h knows is how contents begin.
func (h *history) begins(contents []*genai.Content) bool {
	return len(h.of) <= len(contents) && slices.Equal(h.of, contents[:len(h.of)])
}

// extend takes in the contents that h does not know yet. h.begins(contents) is true.
func (h *history) extend(contents []*genai.Content) {
	news := contents[len(h.of):]
	for c := range calls(news) {
		own := CallID(c)
		if len(own) > maxCallID || clean(own, maxCallID) != own {
			own = ""
		}
		h.add(c.FunctionCall.ID, own)
		h.called[c.FunctionCall.Name] = true
	}
	if len(news) > 0 {
		h.of = append(h.of, news...)
	}
}

// add takes in a call. An id that had one use until now may go out as another one from now on.
func (h *history) add(id, own string) {
	before, known := h.own[id]
	if known && before != own || h.alone[id] || h.uses[id] == 1 || own != "" && h.uses[own] == 1 {
		h.changed()
	}
	h.own[id] = own
	h.uses[id]++
	if own != "" {
		h.uses[own]++
	}
}

// id returns the id that a call, or its result, goes out with.
//
// A call goes out with the id that its provider gave it, so that the provider finds its own words again, unless another
// call has the same one, as with servers that count from zero in each response, or another provider would refuse it;
// then with the engine's, which is unique.
func (h *history) id(id string) string {
	own, ok := h.own[id]
	if !ok {
		h.alone[id] = true
	}
	if own == "" || own != id && h.uses[own] > 1 {
		return id
	}
	return own
}

// ids are those of all calls.
func (h *history) ids() idMap {
	out := make(idMap, len(h.own))
	for id := range h.own {
		out[id] = h.id(id)
	}
	return out
}

// ofLength returns the ids of all calls for a wire that takes none but those of n letters and digits.
func (h *history) ofLength(n int) idMap {
	if h.short.ids != nil && h.short.after == len(h.of) {
		return h.short.ids
	}
	short := h.ids().ofLength(n)
	for id, was := range h.short.ids {
		if short[id] != was {
			h.changed()
			break
		}
	}
	h.short.ids, h.short.after = short, len(h.of)
	return short
}

// ofLength returns ids that have exactly n letters and digits: those that do stay, for
// others goes a hash. The result depends on the set of ids alone.
func (ids idMap) ofLength(n int) idMap {
	out, taken := idMap{}, map[string]bool{}
	for id, own := range ids {
		if len(own) == n && !strings.ContainsAny(clean(own, n), "_-") {
			out[id], taken[own] = own, true
		}
	}
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		if out[id] != "" {
			continue
		}
		short := ""
		for seed := ids[id]; short == "" || taken[short]; seed += "#" {
			sum := sha256.Sum256([]byte(seed))
			short = hex.EncodeToString(sum[:])[:n]
		}
		out[id], taken[short] = short, true
	}
	return out
}

// bytes is about what h takes in memory, besides what the contents hold.
func (h *history) bytes() int {
	const content, entry = 8, 64
	return cap(h.of)*content + (len(h.own)+len(h.uses)+len(h.alone)+len(h.short.ids))*entry
}
