package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"

	"github.com/apzuk3/agentd/model"
)

// suffixLen is the length of "_" and the eight hexadecimal digits that keep
// shortened names apart.
const suffixLen = 9

// Names is how tools and calls are called in one request. It maps tool names to
// those a wire accepts, letters, digits, '_' and '-'
// up to a length, and back. Acceptable names stay as they are; in others each
// other character becomes '_', and where that would make two names equal, a
// hash of the name is appended. The result depends on the set of names alone.
type Names struct {
	*table
	history *history
	short   idMap // nil if ids may have any length
}

// table maps the names of tools. It is immutable after newTable.
type table struct {
	limit            int
	toWire, fromWire map[string]string
}

// NewNames returns the names for one request: those it declares and those that
// its history calls. limit is the wire's maximum length, at least 16. It takes what
// the last request has left in req.Encoded, see Leave.
func NewNames(limit int, req *model.Request) *Names {
	h, ok := req.Encoded.Take().(*history)
	if !ok || !h.begins(req.Contents) {
		h = newHistory()
	}
	h.extend(req.Contents)
	set := maps.Clone(h.called)
	for _, d := range req.Functions() {
		set[d.Name] = true
	}
	if h.table == nil || h.table.limit != limit || !h.table.has(set) {
		h.table = newTable(limit, set)
		h.changed()
	}
	return &Names{table: h.table, history: h}
}

// Leave leaves what n knows of the conversation of req to the next request. n must not be used any more.
func (n *Names) Leave(req *model.Request) { req.Encoded.Put(n.history, n.history.bytes()) }

// State is another number as soon as a name, or an id, of a call that was there before goes out as something else.
func (n *Names) State() uint64 { return n.history.state }

// has reports whether these names are all there are.
func (n *table) has(set map[string]bool) bool {
	if len(set) != len(n.toWire) {
		return false
	}
	for name := range set {
		if _, ok := n.toWire[name]; !ok {
			return false
		}
	}
	return true
}

func newTable(limit int, set map[string]bool) *table {
	n := &table{limit: limit, toWire: make(map[string]string, len(set)), fromWire: make(map[string]string, len(set))}
	wanted := map[string]int{} // how many names would like this wire name
	for name := range set {
		wanted[clean(name, limit)]++
	}
	// Names that are fine take their places first: nobody may push them away.
	for name := range set {
		if clean(name, limit) == name {
			n.add(name, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		w := clean(name, limit)
		if w == name {
			continue
		}
		if _, taken := n.fromWire[w]; taken || wanted[w] > 1 {
			w = n.hashed(name, w)
		}
		n.add(name, w)
	}
	return n
}

// hashed returns a free wire name that starts like w.
func (n *table) hashed(name, w string) string {
	for i := 0; ; i++ {
		seed := name
		if i > 0 {
			seed += "#" + strconv.Itoa(i)
		}
		sum := sha256.Sum256([]byte(seed))
		h := w[:min(len(w), n.limit-suffixLen)] + "_" + hex.EncodeToString(sum[:4])
		if _, taken := n.fromWire[h]; !taken {
			return h
		}
	}
}

func (n *table) add(name, w string) {
	n.toWire[name], n.fromWire[w] = w, name
}

// ID returns the id under which a call, or its result, goes out.
func (n *Names) ID(id string) string {
	own := n.history.id(id)
	if short, ok := n.short[id]; ok {
		return short
	}
	return own
}

// WithIDs returns these names for a wire that takes no ids of calls but those of
// exactly that many letters and digits, from 9 to 64.
func (n *Names) WithIDs(length int) *Names {
	out := *n
	out.short = n.history.ofLength(length)
	return &out
}

// Wire returns the name under which the provider knows the tool.
func (n *table) Wire(name string) string { return n.toWire[name] }

// Original returns the tool's own name; a name that the model made up stays as
// it is.
func (n *table) Original(w string) string {
	if name, ok := n.fromWire[w]; ok {
		return name
	}
	return w
}

// clean replaces what the wire does not accept and cuts to limit. It is never
// empty.
func clean(name string, limit int) string {
	b := []byte(name)
	for i, c := range b {
		ok := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
		if !ok {
			b[i] = '_'
		}
	}
	if len(b) == 0 {
		return "_"
	}
	return string(b[:min(len(b), limit)])
}
