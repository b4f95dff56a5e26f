// Package jsondiff finds the first place at which two JSON values differ.
//
// It imports the standard library alone and knows nothing of what the values
// mean.
package jsondiff

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"
)

const (
	// maxValue bounds how much of a value is shown, in bytes.
	maxValue = 200
	// lead is how much is shown of what two long texts have in common before they
	// differ, in bytes.
	lead = 40
)

// Difference is a place at which two values differ.
type Difference struct {
	// Path leads to it, as in parts[0].text; "" is the whole value.
	Path string
	// Want and Got are the values there, as JSON, cut; "nothing" where one has none.
	// Of long texts that begin alike they are what is around the place where the texts
	// differ.
	Want, Got string
}

// String tells the difference in one line.
func (d *Difference) String() string {
	path := d.Path
	if path == "" {
		path = "the whole"
	}
	return fmt.Sprintf("%s: recorded %s, got %s", path, d.Want, d.Got)
}

// Decode reads one JSON value. Numbers stay as they are written.
func Decode(data []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("data after the JSON value")
	}
	return v, nil
}

// Equal reports whether two JSON texts are the same value, numbers compared by their text. One
// that is not JSON equals none.
func Equal(a, b string) bool {
	x, err := Decode([]byte(a))
	if err != nil {
		return false
	}
	y, err := Decode([]byte(b))
	return err == nil && First(x, y) == nil
}

// First returns the first difference between two values that Decode has made,
// nil if there is none. Members are compared in the order of their names, and a
// number by its text.
func First(want, got any) *Difference { return first("", want, got) }

func first(path string, want, got any) *Difference {
	switch w := want.(type) {
	case map[string]any:
		if g, ok := got.(map[string]any); ok {
			return firstMember(path, w, g)
		}
	case []any:
		if g, ok := got.([]any); ok {
			return firstItem(path, w, g)
		}
	default:
		switch got.(type) {
		case map[string]any, []any:
		default:
			if want == got {
				return nil
			}
		}
	}
	w, isText := want.(string)
	g, both := got.(string)
	if isText && both {
		n := alike(w, g)
		want, got = w[n:], g[n:]
		if n > 0 {
			want, got = "…"+w[n:], "…"+g[n:]
		}
	}
	return &Difference{Path: path, Want: show(want), Got: show(got)}
}

// alike is how much of two texts that differ need not be shown.
func alike(a, b string) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	if n <= maxValue/2 {
		return 0
	}
	for n -= lead; !utf8.RuneStart(a[n]); n-- { // not below 0: lead is less than maxValue/2
	}
	return n
}

func firstMember(path string, want, got map[string]any) *Difference {
	names := slices.Collect(maps.Keys(want))
	for name := range got {
		if _, both := want[name]; !both {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		at := name
		if path != "" {
			at = path + "." + name
		}
		w, inWant := want[name]
		g, inGot := got[name]
		switch {
		case !inWant:
			return &Difference{Path: at, Want: nothing, Got: show(g)}
		case !inGot:
			return &Difference{Path: at, Want: show(w), Got: nothing}
		}
		if d := first(at, w, g); d != nil {
			return d
		}
	}
	return nil
}

func firstItem(path string, want, got []any) *Difference {
	for i := range max(len(want), len(got)) {
		at := path + "[" + strconv.Itoa(i) + "]"
		switch {
		case i >= len(want):
			return &Difference{Path: at, Want: nothing, Got: show(got[i])}
		case i >= len(got):
			return &Difference{Path: at, Want: show(want[i]), Got: nothing}
		}
		if d := first(at, want[i], got[i]); d != nil {
			return d
		}
	}
	return nil
}

// nothing stands for a value that is not there.
const nothing = "nothing"

// show is a value as JSON, cut.
func show(v any) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Sprintf("%T", v)
	}
	text := bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	if len(text) <= maxValue {
		return string(text)
	}
	cut := maxValue
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return string(text[:cut]) + "…"
}
