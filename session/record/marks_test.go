package record

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
			again = again.Append(last, k.pos, k.bytes, k.thought)
			last = k.pos
		}
		back, err := again.decode()
		if err != nil || !slices.Equal(back, ks) {
			t.Errorf("%v became %v, %v", ks, back, err)
		}
		ev := &Event{Text: "text", Thoughts: "thoughts", Marks: data}
		if err := ev.Deltas(0, func(int64, *Delta) {}); err == nil && len(ks) > 0 {
			if text, thoughts := ev.Unshown(); len(text) > 4 || len(thoughts) > 8 {
				t.Errorf("unshown %q %q", text, thoughts)
			}
		}
	})
}

// TestDeltas cuts a message anywhere: what comes after is exactly the rest.
func TestDeltas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ev := &Event{}
		pos, last := int64(0), int64(0)
		for range rapid.IntRange(1, 20).Draw(t, "deltas") {
			pos += rapid.Int64Range(1, 1<<30).Draw(t, "step")
			piece := rapid.StringMatching(`[a-zü]{1,5}`).Draw(t, "piece")
			thought := rapid.Bool().Draw(t, "thought")
			ev.Marks = ev.Marks.Append(last, pos, len(piece), thought)
			last = pos
			if thought {
				ev.Thoughts += piece
			} else {
				ev.Text += piece
			}
		}
		at := rapid.Int64Range(0, pos).Draw(t, "at")
		ev.Text += "rest"
		type placed struct {
			pos   int64
			delta *Delta
		}
		deltas := func(after int64) (out []placed) {
			if err := ev.Deltas(after, func(pos int64, d *Delta) { out = append(out, placed{pos, d}) }); err != nil {
				t.Fatal(err)
			}
			return out
		}
		all, some := deltas(0), deltas(at)
		text := ""
		for _, it := range slices.Concat(all[:len(all)-len(some)], some) {
			if !it.delta.Thought {
				text += it.delta.Text
			}
		}
		if unshown, _ := ev.Unshown(); text+unshown != ev.Text {
			t.Errorf("joined %q and %q, want %q", text, unshown, ev.Text)
		}
		for _, it := range some {
			if it.pos <= at {
				t.Errorf("a delta at %d comes after %d", it.pos, at)
			}
		}
	})
}
