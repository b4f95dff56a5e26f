package configfile

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/apzuk3/agentd/internal/yamlfile"
)

// MaxBytes is the size of the largest file, and of all values of the environment in it.
const MaxBytes = 256 << 10

// maxProblems bounds the problems of one file.
const maxProblems = 50

// limits bounds a file. What else is bounded follows: a file has no aliases.
var limits = yamlfile.Limits{
	Bytes: MaxBytes, Tokens: 20_000, Depth: 3, Values: 5_000, Holds: `keys and their values, such as "max_turns: 100"`,
}

// Kind is what values a key takes.
type Kind int

// The kinds of keys.
const (
	Scalar Kind = iota // true or false, a number, or a text that is read as one
	Text               // a text alone: a number or true would be a mistake
	List               // a list of texts, or one text
	Pairs              // a mapping of names to scalars, or a text of the form a=1,b=2
)

// Key is a key that a file may have.
type Key struct {
	// Name is in snake_case.
	Name string
	Kind Kind
}

// Value is the value of a key.
type Value struct {
	// Text is the value as a flag takes it: the texts of a list, and pairs as name=value, are separated by
	// commas; a comma within a text of a list follows a backslash.
	Text string
	// Written is the text as the file has it, with ${env:NAME} in place of the environment's values.
	Written string
	// Position is where the value stands.
	Position yamlfile.Position
}

// File is what a file says.
type File struct {
	// Name is the file's name, for messages.
	Name string
	// Values are the values by key, without those that are wrong.
	Values map[string]Value

	problems Problems
}

// Err returns what is wrong with the file, of type Problems; nil for nothing.
func (f *File) Err() error {
	if len(f.problems) == 0 {
		return nil
	}
	slices.SortStableFunc(f.problems, func(a, b problem) int { return a.Compare(b.Position) })
	return f.problems
}

// Report adds to Err that the value of a key is wrong.
func (f *File) Report(key, message string) {
	at := f.Values[key].Position
	f.problems = append(f.problems, problem{f.Name, yamlfile.Problem{Position: at, Message: message}})
}

// At returns where the value of a key stands, as FILE:LINE.
func (f *File) At(key string) string {
	return fmt.Sprintf("%s:%d", f.Name, f.Values[key].Position.Line)
}

// Problemf returns an error, of type Problems, about the value of a key.
func (f *File) Problemf(key, format string, args ...any) error {
	alone := File{Name: f.Name, Values: f.Values}
	alone.Report(key, fmt.Sprintf(format, args...))
	return alone.Err()
}

// problem is one thing that is wrong with a file.
type problem struct {
	file string
	yamlfile.Problem
}

// Problems is all that is wrong with a file, in its order.
type Problems []problem //nolint:errname // they are problems first

// Error has one line, FILE:LINE:COLUMN: MESSAGE, for each problem.
func (ps Problems) Error() string {
	lines := make([]string, 0, len(ps))
	for i, p := range ps {
		if i == maxProblems {
			lines = append(lines, fmt.Sprintf("%s: and %d more", p.file, len(ps)-i))
			break
		}
		lines = append(lines, p.file+":"+p.Problem.Error())
	}
	return strings.Join(lines, "\n")
}

// Read reads a file as Parse does. The error is that of the file system.
func Read(name string, keys []Key, getenv func(string) string) (*File, error) {
	in, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }()
	data, err := io.ReadAll(io.LimitReader(in, MaxBytes+1))
	if err != nil {
		return nil, err // it names the file
	}
	return Parse(name, data, keys, getenv), nil
}

// Parse returns what a file says, in which these keys may be; Err says what is wrong with it. getenv reads
// the environment, where an empty variable counts as none.
func Parse(name string, data []byte, keys []Key, getenv func(string) string) *File {
	p := &parser{env: Environment{Getenv: getenv}}
	root, found := yamlfile.Parse(data, limits)
	p.problems = found
	out := &File{Name: name, Values: map[string]Value{}}
	switch {
	case root == nil:
	case root.Kind != yamlfile.Mapping:
		p.problemf(root.Pos, "want keys and their values, such as \"max_turns: 100\", got %s", root.Shown())
	default:
		for _, pair := range root.Pairs {
			before := len(p.problems)
			key, ok := p.key(pair, keys)
			if !ok {
				continue
			}
			if v := p.value(key, pair.Value); len(p.problems) == before {
				out.Values[pair.Key] = v
			}
		}
	}
	for _, one := range p.problems {
		out.problems = append(out.problems, problem{name, one})
	}
	return out
}

