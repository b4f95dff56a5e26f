package adkbridge

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// TestSchemasAreKept requests schemas many times: each is compiled once, refused
// ones are refused each time, and the cache is bounded.
func TestSchemasAreKept(t *testing.T) {
	t.Parallel()
	var s schemas
	text := `{"properties":{"q":{"type":"string"}}}`
	want, err := checkSchema(&text)
	if err != nil {
		t.Fatal(err)
	}
	first, err := s.check(&text)
	if err != nil || !reflect.DeepEqual(first, want) {
		t.Fatalf("%v, %v, want %v", first, err, want)
	}
	same := strings.Clone(text)
	if second, err := s.check(&same); err != nil || reflect.ValueOf(second).Pointer() != reflect.ValueOf(first).Pointer() {
		t.Errorf("asked again, it is compiled again: %v", err)
	}
	bad := `{"type":"array"}`
	for range 2 {
		if _, err := s.check(&bad); err == nil {
			t.Error("the arguments of a tool are a list")
		}
	}
	if got, err := s.check(nil); err != nil || got["type"] != "object" {
		t.Errorf("no schema: %v, %v", got, err)
	}
	for i := range 100 {
		large := fmt.Sprintf(`{"description":%q}`, fmt.Sprint(i)+strings.Repeat("x", maxSchemaBytes-100))
		if _, err := s.check(&large); err != nil {
			t.Fatal(err)
		}
		if s.bytes > schemaBytes {
			t.Fatalf("%d bytes are kept", s.bytes)
		}
	}
	for i := range 5000 {
		small := fmt.Sprintf(`{"a":%d}`, i)
		if _, err := s.check(&small); err != nil {
			t.Fatal(err)
		}
	}
	if most := schemaBytes / schemaCost; len(s.byText) > most {
		t.Errorf("%d small ones are kept, want at most %d", len(s.byText), most)
	}
}
