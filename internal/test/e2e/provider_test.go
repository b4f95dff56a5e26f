package e2e

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apzuk3/agentd/agentdtest"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/test/providertest"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/anthropic"
	"github.com/apzuk3/agentd/model/gemini"
	"github.com/apzuk3/agentd/model/openai"
)

const (
	// keyCanary is the key of faulty providers, which they repeat in their errors.
	keyCanary = "canary-key-0123456789"
	// promptCanary is what their users say, which they repeat too.
	promptCanary = "canary prompt"
)

// faulty is a daemon with one provider that fails as a test says.
type faulty struct {
	t    *testing.T
	wire providertest.Wire
	d    *agentdtest.Daemon
	now  atomic.Pointer[http.Handler] // answers the model calls

	mu   sync.Mutex
	at   []time.Time     // when model calls came; protected by mu
	sent []*atomic.Int64 // bytes of each answer; protected by mu
	log  bytes.Buffer
}

// newFaulty starts a daemon that logs everything, with the given options.
func newFaulty(t *testing.T, wire providertest.Wire, opts ...agentdtest.Option) *faulty {
	t.Helper()
	f := &faulty{t: t, wire: wire}
	front := httptest.NewServer(f)
	t.Cleanup(front.Close)
	t.Cleanup(func() { // the daemon has ended then, and the log is whole
		for _, canary := range []string{keyCanary, promptCanary} {
			if strings.Contains(f.log.String(), canary) {
				t.Errorf("the log holds %q:\n%s", canary, f.log.String())
			}
		}
	})
	f.d = startDaemon(t, append([]agentdtest.Option{
		agentdtest.WithGemini(keyCanary, front.URL+"/"),
		agentdtest.WithAnthropic(keyCanary, front.URL+"/"),
		agentdtest.WithOpenAI(keyCanary, front.URL+"/v1/"),
		agentdtest.WithLogger(slog.New(slog.NewJSONHandler(&f.log, &slog.HandlerOptions{Level: slog.LevelDebug}))),
	}, opts...)...)
	return f
}

// ServeHTTP answers a model call.
func (f *faulty) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	c := &counted{ResponseWriter: w, sent: new(atomic.Int64)}
	f.at, f.sent = append(f.at, time.Now()), append(f.sent, c.sent)
	f.mu.Unlock()
	(*f.now.Load()).ServeHTTP(c, r)
}

// counted counts the bytes of an answer.
type counted struct {
	http.ResponseWriter
	sent *atomic.Int64
}

func (c *counted) Write(b []byte) (int, error) {
	n, err := c.ResponseWriter.Write(b)
	c.sent.Add(int64(n))
	return n, err
}

// Unwrap is for http.ResponseController.
func (c *counted) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// serve answers the following model calls, with faults by their numbers. Those
// that are not named get an answer.
func (f *faulty) serve(faults map[int]providertest.Fault, answers ...providertest.Answer) {
	srv := providertest.NewServer(f.t, providertest.Invent(f.wire, answers...), faults)
	f.handle(srv)
}

// handle has h answer the following model calls.
func (f *faulty) handle(h http.Handler) {
	f.mu.Lock()
	f.at, f.sent = nil, nil
	f.mu.Unlock()
	f.now.Store(&h)
}

// calls are the times of the model calls since serve.
func (f *faulty) calls() []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.at
}

// size is the number of bytes of the first answer since serve.
func (f *faulty) size() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return int(f.sent[0].Load())
}

// agent is an agent of the provider.
func (f *faulty) agent(tools ...string) *agentdv1.Agent {
	return llmAgent("root", wireProviders[f.wire].Describe().Name+"/invented", "", tools...)
}

// turn runs a turn in a new session, or in the given one. Its tools answer
// "seen".
func (f *faulty) turn(session string, tools ...string) *dialogue {
	f.t.Helper()
	return faultyTurn(f.t, f.d, f.agent(tools...), session)
}

