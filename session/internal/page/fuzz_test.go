package page_test

import (
	"testing"

	"github.com/apzuk3/agentd/session/internal/page"
)

// FuzzRead reads any token: it is of the list that is asked for, and is read as it is written again.
func FuzzRead(f *testing.F) {
	f.Add(page.Token{Query: 7, Created: 1_700_000_000_000_000, Session: "s", Seq: 9, ID: "t"}.String(), uint64(7))
	f.Add("e30", uint64(0))
	f.Fuzz(func(t *testing.T, text string, query uint64) {
		token, err := page.Read(text, query)
		if err != nil || token == nil {
			return
		}
		again, err := page.Read(token.String(), query)
		if err != nil || *again != *token || token.Query != query {
			t.Fatalf("%q is %+v, and again %+v, %v", text, token, again, err)
		}
	})
}
