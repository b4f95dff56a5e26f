package providers

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apzuk3/agentd/agentdtest"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/test/harness"
	"github.com/apzuk3/agentd/internal/test/providertest"
	"github.com/apzuk3/agentd/model"
)

// TestProviderFails is F26: a call that a provider cannot serve is made again, up
// to five times, each told; then the turn fails with its code.
func TestProviderFails(t *testing.T) {
	harness.OnEachWire(t, func(t *testing.T, wire providertest.Wire) {
		f := harness.NewFaulty(t, wire)
		for status, code := range map[int]agentdv1.ErrorCode{
			429: agentdv1.ErrorCode_ERROR_CODE_RATE_LIMITED,
			500: agentdv1.ErrorCode_ERROR_CODE_MODEL_UNAVAILABLE,
			502: agentdv1.ErrorCode_ERROR_CODE_MODEL_UNAVAILABLE,
			503: agentdv1.ErrorCode_ERROR_CODE_MODEL_UNAVAILABLE,
			504: agentdv1.ErrorCode_ERROR_CODE_MODEL_UNAVAILABLE,
			529: agentdv1.ErrorCode_ERROR_CODE_MODEL_UNAVAILABLE,
		} {
			f.Serve(harness.Always(f.Refusal(status, nil)), harness.Hello)
			got := f.Turn("")
			f.Failed(got, code, 5, "some_code", fmt.Sprintf("status %d", status), "after 5 tries")
			if u := got.End.GetUsageSummary(); u.GetLlmCalls() != 0 || !got.Errors[0].GetRetryable() {
				t.Errorf("status %d: usage %v, %v", status, u, got.Errors)
			}

			// The session goes on, and a provider that recovers in time is not noticed.
			f.Serve(map[int]providertest.Fault{0: f.Refusal(status, nil), 1: f.Refusal(status, nil)}, harness.Hello)
			got = f.Turn(got.Session)
			if len(f.Calls()) != 3 || len(got.Retries) != 2 || got.Text["root"] != "Hello." || !got.End.GetCompleted() || got.End.GetUsageSummary().GetLlmCalls() != 1 {
				t.Errorf("status %d, twice: %d model calls, %v", status, len(f.Calls()), got.Msgs)
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
	harness.OnEachWire(t, func(t *testing.T, wire providertest.Wire) {
		f := harness.NewFaulty(t, wire)
		type ask struct {
			fault providertest.Fault
			wait  time.Duration // 0: too long
		}
		asks := map[string]ask{
			"seconds":      {f.Refusal(429, http.Header{"Retry-After": {"0.05"}}), 50 * time.Millisecond},
			"milliseconds": {f.Refusal(503, http.Header{"Retry-After-Ms": {"60"}}), 60 * time.Millisecond},
			"too long":     {f.Refusal(429, http.Header{"Retry-After": {"61"}}), 0},
			"a date":       {f.Refusal(503, http.Header{"Retry-After": {date}}), 0},
		}
		if wire == providertest.Gemini {
			asks["retry info"] = ask{retryInfo("0.04s"), 40 * time.Millisecond}
			asks["long retry info"] = ask{retryInfo("36000s"), 0}
		}
		for name, ask := range asks {
			t.Run(name, func(t *testing.T) {
				f.Serve(map[int]providertest.Fault{0: ask.fault}, harness.Hello)
				got := f.Turn("")
				if ask.wait == 0 {
					code := agentdv1.ErrorCode_ERROR_CODE_RATE_LIMITED
					if ask.fault.Status == 503 {
						code = agentdv1.ErrorCode_ERROR_CODE_MODEL_UNAVAILABLE
					}
					f.Failed(got, code, 1, "retry after ")
					return
				}
				at := f.Calls()
				if len(at) != 2 || len(got.Retries) != 1 || !got.End.GetCompleted() {
					t.Fatalf("%d model calls, %v", len(at), got.Msgs)
				}
				if wait := got.Retries[0].GetWait().AsDuration(); wait != ask.wait || at[1].At.Sub(at[0].At) < wait {
					t.Errorf("waited %v, told %v, want %v", at[1].At.Sub(at[0].At), wait, ask.wait)
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
			var vendors []model.Provider
			for _, wire := range providertest.Wires {
				vendors = append(vendors, harness.ProviderAt(wire, gone.URL, tr))
			}
			d := harness.StartDaemon(t, agentdtest.Config{Providers: vendors})
			harness.OnEachWire(t, func(t *testing.T, wire providertest.Wire) {
				dials.Store(0)
				got := harness.FaultyTurn(t, d, harness.LLMAgent("root", harness.WireProviders[wire].Describe().Name+"/invented", ""), "")
				harness.CheckFailed(t, got, c.code, 5, "after 5 tries")
				if n := dials.Load(); n != 5 {
					t.Errorf("dialled %d times, want 5", n)
				}
			})
		})
	}
}

// TestProviderRefuses is F27: what would be refused again is not tried again; the
// client gets the provider's code, without the key, and the log nothing of what
// was said.
func TestProviderRefuses(t *testing.T) {
	harness.OnEachWire(t, func(t *testing.T, wire providertest.Wire) {
		f := harness.NewFaulty(t, wire)
		for status, code := range map[int]agentdv1.ErrorCode{
			400: agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST,
			401: agentdv1.ErrorCode_ERROR_CODE_AUTH_FAILED,
			403: agentdv1.ErrorCode_ERROR_CODE_AUTH_FAILED,
			404: agentdv1.ErrorCode_ERROR_CODE_MODEL_UNAVAILABLE,
			413: agentdv1.ErrorCode_ERROR_CODE_CONTEXT_TOO_LONG,
		} {
			// What a provider asks of those who come back changes nothing.
			f.Serve(harness.Always(f.Refusal(status, http.Header{"Retry-After": {"0"}, "X-Should-Retry": {"true"}})), harness.Hello)
			f.Failed(f.Turn(""), code, 1, "some_code", fmt.Sprintf("status %d", status), "[redacted]")
		}
		// A limit that the provider calls final.
		f.Serve(harness.Always(f.Refusal(429, http.Header{"X-Should-Retry": {"false"}})), harness.Hello)
		f.Failed(f.Turn(""), agentdv1.ErrorCode_ERROR_CODE_RATE_LIMITED, 1, "some_code")

		// An endless page with the key in it.
		page := providertest.Fault{
			Action: providertest.Refuse, Status: 400, Header: http.Header{"Content-Type": {"text/html"}}, Again: true,
			Bytes: bytes.Repeat([]byte("<p>"+harness.KeyCanary+"</p>"), 1<<16),
		}
		f.Serve(harness.Always(page), harness.Hello)
		got := f.Turn("")
		f.Failed(got, agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST, 1)
		if n := len(got.Errors[0].GetMessage()); n > 2<<10 {
			t.Errorf("a message has %d bytes", n)
		}
	})
}
