package encoded

import (
	"bytes"
	"fmt"
	"testing"
)

// TestKnown: what was kept is found under its key alone, and both the number and the length are bounded.
func TestKnown(t *testing.T) {
	k := NewKnown()
	k.Keep("a", []byte("settings of a"))
	if got, ok := k.Get("a"); !ok || string(got) != "settings of a" {
		t.Errorf("found %q (%v)", got, ok)
	}
	if got, ok := k.Get("b"); ok {
		t.Errorf("found %q under a key that was never kept", got)
	}
	k.Keep("long", bytes.Repeat([]byte("x"), maxKnownBytes))
	if _, ok := k.Get("long"); ok {
		t.Error("settings above the bound are kept")
	}
	for i := range maxKnown {
		k.Keep(fmt.Sprint(i), nil)
	}
	if _, ok := k.Get("a"); ok {
		t.Errorf("the oldest of %d is kept", maxKnown+1)
	}
}
