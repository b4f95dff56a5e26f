package configfile_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/apzuk3/agentd/internal/configfile"
)

var keys = []configfile.Key{
	{Name: "addr", Kind: configfile.Text}, {Name: "max_turns"}, {Name: "no_reflection"},
	{Name: "cors_origins", Kind: configfile.List}, {Name: "turn_budget", Kind: configfile.Pairs},
}

func getenv(name string) string {
	return map[string]string{"KEY": "canary", "LIST": "a,b", "LONG": strings.Repeat("x", 100_000)}[name]
}

func TestParse(t *testing.T) {
	f := configfile.Parse("a.yaml", []byte(`# what people write
addr: 127.0.0.1:${env:KEY}
max_turns: 1e3
no_reflection: true
cors_origins: [https://a, "b,c", '${env:LIST}']
turn_budget: {calls: 100, cost: 2.5, time: 30m}
`), keys, getenv)
	if err := f.Err(); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for key, v := range f.Values {
		got[key] = fmt.Sprintf("%s %s | %s", f.At(key), v.Text, v.Written)
	}
	want := map[string]string{
		"addr":          "a.yaml:2 127.0.0.1:canary | 127.0.0.1:${env:KEY}",
		"max_turns":     "a.yaml:3 1e3 | 1e3",
		"no_reflection": "a.yaml:4 true | true",
		"cors_origins":  `a.yaml:5 https://a,b\,c,a\,b | https://a,b,c,${env:LIST}`,
		"turn_budget":   "a.yaml:6 calls=100,cost=2.5,time=30m | calls=100,cost=2.5,time=30m",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, text := range []string{`{"addr": "x:1", "max_turns": 5}`, "cors_origins: https://a\nturn_budget: calls=1\n"} {
		if err := configfile.Parse("a", []byte(text), keys, getenv).Err(); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestRefuses(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"unknown":   {"addr: x\nmax_turn: 1\n", `f:2:1: unknown key "max_turn": did you mean max_turns?`},
		"a flag":    {"max-turns: 1\n", `f:1:1: unknown key "max-turns": did you mean max_turns?`},
		"strange":   {"colour: red\n", `f:1:1: unknown key "colour": each flag of agentd serve is a key, such as max_turns`},
		"twice":     {"addr: x\naddr: y\n", `f:2:1: "addr" is there twice, first in line 1`},
		"number":    {"addr: 8080\n", "f:1:7: addr: want a text, got the number 8080: put it in quotes if it is one"},
		"mapping":   {"max_turns: {a: 1}\n", "f:1:12: max_turns: want a text, a number, or true or false, got a mapping"},
		"list":      {"addr: [x]\n", "f:1:7: addr: want a text, got a list"},
		"in a list": {"cors_origins: [x, 1]\n", "f:1:19: cors_origins: want a list of texts, got the number 1: put it in quotes if it is one"},
		"in a map":  {"turn_budget: {calls:}\n", "f:1:21: turn_budget has no value: want a number or a text, or leave the key out"},
		"nothing":   {"max_turns:\n", "f:1:12: max_turns has no value: want a text, a number, or true or false, or leave the key out"},
		"missing":   {"addr: x\nmax_turns: ${env:NONE}\n", "f:2:12: the environment variable NONE is not set"},
		"no env":    {"addr: ${KEY}\n", `f:1:7: "${KEY}" is not understood: ${env:NAME} is the value of an environment variable`},
		"not ended": {`addr: "x${env:KEY"`, `f:1:7: "${env:KEY" is not understood: ${env:NAME} is the value of an environment variable`},
		"not a map": {"- addr\n", "f:1:1: want keys and their values, such as \"max_turns: 100\", got a list"},
		"empty":     {"# nothing\n", "f:1:1: the file is empty; it holds keys and their values, such as \"max_turns: 100\""},
		"anchor":    {"addr: &a x\n", "f:1:7: anchors are not understood here"},
		"bomb":      {"addr: &a [x,x,x,x]\nmax_turns: &b [*a,*a,*a,*a]\ncors_origins: [*b,*b,*b,*b]\n", "f:1:7: anchors are not understood here"},
		"giant":     {"addr: " + strings.Repeat("x", configfile.MaxBytes), "f:1:1: the file has more than 262144 bytes"},
		"deep":      {"cors_origins: [[[x]]]\n", "f:1:16: cors_origins: want a list of texts, got a list\nf:1:17: the file has more than 3 levels"},
		"tag":       {"addr: !!str x\n", "f:1:7: the tag !!str is not understood; none is needed"},
		"long env":  {"cors_origins: ['${env:LONG}', '${env:LONG}', '${env:LONG}']\n", "f:1:46: the environment variable LONG is too long: all of them take at most 262144 bytes"},
		"several":   {"b: 1\na: 2\n", "f:1:1: unknown key \"b\": each flag of agentd serve is a key, such as max_turns\nf:2:1: unknown key \"a\": each flag of agentd serve is a key, such as max_turns"},
	} {
		t.Run(name, func(t *testing.T) {
			f := configfile.Parse("f", []byte(tc.text), keys, getenv)
			if err := f.Err(); err == nil || err.Error() != tc.want {
				t.Errorf("got %.400v\nwant %s", err, tc.want)
			}
		})
	}
}

// Many problems are not all told.
func TestManyProblems(t *testing.T) {
	var b strings.Builder
	for i := range 200 {
		fmt.Fprintf(&b, "k%d: 1\n", i)
	}
	f := configfile.Parse("f", []byte(b.String()), keys, getenv)
	if lines := strings.Split(f.Err().Error(), "\n"); len(lines) != 51 || lines[50] != "f: and 150 more" {
		t.Errorf("got %d lines, the last one %q", len(lines), lines[len(lines)-1])
	}
}

func TestRead(t *testing.T) {
	name := filepath.Join(t.TempDir(), "c.yaml")
	if _, err := configfile.Read(name, keys, getenv); !os.IsNotExist(err) {
		t.Errorf("of no file: %v", err)
	}
	if err := os.WriteFile(name, []byte("max_turns: 5\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := configfile.Read(name, keys, getenv)
	if err != nil || f.Err() != nil || f.Values["max_turns"].Text != "5" {
		t.Errorf("got %+v, %v", f, err)
	}
	if err := f.Problemf("max_turns", "is %d", 5); err.Error() != name+":1:12: is 5" {
		t.Errorf("got %v", err)
	}
	if err := f.Err(); err != nil {
		t.Errorf("Problemf has left %v", err)
	}
	f.Report("max_turns", "is wrong")
	if err := f.Err(); err == nil || err.Error() != name+":1:12: is wrong" {
		t.Errorf("got %v", err)
	}
}

// FuzzParse: no text brings the reader down, each problem has a place, and what is taken is bounded and holds
// nothing of the environment as it is written.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"addr: 127.0.0.1:0\nmax_turns: 5\nno_reflection: true\n", "cors_origins: [a, 'b,c', \"${env:KEY}\"]\n",
		"turn_budget: {calls: 1, cost: 2.5}\n", "max_turn: 1\nmax_turns:\n", "addr: ${env:NONE}${env:KEY}${x\n",
		"addr: &a x\nmax_turns: *a\n", "<<: {a: 1}\n? a\n: b\n", "{\"addr\": \"x\"}", "addr: |\n  x\n  ${env:LIST}\n",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		file := configfile.Parse("f", []byte(text), keys, getenv)
		if err := file.Err(); err != nil {
			for line := range strings.Lines(err.Error()) {
				var at, column int
				if n, _ := fmt.Sscanf(line, "f:%d:%d: ", &at, &column); n != 2 && !strings.HasPrefix(line, "f: and ") && strings.HasPrefix(line, "f:") {
					t.Errorf("a problem without its place: %q", line)
				}
			}
		}
		for key, v := range file.Values {
			if v.Position.Line < 1 || len(v.Text) > 4*configfile.MaxBytes {
				t.Errorf("%s: %d bytes at %v", key, len(v.Text), v.Position)
			}
			if strings.Contains(v.Written, "canary") && !strings.Contains(text, "canary") {
				t.Errorf("%s is written as %q", key, v.Written)
			}
		}
	})
}