func faultyTurn(t *testing.T, d *agentdtest.Daemon, agent *agentdv1.Agent, session string) *dialogue {
	t.Helper()
	m := start(agent, agent.GetLlm().GetToolNames()...)
	m.GetExecute().UserPrompt = promptCanary
	if session != "" {
		m.GetExecute().SessionId = &session
	}
	return rule{t, agentdv1connect.NewAgentdClient(d.HTTPClient(), d.URL)}.talk(m, answerAll("seen"))
}

// failed checks that a turn failed with a code after so many tries of its first
// model call, each told but the last, and that neither says the key.
func (f *faulty) failed(got *dialogue, code agentdv1.ErrorCode, tries int, text ...string) {
	f.t.Helper()
	if n := len(f.calls()); n != tries {
		f.t.Errorf("%d model calls were made, want %d", n, tries)
	}
	checkFailed(f.t, got, code, tries, text...)
}

func checkFailed(t *testing.T, got *dialogue, code agentdv1.ErrorCode, tries int, text ...string) {
	t.Helper()
	if len(got.errors) != 1 || got.errors[0].GetCode() != code || got.end.GetCompleted() {
		t.Fatalf("errors %v, end %v; want one error %v", got.errors, got.end, code)
	}
	if len(got.retries) != tries-1 {
		t.Errorf("%d retries were told, want %d: %v", len(got.retries), tries-1, got.retries)
	}
	if len(got.calls) != 0 {
		t.Errorf("tools were called: %v", got.calls)
	}
	for _, want := range text {
		if !strings.Contains(got.errors[0].GetMessage(), want) {
			t.Errorf("message %q lacks %q", got.errors[0].GetMessage(), want)
		}
	}
	for _, r := range got.retries {
		if r.GetCode() != code {
			t.Errorf("retry %v, want code %v", r, code)
		}
	}
	for _, m := range got.msgs {
		if strings.Contains(m.String(), keyCanary) {
			t.Errorf("a message tells the key: %v", m)
		}
	}
}

// refusal answers with an error that repeats what must not get about.
func (f *faulty) refusal(status int, header http.Header) providertest.Fault {
	h := http.Header{"Content-Type": {"application/json"}}
	maps.Copy(h, header)
	return providertest.Fault{
		Action: providertest.Refuse, Status: status, Header: h, Again: true,
		Bytes: providertest.ErrorBody(f.wire, status, "some_code", "no luck with "+keyCanary+" saying "+promptCanary),
	}
}

// always is a fault of all requests.
func always(fault providertest.Fault) map[int]providertest.Fault {
	faults := map[int]providertest.Fault{}
	for i := range 10 {
		faults[i] = fault
	}
	return faults
}

// onEachWire runs a test for each provider.
func onEachWire(t *testing.T, test func(t *testing.T, wire providertest.Wire)) {
	t.Helper()
	for _, wire := range providertest.Wires {
		t.Run(string(wire), func(t *testing.T) { test(t, wire) })
	}
}

// hello is an answer.
var hello = providertest.Answer{Text: "Hello.", Usage: providertest.Usage{Prompt: 3, Completion: 2, Total: 5}}

