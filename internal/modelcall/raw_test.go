package modelcall_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
)

// fetcher is an adapter that asks its server so often in each try.
type fetcher struct {
	client *http.Client
	url    string
	times  int
	tries  int
}

func (f *fetcher) Generate(ctx context.Context, _ *model.Request, _ func(model.Delta)) (*model.Response, error) {
	f.tries++
	for range f.times {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url+"?key=canary-in-query", nil)
		if err != nil {
			return nil, err
		}
		req.Header.Set("Authorization", "Bearer canary-in-header")
		resp, err := f.client.Do(req)
		if err != nil {
			return nil, err
		}
		_, err = io.ReadAll(resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil {
			return nil, err
		}
		if resp.StatusCode != http.StatusOK {
			return nil, &model.Error{Kind: model.KindUnavailable, Provider: "p", Status: resp.StatusCode, Message: "no", Usage: &model.Usage{Prompt: 1, Total: 1}}
		}
	}
	return &model.Response{Content: genai.NewContentFromText("", genai.RoleModel), FinishReason: genai.FinishReasonStop, Usage: model.Usage{Prompt: 7, Total: 7}}, nil
}

// newFetcher serves statuses one by one, each with a body that repeats the keys.
func newFetcher(t *testing.T, times int, statuses ...int) *fetcher {
	t.Helper()
	n := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(statuses[n])
		n++
		fmt.Fprintf(w, "answer %d to %s and %s", n, r.Header.Get("Authorization"), r.URL.Query().Get("key"))
	}))
	t.Cleanup(srv.Close)
	return &fetcher{client: adapter.HTTPClient(nil, 0), url: srv.URL, times: times}
}

// TestOnRaw: all answers of all tries are told, in order, without the keys.
func TestOnRaw(t *testing.T) {
	f := newFetcher(t, 2, 200, 503, 200, 200)
	llm := modelcall.Wrap(f, modelcall.Circuit{}, nil, modelcall.Limits{Provider: "p", Retry: modelcall.Retry{Tries: 2, Base: 1}})
	var reported []string
	ctx := modelcall.With(t.Context(), modelcall.Info{OnRaw: func(r modelcall.Raw) error {
		reported = append(reported, fmt.Sprintf("%d %s %d %s: %s", r.Attempt, r.Provider, r.Status, r.ContentType, r.Body))
		return nil
	}, OnRetry: func(modelcall.FailedTry) error { reported = append(reported, "retry"); return nil }})
	if _, err := llm.Generate(ctx, &model.Request{}, func(model.Delta) {}); err != nil {
		t.Fatal(err)
	}
	if want := []string{
		"1 p 200 text/plain: answer 1 to Bearer [redacted] and [redacted]", "1 p 503 text/plain: answer 2 to Bearer [redacted] and [redacted]", "retry",
		"2 p 200 text/plain: answer 3 to Bearer [redacted] and [redacted]", "2 p 200 text/plain: answer 4 to Bearer [redacted] and [redacted]",
	}; !slices.Equal(reported, want) {
		t.Errorf("told\n%s\nwant\n%s", strings.Join(reported, "\n"), strings.Join(want, "\n"))
	}
}

// TestOnRawFails: a payload that cannot be told ends the call, whatever came of
// the try, and what that took is not lost.
func TestOnRawFails(t *testing.T) {
	for status, took := range map[int]int64{200: 7, 503: 1} {
		f := newFetcher(t, 1, status, 200)
		llm := modelcall.Wrap(f, modelcall.Circuit{}, nil, modelcall.Limits{Provider: "p", Retry: modelcall.Retry{Tries: 2, Base: 1}})
		cause := errors.New("no room")
		ctx := modelcall.With(t.Context(), modelcall.Info{OnRaw: func(modelcall.Raw) error { return cause }})
		_, err := llm.Generate(ctx, &model.Request{}, func(model.Delta) {})
		e, ok := errors.AsType[*model.Error](err)
		if !ok || !errors.Is(err, cause) || e.Temporary() || !modelcall.Unreported(err) || e.Usage == nil || e.Usage.Total != took || f.tries != 1 {
			t.Errorf("status %d: %+v after %d tries", status, err, f.tries)
		}
	}
}

// TestOnRawEdges: what a server puts into the type of its answer, and a key that is
// cut by the end of what was read, does no harm.
func TestOnRawEdges(t *testing.T) {
	const key = "canary-in-header"
	echoes := strings.Repeat(key, (modelcall.MaxRaw+8<<10)/len(key)+1) // ends in the middle of one
	for name, tc := range map[string]struct{ contentType, body, wantType, wantBody string }{
		"no UTF-8":    {"text/\xffplain", "x", "text/\uFFFDplain", "x"},
		"long type":   {"text/" + strings.Repeat("x", 5000), "x", "", "x"},
		"key in type": {"text/" + key, "x", "text/[redacted]", "x"},
		"whole keys":  {"a/b", key + ".", "a/b", "[redacted]."},
		"broken off":  {"a/b", "say " + key[:len(key)-1], "a/b", "say [redacted]"},
		"many keys":   {"a/b", "x" + echoes, "a/b", ""},
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = []string{tc.contentType}
			_, _ = io.WriteString(w, tc.body)
		}))
		f := &fetcher{client: adapter.HTTPClient(nil, 0), url: srv.URL, times: 1}
		llm := modelcall.Wrap(f, modelcall.Circuit{}, nil, modelcall.Limits{Provider: "p", Retry: modelcall.Retry{Tries: 1}})
		var got modelcall.Raw
		ctx := modelcall.With(t.Context(), modelcall.Info{OnRaw: func(r modelcall.Raw) error { got = r; return nil }})
		_, _ = llm.Generate(ctx, &model.Request{}, func(model.Delta) {})
		srv.Close()
		if !utf8.ValidString(got.ContentType) || len(got.ContentType) > 256 || tc.wantType != "" && got.ContentType != tc.wantType {
			t.Errorf("%s: the type is %q", name, got.ContentType)
		}
		if tc.wantBody != "" && string(got.Body) != tc.wantBody || strings.Contains(string(got.Body), key[:6]) {
			t.Errorf("%s: the body of %d bytes ends in %q", name, len(got.Body), got.Body[max(len(got.Body)-40, 0):])
		}
	}
}

// However often an adapter asks in one try, and however long the answers are, what
// is kept of them is bounded.
func TestOnRawBounds(t *testing.T) {
	const maxBodies, maxResponses = 4 << 20, 64
	for name, size := range map[string]int{"many": 10, "long": 600 << 10} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, strings.Repeat("x", size))
			}))
			t.Cleanup(srv.Close)
			kept, bodies := 0, 0
			f := &fetcher{client: adapter.HTTPClient(nil, 0), url: srv.URL, times: maxResponses + 6}
			ctx := modelcall.With(t.Context(), modelcall.Info{OnRaw: func(r modelcall.Raw) error {
				kept, bodies = kept+1, bodies+len(r.Body)
				return nil
			}})
			_, err := modelcall.Guard(f, modelcall.Limits{}).Generate(ctx, &model.Request{}, func(model.Delta) {})
			if err != nil {
				t.Fatal(err)
			}
			if want := min(maxResponses*size, maxBodies); bodies != want || kept > maxResponses {
				t.Errorf("%d bytes of %d answers are kept, want %d bytes of at most %d", bodies, kept, want, maxResponses)
			}
		})
	}
}
