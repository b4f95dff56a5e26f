package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/models"
	"github.com/apzuk3/agentd/internal/test/providertest"
	"github.com/apzuk3/agentd/internal/test/testdaemon"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/sqlitestore"
)

// eventStreams are answers as a wire's provider streams them.
func eventStreams(t *testing.T, wire providertest.Wire, answers ...providertest.Answer) []string {
	t.Helper()
	var out []string
	for _, e := range providertest.Invent(wire, answers...).Calls() {
		s, err := e.EventStream()
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, s)
	}
	return out
}

// playStreams answers call after call with a stream each; "" refuses one.
func (f *faulty) playStreams(streams ...string) {
	calls := 0
	f.handle(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		body := streams[calls]
		calls++
		if body == "" {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write(providertest.ErrorBody(f.wire, 503, "busy", "no luck with "+keyCanary+", or sk-abcdefghijklmnop"))
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, body)
	}))
}

// rawTurn runs a turn that asks for raw payloads.
func (f *faulty) rawTurn(tools ...string) *dialogue {
	m := start(f.agent(tools...), tools...)
	m.GetExecute().UserPrompt, m.GetExecute().RawPayloads = promptCanary, true
	return rule{f.t, agentdv1connect.NewAgentdClient(f.d.HTTPClient(), f.d.URL)}.talk(m, answerAll("seen"))
}

// TestRawPayloads: a turn that asks for them gets the provider's answers to each
// try byte for byte, but for keys, each before what the try has led to; and no
// other turn does.
func TestRawPayloads(t *testing.T) {
	onEachWire(t, func(t *testing.T, wire providertest.Wire) {
		f := newFaulty(t, wire, testdaemon.WithRetry(models.Retry{Tries: 3, Base: 1}))
		streams := eventStreams(t, wire, look, hello)
		f.playStreams("", streams[0], streams[1])
		got := f.rawTurn("look")
		if !got.end.GetCompleted() || got.text["root"] != "Hello." {
			t.Fatalf("%v", got.msgs)
		}
		var order []string
		var raws []*agentdv1.RawPayloadReceived
		for _, m := range got.msgs {
			switch r := m.GetResponse().(type) {
			case *agentdv1.RunResponse_RawPayloadReceived:
				raws = append(raws, r.RawPayloadReceived)
				order = append(order, fmt.Sprintf("raw %d", r.RawPayloadReceived.GetAttempt()))
			case *agentdv1.RunResponse_ModelCallRetried:
				order = append(order, "retry")
			case *agentdv1.RunResponse_ModelCallEnded:
				order = append(order, "ended")
				if last := raws[len(raws)-1]; last.GetMessageId() != r.ModelCallEnded.GetMessageId() || last.GetSessionId() != got.session {
					t.Errorf("payload %v of another call than %v", last, r.ModelCallEnded)
				}
			}
		}
		if want := []string{"raw 1", "retry", "raw 2", "ended", "raw 1", "ended"}; !slices.Equal(order, want) {
			t.Fatalf("order %q, want %q", order, want)
		}
		refused := string(providertest.ErrorBody(wire, 503, "busy", "no luck with [redacted], or [redacted]"))
		for i, want := range []struct {
			status      int32
			contentType string
			body        string
		}{{503, "application/json", refused}, {200, "text/event-stream", streams[0]}, {200, "text/event-stream", streams[1]}} {
			r := raws[i]
			if r.GetStatus() != want.status || r.GetContentType() != want.contentType || string(r.GetBody()) != want.body || r.GetTruncated() {
				t.Errorf("payload %d: %v, want %+v", i, r, want)
			}
			if r.GetProvider() != wireProviders[wire].Describe().Name || !slices.Equal(r.GetAgentPath(), []string{"root"}) {
				t.Errorf("payload %d is of %q of %q", i, r.GetProvider(), r.GetAgentPath())
			}
		}

		f.playStreams(streams[1])
		for _, m := range f.turn(got.session).msgs {
			if m.GetRawPayloadReceived() != nil {
				t.Errorf("a turn that did not ask got %v", m)
			}
		}
	})
}

// TestRawPayloadBounds: what is kept of an answer is bounded, and says so; keys at
// the edge are not cut in two.
func TestRawPayloadBounds(t *testing.T) {
	f := newFaulty(t, providertest.OpenAIChat, testdaemon.WithRetry(models.Retry{Tries: 1}))
	head := eventStreams(t, f.wire, hello)[0]
	fill := bytes.Repeat([]byte(": a comment of the server's\n\n"), session.MaxRawBody/29)
	edge := session.MaxRawBody - len(fill) - len(keyCanary)/2
	body := string(fill) + ": " + string(bytes.Repeat([]byte("x"), edge-2)) + keyCanary + "\n\n" + head
	f.playStreams(body)
	got := f.rawTurn()
	if got.text["root"] != "Hello." {
		t.Fatalf("%v", got.msgs)
	}
	for _, m := range got.msgs {
		if r := m.GetRawPayloadReceived(); r != nil {
			if !r.GetTruncated() || len(r.GetBody()) > session.MaxRawBody || len(r.GetBody()) < session.MaxRawBody-len(keyCanary) || bytes.Contains(r.GetBody(), []byte(keyCanary[:8])) {
				t.Errorf("truncated %v, %d bytes, ends in %q", r.GetTruncated(), len(r.GetBody()), r.GetBody()[len(r.GetBody())-30:])
			}
			return
		}
	}
	t.Error("no payload came")
}

// TestRawPayloadsInLog: a session with payloads and provider tools replays to its own
// log, and whoever comes later sees both as they were.
func TestRawPayloadsInLog(t *testing.T) {
	store, err := openStore(t.Context(), sqlitestore.Memory)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}()
	f := newFaulty(t, providertest.Anthropic, testdaemon.WithStore(&recorded{Store: store, keep: true}))
	var searched string
	for _, rec := range providertest.Synthetic(t) {
		if rec.Name == "anthropic_web_search" {
			if searched, err = rec.Calls()[0].EventStream(); err != nil {
				t.Fatal(err)
			}
		}
	}
	f.playStreams(eventStreams(t, f.wire, look)[0], searched)
	got := f.rawTurn("look")
	later := rule{t, agentdv1connect.NewAgentdClient(f.d.HTTPClient(), f.d.URL)}.talk(attachAt(got.session, "", new(int64(0))), nil)
	facts := func(d *dialogue) []*agentdv1.RunResponse {
		var out []*agentdv1.RunResponse
		for _, m := range d.msgs {
			if m.GetRawPayloadReceived() != nil || m.GetProviderToolsUsed() != nil {
				m.Replayed = false
				out = append(out, m)
			}
		}
		return out
	}
	if diff := cmp.Diff(facts(got), facts(later), protocmp.Transform()); diff != "" || len(facts(got)) != 3 {
		t.Errorf("%d facts (-live +later):\n%s", len(facts(got)), diff)
	}
	verifyLog(t.Context(), t, store, got.session)
}
