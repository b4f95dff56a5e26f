package sealed

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/session/store"
)

// FuzzOpen opens any value: a clear one as it is, any other one with the error of a damaged one.
func FuzzOpen(f *testing.F) {
	key, err := newDataKey(1, make([]byte, keyBytes))
	if err != nil {
		f.Fatal(err)
	}
	r := &Ring{}
	r.keys.Store(key.id, key)
	at := place("record\x00", "a")
	f.Add(key.seal(at, []byte("text")))
	f.Add([]byte(key.sealJSON(at, json.RawMessage(`1`))))
	f.Add([]byte(key.sealText(at, "text")))
	f.Add([]byte(`{"a": 1}`))
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, value := range [][]byte{data, first(fromJSON(data)), first(fromText(string(data)))} {
			got, err := r.openKnown(place("record\x00", "b"), value)
			_, sealed := keyOf(value)
			if sealed != errors.Is(err, store.ErrDamaged) || !sealed && (err != nil || !bytes.Equal(got, value)) {
				t.Fatalf("%q: %q, %v", value, got, err)
			}
		}
	})
}

func first(data []byte, _ bool) []byte { return data }

// FuzzKeysFile reads any file of keys: its errors have no key.
func FuzzKeysFile(f *testing.F) {
	f.Add(fixedKeys["a"])
	f.Add("# a\n\n" + fixedKeys["a"] + "\n" + fixedKeys["b"])
	f.Add("a\tb c")
	f.Fuzz(func(t *testing.T, text string) {
		keys, err := parseKeys([]byte(text))
		if err == nil && len(keys) == 0 {
			t.Fatal("there is neither a key nor an error")
		}
		for _, k := range keys {
			if len(k.key) != keyBytes || !keyID.MatchString(k.id) {
				t.Fatalf("%q: key %q of %d bytes", text, k.id, len(k.key))
			}
		}
		for line := range strings.Lines(text) {
			if fields := strings.Fields(line); err != nil && len(fields) == 2 && len(fields[1]) > 20 && strings.Contains(err.Error(), fields[1]) {
				t.Fatalf("the error has the key: %v", err)
			}
		}
	})
}
