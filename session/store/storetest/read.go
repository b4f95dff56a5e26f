package storetest

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

var readTests = []test{
	{"Read/CursorAndLimit", func(t *testing.T, s store.Store) {
		create(t, s, "a", "b")
		log := events(0, 10)
		add(t, s, batch("a", log...))
		add(t, s, batch("b", events(0, 20)...))
		for after := range 13 {
			for _, limit := range []int{1, 2, 9, 10, 11, math.MaxInt32} {
				got, err := s.Read(t.Context(), "a", int64(after), limit)
				if err != nil {
					t.Fatalf("Read(after %d, limit %d): %v", after, limit, err)
				}
				rest := log[min(after, len(log)):]
				wantRecords(t, got, rest[:min(limit, len(rest))])
			}
		}
		got, err := s.Read(t.Context(), "a", math.MaxInt64, 10)
		if err != nil || len(got) != 0 {
			t.Fatalf("Read past the end = %d records, %v, want none", len(got), err)
		}
	}},
	{"Read/LimitMustBePositive", func(t *testing.T, s store.Store) {
		create(t, s, "a")
		add(t, s, batch("a", events(0, 1)...))
		for _, limit := range []int{0, -1} {
			_, err := s.Read(t.Context(), "a", 0, limit)
			wantRefused(t, "Read without a limit", err)
		}
	}},
	{"Read/TenThousandInPages", func(t *testing.T, s store.Store) {
		create(t, s, "a", "b")
		log := events(0, 10_000)
		for part := range slices.Chunk(log, 500) {
			add(t, s, batch("a", part...))
		}
		add(t, s, batch("b", events(0, 1000)...))
		wantLog(t, s, "a", log)
	}},
	{"Read/LargeRecords", func(t *testing.T, s store.Store) {
		create(t, s, "a")
		log := events(0, 8)
		for i := range log {
			log[i].Data = []byte(`"` + strings.Repeat("x", store.ReadBytes/3) + `"`)
			add(t, s, batch("a", log[i]))
		}
		wantLog(t, s, "a", log)
	}},
	{"Read/SeesWhatWasAcknowledged", func(t *testing.T, s store.Store) {
		create(t, s, "a")
		for _, r := range events(0, 50) {
			add(t, s, batch("a", r))
			got, err := s.Read(t.Context(), "a", r.Seq-1, 10)
			if err != nil {
				t.Fatalf("Read: %v", err)
			}
			wantRecords(t, got, []record.Record{r})
		}
	}},
}

