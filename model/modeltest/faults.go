package modeltest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/model"
)

// statuses checks that HTTP errors get their kind, and that no key shows even
// when the provider repeats it.
func (h Harness) statuses(t *testing.T) {
	for status, kind := range map[int]model.Kind{
		400: model.KindInvalid,
		401: model.KindAuth,
		403: model.KindAuth,
		404: model.KindUnavailable,
		408: model.KindTimeout,
		409: model.KindUnavailable,
		429: model.KindRateLimited,
		500: model.KindUnavailable,
		502: model.KindUnavailable,
		503: model.KindUnavailable,
		529: model.KindUnavailable,
	} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			body := h.EncodeError(status, "some_code", "no luck with key "+serverKey+" today")
			w := Wire{Status: status, Header: http.Header{"Retry-After": {"7"}}, Frames: []string{body}}
			e := asError(t, h.ask(t, w).err, kind)
			if e.Status != status {
				t.Errorf("status %d, want %d", e.Status, status)
			}
			if !strings.Contains(e.Message, "no luck") {
				t.Errorf("message %q does not hold the provider's words", e.Message)
			}
			if e.RetryAfter != 7*time.Second {
				t.Errorf("retry after %v, want 7s", e.RetryAfter)
			}
			wantError(t, h.ask(t, Wire{Status: status,
				Frames: []string{"<html>" + serverKey + strings.Repeat("x", 1<<16) + "</html>"}}).err, kind)
			wantError(t, h.ask(t, Wire{Status: status}).err, kind)
		})
	}
	t.Run("endless body", func(t *testing.T) {
		s := serve(t, func(rw http.ResponseWriter, _ *http.Request) {
			rw.WriteHeader(http.StatusBadRequest)
			var err error
			for n := 0; err == nil && n < maxEndless; n += seam.MaxLine {
				_, err = io.WriteString(rw, strings.Repeat("x", seam.MaxLine))
			}
			if err == nil {
				t.Error("the adapter read an endless error body")
			}
		})
		wantError(t, call(t.Context(), h.open(t, s.URL), prompt("hello")).err, model.KindInvalid)
	})
	t.Run("broken body", func(t *testing.T) {
		s := serve(t, func(rw http.ResponseWriter, _ *http.Request) {
			rw.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(rw, h.EncodeError(http.StatusBadRequest, "some_code", "no luck")[:10])
			rw.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		})
		if e := asError(t, call(t.Context(), h.open(t, s.URL), prompt("hello")).err,
			model.KindInvalid); e.Status != http.StatusBadRequest {
			t.Errorf("status %d, want 400", e.Status)
		}
	})
	t.Run("redirect", func(t *testing.T) {
		stranger := serve(t, func(http.ResponseWriter, *http.Request) {})
		w := Wire{Status: http.StatusTemporaryRedirect, Header: http.Header{"Location": {stranger.URL}}}
		wantError(t, h.ask(t, w).err, model.KindUnavailable)
		if n := len(stranger.all()); n != 0 {
			t.Error("the adapter followed a redirect, key and all")
		}
	})
}

// refusals checks what only this provider knows how to say.
func (h Harness) refusals(t *testing.T) {
	for name, r := range h.Refusals {
		t.Run(name, func(t *testing.T) { wantError(t, h.ask(t, r.Wire).err, r.Kind) })
	}
}

// broken checks responses with status 200 that are none.
func (h Harness) broken(t *testing.T) {
	good := h.Encode(Response{Pieces: []Piece{{Text: "fine "}, {Text: "so far"}}, Usage: h.usage()})
	after := func(frame string) []string { return []string{good.Frames[0], frame} }
	for name, w := range map[string]Wire{
		"empty body": {},
		"html": {Header: http.Header{"Content-Type": {"text/html"}},
			Frames: []string{"<html><body>Sign in to the hotel's network " + serverKey + "</body></html>\n"}},
		"json, no stream": {Header: http.Header{"Content-Type": {"application/json"}},
			Frames: []string{`{"hello":"` + serverKey + `"}`}},
		"malformed json":  {Frames: after("data: {\"oh\": " + serverKey + "\n\n")},
		"not an object":   {Frames: after("data: [1,2,3]\n\n")},
		"garbage":         {Frames: after("\x00\xff\xfe\x01 garbage\n\n")},
		"huge line":       {Frames: after("data: \"" + strings.Repeat("x", 3*seam.MaxLine) + "\"\n\n")},
		"endless comment": {Frames: after(": " + strings.Repeat("x", 3*seam.MaxLine))},
	} {
		t.Run(name, func(t *testing.T) {
			wantError(t, h.ask(t, w).err, model.KindUnavailable)
		})
	}
	t.Run("malformed json at once", func(t *testing.T) {
		h.givesUp(t, good, func(w io.Writer) { _, _ = io.WriteString(w, "data: {oh\n\n") })
	})
	t.Run("endless line at once", func(t *testing.T) {
		h.givesUp(t, good, func(w io.Writer) {
			_, err := io.WriteString(w, "data: ")
			for n := 0; err == nil && n < maxEndless; n += seam.MaxLine {
				_, err = io.WriteString(w, strings.Repeat("x", seam.MaxLine))
			}
		})
	})
	t.Run("nobody listens", func(t *testing.T) {
		s := serve(t, func(http.ResponseWriter, *http.Request) {})
		url := s.URL
		s.Close()
		r := call(t.Context(), h.open(t, url), prompt("hello"))
		wantError(t, r.err, model.KindUnavailable)
		checkSecrets(t, r.err)
	})
}

