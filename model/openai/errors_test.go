package openai

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/apzuk3/agentd/model"
)

// TestQuota: a limit on the rate passes, an empty account does not, whether it
// shows before the answer or within its stream.
func TestQuota(t *testing.T) {
	for code, temporary := range map[string]bool{"rate_limit_exceeded": true, noQuota: false, noBilling: false} {
		for _, status := range []int{http.StatusTooManyRequests, http.StatusOK} {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				body := fmt.Sprintf(`{"error":{"message":"no","type":%q,"param":null,"code":%q}}`, code, code)
				if status == http.StatusOK {
					w.Header().Set("Content-Type", "text/event-stream")
					body = "data: " + body + "\n\n"
				}
				w.WriteHeader(status)
				_, _ = io.WriteString(w, body)
			}))
			for _, api := range []API{Chat, Responses} {
				llm, err := New(Config{API: api, APIKey: "k", BaseURL: s.URL, Transport: http.DefaultTransport}).Open("m", "")
				if err != nil {
					t.Fatal(err)
				}
				_, err = llm.Generate(t.Context(), hello(), func(model.Delta) {})
				e, ok := errors.AsType[*model.Error](err)
				if !ok || e.Kind != model.KindRateLimited || e.Temporary() != temporary {
					t.Errorf("%s over %s with status %d: %v, want one that passes: %t", code, api, status, err, temporary)
				}
			}
			s.Close()
		}
	}
}
