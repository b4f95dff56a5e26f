package server

import (
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"
)

// TestNotFiniteBelowLongNames: the path to a number that is not finite is short, however long the names on it are.
func TestNotFiniteBelowLongNames(t *testing.T) {
	v := structpb.NewNumberValue(math.NaN())
	name := strings.Repeat("x", 500_000)
	for range 2 {
		v = structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{name: v}})
	}
	where, bad := notFinite(v)
	if !bad || len(where) > 4*maxQuoted || !strings.HasPrefix(where, `["xxx`) {
		t.Errorf("%v: %.300s, of %d bytes", bad, where, len(where))
	}
}
