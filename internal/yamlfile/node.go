package yamlfile

import "fmt"

// Kind is what a value is.
type Kind int

// The kinds of values.
const (
	Mapping Kind = iota
	List
	Text
	Number
	Bool
	Null
)

// String names the kind as in "want text, got a number".
func (k Kind) String() string {
	return [...]string{"a mapping", "a list", "text", "a number", "true or false", "nothing"}[k]
}

// Node is a value of a file. It must not be changed: aliases share the node that
// they stand for.
type Node struct {
	Kind Kind
	// Text is that of a scalar: a text without its quotes, a number as it is written,
	// "true" or "false".
	Text string
	// Pairs are those of a mapping, in their order; each key is there once.
	Pairs []Pair
	// Items are those of a list.
	Items []*Node
	// Pos is where the value begins.
	Pos Position

	values int // this one and all below it
}

// Pair is a key with its value.
type Pair struct {
	Key   string
	Pos   Position // of the key
	Value *Node
}

// Get returns the value of a key, nil if the node is no mapping that has it.
func (n *Node) Get(key string) *Node {
	for _, p := range n.Pairs {
		if p.Key == key {
			return p.Value
		}
	}
	return nil
}

// Shown names the value for a message, as in "want a list, got the text "x"".
func (n *Node) Shown() string {
	switch n.Kind {
	case Text:
		return fmt.Sprintf("the text %.40q", n.Text)
	case Number:
		return "the number " + n.Text[:min(len(n.Text), 40)]
	case Bool:
		return n.Text
	default:
		return n.Kind.String()
	}
}

// surplus returns the place of the value that is one too many; of one behind an
// alias, the place of the mapping or list that holds the alias.
func (n *Node) surplus(most int) Position {
	if most < 1 {
		return n.Pos
	}
	below := n.Items
	for _, p := range n.Pairs {
		below = append(below, p.Value)
	}
	most-- // n itself
	for _, child := range below {
		if child.values > most {
			if child.Pos.Compare(n.Pos) < 0 { // an alias: its value stands before
				return n.Pos
			}
			return child.surplus(most)
		}
		most -= child.values
	}
	return n.Pos
}
