package shared

import (
	"encoding/json"
	"maps"

	"github.com/apzuk3/agentd/session/internal/logjson"
	"github.com/apzuk3/agentd/session/store"
)

// scope is `app:`, or `user:` of one principal. State.mu protects its fields but the first two.
type scope struct {
	name   string // in the store
	prefix string // of its keys

	users  int            // callers that work on it
	state  map[string]any // nobody changes it
	sizes  map[string]int // of the keys of state, in bytes
	stale  bool           // a write has ended since state was read
	writes int64          // that have ended

	coming  map[string]coming // the keys that writes under way set
	writing int               // writes under way
	mixed   bool              // some of these ran at the same time: the store alone knows their order
}

// coming is what writes under way set a key to.
type coming struct {
	writes int
	bytes  int // of the largest
}

func newScope(name string) *scope {
	return &scope{name: name, prefix: prefixOf(name), stale: true, coming: map[string]coming{}}
}

// sizeLocked is what a key takes, or may take when the writes under way are done. A write that is in the
// store and whose outcome is not known yet counts once.
func (sc *scope) sizeLocked(key string) int { return max(sc.sizes[key], sc.coming[key].bytes) }

// useLocked is what the keys take, writes under way included.
func (sc *scope) useLocked() Use {
	var u Use
	add := func(key string) { u = Use{u.Keys + 1, u.Bytes + sc.sizeLocked(key)} }
	for key := range sc.sizes {
		add(key)
	}
	for key := range sc.coming {
		if _, stored := sc.sizes[key]; !stored {
			add(key)
		}
	}
	return u
}

// growLocked adds to grow what setting a key adds to the scope. Each of the writes under way may be the
// last one that sets the key.
func (sc *scope) growLocked(grow Use, key string, value json.RawMessage) Use {
	stored, had := sc.sizes[key]
	_, comes := sc.coming[key]
	switch {
	case value == nil && had && !comes:
		return Use{grow.Keys - 1, grow.Bytes - stored}
	case value == nil:
		return grow
	case comes:
		return Use{grow.Keys, grow.Bytes + max(KeySize(key, value)-sc.sizeLocked(key), 0)}
	case had:
		return Use{grow.Keys, grow.Bytes + KeySize(key, value) - stored}
	default:
		return Use{grow.Keys + 1, grow.Bytes + KeySize(key, value)}
	}
}

// beginLocked counts a write, which endLocked ends.
func (sc *scope) beginLocked() {
	sc.writing++
	sc.mixed = sc.mixed || sc.writing > 1
}

func (sc *scope) endLocked() {
	if sc.writing--; sc.writing == 0 {
		sc.mixed = false
	}
}

// comeLocked counts a write under way that sets a key, which wentLocked takes back.
func (sc *scope) comeLocked(key string, bytes int) {
	c := sc.coming[key]
	sc.coming[key] = coming{c.writes + 1, max(c.bytes, bytes)}
}

func (sc *scope) wentLocked(key string) {
	c := sc.coming[key]
	if c.writes--; c.writes == 0 {
		delete(sc.coming, key)
	} else {
		sc.coming[key] = c
	}
}

// doneLocked brings the copy up to date after a write. If the write did not run alone, or nobody knows
// whether it is in the store, the scope has to be reloaded.
func (sc *scope) doneLocked(values []store.SharedValue, written bool) {
	sc.writes++
	if sc.stale = sc.stale || sc.mixed || !written; !sc.stale {
		sc.stale = !sc.applyLocked(values)
	}
}

// applyLocked makes of the state what a write that ran alone has made of it. It reports false if it cannot
// read a value.
func (sc *scope) applyLocked(values []store.SharedValue) bool {
	state, sizes := maps.Clone(sc.state), maps.Clone(sc.sizes)
	for _, v := range values {
		if v.Scope != sc.name {
			continue
		}
		key := sc.prefix + v.Key
		if v.Value == nil {
			delete(state, key)
			delete(sizes, key)
			continue
		}
		var value any
		if err := logjson.Unmarshal(v.Value, &value); err != nil {
			return false
		}
		state[key], sizes[key] = value, KeySize(key, v.Value)
	}
	sc.state, sc.sizes = state, sizes
	return true
}
