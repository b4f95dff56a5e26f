package page_test

import (
	"strings"
	"testing"

	"github.com/apzuk3/agentd/session/internal/page"
)

// FuzzRead reads any token: one that was written for the list that is asked for comes back, and what is read is read as
// it is written again.
func FuzzRead(f *testing.F) {
	f.Add(page.Token{Query: 7, Created: 1_700_000_000_000_000, Session: "s", Seq: 9, ID: "t"}.String(), uint64(7))
	f.Add("e30", uint64(0))
	f.Fuzz(func(t *testing.T, text string, query uint64) {
		made := page.Token{Query: query, Created: int64(query >> 1), Session: strings.ToValidUTF8(text, ""), Seq: 1, ID: "t"}
		if read, err := page.Read(made.String(), query); err != nil || *read != made {
			t.Fatalf("%+v became %+v, %v", made, read, err)
		}
		if _, err := page.Read(made.String(), query+1); err == nil {
			t.Fatalf("%+v is taken for another list", made)
		}
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
