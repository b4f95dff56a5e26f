package render_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/internal/position"
	"github.com/apzuk3/agentd/session/internal/recent"
	"github.com/apzuk3/agentd/session/internal/render"
	"github.com/apzuk3/agentd/session/record"
)

// memory is a log in memory.
type memory struct {
	records []record.Record
	facts   []any
}

func (l *memory) add(kind record.Kind, turn string, fact any) {
	data, err := json.Marshal(fact)
	if err != nil {
		panic(err)
	}
	l.records = append(l.records, record.Record{
		Seq: int64(len(l.records) + 1), Kind: kind, TurnID: turn, Data: data,
	})
	l.facts = append(l.facts, fact)
}

func (l *memory) Records(_ context.Context, after int64) iter.Seq2[*recent.Entry, error] {
	return func(yield func(*recent.Entry, error) bool) {
		for _, rec := range l.records[min(max(after, 0), int64(len(l.records))):] {
			if !yield(recent.Of(rec), nil) {
				return
			}
		}
	}
}

func (l *memory) Decode(rec record.Record) (any, error) { return l.facts[rec.Seq-1], nil }

// turns is the log of two turns. In the second one a tool call is opened and answered.
func turns() *memory {
	l := &memory{}
	path := []string{"root"}
	l.add(record.KindTurnStarted, "t1", &record.TurnStarted{})
	l.add(record.KindEvent, "t1", &record.Event{MessageID: "m1", Path: path, Text: "first"})
	l.add(record.KindTurnEnded, "t1", &record.TurnEnded{Completed: true})
	l.add(record.KindTurnStarted, "t2", &record.TurnStarted{})
	long := &record.Event{MessageID: "m2", Path: path}
	partial := render.Partial{ID: "m2", Path: path}
	for i := range 9 {
		text := strings.Repeat(string(rune('a'+i)), 20)
		partial.Add(position.Of(4, position.Deltas+i), record.Delta{MessageID: "m2", Path: path, Text: text})
		long.Text += text
	}
	long.Marks = partial.Marks()
	long.Calls = []record.ToolCall{{ID: "c1", Name: "tool", Input: []byte("{}"), Path: path}}
	l.add(record.KindEvent, "t2", long)
	output := "{}"
	l.add(record.KindToolResult, "t2", &record.ToolResult{CallID: "c1", Outcome: record.Returned, Output: &output})
	l.add(record.KindTurnEnded, "t2", &record.TurnEnded{Completed: true})
	return l
}

// read catches up with the whole log.
func read(t *testing.T, l *memory, start render.Start) (out []*agentdv1.RunResponse, r *render.Reader) {
	t.Helper()
	start.SessionID = "s1"
	r = render.NewReader(l, start)
	for more := true; more; {
		var err error
		if more, err = r.CatchUp(t.Context(), render.Live{Applied: int64(len(l.records))}); err != nil {
			t.Fatal(err)
		}
		out = append(out, r.Take()...)
	}
	return out, r
}

// brief returns a line for each message, with the texts of neighboring deltas joined.
func brief(msgs []*agentdv1.RunResponse) string {
	out, text := "", ""
	for _, m := range msgs {
		if c := m.GetOutputChunk(); c != nil && !c.GetLast() {
			text += c.GetContent()
			continue
		}
		out += fmt.Sprintf("%s %d %s %T\n", text, m.GetSeq(), m.GetTurnId(), m.GetResponse())
		text = ""
	}
	return out
}

// A reader renders the same, however much it renders at once, and from every position the rest.
func TestReaderFromEachPosition(t *testing.T) {
	l := turns()
	all, _ := read(t, l, render.Start{MaxBytes: 1 << 20})
	for _, most := range []int{1, 100, 300} {
		msgs, _ := read(t, l, render.Start{MaxBytes: most})
		if got, want := brief(msgs), brief(all); got != want {
			t.Errorf("with %d bytes at once:\n%s\nwant\n%s", most, got, want)
		}
	}
	for i, m := range all {
		msgs, _ := read(t, l, render.Start{MaxBytes: 100, After: m.GetSeq()})
		if got, want := brief(msgs), brief(all[i+1:]); got != want {
			t.Errorf("after %d:\n%s\nwant\n%s", m.GetSeq(), got, want)
		}
	}
}

// A reader of one turn ends with it and renders nothing more.
func TestReaderEndsWithItsTurn(t *testing.T) {
	l := turns()
	msgs, r := read(t, l, render.Start{MaxBytes: 1 << 20, Turn: "t1", Only: true})
	if last := msgs[len(msgs)-1]; last.GetEnd() == nil || last.GetTurnId() != "t1" || !r.IsOver() {
		t.Fatalf("the last message is %v, over %v", last, r.IsOver())
	}
	r.Render(render.FactItem(l.records[3], l.facts[3]))
	if more := r.Take(); len(more) > 0 {
		t.Errorf("after the end: %v", more)
	}
}

// A call that is offered is a request, once: also if it is offered again when its position is
// past.
func TestReaderRequestsOnce(t *testing.T) {
	l := turns()
	r := render.NewReader(l, render.Start{SessionID: "s1", MaxBytes: 1 << 20, Turn: "t2", Rendered: 3})
	call := l.facts[4].(*record.Event).Calls[0]
	live := render.Live{Applied: 5, Offered: []record.ToolCall{call}}
	if more, err := r.CatchUp(t.Context(), live); more || err != nil {
		t.Fatal(more, err)
	}
	r.Render(render.Item{Offer: &call})
	requests := 0
	for _, m := range r.Take() {
		if m.GetToolCall() != nil {
			requests++
		}
		if m.GetToolCallAnnounced() != nil {
			t.Errorf("announced: %v", m)
		}
	}
	if requests != 1 {
		t.Errorf("%d requests", requests)
	}
}

// A log that has gone ends its reader.
func TestReaderOfPurgedLog(t *testing.T) {
	r := render.NewReader(&memory{}, render.Start{SessionID: "s1", MaxBytes: 1 << 20})
	if _, err := r.CatchUp(t.Context(), render.Live{Applied: 7}); !errors.Is(err, render.ErrPurged) {
		t.Errorf("error %v", err)
	}
}

// Deltas are cut between runes, and a partial returns what was added to it.
func TestPartial(t *testing.T) {
	text := "x" + strings.Repeat("é", render.MaxPiece)
	p := render.Partial{ID: "m1", Path: []string{"root"}}
	pos := position.Of(1, position.Deltas)
	for piece := range render.Pieces(record.Delta{MessageID: "m1", Path: p.Path, Text: text}) {
		if len(piece.Text) > render.MaxPiece || strings.ToValidUTF8(piece.Text, "") != piece.Text {
			t.Errorf("a piece of %d bytes", len(piece.Text))
		}
		p.Add(pos, piece)
		pos++
	}
	if p.Size() != len(text) {
		t.Errorf("%d bytes, want %d", p.Size(), len(text))
	}
	items, err := p.Items(0)
	if err != nil || len(items) < 3 {
		t.Fatalf("%d items, %v", len(items), err)
	}
	got := ""
	for _, it := range items {
		got += it.Delta.Text
	}
	if got != text {
		t.Error("the pieces are another text")
	}
	if rest, err := p.Items(items[0].Pos); err != nil || len(rest) != len(items)-1 {
		t.Errorf("%d items after the first, %v", len(rest), err)
	}
}
