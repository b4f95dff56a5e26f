//go:build unix

package tools_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/apzuk3/agentd/client/conf"
)

func args(t *testing.T, kv ...any) string {
	t.Helper()
	m := map[string]any{}
	for i := 0; i < len(kv); i += 2 {
		m[kv[i].(string)] = kv[i+1]
	}
	data, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// nasty are texts that grow when they become JSON, or U+FFFD.
var nasty = map[string]string{
	"quotes": "\"", "backslashes": "\\", "control": "\x01", "delete": "\x7f", "html": "<&>", "invalid": "\xff", "separators": "\u2028", "ends": "\r", "tabs": "\t", "pairs": "\"\n",
}

// TestResultsFit: whatever a tool returns fits into a result of a tool.
func TestResultsFit(t *testing.T) {
	wide := func(c *conf.Config) {
		for _, name := range toolNames {
			c.ToolOutput[name] = conf.OutputCap{KiB: 256, Lines: 1 << 20}
		}
	}
	for name, unit := range nasty {
		b := newBench(t, wide)
		text := strings.Repeat(unit, 400<<10/len(unit))
		b.file("f", text)
		for i := range 8 {
			b.file(fmt.Sprintf("many/%d", i), text)
		}
		b.file("lines", strings.Repeat(strings.Repeat(unit, 500/len(unit))+"x\n", 4000))
		doc, err := json.Marshal(strings.ToValidUTF8(strings.Repeat(unit, 30<<10/len(unit)), "\uFFFD"))
		if err != nil {
			t.Fatal(err)
		}
		b.file("doc.json", string(doc))
		for _, c := range []struct{ tool, args string }{
			{"read_file", args(t, "path", "f")}, {"read_many_files", args(t, "pattern", "*", "path", "many")}, {"grep", args(t, "pattern", "x|.", "path", "lines")},
			{"json_query", args(t, "query", ".", "path", "doc.json")}, {"json_query", args(t, "query", "[.[:100000]],[.[:100000]]", "path", "doc.json")},
			{"bash", args(t, "command", "cat f; cat f >&2")},
		} {
			got := b.call(c.tool, c.args)
			if strings.HasPrefix(got, "error: ") {
				t.Errorf("%s, %s(%s): %.300s", name, c.tool, c.args, got)
			}
			if strings.Contains(got, "\x00") {
				t.Errorf("%s, %s: a NUL byte", name, c.tool)
			}
		}
	}
	b := newBench(t, wide)
	for i := range 300 {
		at := strings.Repeat(fmt.Sprintf("d%s/", strings.Repeat("\x01\"", 100)), 5)
		b.file(fmt.Sprintf("%s%03d%s", at, i, strings.Repeat("\xff", 200)), "x\n")
		b.file(fmt.Sprintf("flat/%04d%s", i, strings.Repeat("\"", 200)), "x\n")
	}
	for _, c := range []struct{ tool, args string }{
		{"glob", args(t, "pattern", "*")}, {"list_dir", args(t, "path", "flat")}, {"grep", args(t, "pattern", "x")}, {"read_many_files", args(t, "pattern", "*")},
		{"read_many_files", args(t, "paths", []string{strings.Repeat("\"", 20<<10), strings.Repeat("\x01", 20<<10), strings.Repeat("/\"", 20<<10)})},
		{"read_file", args(t, "path", strings.Repeat("\"", 40<<10))}, {"stat", args(t, "path", strings.Repeat("\"", 40<<10))}, {"edit_file", args(t, "path", strings.Repeat("\x01", 20<<10), "old_string", "a", "new_string", "b")},
	} {
		if got := b.call(c.tool, c.args); strings.Contains(got, "at most 1048576") || strings.Contains(got, "result takes") {
			t.Errorf("%s(%.80s): %.300s", c.tool, c.args, got)
		}
	}
}

// TestPages: a file that is read page by page is the whole file.
func TestPages(t *testing.T) {
	b := newBench(t, func(c *conf.Config) { c.ToolOutput["read_file"] = conf.OutputCap{KiB: 1, Lines: 10} })
	rnd := rand.New(rand.NewPCG(1, 2))
	pieces := []string{"a", "bcd", " ", "é", "日本", "\t", "\r", "\"", "\\", "<", "🙂", "\x01"}
	for n := range 25 {
		var text strings.Builder
		for range rnd.IntN(60) {
			var line strings.Builder
			for range rnd.IntN(1 + rnd.IntN(150)) {
				line.WriteString(pieces[rnd.IntN(len(pieces))])
			}
			cut := line.String()
			if len(cut) > 170 {
				cut = strings.ToValidUTF8(cut[:170], "")
			}
			text.WriteString(cut + "\n")
		}
		want := text.String()
		if n%2 == 0 {
			want = strings.TrimSuffix(want, "\n")
		}
		b.file("f", want)
		var got strings.Builder
		for offset, pages := 0, 0; ; pages++ {
			var out struct {
				Content    string `json:"content"`
				NextOffset int    `json:"next_offset"`
				Truncated  bool   `json:"truncated"`
			}
			a := args(t, "path", "f", "offset", offset)
			if n%3 == 0 {
				a = args(t, "path", "f", "offset", offset, "limit", 7)
			}
			text := b.call("read_file", a)
			if err := json.Unmarshal([]byte(text), &out); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			if out.Truncated {
				out.Content = out.Content[:strings.LastIndex(out.Content, "[cut: ")]
			}
			got.WriteString(out.Content)
			if out.NextOffset == 0 {
				break
			}
			if out.NextOffset <= offset {
				t.Fatalf("from %d to %d", offset, out.NextOffset)
			}
			offset = out.NextOffset
		}
		if got.String() != want {
			t.Fatalf("file %d\n got %q\nwant %q", n, got.String(), want)
		}
	}
}

// TestJobPages: the output of a command in the background is read page by page as a whole.
func TestJobPages(t *testing.T) {
	b := newBench(t, func(c *conf.Config) { c.ToolOutput["bash"] = conf.OutputCap{KiB: 1, Lines: 10} })
	want := strings.Repeat("é日本🙂\n\"x", 400)
	b.file("f", want)
	calls := [][2]string{{"bash", args(t, "command", "cat f; touch done; sleep 600", "background", true)}, {"bash", args(t, "command", "while ! [ -e done ]; do sleep 0.01; done; sleep 0.2")}}
	// Where pages begin is known: at most 1 KiB and 10 lines, whole characters.
	for offset := 0; offset < len(want); {
		calls = append(calls, [2]string{"bash_output", args(t, "id", "bg-1", "offset", offset)})
		end, lines := offset, 0
		for end < len(want) && end-offset < 1024 && lines < 10 {
			if want[end] == '\n' {
				lines++
			}
			end++
		}
		for end < len(want) && !utf8.RuneStart(want[end]) {
			end--
		}
		offset = end
	}
	got := ""
	for i, text := range b.turn(calls) {
		var out struct {
			Output string `json:"output"`
			Next   int    `json:"next_offset"`
		}
		if err := json.Unmarshal([]byte(text), &out); err != nil {
			t.Fatalf("%v: %s", calls[i], text)
		}
		if got += out.Output; i > 1 && out.Next != len(got) {
			t.Fatalf("%v: next_offset %d after %d bytes", calls[i], out.Next, len(got))
		}
	}
	if got != want {
		t.Errorf("got %d bytes, want %d", len(got), len(want))
	}
}

// TestTodoFits: a list that is full is still to be seen.
func TestTodoFits(t *testing.T) {
	b := newBench(t)
	const session = "todo-fits"
	last := ""
	for range 256 {
		if last = b.callIn(session, "todo", args(t, "action", "add", "text", strings.Repeat("\"", 4096))); strings.HasPrefix(last, "error: ") {
			break
		}
	}
	if !strings.Contains(last, "clear it") {
		t.Errorf("got %.200s", last)
	}
	if got := b.callIn(session, "todo", args(t, "action", "list")); strings.HasPrefix(got, "error: ") {
		t.Errorf("got %.200s", got)
	}
}