// parser reads one file. Problems do not stop it.
type parser struct {
	env      Environment
	problems []yamlfile.Problem
}

func (p *parser) problemf(at yamlfile.Position, format string, args ...any) {
	p.problems = append(p.problems, yamlfile.Problem{Position: at, Message: fmt.Sprintf(format, args...)})
}

// key returns the key of a pair, if there is such a key.
func (p *parser) key(pair yamlfile.Pair, keys []Key) (Key, bool) {
	i := slices.IndexFunc(keys, func(k Key) bool { return k.Name == pair.Key })
	if i >= 0 {
		return keys[i], true
	}
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = k.Name
	}
	text := fmt.Sprintf("unknown key %.64q", pair.Key)
	if near := yamlfile.Nearest(pair.Key, names); near != "" {
		text += ": did you mean " + near + "?"
	} else {
		text += ": each flag of agentd serve is a key, such as max_turns"
	}
	p.problemf(pair.Pos, "%s", text)
	return Key{}, false
}

// value returns the value of a key.
func (p *parser) value(key Key, n *yamlfile.Node) Value {
	v := Value{Position: n.Pos}
	switch {
	case n.Kind == yamlfile.List && key.Kind == List:
		for _, item := range n.Items {
			p.element(&v, "", p.text(key, item, "a list of texts"), item, `\,`)
		}
	case n.Kind == yamlfile.Mapping && key.Kind == Pairs:
		for _, pair := range n.Pairs {
			p.element(&v, pair.Key+"=", p.scalar(key, pair.Value, "a number or a text"), pair.Value, ",")
		}
	case key.Kind == List:
		p.element(&v, "", p.text(key, n, "a list of texts"), n, `\,`)
	case key.Kind == Text:
		p.element(&v, "", p.text(key, n, "a text"), n, ",")
	case key.Kind == Pairs:
		p.element(&v, "", p.text(key, n, "a mapping, such as {calls: 100}"), n, ",")
	default:
		p.element(&v, "", p.scalar(key, n, "a text, a number, or true or false"), n, ",")
	}
	return v
}

// element adds a text to a value. comma is what a comma within it becomes.
func (p *parser) element(v *Value, prefix, written string, n *yamlfile.Node, comma string) {
	if v.Written != "" {
		v.Written, v.Text = v.Written+",", v.Text+","
	}
	v.Written += prefix + written
	v.Text += prefix + strings.ReplaceAll(p.expand(written, n.Pos), ",", comma)
}

// text returns the text of a node that has to be one.
func (p *parser) text(key Key, n *yamlfile.Node, want string) string {
	if n.Kind == yamlfile.Number || n.Kind == yamlfile.Bool {
		p.problemf(n.Pos, "%s: want %s, got %s: put it in quotes if it is one", key.Name, want, n.Shown())
		return ""
	}
	return p.scalar(key, n, want)
}

// scalar returns the text of a node that has to be a scalar.
func (p *parser) scalar(key Key, n *yamlfile.Node, want string) string {
	switch n.Kind {
	case yamlfile.Text, yamlfile.Number, yamlfile.Bool:
		return n.Text
	case yamlfile.Null:
		p.problemf(n.Pos, "%s has no value: want %s, or leave the key out", key.Name, want)
	default:
		p.problemf(n.Pos, "%s: want %s, got %s", key.Name, want, n.Shown())
	}
	return ""
}

// expand puts values of the environment in the place of ${env:NAME}.
func (p *parser) expand(text string, at yamlfile.Position) string {
	return p.env.Expand(text, func(message string) { p.problemf(at, "%s", message) })
}
