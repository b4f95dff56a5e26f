package yamlfile_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/apzuk3/agentd/internal/yamlfile"
)

var limits = yamlfile.Limits{Bytes: 10_000, Tokens: 2_000, Depth: 6, Anchors: 12, Values: 100, Holds: "a card"}

// plain is what limits allows, without anchors.
func plain() yamlfile.Limits {
	l := limits
	l.Anchors = 0
	return l
}

// bomb is a file of few bytes whose aliases stand for 10^n values.
func bomb(n int) string {
	var b strings.Builder
	b.WriteString("a0: &a0 x\n")
	for i := 1; i <= n; i++ {
		fmt.Fprintf(&b, "a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 10), ", "))
	}
	return b.String()
}

// Parse and Decode refuse the same files, at the same places.
func TestRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		text   string
		limits yamlfile.Limits
		want   string // all problems, as Decode joins them
	}{
		"empty":        {"# nothing\n", limits, "1:1: the file is empty; it holds a card"},
		"two":          {"a: 1\n---\nb: 2\n", limits, "3:1: a second document begins; a file holds one"},
		"bytes":        {strings.Repeat("#\n", 6_000), limits, "1:1: the file has more than 10000 bytes"},
		"tokens":       {"a: [" + strings.Repeat("1,", 2_000) + "]", limits, "1:1: the file has more than 2000 tokens"},
		"values":       {"a: [" + strings.Repeat("1,", 200) + "]", limits, "1:201: the file has more than 100 values; an alias counts as all that it stands for"},
		"bomb":         {bomb(3), limits, "3:9: the file has more than 100 values; an alias counts as all that it stands for"},
		"large bomb":   {bomb(10), limits, "3:9: the file has more than 100 values; an alias counts as all that it stands for"},
		"brackets":     {strings.Repeat("[", 1_000), limits, "1:7: the file has more than 6 levels"},
		"dashes":       {strings.Repeat("- ", 500), limits, "1:13: the file has more than 6 levels"},
		"blocks":       {"a:\n b:\n  c:\n   d:\n    e:\n     f:\n      g: 1\n", limits, "7:7: the file has more than 6 levels"},
		"far":          {strings.Repeat(" ", 1_100) + "a: 1\n", limits, "1:1101: the line is indented by more than 1024 columns"},
		"anchor":       {"a: &x 1\n", plain(), "1:4: anchors are not understood here"},
		"anchors":      {"a: [" + strings.Repeat("&a 1,", 13) + "]", limits, "1:65: the file has more than 12 anchors"},
		"alias":        {"a: *x\nb: &y [*y]\n", limits, "1:4: the alias *x stands for nothing: no anchor &x ends before it\n2:8: the alias *y stands for nothing: no anchor &y ends before it"},
		"merge":        {"a: &x {b: 1}\nc: {<<: *x}\n", limits, "2:5: << is not understood; an alias may stand for a whole value"},
		"tag":          {"a: !!str 1\n", limits, "1:4: the tag !!str is not understood; none is needed"},
		"question":     {"? a\n: b\n", limits, `1:1: keys that begin with "?" are not understood`},
		"directive":    {"%YAML 1.2\n---\na: 1\n", limits, "1:1: directives are not understood"},
		"twice":        {"a: 1\nb: {c: 1, c: 2}\na: 2\n", limits, "2:11: \"c\" is there twice, first in line 2\n3:1: \"a\" is there twice, first in line 1"},
		"not UTF-8":    {"a: 1\nb: \xff\n", limits, "2:1: the line is not UTF-8"},
		"syntax":       {"a: [1\n", limits, "1:4: sequence end token ']' not found"},
		"key of lists": {"[a]: 1\n", limits, "1:4: found an invalid key for this map"},
	} {
		t.Run(name, func(t *testing.T) {
			var v any
			err := yamlfile.Decode([]byte(tc.text), tc.limits, &v)
			if err == nil || err.Error() != tc.want {
				t.Errorf("Decode: %v\nwant %s", err, tc.want)
			}
			if _, problems := yamlfile.Parse([]byte(tc.text), tc.limits); len(problems) != strings.Count(tc.want, "\n")+1 {
				t.Errorf("Parse: %v", problems)
			}
		})
	}
}

