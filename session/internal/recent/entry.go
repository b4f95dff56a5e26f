package recent

import (
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/apzuk3/agentd/session/record"
)

// Entry is a record and, once somebody has asked for it, the fact that it states. One goroutine at a time may use it
// until it is kept; then nothing but what is made of it changes.
type Entry struct {
	// Record has no Data once it is decoded.
	Record record.Record
	// Size is the length of Data as the log has it, in bytes.
	Size int

	fact   any
	weight int64 // once it is kept, protected by Memory.mu
	log    *Log  // that keeps it, or did; set before others have the entry

	mu   sync.Mutex // protects made; held while something is made
	made []made
}

// made is something that was made of an entry.
type made struct {
	key   int
	value any
}

// maxMade is how many things are kept of one entry.
const maxMade = 64

// Of returns the entry of a record.
func Of(rec record.Record) *Entry { return &Entry{Record: rec, Size: len(rec.Data)} }

// Fact returns the fact that the record states, which decode finds out the first time. The fact is shared and must
// not be changed. The error is that of decode.
func (e *Entry) Fact(decode func(record.Record) (any, error)) (any, error) {
	if e.fact != nil {
		return e.fact, nil
	}
	fact, err := decode(e.Record)
	if err == nil {
		e.fact, e.Record.Data = fact, nil
	}
	return fact, err
}

// IsDecoded reports whether somebody has asked for the fact.
func (e *Entry) IsDecoded() bool { return e.fact != nil }

// Made returns what somebody has made of the entry under a key, or what of makes of it now. That is kept for who asks
// next, with the entry and counted like it, while the entry is kept and there is room for so many bytes; then it is
// shared and must not be changed. Any goroutine may call it; of must not ask for anything else of the entry.
func (e *Entry) Made(key int, of func() (value any, bytes int)) any {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, m := range e.made {
		if m.key == key {
			return m.value
		}
	}
	value, bytes := of()
	if len(e.made) < maxMade && e.Grow(bytes) {
		e.made = append(e.made, made{key, value})
	}
	return value
}

// Grow counts bytes that something made of the entry takes from now on. It reports whether they may be kept: not if the
// entry is not kept, or has no room. Any goroutine may call it.
func (e *Entry) Grow(bytes int) bool {
	if e.log == nil {
		return false
	}
	return e.log.grow(e, int64(bytes))
}

// weigh computes the weight unless that was done: about how many bytes of memory the entry takes, rather more.
func (e *Entry) weigh() {
	if e.weight == 0 {
		e.weight = int64(entrySize) + sizeOf(reflect.ValueOf(&e.Record), 0) + sizeOf(reflect.ValueOf(e.fact), 0)
		e.weight += e.weight/4 + int64(e.Size) // what the allocator rounds up; texts may be pieces of the data
	}
}

// weightOf returns the weight of entries that were weighed.
func weightOf(entries []*Entry) (sum int64) {
	for _, e := range entries {
		sum += e.weight
	}
	return sum
}

const (
	entrySize = 112     // of an Entry, without its record, and of its places in lists
	mapSize   = 128     // of a map, without what is in it
	deepest   = 1 << 10 // levels of a value; what the log holds has few
)

var timeType = reflect.TypeFor[time.Time]()

// sizeOf returns about how many bytes a value refers to, without its own.
func sizeOf(v reflect.Value, depth int) (n int64) {
	if depth > deepest {
		return 1 << 40 // kept nowhere
	}
	switch v.Kind() {
	case reflect.String:
		return int64(v.Len())
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return 0
		}
		return int64(v.Elem().Type().Size()) + sizeOf(v.Elem(), depth+1)
	case reflect.Slice, reflect.Array:
		if v.Kind() == reflect.Slice {
			n = int64(v.Cap()) * int64(v.Type().Elem().Size())
		}
		if isFlat(v.Type().Elem().Kind()) {
			return n
		}
		for i := range v.Len() {
			n += sizeOf(v.Index(i), depth+1)
		}
		return n
	case reflect.Map:
		if v.IsNil() {
			return 0
		}
		each := int64(v.Type().Key().Size()+v.Type().Elem().Size()) + 1
		n = mapSize + 3*each*int64(v.Len()) + 8*each // tables are a third full after they have grown
		for it := v.MapRange(); it.Next(); {
			n += sizeOf(it.Key(), depth+1) + sizeOf(it.Value(), depth+1)
		}
		return n
	case reflect.Struct:
		if v.Type() == timeType {
			return 0
		}
		for _, field := range v.Fields() {
			if !strings.HasPrefix(field.Type().PkgPath(), "google.golang.org/protobuf/") ||
				field.Kind() != reflect.Struct { // which refers to the type of the message
				n += sizeOf(field, depth+1)
			}
		}
		return n
	default:
		return 0
	}
}

// isFlat reports whether values of a kind refer to nothing.
func isFlat(k reflect.Kind) bool { return k >= reflect.Bool && k <= reflect.Complex128 }
