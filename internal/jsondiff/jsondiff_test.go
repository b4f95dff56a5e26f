package jsondiff_test

import (
	"strings"
	"testing"

	"github.com/apzuk3/agentd/internal/jsondiff"
)

func TestFirst(t *testing.T) {
	for _, c := range []struct{ want, got, path, wantText, gotText string }{
		{`{"a":1,"b":[{"c":"x"}]}`, `{"b":[{"c":"x"}],"a":1}`, "", "", ""},
		{`{"a":1,"b":[{"c":"x"}]}`, `{"a":1,"b":[{"c":"y"}]}`, "b[0].c", `"x"`, `"y"`},
		{`{"b":1,"a":1}`, `{"b":2,"a":2}`, "a", "1", "2"},
		{`{"a":1}`, `{}`, "a", "1", "nothing"},
		{`{}`, `{"a":null}`, "a", "nothing", "null"},
		{`[1,2]`, `[1]`, "[1]", "2", "nothing"},
		{`[1]`, `[1,"<2>"]`, "[1]", "nothing", `"<2>"`},
		{`{"a":{}}`, `{"a":[]}`, "a", "{}", "[]"},
		{`1`, `1.0`, "", "1", "1.0"},
		{`[null,true]`, `[null,false]`, "[1]", "true", "false"},
	} {
		want, err := jsondiff.Decode([]byte(c.want))
		if err != nil {
			t.Fatal(err)
		}
		got, err := jsondiff.Decode([]byte(c.got))
		if err != nil {
			t.Fatal(err)
		}
		d := jsondiff.First(want, got)
		switch {
		case c.wantText == "" && d != nil:
			t.Errorf("%s and %s differ: %v", c.want, c.got, d)
		case c.wantText != "" && (d == nil || d.Path != c.path || d.Want != c.wantText || d.Got != c.gotText):
			t.Errorf("%s and %s: %+v, want %q: %s, %s", c.want, c.got, d, c.path, c.wantText, c.gotText)
		}
	}
}

// What is shown of a long value is bounded, and stays text.
func TestCut(t *testing.T) {
	d := jsondiff.First(strings.Repeat("é", 1000), "short")
	if d == nil || len(d.Want) > 220 || !strings.HasSuffix(d.Want, "é…") {
		t.Errorf("%+v", d)
	}
	if got := d.String(); !strings.HasPrefix(got, `the whole: recorded "é`) || !strings.HasSuffix(got, `, got "short"`) {
		t.Errorf("%q", got)
	}
}

// Long texts that differ late are shown where they differ.
func TestLate(t *testing.T) {
	same := strings.Repeat("é", 1000)
	d := jsondiff.First(same+" or so", same+" or not")
	want := `"…` + strings.Repeat("é", 18) + ` or `
	if d == nil || d.Want != want+`so"` || d.Got != want+`not"` {
		t.Errorf("%+v", d)
	}
	if d = jsondiff.First(same, same+"!"); d == nil || !strings.HasSuffix(d.Got, `é!"`) || len(d.Got) > 60 {
		t.Errorf("%+v", d)
	}
}

func TestDecodeRefuses(t *testing.T) {
	for _, text := range []string{"", "{", `{} {}`} {
		if v, err := jsondiff.Decode([]byte(text)); err == nil {
			t.Errorf("%q is %v", text, v)
		}
	}
}

func TestEqual(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want bool
	}{
		{`{"a": 1, "b": [true, null]}`, `{"b":[true,null],"a":1}`, true},
		{`1.0`, `1`, false},
		{`9007199254740993`, `9007199254740992`, false},
		{`[1]`, `[1, 2]`, false},
		{`{`, `{`, false},
	} {
		if got := jsondiff.Equal(tc.a, tc.b); got != tc.want {
			t.Errorf("Equal(%s, %s) is %v", tc.a, tc.b, got)
		}
	}
}
