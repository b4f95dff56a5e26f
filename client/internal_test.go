package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// FuzzArguments: whatever a model writes, a handler sees either what JSON says
// or nothing.
func FuzzArguments(f *testing.F) {
	type args struct {
		N    int64          `json:"n"`
		S    string         `json:"s,omitempty"`
		List []float64      `json:"list,omitempty"`
		Any  map[string]any `json:"any,omitempty"`
	}
	for _, seed := range []string{``, `{}`, `{"n":1}`, `{"n":1e400}`, `{"n":1,"s":null}`, `{"n":1,"list":[1,2.5]}`, `{"n":9007199254740993}`, `{"n":1}{`, `{"N":1}`, `{"n":1,"any":{"a":[{}]}}`} {
		f.Add(seed)
	}
	var got *args
	tool, err := newTypedTool("t", "d", func(_ context.Context, in args) (any, error) {
		got = &in
		return nil, nil
	}, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, input string) {
		got = nil
		_, err := tool.invoke(t.Context(), input)
		if (err == nil) != (got != nil) {
			t.Fatalf("error %v, but called %v", err, got != nil)
		}
		if err != nil {
			if err.Error() == "" {
				t.Fatal("an error without a text")
			}
			return
		}
		var want struct{ N *int64 }
		if err := json.Unmarshal([]byte(input), &want); err != nil || want.N == nil || *want.N != got.N {
			t.Fatalf("got %+v from %q (%v)", got, input, err)
		}
	})
}

// FuzzFailure: any error text fits a protobuf string and is bounded.
func FuzzFailure(f *testing.F) {
	f.Add("x")
	f.Add(strings.Repeat("é", maxErrorText))
	f.Fuzz(func(t *testing.T, text string) {
		got := failure(&agentdv1.RunResponse_ToolCallRequest{}, fmt.Errorf("%s", text)).GetError()
		if got == "" || !utf8.ValidString(got) || len(got) > 3*maxErrorText+16 {
			t.Fatalf("got %q", got)
		}
	})
}

// TestResultCacheProperty compares the cache with a plain model of it: a settled call has
// its result until it is among the oldest beyond the bounds.
func TestResultCacheProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newResultCache()
		model := make(map[callKey]string)
		open := make(map[callKey]*cachedResult)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			key := callKey{session: "s", call: rapid.StringMatching("[a-e]").Draw(t, "call")}
			if entry := open[key]; entry != nil {
				if rapid.Bool().Draw(t, "settle") {
					text := rapid.String().Draw(t, "text")
					m.store(entry, &agentdv1.RunRequest_ToolCallResponse{Result: &agentdv1.RunRequest_ToolCallResponse_Output{Output: text}})
					model[key] = text
				} else {
					m.abandon(entry)
				}
				delete(open, key)
				continue
			}
			entry, mine, err := m.claim(context.Background(), key)
			want, known := model[key]
			if err != nil || mine == known || m.known(key) != known {
				t.Fatalf("claim %v: mine %v, known %v, %v", key, mine, known, err)
			}
			if mine {
				open[key] = entry
			} else if entry.msg.GetOutput() != want {
				t.Fatalf("answer %q, want %q", entry.msg.GetOutput(), want)
			}
		}
	})
}

func TestResultCacheIsBounded(t *testing.T) {
	m := newResultCache()
	store := func(i, size int) {
		entry, _, err := m.claim(t.Context(), callKey{call: fmt.Sprint(i)})
		if err != nil {
			t.Fatal(err)
		}
		m.store(entry, &agentdv1.RunRequest_ToolCallResponse{
			Result: &agentdv1.RunRequest_ToolCallResponse_Output{Output: strings.Repeat("x", size)},
		})
		if i >= 0 && !m.known(callKey{call: "0"}) && i < maxResults {
			t.Fatal("an answer was forgotten before its time")
		}
		m.letGo(entry)
	}
	for i := range maxResults + 10 {
		store(i, 1)
	}
	if len(m.byKey) != maxResults || m.order.Len() != maxResults || m.bytes != maxResults {
		t.Errorf("%d entries, %d in order, %d bytes", len(m.byKey), m.order.Len(), m.bytes)
	}
	if m.known(callKey{call: "9"}) || !m.known(callKey{call: "10"}) {
		t.Error("not the oldest ones were forgotten")
	}
	for i := range 20 {
		store(-1-i, 4<<20)
	}
	if m.bytes > maxResultBytes || len(m.byKey) != 4 {
		t.Errorf("%d bytes in %d entries", m.bytes, len(m.byKey))
	}
}

