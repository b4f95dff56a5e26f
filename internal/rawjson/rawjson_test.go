package rawjson

import (
	"encoding/json"
	"slices"
	"testing"
)

func TestMembers(t *testing.T) {
	members, ok := Members(json.RawMessage(` {"z":{"y":[1.0]},"a\u0062":null} `))
	if !ok || len(members) != 2 || members[1].Key != "ab" {
		t.Fatalf("members %v, %v", members, ok)
	}
	if got := string(Object(members)); got != `{"z":{"y":[1.0]},"ab":null}` {
		t.Errorf("object %s", got)
	}
	if got := string(Find(members, "z")); got != `{"y":[1.0]}` || Find(members, "x") != nil {
		t.Errorf("found %s", got)
	}
	for _, text := range []string{"", "[]", "null", `{"a"`, `{"a":`, `{"a":1`, `{a:1}`} {
		if members, ok := Members(json.RawMessage(text)); ok {
			t.Errorf("%q holds %v", text, members)
		}
	}
}

func TestStrings(t *testing.T) {
	for text, want := range map[string][]string{`"a"`: {"a"}, `["a","b"]`: {"a", "b"}, `[]`: {}, `null`: nil, ``: nil, `1`: nil, `["a",1]`: nil} {
		got, ok := Strings(json.RawMessage(text))
		if ok != (want != nil) || ok && !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v", text, got, ok)
		}
	}
}