// TestProviderFails is F26: a call that a provider cannot serve is made again, up
// to five times, each told; then the turn fails with its code.
func TestProviderFails(t *testing.T) {
	onEachWire(t, func(t *testing.T, wire providertest.Wire) {
		f := newFaulty(t, wire)
		for status, code := range map[int]agentdv1.ErrorCode{
			429: agentdv1.ErrorCode_ERROR_CODE_RATE_LIMITED,
			500: agentdv1.ErrorCode_ERROR_CODE_MODEL_UNAVAILABLE,
			502: agentdv1.ErrorCode_ERROR_CODE_MODEL_UNAVAILABLE,
			503: agentdv1.ErrorCode_ERROR_CODE_MODEL_UNAVAILABLE,
			504: agentdv1.ErrorCode_ERROR_CODE_MODEL_UNAVAILABLE,
			529: agentdv1.ErrorCode_ERROR_CODE_MODEL_UNAVAILABLE,
		} {
			f.serve(always(f.refusal(status, nil)), hello)
			got := f.turn("")
			f.failed(got, code, 5, "some_code", fmt.Sprintf("status %d", status), "after 5 tries")
			if u := got.end.GetUsageSummary(); u.GetLlmCalls() != 0 || !got.errors[0].GetRetryable() {
				t.Errorf("status %d: usage %v, %v", status, u, got.errors)
			}

			// The session goes on, and a provider that recovers in time is not noticed.
			f.serve(map[int]providertest.Fault{0: f.refusal(status, nil), 1: f.refusal(status, nil)}, hello)
			got = f.turn(got.session)
			if len(f.calls()) != 3 || len(got.retries) != 2 || got.text["root"] != "Hello." || !got.end.GetCompleted() || got.end.GetUsageSummary().GetLlmCalls() != 1 {
				t.Errorf("status %d, twice: %d model calls, %v", status, len(f.calls()), got.msgs)
			}
		}
	})
}

// TestProviderRetryAfter is F26: a provider's wish how long to wait is honoured,
// in all of its forms, or ends the turn when it is too long.
func TestProviderRetryAfter(t *testing.T) {
	date := time.Now().Add(2 * time.Hour).UTC().Format(http.TimeFormat)
	retryInfo := func(delay string) providertest.Fault {
		return providertest.Fault{Action: providertest.Refuse, Status: 429, Header: http.Header{"Content-Type": {"application/json"}}, Again: true, Bytes: fmt.Appendf(nil,
			`{"error":{"code":429,"message":"slow down","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":%q}]}}`, delay)}
	}
	onEachWire(t, func(t *testing.T, wire providertest.Wire) {
		f := newFaulty(t, wire)
		type ask struct {
			fault providertest.Fault
			wait  time.Duration // 0: too long
		}
		asks := map[string]ask{
			"seconds":      {f.refusal(429, http.Header{"Retry-After": {"0.05"}}), 50 * time.Millisecond},
			"milliseconds": {f.refusal(503, http.Header{"Retry-After-Ms": {"60"}}), 60 * time.Millisecond},
			"too long":     {f.refusal(429, http.Header{"Retry-After": {"61"}}), 0},
			"a date":       {f.refusal(503, http.Header{"Retry-After": {date}}), 0},
		}
		if wire == providertest.Gemini {
			asks["retry info"] = ask{retryInfo("0.04s"), 40 * time.Millisecond}
			asks["long retry info"] = ask{retryInfo("36000s"), 0}
		}
		for name, ask := range asks {
			t.Run(name, func(t *testing.T) {
				f.serve(map[int]providertest.Fault{0: ask.fault}, hello)
				got := f.turn("")
				if ask.wait == 0 {
					code := agentdv1.ErrorCode_ERROR_CODE_RATE_LIMITED
					if ask.fault.Status == 503 {
						code = agentdv1.ErrorCode_ERROR_CODE_MODEL_UNAVAILABLE
					}
					f.failed(got, code, 1, "retry after ")
					return
				}
				at := f.calls()
				if len(at) != 2 || len(got.retries) != 1 || !got.end.GetCompleted() {
					t.Fatalf("%d model calls, %v", len(at), got.msgs)
				}
				if wait := got.retries[0].GetWait().AsDuration(); wait != ask.wait || at[1].Sub(at[0]) < wait {
					t.Errorf("waited %v, told %v, want %v", at[1].Sub(at[0]), wait, ask.wait)
				}
			})
		}
	})
}

