package tracecontext_test

import (
	"strings"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/apzuk3/agentd/internal/tracecontext"
)

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// TestParse: headers as W3C has them name a place; others name none.
func TestParse(t *testing.T) {
	long := "a=" + strings.Repeat("x", 600)
	for _, c := range []struct {
		parent, wantParent string
		state              []string
		wantState          string
	}{
		{parent: parent, wantParent: parent},
		{parent: parent, wantParent: parent, state: []string{"a=1,b=2", "c=3"}, wantState: "a=1,b=2,c=3"},
		{parent: parent, wantParent: parent, state: []string{long}},
		{parent: parent, wantParent: parent, state: []string{"no state"}},
		{parent: strings.Replace(parent, "-01", "-00", 1), wantParent: strings.Replace(parent, "-01", "-00", 1)},
		{parent: strings.ToUpper(parent)},
		{parent: "00-00000000000000000000000000000000-b7ad6b7169203331-01"},
		{parent: "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01"},
		{parent: "ff" + parent[2:]},
		{parent: parent + "\r\nx: y"},
		{},
	} {
		got := tracecontext.Parse(c.parent, c.state...)
		if want := (tracecontext.Context{Parent: c.wantParent, State: c.wantState}); got != want {
			t.Errorf("%q, %q: %+v, want %+v", c.parent, c.state, got, want)
		}
	}
}

// TestBelow: the span of a name has the same id each time, in the same trace; without spans of this server there is none.
func TestBelow(t *testing.T) {
	c := tracecontext.Parse(parent, "a=1")
	if got := c.Below("call", "1"); got != c {
		t.Errorf("without spans: %+v", got)
	}
	c.Spans = true
	one, again, other := c.Below("call", "1"), c.Below("call", "1"), c.Below("call", "2")
	if one != again || one == other || one.TraceID() != c.TraceID() || one.State != "a=1" {
		t.Errorf("%+v, %+v, %+v", one, again, other)
	}
	sc := one.SpanContext()
	if !sc.IsValid() || !sc.IsSampled() || sc.SpanID() != c.SpanID("call", "1") {
		t.Errorf("%+v is %v", one, sc)
	}
	if back := tracecontext.From(sc.WithRemote(true)); back.Parent != one.Parent || back.State != one.State {
		t.Errorf("%+v, want %+v", back, one)
	}
	if zero := (tracecontext.Context{Spans: true}); zero.Below("x") != zero || zero.TraceID() != "" || zero.SpanContext().IsValid() {
		t.Error("the zero value has a trace")
	}
	if got := tracecontext.From(trace.SpanContext{}); got != (tracecontext.Context{}) {
		t.Errorf("no span: %+v", got)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(parent, "a=1,b=2")
	f.Add("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-what the future will be", "")
	f.Fuzz(func(t *testing.T, parent, state string) {
		c := tracecontext.Parse(parent, state)
		if c == (tracecontext.Context{}) {
			return
		}
		if len(c.Parent) != 55 || len(c.State) > 512 || !c.SpanContext().IsValid() {
			t.Fatalf("%q, %q: %+v", parent, state, c)
		}
		if again := tracecontext.Parse(c.Parent, c.State); again != c {
			t.Fatalf("%+v becomes %+v", c, again)
		}
	})
}
