package render_test

import (
	"testing"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/internal/render"
)

// A cursor is read back for the same session alone, and only as it was written.
func TestPlaceOf(t *testing.T) {
	for _, p := range []render.Place{{}, {At: 1}, {At: 5 << 20, From: 5}, {At: 1<<62 + 3, From: 1 << 42}} {
		cursor := p.Cursor("s1")
		if got, err := render.PlaceOf(cursor, "s1"); got != p || err != nil {
			t.Errorf("%+v came back as %+v, %v", p, got, err)
		}
		if cursor == "" {
			continue
		}
		if _, err := render.PlaceOf(cursor, "s2"); err == nil {
			t.Errorf("another session reads the cursor of %+v", p)
		}
		for _, bad := range []string{cursor + "A", cursor[1:], cursor[:len(cursor)-1], "!"} {
			if got, err := render.PlaceOf(bad, "s1"); err == nil {
				t.Errorf("%q is %+v", bad, got)
			}
		}
	}
}

// A client reads that a call is unserved once in a turn, whichever reader renders it, and its
// place does not change with it.
func TestPlaces(t *testing.T) {
	unserved := &agentdv1.RunResponse{Response: &agentdv1.RunResponse_ToolCallUnserved{
		ToolCallUnserved: &agentdv1.ToolCallUnserved{ToolCallId: "c1"},
	}}
	p := render.NewPlaces("s1", render.Place{})
	for i, step := range []struct {
		m     *agentdv1.RunResponse
		ends  []int64
		again bool
		want  render.Place
	}{
		{m: started(1), want: render.Place{At: 1 << 20, From: 1}},
		{m: unserved, want: render.Place{At: 1 << 20, From: 1}},
		{m: unserved, again: true, want: render.Place{At: 1 << 20, From: 1}},
		{m: &agentdv1.RunResponse{Seq: 2 << 20}, want: render.Place{At: 2 << 20, From: 1}},
		{m: &agentdv1.RunResponse{Seq: 3 << 20}, ends: []int64{3 << 20}, want: render.Place{At: 3 << 20, From: 4}},
		{m: unserved, want: render.Place{At: 3 << 20, From: 4}},
	} {
		cursor, again := p.Next(step.m, step.ends)
		if again != step.again || p.Last() != step.want {
			t.Errorf("step %d: place %+v, again %v, want %+v, %v", i, p.Last(), again, step.want, step.again)
		}
		if (cursor != "") != (step.m.GetSeq() > 0) {
			t.Errorf("step %d: cursor %q", i, cursor)
		}
	}
}

// started is the start of a turn at a record.
func started(seq int64) *agentdv1.RunResponse {
	return &agentdv1.RunResponse{Seq: seq << 20, Response: &agentdv1.RunResponse_Execute{
		Execute: &agentdv1.RunResponse_ExecuteResponse{},
	}}
}
