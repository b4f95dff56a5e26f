package webhook

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// A hook is told what background agents report, each report once, and what they say only with content.
func TestChildNotices(t *testing.T) {
	db := inMemory(t)
	bodies := make(chan string, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies <- string(body)
	}))
	defer receiver.Close()
	open, closed := hookOf(t, "open", receiver.URL, ChildReported), hookOf(t, "closed", receiver.URL, ChildReported)
	open.Content = true
	s, _ := told(db, open, closed)
	at := time.Now().UTC().Truncate(time.Microsecond)
	b := store.Batch{SessionID: "acme/s", Create: &store.NewSession{ID: "acme/s", CreatedAt: at}}
	for i, data := range []string{
		`{"name":"a","kind":"started","seq":1}`, `{"name":"a","text":"a trace","seq":5}`,
		`{"name":"a","kind":"completed","text":"found","seq":9,"end":{"totals":{"turns":2,"cost_usd":0.003}}}`,
	} {
		b.Records = append(b.Records, record.Record{
			Seq: int64(i + 1), Kind: record.KindChildReported, Time: at.Add(time.Duration(i) * time.Microsecond), Data: []byte(data),
		})
	}
	if err := s.Append(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	sender := senderOf(db, io.Discard, &outcomes{}, open, closed)
	sender.start()
	defer sender.Close()
	var got []string
	for range 4 {
		select {
		case body := <-bodies:
			_, child, _ := strings.Cut(body, `"child":`)
			got = append(got, child)
		case <-time.After(time.Minute):
			t.Fatalf("hooks are told only %q", got)
		}
	}
	want := []string{
		`{"name":"a","kind":"alert","ended":false,"text":"a trace"}}}`, `{"name":"a","kind":"alert","ended":false}}}`,
		`{"name":"a","kind":"completed","ended":true,"turns":2,"cost_usd":0.003,"text":"found"}}}`,
		`{"name":"a","kind":"completed","ended":true,"turns":2,"cost_usd":0.003}}}`,
	}
	if !sameItems(got, want) {
		t.Errorf("told\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
