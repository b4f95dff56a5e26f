package session

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// FuzzMarks decodes anything, and finds again what it has decoded.
func FuzzMarks(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{1, 3, 0x80})
	f.Add([]byte(strings.Repeat("\xff", 20)))
	f.Fuzz(func(t *testing.T, data []byte) {
		ks, err := Marks(data).decode()
		if err != nil {
			return
		}
		var again Marks
		last := int64(0)
		for _, k := range ks {
			if k.pos < last || k.bytes < 0 {
				t.Fatalf("mark %v after position %d", k, last)
			}
			again = again.appendMark(last, k)
			last = k.pos
		}
		back, err := again.decode()
		if err != nil || !slices.Equal(back, ks) {
			t.Errorf("%v became %v, %v", ks, back, err)
		}
		ev := &Event{Text: "text", Thoughts: "thoughts", Marks: data}
		if _, err := ev.deltas(0); err == nil && len(ks) > 0 {
			if text, thoughts := ev.unshown(); len(text) > 4 || len(thoughts) > 8 {
				t.Errorf("unshown %q %q", text, thoughts)
			}
		}
	})
}

// TestDeltas cuts a message anywhere: what comes after is exactly the rest.
func TestDeltas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var m message
		pos := int64(0)
		for range rapid.IntRange(1, 20).Draw(t, "deltas") {
			pos += rapid.Int64Range(1, 1<<30).Draw(t, "step")
			piece := rapid.StringMatching(`[a-zü]{1,5}`).Draw(t, "piece")
			k := mark{pos: pos, bytes: len(piece), thought: rapid.Bool().Draw(t, "thought")}
			m.marks = m.marks.appendMark(m.last, k)
			m.last = pos
			if k.thought {
				m.thoughts = append(m.thoughts, piece...)
			} else {
				m.text = append(m.text, piece...)
			}
		}
		at := rapid.Int64Range(0, pos).Draw(t, "at")
		ev := m.soFar()
		ev.Text += "rest"
		all, err := ev.deltas(0)
		if err != nil {
			t.Fatal(err)
		}
		some, err := ev.deltas(at)
		if err != nil {
			t.Fatal(err)
		}
		text := ""
		for _, it := range slices.Concat(all[:len(all)-len(some)], some) {
			if !it.delta.Thought {
				text += it.delta.Text
			}
		}
		if unshown, _ := ev.unshown(); text+unshown != ev.Text {
			t.Errorf("joined %q and %q, want %q", text, unshown, ev.Text)
		}
		for _, it := range some {
			if it.pos <= at {
				t.Errorf("a delta at %d comes after %d", it.pos, at)
			}
		}
	})
}
