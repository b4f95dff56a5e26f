package providers

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/internal/test/harness"
	"github.com/apzuk3/agentd/internal/test/providertest"
	"github.com/apzuk3/agentd/internal/test/testdaemon"
	"github.com/apzuk3/agentd/session/store/sqlite"
)

// maxRawBody is how many bytes of a provider's response are kept.
const maxRawBody = 1 << 20

// TestRawPayloads: a turn that asks for them gets the provider's answers to each
// try byte for byte, but for keys, each before what the try has led to; and no
// other turn does.
func TestRawPayloads(t *testing.T) {
	harness.OnEachWire(t, func(t *testing.T, wire providertest.Wire) {
		f := harness.NewFaulty(t, wire, testdaemon.WithRetry(modelcall.Retry{Tries: 3, Base: 1}))
		streams := harness.EventStreams(t, wire, harness.Look, harness.Hello)
		f.PlayStreams("", streams[0], streams[1])
		got := f.RawTurn("look")
		if !got.End.GetCompleted() || got.Text["root"] != "Hello." {
			t.Fatalf("%v", got.Msgs)
		}
		var order []string
		var raws []*agentdv1.RawPayloadReceived
		for _, m := range got.Msgs {
			switch r := m.GetResponse().(type) {
			case *agentdv1.RunResponse_RawPayloadReceived:
				raws = append(raws, r.RawPayloadReceived)
				order = append(order, fmt.Sprintf("raw %d", r.RawPayloadReceived.GetAttempt()))
			case *agentdv1.RunResponse_ModelCallRetried:
				order = append(order, "retry")
			case *agentdv1.RunResponse_ModelCallEnded:
				order = append(order, "ended")
				if last := raws[len(raws)-1]; last.GetMessageId() != r.ModelCallEnded.GetMessageId() || last.GetSessionId() != got.Session {
					t.Errorf("payload %v of another call than %v", last, r.ModelCallEnded)
				}
			}
		}
		if want := []string{"raw 1", "retry", "raw 2", "ended", "raw 1", "ended"}; !slices.Equal(order, want) {
			t.Fatalf("order %q, want %q", order, want)
		}
		refused := string(providertest.ErrorBody(wire, 503, "fake_error", "no luck with [redacted], or [redacted]"))
		for i, want := range []struct {
			status      int32
			contentType string
			body        string
		}{{503, "application/json", refused}, {200, "text/event-stream", streams[0]}, {200, "text/event-stream", streams[1]}} {
			r := raws[i]
			if r.GetStatus() != want.status || r.GetContentType() != want.contentType || string(r.GetBody()) != want.body || r.GetTruncated() {
				t.Errorf("payload %d: %v, want %+v", i, r, want)
			}
			if r.GetProvider() != harness.WireProviders[wire].Describe().Name || !slices.Equal(r.GetAgentPath(), []string{"root"}) {
				t.Errorf("payload %d is of %q of %q", i, r.GetProvider(), r.GetAgentPath())
			}
		}

		f.PlayStreams(streams[1])
		for _, m := range f.Turn(got.Session).Msgs {
			if m.GetRawPayloadReceived() != nil {
				t.Errorf("a turn that did not ask got %v", m)
			}
		}
	})
}

// TestRawPayloadBounds: what is kept of an answer is bounded, and says so; keys at
// the edge are not cut in two.
func TestRawPayloadBounds(t *testing.T) {
	f := harness.NewFaulty(t, providertest.OpenAIChat, testdaemon.WithRetry(modelcall.Retry{Tries: 1}))
	head := harness.EventStreams(t, f.Wire, harness.Hello)[0]
	fill := bytes.Repeat([]byte(": a comment of the server's\n\n"), maxRawBody/29)
	edge := maxRawBody - len(fill) - len(harness.KeyCanary)/2
	body := string(fill) + ": " + string(bytes.Repeat([]byte("x"), edge-2)) + harness.KeyCanary + "\n\n" + head
	f.PlayStreams(body)
	got := f.RawTurn()
	if got.Text["root"] != "Hello." {
		t.Fatalf("%v", got.Msgs)
	}
	for _, m := range got.Msgs {
		if r := m.GetRawPayloadReceived(); r != nil {
			if !r.GetTruncated() || len(r.GetBody()) > maxRawBody || len(r.GetBody()) < maxRawBody-len(harness.KeyCanary) || bytes.Contains(r.GetBody(), []byte(harness.KeyCanary[:8])) {
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
	store, err := harness.OpenStore(t.Context(), sqlite.Memory)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}()
	f := harness.NewFaulty(t, providertest.Anthropic, testdaemon.WithStore(&harness.RecordedStore{Store: store, Keep: true}))
	var searched string
	for _, rec := range providertest.Synthetic(t) {
		if rec.Name == "anthropic_web_search" {
			if searched, err = rec.Calls()[0].EventStream(); err != nil {
				t.Fatal(err)
			}
		}
	}
	f.PlayStreams(harness.EventStreams(t, f.Wire, harness.Look)[0], searched)
	got := f.RawTurn("look")
	later := harness.RawClient{T: t, Run: agentdv1connect.NewAgentdClient(f.D.HTTPClient(), f.D.URL)}.Talk(harness.Attach(got.Session, "", new(int64(0))), nil)
	facts := func(d *harness.Dialogue) []*agentdv1.RunResponse {
		var out []*agentdv1.RunResponse
		for _, m := range d.Msgs {
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
	harness.VerifyLog(t.Context(), t, store, got.Session)
}