// Parse keeps the order, the text of numbers and the place of each value.
func TestParse(t *testing.T) {
	root, problems := yamlfile.Parse([]byte("\ufeffz: 1e3\na: &l [yes, ~, 0x1F, 'two\n  lines']\nb: {c: *l, d: true}\n"), limits)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	var out []string
	var walk func(path string, n *yamlfile.Node)
	walk = func(path string, n *yamlfile.Node) {
		out = append(out, fmt.Sprintf("%s %d:%d %s", path, n.Pos.Line, n.Pos.Column, n.Shown()))
		for _, p := range n.Pairs {
			walk(path+"/"+p.Key, p.Value)
		}
		for i, item := range n.Items {
			walk(fmt.Sprint(path, "/", i), item)
		}
	}
	walk("", root)
	want := []string{
		" 1:1 a mapping", "/z 1:4 the number 1e3",
		"/a 2:7 a list", `/a/0 2:8 the text "yes"`, "/a/1 2:13 nothing", "/a/2 2:16 the number 0x1F", `/a/3 2:22 the text "two lines"`,
		"/b 4:4 a mapping", "/b/c 2:7 a list", `/b/c/0 2:8 the text "yes"`, "/b/c/1 2:13 nothing", "/b/c/2 2:16 the number 0x1F",
		`/b/c/3 2:22 the text "two lines"`, "/b/d 4:15 true",
	}
	if diff := cmp.Diff(want, out); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if root.Get("none") != nil || root.Get("a").Get("x") != nil || root.Get("b").Get("d").Kind != yamlfile.Bool {
		t.Error("Get")
	}
}

// card is what the tests decode.
type card struct {
	Name string         `yaml:"name"`
	Wait time.Duration  `yaml:"wait"`
	Args map[string]any `yaml:"args"`
	Same []string       `yaml:"same"`
	More []card         `yaml:"more"`
}

func TestDecode(t *testing.T) {
	var got card
	const text = "name: a\nwait: 10ms\nargs: {n: 1, s: &s [x, y]}\nsame: *s\nmore:\n  - {name: b, same: *s}\n"
	if err := yamlfile.Decode([]byte(text), limits, &got); err != nil {
		t.Fatal(err)
	}
	want := card{Name: "a", Wait: 10 * time.Millisecond, Args: map[string]any{"n": uint64(1), "s": []any{"x", "y"}},
		Same: []string{"x", "y"}, More: []card{{Name: "b", Same: []string{"x", "y"}}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for text, want := range map[string]string{
		"name: a\nnames: b\n":            `2:1: unknown field "names"`,
		"more: [{nam: a}]\n":             `1:9: unknown field "nam"`,
		"name: [a]\n":                    "1:7: cannot unmarshal",
		"{\"name\": \"a\",\n\t\"x\": 1}": `2:2: unknown field "x"`,
	} {
		err := yamlfile.Decode([]byte(text), limits, &card{})
		if p, ok := errors.AsType[yamlfile.Problem](err); !ok || !strings.HasPrefix(p.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// No text brings the reader down, and each problem has a place.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"name: a\nmore: [{name: b}]\n", "a: &x [*x]\n<<: {}\n!!t y: |\n  z\n", "? a\n: b\n--- \n- - -\n", bomb(3), "a: *b", "{a: 1e3, b: .inf, c: 0o7, d: ~}"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		root, problems := yamlfile.Parse([]byte(text), limits)
		if root == nil && len(problems) == 0 {
			t.Error("neither a value nor a problem")
		}
		for _, p := range problems {
			if p.Line < 1 || p.Column < 1 || p.Message == "" {
				t.Errorf("a problem without its place: %+v", p)
			}
		}
		var c card
		if err := yamlfile.Decode([]byte(text), limits, &c); err == nil && len(problems) > 0 {
			t.Errorf("Decode takes what Parse refuses: %v", problems)
		}
	})
}
