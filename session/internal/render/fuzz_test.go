package render_test

import (
	"encoding/base64"
	"errors"
	"slices"
	"testing"

	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/render"
)

// FuzzPlaceOf reads any cursor: it is what the place that it names is written as, or it is refused.
func FuzzPlaceOf(f *testing.F) {
	for _, p := range []render.Place{{}, {At: 1}, {At: 5 << 20, From: 5}, {At: 1<<62 + 3, From: 1 << 42}} {
		f.Add(p.Cursor("s1"), "s1")
	}
	f.Add("AQ", "s1")
	data, err := base64.RawURLEncoding.DecodeString(render.Place{At: 1}.Cursor("s1"))
	if err != nil {
		f.Fatal(err)
	}
	long := slices.Concat(data[:len(data)-2], []byte{0x81, 0, 0}) // 1 in two bytes
	f.Add(base64.RawURLEncoding.EncodeToString(long), "s1")
	f.Fuzz(func(t *testing.T, cursor, session string) {
		p, err := render.PlaceOf(cursor, session)
		if _, refused := errors.AsType[*fault.Error](err); err != nil && !refused {
			t.Fatalf("%q: %v is no refusal", cursor, err)
		}
		if err == nil && (p.Cursor(session) != cursor || p.At < 0 || p.From < 0) {
			t.Fatalf("%q is %+v, which is %q", cursor, p, p.Cursor(session))
		}
	})
}