// A result is kept until the server has shown it; then it may be dropped, and its
// parts count.
func TestRecordedResultsAreReleased(t *testing.T) {
	c := New("http://127.0.0.1:1")
	calls := newToolRunner(t.Context(), &run{client: c})
	defer calls.stop()
	for i := range 8 {
		key := callKey{call: fmt.Sprint(i)}
		entry, _, err := c.results.claim(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		picture := []*agentdv1.Part{Inline("image/png", make([]byte, 3<<20)).Proto()}
		c.results.store(entry, &agentdv1.RunRequest_ToolCallResponse{ToolCallId: key.call, Parts: picture})
		calls.keep(entry, false)
		if len(calls.kept) != 1 || c.results.order.Len() != min(i, 5) {
			t.Errorf("%d kept, %d in order", len(calls.kept), c.results.order.Len())
		}
		if calls.recorded(&agentdv1.ToolCallAnswered{ToolCallId: key.call, Parts: picture}) {
			t.Error("what this run has answered is told as news")
		}
		if len(calls.kept) != 0 || !c.results.known(key) {
			t.Errorf("%d kept", len(calls.kept))
		}
	}
	if c.results.bytes > maxResultBytes || c.results.known(callKey{call: "0"}) {
		t.Errorf("%d bytes are remembered", c.results.bytes)
	}
}

// TestClaimWaits lets one claimer wait for another that gives up.
func TestClaimWaits(t *testing.T) {
	m := newResultCache()
	first, mine, err := m.claim(t.Context(), callKey{call: "c"})
	if err != nil || !mine {
		t.Fatal(mine, err)
	}
	second := make(chan bool)
	go func() {
		_, mine, err := m.claim(t.Context(), callKey{call: "c"})
		second <- mine && err == nil
	}()
	m.abandon(first)
	if !<-second {
		t.Error("the second claimer did not get the call")
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(ErrToolCanceled)
	if _, _, err := m.claim(ctx, callKey{call: "c"}); !errors.Is(err, ErrToolCanceled) {
		t.Errorf("want the cause, got %v", err)
	}
}

// TestCodesAreComplete: each code of the protocol has its comparable value
// here, and the same view on retrying.
func TestCodesAreComplete(t *testing.T) {
	retryable := map[Code]bool{ErrRateLimited: true, ErrModelUnavailable: true, ErrTimeout: true, ErrSessionBusy: true, ErrUnavailable: true}
	known := []Code{
		ErrInternal, ErrInvalidAgentTree, ErrRateLimited, ErrAuthFailed, ErrSessionNotFound, ErrModelUnavailable, ErrTimeout, ErrSessionBusy,
		ErrInvalidRequest, ErrBudgetExhausted, ErrLimitExceeded, ErrPermissionDenied, ErrHistoryPurged, ErrContentBlocked, ErrContextTooLong, ErrUnavailable,
		ErrConflict, ErrPrecondition, ErrOutputInvalid, ErrNotFound, ErrUnauthenticated,
	}
	var all []Code
	for value := int32(1); agentdv1.ErrorCode_name[value] != ""; value++ {
		all = append(all, Code(value))
	}
	if !reflect.DeepEqual(known, all) {
		t.Errorf("got %v, want %v", known, all)
	}
	for _, code := range known {
		if code.retryable() != retryable[code] {
			t.Errorf("%v: retryable %v", code, code.retryable())
		}
	}
}

// A caller who takes no events does not keep a run from bringing its connection back; an outage
// that is over by then is not reported, any other one is, before the next event.
func TestConnectionIsReportedWhenThereIsRoom(t *testing.T) {
	r := &run{events: make(chan *Event, 2), stopped: make(chan struct{})}
	r.session.Store(new("s"))
	full := func() {
		for len(r.events) < cap(r.events) {
			r.events <- newEvent(&End{})
		}
	}
	events := func() (kinds []string) {
		for len(r.events) > 0 {
			kinds = append(kinds, strings.TrimPrefix(fmt.Sprintf("%T", (<-r.events).Data), "*client."))
		}
		return kinds
	}
	why := errorf(ErrUnavailable, "cut")
	full()
	r.lost(why)
	r.restored()
	if got := events(); !slices.Equal(got, []string{"End", "End"}) {
		t.Errorf("told %q", got)
	}
	full()
	r.lost(why)
	events()
	r.deliver(newEvent(&End{}))
	if got := events(); !slices.Equal(got, []string{"ConnectionLost", "End"}) {
		t.Errorf("told %q", got)
	}
	full()
	r.restored()
	r.lost(why) // once more, before the caller has heard that it was back
	if got := events(); !slices.Equal(got, []string{"End", "End"}) {
		t.Errorf("told %q", got)
	}
	r.restored()
	r.restored()
	if got := events(); !slices.Equal(got, []string{"ConnectionRestored"}) {
		t.Errorf("told %q", got)
	}
	r.lost(why)
	events()
	r.abandoned(why)
	if got := events(); !slices.Equal(got, []string{"ConnectionAbandoned"}) {
		t.Errorf("told %q", got)
	}
}