// maxEndless is how much of a line is sent before the adapter is taken for one
// without a bound.
const maxEndless = 64 << 20

// givesUp checks that an adapter refuses what rest writes and hangs up, without
// waiting for the end of a stream that has none.
func (h Harness) givesUp(t *testing.T, good Wire, rest func(io.Writer)) {
	left := make(chan struct{})
	s := serve(t, func(rw http.ResponseWriter, r *http.Request) {
		defer close(left)
		good.head(rw)
		_, _ = io.WriteString(rw, good.Frames[0])
		rest(rw)
		rw.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	done := make(chan result, 1)
	llm := h.open(t, s.URL)
	go func() { done <- call(t.Context(), llm, prompt("hello")) }()
	wantError(t, await(t, done, "the adapter to give up").err, model.KindUnavailable)
	await(t, left, "the adapter to hang up")
}

// truncated cuts responses short: after each frame the response is an error, also
// when the connection breaks; after each byte it is an error or whole. What the
// provider has said by then of its usage is in the error.
func (h Harness) truncated(t *testing.T) {
	for _, c := range h.cases() {
		if c.skip || c.name == "empty" {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			c.response.Usage = h.usage()
			w := h.Encode(c.response)
			whole := h.ask(t, w)
			if whole.err != nil {
				t.Fatal(whole.err)
			}
			early := false
			for n := range w.needed() {
				for _, abort := range []bool{false, true} {
					r := h.cut(t, w, len(strings.Join(w.Frames[:n], "")), abort)
					if u := asError(t, r.err, model.KindUnavailable).Usage; u != nil {
						early = true
						if all := whole.resp.Usage; u.Prompt > all.Prompt || u.Completion > all.Completion ||
							u.Total > all.Total || u.Total == 0 {
							t.Errorf("a response cut after frame %d took %+v, the whole %+v", n, *u, all)
						}
					}
				}
			}
			if c.name == "text" && early != h.Can.EarlyUsage { // others may come in a single frame
				t.Errorf("errors of cut responses tell what they took: %t, want %t", early, h.Can.EarlyUsage)
			}
			body := len(strings.Join(w.Frames, ""))
			step := max(body/80, 1)
			for k := 0; k < body; k += step {
				r := h.cut(t, w, k, false)
				if r.err == nil && !reflect.DeepEqual(r.resp, whole.resp) {
					t.Fatalf("cut after byte %d of %d: a success that is not the whole response", k, body)
				}
				if r.err != nil {
					wantError(t, r.err, model.KindUnavailable)
				}
			}
		})
	}
}

// cut serves the first k bytes of w and ends the stream, or breaks the
// connection.
func (h Harness) cut(t testing.TB, w Wire, k int, abort bool) result {
	t.Helper()
	s := serve(t, func(rw http.ResponseWriter, _ *http.Request) {
		w.head(rw)
		_, _ = io.WriteString(rw, strings.Join(w.Frames, "")[:k])
		rw.(http.Flusher).Flush()
		if abort {
			panic(http.ErrAbortHandler)
		}
	})
	defer s.Close()
	return call(t.Context(), h.open(t, s.URL), prompt("hello"))
}

// cancel checks that the end of the context aborts the provider's request,
// before and in the middle of a response.
func (h Harness) cancel(t *testing.T) {
	w := h.Encode(Response{Pieces: []Piece{{Text: "first"}, {Text: "second"}}, Usage: h.usage()})
	for name, frames := range map[string][]string{"before it begins": nil, "in the middle": w.Frames[:w.needed()-1]} {
		t.Run(name, func(t *testing.T) {
			stalled, aborted := make(chan struct{}), make(chan struct{})
			s := serve(t, func(rw http.ResponseWriter, r *http.Request) {
				if frames != nil {
					w.head(rw)
					_, _ = io.WriteString(rw, strings.Join(frames, ""))
					rw.(http.Flusher).Flush()
				}
				close(stalled)
				<-r.Context().Done()
				close(aborted)
			})
			ctx, cancel := context.WithCancel(t.Context())
			llm := h.open(t, s.URL)
			done := make(chan result, 1)
			go func() { done <- call(ctx, llm, prompt("hello")) }()
			await(t, stalled, "the request")
			cancel()
			r := await(t, done, "Generate to return")
			if !errors.Is(r.err, context.Canceled) {
				t.Errorf("error %v, want context.Canceled", r.err)
			}
			await(t, aborted, "the request to be aborted")
		})
	}
	t.Run("what it took", func(t *testing.T) {
		s := serve(t, func(rw http.ResponseWriter, r *http.Request) {
			w.head(rw)
			_, _ = io.WriteString(rw, strings.Join(w.Frames[:w.needed()-1], ""))
			rw.(http.Flusher).Flush()
			<-r.Context().Done()
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		defer time.AfterFunc(patience, cancel).Stop() // should nothing be shown of it
		_, err := h.open(t, s.URL).Generate(ctx, prompt("hello"), func(model.Delta) { cancel() })
		if took := modelcall.Took(err); !errors.Is(err, context.Canceled) || h.Can.EarlyUsage && len(took) != 1 {
			t.Errorf("error %v, took %v: want what was counted so far", err, took)
		}
	})
	t.Run("deadline", func(t *testing.T) {
		s := serve(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		r := call(ctx, h.open(t, s.URL), prompt("hello"))
		if !errors.Is(r.err, context.DeadlineExceeded) {
			t.Errorf("error %v, want context.DeadlineExceeded", r.err)
		}
	})
	t.Run("already over", func(t *testing.T) {
		s := serve(t, func(http.ResponseWriter, *http.Request) {})
		llm, err := h.Open(t, s.URL, serverKey).Open(h.Model, "")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if r := call(ctx, llm, prompt("hello")); !errors.Is(r.err, context.Canceled) {
			t.Errorf("error %v, want context.Canceled", r.err)
		}
		if len(s.all()) != 0 {
			t.Error("a request was made although the context had ended")
		}
	})
}

// keys checks which key is used and that it travels in a header alone.
func (h Harness) keys(t *testing.T) {
	t.Run("missing", func(t *testing.T) {
		_, err := h.Open(t, "http://127.0.0.1:1", "").Open(h.Model, "")
		e := asError(t, err, model.KindAuth)
		d := h.Open(t, "http://127.0.0.1:1", "").Describe()
		named := slices.ContainsFunc(d.KeyVariables, func(v string) bool { return strings.Contains(e.Message, v) })
		if !named || !strings.Contains(e.Message, d.KeyHeader()) {
			t.Errorf("message %q must name an environment variable of %q and the header %s", e.Message, d.KeyVariables,
				d.KeyHeader())
		}
	})
	for _, c := range []struct{ name, server, caller, want string }{
		{"server", serverKey, "", serverKey},
		{"caller", "", callerKey, callerKey},
		{"caller beats server", serverKey, callerKey, callerKey},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := serve(t, h.Encode(Response{Pieces: []Piece{{Text: "hi"}}, Usage: h.usage()}).handler())
			llm, err := h.Open(t, s.URL, c.server).Open(h.Model, c.caller)
			if err != nil {
				t.Fatal(err)
			}
			if r := call(t.Context(), llm, prompt("hello")); r.err != nil {
				t.Fatal(r.err)
			}
			req := s.all()[0]
			inHeader := slices.ContainsFunc(slices.Collect(values(req.header)),
				func(v string) bool { return strings.Contains(v, c.want) })
			if !inHeader {
				t.Errorf("no header holds the %s key", c.name)
			}
			if c.want == callerKey && strings.Contains(fmt.Sprint(req.header), serverKey) {
				t.Error("the server's key was sent along with the caller's")
			}
			if strings.Contains(req.url, "canary-") || strings.Contains(req.body, "canary-") {
				t.Error("the key is in the URL or the body")
			}
		})
	}
	t.Run("printed", func(t *testing.T) {
		p := h.Open(t, "http://127.0.0.1:1", serverKey)
		llm, err := p.Open(h.Model, callerKey)
		if err != nil {
			t.Fatal(err)
		}
		if text := fmt.Sprintf("%v %+v %v %+v", p, p, llm, llm); strings.Contains(text, "canary-") {
			t.Error("the provider or its model shows a key when printed")
		}
	})
}
