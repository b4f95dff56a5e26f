package eventlog_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/apzuk3/agentd/adkbridge"
	"github.com/apzuk3/agentd/internal/eventlog"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// kept is a store that keeps the last batches and refuses those of the session "full".
type kept struct {
	store.Store
	batches []store.Batch
}

func (k *kept) Append(_ context.Context, b store.Batch) error {
	k.batches = append(k.batches, b)
	if b.SessionID == "full" {
		return store.ErrFull
	}
	return nil
}

func (k *kept) AppendMany(ctx context.Context, batches []store.Batch) []error {
	errs := make([]error, len(batches))
	for i := range batches {
		errs[i] = k.Append(ctx, batches[i])
	}
	return errs
}

var at = time.Date(2031, 2, 3, 4, 5, 6, 0, time.UTC)

func rec(seq int64, kind record.Kind, data string) record.Record {
	return record.Record{Seq: seq, TurnID: "t1", Kind: kind, Time: at, Data: []byte(data)}
}

// searched is a response for which a provider has searched twice.
const searched = `{"author":"asks","branch":"par.asks","content":{"role":"model","parts":[{"text":"canary"}]},"customMetadata":{"agentd":{
	"path":["par","asks"],"call":{"model":"m","provider":"gemini","took":1},"provided":{"uses":[
		{"name":"google_search","input":"{\"queries\":[\"canary\"]}"},{"name":"google_search","input":"{\"queries\":[\"canary\"]}"}]}}}}`