// TestProviderUnreachable is F26: connections that time out or are refused.
func TestProviderUnreachable(t *testing.T) {
	gone := httptest.NewServer(nil)
	gone.Close()
	for name, c := range map[string]struct {
		dialer net.Dialer
		code   agentdv1.ErrorCode
	}{
		"timeout": {net.Dialer{Timeout: time.Nanosecond}, agentdv1.ErrorCode_ERROR_CODE_TIMEOUT},
		"refused": {net.Dialer{}, agentdv1.ErrorCode_ERROR_CODE_MODEL_UNAVAILABLE},
	} {
		t.Run(name, func(t *testing.T) {
			var dials atomic.Int32
			tr := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				dials.Add(1)
				return c.dialer.DialContext(ctx, network, addr)
			}}
			var opts []agentdtest.Option
			for _, wire := range providertest.Wires {
				opts = append(opts, agentdtest.WithProvider(providerAt(wire, gone.URL, tr)))
			}
			d := startDaemon(t, opts...)
			onEachWire(t, func(t *testing.T, wire providertest.Wire) {
				dials.Store(0)
				got := faultyTurn(t, d, llmAgent("root", wireProviders[wire].Describe().Name+"/invented", ""), "")
				checkFailed(t, got, c.code, 5, "after 5 tries")
				if n := dials.Load(); n != 5 {
					t.Errorf("dialled %d times, want 5", n)
				}
			})
		})
	}
}

// providerAt is the provider of a wire with another address and transport.
func providerAt(wire providertest.Wire, url string, tr http.RoundTripper) model.Provider {
	switch wire {
	case providertest.Anthropic:
		return anthropic.New(anthropic.Config{APIKey: keyCanary, BaseURL: url, Transport: tr})
	case providertest.Gemini:
		return gemini.New(gemini.Config{APIKey: keyCanary, BaseURL: url, Transport: tr})
	case providertest.OpenAIChat:
		return openai.New(openai.Config{Name: "openai-chat", API: openai.Chat, APIKey: keyCanary, BaseURL: url, Transport: tr})
	default:
		return openai.New(openai.Config{Name: "openai-responses", API: openai.Responses, APIKey: keyCanary, BaseURL: url, Transport: tr})
	}
}

// TestProviderRefuses is F27: what would be refused again is not tried again; the
// client gets the provider's code, without the key, and the log nothing of what
// was said.
func TestProviderRefuses(t *testing.T) {
	onEachWire(t, func(t *testing.T, wire providertest.Wire) {
		f := newFaulty(t, wire)
		for status, code := range map[int]agentdv1.ErrorCode{
			400: agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST,
			401: agentdv1.ErrorCode_ERROR_CODE_AUTH_FAILED,
			403: agentdv1.ErrorCode_ERROR_CODE_AUTH_FAILED,
			404: agentdv1.ErrorCode_ERROR_CODE_MODEL_UNAVAILABLE,
			413: agentdv1.ErrorCode_ERROR_CODE_CONTEXT_TOO_LONG,
		} {
			// What a provider asks of those who come back changes nothing.
			f.serve(always(f.refusal(status, http.Header{"Retry-After": {"0"}, "X-Should-Retry": {"true"}})), hello)
			f.failed(f.turn(""), code, 1, "some_code", fmt.Sprintf("status %d", status), "[redacted]")
		}
		// A limit that the provider calls final.
		f.serve(always(f.refusal(429, http.Header{"X-Should-Retry": {"false"}})), hello)
		f.failed(f.turn(""), agentdv1.ErrorCode_ERROR_CODE_RATE_LIMITED, 1, "some_code")

		// An endless page with the key in it.
		page := providertest.Fault{
			Action: providertest.Refuse, Status: 400, Header: http.Header{"Content-Type": {"text/html"}}, Again: true,
			Bytes: bytes.Repeat([]byte("<p>"+keyCanary+"</p>"), 1<<16),
		}
		f.serve(always(page), hello)
		got := f.turn("")
		f.failed(got, agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST, 1)
		if n := len(got.errors[0].GetMessage()); n > 2<<10 {
			t.Errorf("a message has %d bytes", n)
		}
	})
}