var sharedTests = []test{
	{"Shared/UnknownScope", func(t *testing.T, s store.Store) {
		wantShared(t, s, "user:nobody", nil)
	}},
	{"Shared/LastWriteStands", func(t *testing.T, s store.Store) {
		create(t, s, "a", "b")
		write := func(id string, seq int64, values ...store.SharedValue) {
			t.Helper()
			b := batch(id, events(seq-1, 1)...)
			b.Shared = values
			add(t, s, b)
		}
		write("a", 1, store.SharedValue{Scope: "app", Key: "k", Value: []byte(`1`)},
			store.SharedValue{Scope: "app", Key: "l", Value: []byte(`"x"`)})
		write("b", 1, store.SharedValue{Scope: "app", Key: "k", Value: []byte(`2`)})
		wantShared(t, s, "app", map[string]string{"k": `2`, "l": `"x"`})
		write("a", 2, store.SharedValue{Scope: "app", Key: "k", Value: []byte(`3`)},
			store.SharedValue{Scope: "app", Key: "k", Value: []byte(`null`)})
		wantShared(t, s, "app", map[string]string{"k": `null`, "l": `"x"`})
	}},
	{"Shared/Scopes", func(t *testing.T, s store.Store) {
		values := func(value []byte, scopes ...string) (out []store.SharedValue) {
			for _, scope := range scopes {
				out = append(out, store.SharedValue{Scope: scope, Key: "k", Value: value},
					store.SharedValue{Scope: scope, Key: "l", Value: value})
			}
			return out
		}
		for _, v := range [][]store.SharedValue{
			values([]byte("1"), "user:a", "app", "app:acme", "user:gone", "user:b"), values(nil, "user:gone"),
		} {
			if err := s.SetShared(t.Context(), v); err != nil {
				t.Fatal(err)
			}
		}
		var all []string
		for after := ""; ; after = all[len(all)-1] {
			names, err := s.Scopes(t.Context(), after, 2)
			if err != nil || len(names) > 2 {
				t.Fatalf("Scopes(%q): %q, %v", after, names, err)
			}
			if all = append(all, names...); len(names) < 2 {
				break
			}
		}
		if want := []string{"app", "app:acme", "user:a", "user:b"}; !slices.Equal(all, want) {
			t.Errorf("Scopes: %q, want %q", all, want)
		}
		_, err := s.Scopes(t.Context(), "", 0)
		wantErr(t, "no limit", err, store.ErrMalformed)
	}},
	{"Shared/NoValueRemovesTheKey", func(t *testing.T, s store.Store) {
		create(t, s, "a")
		b := batch("a", events(0, 1)...)
		b.Shared = []store.SharedValue{
			{Scope: "app", Key: "k", Value: []byte(`1`)},
			{Scope: "app", Key: "l", Value: []byte(`2`)},
			{Scope: "user:ann", Key: "k", Value: []byte(`3`)},
		}
		add(t, s, b)
		b = batch("a", events(1, 1)...)
		b.Shared = []store.SharedValue{{Scope: "app", Key: "k"}, {Scope: "app", Key: "none"}}
		add(t, s, b)
		wantShared(t, s, "app", map[string]string{"l": `2`})
		wantShared(t, s, "user:ann", map[string]string{"k": `3`})
		set := []store.SharedValue{
			{Scope: "app", Key: "l"},
			{Scope: "app", Key: "m", Value: []byte(`4`)},
			{Scope: "user:ann", Key: "k"},
		}
		for range 2 {
			if err := s.SetShared(t.Context(), set); err != nil {
				t.Fatalf("SetShared: %v", err)
			}
			wantShared(t, s, "app", map[string]string{"m": `4`})
			wantShared(t, s, "user:ann", nil)
		}
		bare := []store.SharedValue{{Key: "k", Value: []byte(`1`)}}
		wantErr(t, "SetShared without a scope", s.SetShared(t.Context(), bare), store.ErrMalformed)
		spoiled := []store.SharedValue{{Scope: "app", Key: "k", Value: []byte(`{`)}}
		wantErr(t, "SetShared of no JSON", s.SetShared(t.Context(), spoiled), store.ErrMalformed)
	}},
	{"Shared/ScopesAndKeysAreApart", func(t *testing.T, s store.Store) {
		create(t, s, "a")
		b := batch("a", events(0, 1)...)
		want := map[string]map[string]string{
			"app":        {"k": `1`, "K": `2`, "": `3`},
			"user:ann":   {"k": `4`, "á": `5`, "a b": `6`},
			"user:Ann":   {"k": `7`},
			"user:日本":    {"k": `8`},
			"user:ann\t": {"k": `9`},
		}
		for scope, values := range want {
			for k, v := range values {
				b.Shared = append(b.Shared, store.SharedValue{Scope: scope, Key: k, Value: []byte(v)})
			}
		}
		add(t, s, b)
		for scope, values := range want {
			wantShared(t, s, scope, values)
		}
		wantShared(t, s, "user:", nil)
	}},
	{"Shared/ValuesKeepTheirText", func(t *testing.T, s store.Store) {
		create(t, s, "a")
		b := batch("a", events(0, 1)...)
		want := map[string]string{
			"order": `{"z":1, "a":[1.0,1e3],"z":2}`, "text": "\"\u00e9 \\u0000 \U0001F600\"",
			"big": `12345678901234567890`, "space": " [ ] ",
		}
		for k, v := range want {
			b.Shared = append(b.Shared, store.SharedValue{Scope: "app", Key: k, Value: []byte(v)})
		}
		add(t, s, b)
		wantShared(t, s, "app", want)
	}},
}

func wantShared(t testing.TB, s store.Store, scope string, want map[string]string) {
	t.Helper()
	got, err := s.Shared(t.Context(), scope)
	if err != nil {
		t.Fatalf("Shared(%q): %v", scope, err)
	}
	text := func(m map[string]json.RawMessage) map[string]string {
		out := make(map[string]string, len(m))
		for k, v := range m {
			out[k] = string(v)
		}
		return out
	}(got)
	if len(text) != len(want) {
		t.Fatalf("Shared(%q) = %q, want %q", scope, text, want)
	}
	for k, v := range want {
		if text[k] != v {
			t.Fatalf("Shared(%q) = %q, want %q", scope, text, want)
		}
	}
}