// TestEvents: the events of each record, and no word of what it says.
func TestEvents(t *testing.T) {
	t.Parallel()
	inner, told := &kept{}, 0
	s := eventlog.New(inner, adkbridge.New(adkbridge.Config{}), true, func() { told++ })
	err := s.Append(t.Context(), store.Batch{SessionID: "acme/s", After: 4, Records: []record.Record{
		rec(5, record.KindTurnQueued, `{"prompt":"canary"}`),
		rec(6, record.KindTurnStarted, `{"prompt":"canary"}`),
		rec(7, record.KindEvent, searched),
		rec(8, record.KindToolResult, `{"call_id":"c","output":"canary"}`),
		rec(9, record.KindEvent, `{"author":"asks","customMetadata":{"agentd":{"path":["asks"],"compacted":{"summary":"canary"}}}}`),
		rec(10, record.KindEvent, `{"author":"asks","customMetadata":{"agentd":{"path":["asks"],"compacted":{"summary":"canary","done":true}}}}`),
		rec(11, record.KindEvent, `{"author":"user","content":{"parts":[{"text":"canary"}]},"customMetadata":{"agentd":{"injected":"t2"}}}`),
		rec(12, record.KindTurnEnded, `{"completed":true}`),
	}})
	if err != nil {
		t.Fatal(err)
	}
	of := func(seq int64, id, branch, author, metadata string) store.Event {
		return store.Event{
			Seq: seq, ID: "acme/s#" + id, App: "agentd", SessionID: "acme/s", Branch: branch, Author: author, Time: at, Invocation: "t1",
			Metadata: metadata,
		}
	}
	got := inner.batches[0].Events
	if len(got) != 7 || got[2].ID != got[3].ID {
		t.Fatalf("events are %+v", got)
	}
	use := got[2].ID[len("acme/s#"):]
	want := []store.Event{
		of(6, "6", "", "user", "{}"),
		of(7, "7", "par.asks", "asks", "{}"),
		of(7, use, "par.asks", "gemini/google_search", "{}"),
		of(7, use, "par.asks", "gemini/google_search", "{}"), // which a store keeps once
		of(9, "9", "", "asks", `{"compaction": "summary"}`),
		of(10, "10", "", "asks", `{"compaction": "checkpoint"}`),
		of(11, "11", "", "user", "{}"),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// The same run is reported again, and another one of another branch.
	other := strings.ReplaceAll(searched, "par.asks", "par.other")
	err = s.Append(t.Context(), store.Batch{SessionID: "acme/s", After: 12, Records: []record.Record{
		rec(13, record.KindEvent, searched), rec(14, record.KindEvent, other),
	}})
	if err != nil {
		t.Fatal(err)
	}
	if again := inner.batches[1].Events; len(again) != 6 || again[1].ID != got[2].ID || again[4].ID == got[2].ID {
		t.Errorf("the runs are %+v", again)
	}
	if told != 2 {
		t.Errorf("told %d times, want 2", told)
	}
}

// TestChildren: the branch of a background child is in front of those of its events; an agent that is called as a tool
// has a session of its own here.
func TestChildren(t *testing.T) {
	t.Parallel()
	const called = `{"author":"b","branch":"x.research@c1.b","customMetadata":{"agentd":{"path":["a","research","b"]}}}`
	inner := &kept{}
	err := eventlog.New(inner, adkbridge.New(adkbridge.Config{}), true, func() {}).Append(t.Context(), store.Batch{
		SessionID: "acme/p", Records: []record.Record{rec(1, record.KindEvent, called)},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := inner.batches[0].Events[0]; got.Branch != "x.research.b" || got.SessionID != "acme/p:sub:x.research" || got.ID != "acme/p#1" {
		t.Errorf("the event of an agent that is a tool is %+v", got)
	}
	for session, want := range map[string]string{
		"p":                        "a.b",
		"p:sub:bg.x":               "bg.x.a.b",
		"acme/p:sub:bg.x:sub:bg.y": "bg.x.bg.y.a.b",
	} {
		inner := &kept{}
		s := eventlog.New(inner, adkbridge.New(adkbridge.Config{}), true, func() {})
		err := s.Append(t.Context(), store.Batch{SessionID: session, Records: []record.Record{
			rec(1, record.KindEvent, `{"author":"b","branch":"a.b","customMetadata":{"agentd":{"path":["a","b"]}}}`),
		}})
		if err != nil {
			t.Fatal(err)
		}
		if got := inner.batches[0].Events[0]; got.Branch != want || got.SessionID != session {
			t.Errorf("the event of %s is on branch %q of %s, want %q", session, got.Branch, got.SessionID, want)
		}
	}
}

// TestMany: of several batches each has its events, and who waits is told once, if any was written.
func TestMany(t *testing.T) {
	t.Parallel()
	inner, told := &kept{}, 0
	s := eventlog.New(inner, adkbridge.New(adkbridge.Config{}), true, func() { told++ })
	start := func(id, data string) store.Batch {
		kind := record.KindTurnStarted
		if data != "" {
			kind = record.KindEvent
		}
		return store.Batch{SessionID: id, Records: []record.Record{rec(1, kind, data)}}
	}
	errs := s.AppendMany(t.Context(), []store.Batch{start("a", ""), start("b", "no JSON"), start("full", "")})
	if errs[0] != nil || errs[1] == nil || !errors.Is(errs[2], store.ErrFull) || told != 1 {
		t.Errorf("%v, told %d times", errs, told)
	}
	if err := s.Append(t.Context(), start("full", "")); !errors.Is(err, store.ErrFull) || told != 1 {
		t.Errorf("%v, told %d times", err, told)
	}
	if err := s.Append(t.Context(), start("a", "no JSON")); err == nil {
		t.Error("a record that is no event was appended")
	}
	if got := inner.batches[0].Events; len(got) != 1 || got[0].ID != "a#1" {
		t.Errorf("events are %+v", got)
	}
}

// TestCheckpoint: a checkpoint of a goal says how far it has come, and what was said only where nothing is encrypted.
func TestCheckpoint(t *testing.T) {
	t.Parallel()
	for texts, want := range map[bool]string{
		true: `{"turn":2,"goal":"sort","continuation_prompt":"continue","input_tokens":900,"output_tokens":120,` +
			`"cost_usd":0.004,"stop_reason":"max_turns_exceeded","done_detail":"","final_text":"said"}`,
		false: `{"turn":2,"input_tokens":900,"output_tokens":120,"cost_usd":0.004,"stop_reason":"max_turns_exceeded"}`,
	} {
		inner := &kept{}
		s := eventlog.New(inner, adkbridge.New(adkbridge.Config{}), texts, func() {})
		r := rec(3, record.KindGoalCheckpointed, `{"id":"g","turn":"t2","totals":{"turns":2,"input_tokens":900,`+
			`"output_tokens":120,"cost_usd":0.004},"goal":"sort","continuation":"continue","final_text":"said","stop_reason":2}`)
		r.TurnID = ""
		if err := s.Append(t.Context(), store.Batch{SessionID: "s", After: 2, Records: []record.Record{r}}); err != nil {
			t.Fatal(err)
		}
		e := inner.batches[0].Events[0]
		if e.Author != "agentd/autonomous" || e.Invocation != "t2" || e.ID != "s#3" || e.Metadata != want {
			t.Errorf("the checkpoint is %+v, want %s", e, want)
		}
	}
}
