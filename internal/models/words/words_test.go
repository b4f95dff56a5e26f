package words_test

import (
	"slices"
	"testing"

	"github.com/apzuk3/agentd/internal/models/words"
)

func TestSplit(t *testing.T) {
	for in, want := range map[string][]string{
		"":                nil,
		"one":             {"one"},
		"one two  three ": {"one ", "two  ", "three "},
		"  lead\n\nüber😀": {"  lead\n\n", "über😀"},
		" \n ":            {" \n "},
	} {
		var got []string
		for w := range words.Split(in) {
			got = append(got, w)
		}
		if !slices.Equal(got, want) {
			t.Errorf("Split(%q) = %q, want %q", in, got, want)
		}
	}
}
