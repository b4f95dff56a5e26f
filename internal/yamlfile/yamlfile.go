package yamlfile

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Limits bounds a file, and names what it holds. Each bound must be set.
type Limits struct {
	// Bytes is the size of the largest file.
	Bytes int
	// Tokens is how many brackets, keys, texts and so on it may have.
	Tokens int
	// Depth is how many levels of mappings and lists it may have. The YAML library
	// recurses, so brackets, dashes and columns are bounded by Depth before it runs.
	Depth int
	// Anchors is how many anchors it may have; 0: neither anchors nor aliases.
	Anchors int
	// Values is how many values it may have; an alias counts as all that it stands
	// for.
	Values int
	// Holds says what a file has to hold, for one that is empty: "an agent".
	Holds string
}

// Bounds within one line: how many dashes of lists, and how far to the right it
// may begin. Each level of a block takes a column.
const (
	maxDashes = 32
	maxIndent = 1024
)

// Position is a place in a file; both count from 1, columns in characters.
type Position struct{ Line, Column int }

// Compare orders positions as they come in a file.
func (p Position) Compare(other Position) int {
	return cmp.Or(cmp.Compare(p.Line, other.Line), cmp.Compare(p.Column, other.Column))
}

// Problem is one thing that is wrong with a file.
type Problem struct { //nolint:errname // a file has several of them
	Position
	// Message says what is wrong and what would be right.
	Message string
}

// Error is line:column: message.
func (p Problem) Error() string { return fmt.Sprintf("%d:%d: %s", p.Line, p.Column, p.Message) }

// Parse returns the value of a file: nil when it has none that can be read. What
// is wrong with parts of it stands in the problems, and these parts are left out.
func Parse(data []byte, limits Limits) (*Node, []Problem) {
	r := &reader{limits: limits}
	_, root := r.read(data)
	return root, r.problems
}

// Decode fills v, a pointer, with the value of a file. Keys that v has no field for
// are errors. The error joins Problems.
func Decode(data []byte, limits Limits, v any) error {
	r := &reader{limits: limits}
	if body, root := r.read(data); root != nil && len(r.problems) == 0 {
		r.fill(body, v)
	}
	slices.SortStableFunc(r.problems, func(a, b Problem) int { return a.Compare(b.Position) })
	errs := make([]error, len(r.problems))
	for i, p := range r.problems {
		errs[i] = p
	}
	return errors.Join(errs...)
}
