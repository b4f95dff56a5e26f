package session_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"pgregory.net/rapid"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/record"
)

// TestDroppedDeltas has a watcher's queue overflow in the middle of a message:
// the text is in memory until its event is in the log.
func TestDroppedDeltas(t *testing.T) {
	f := newFixture(t, memory(t), limits.Limits{WatchItems: 2})
	steps := make(chan []string)
	said := make(chan struct{})
	f.on(func(ctx context.Context, r *session.Run) error {
		whole := ""
		for pieces := range steps {
			for _, p := range pieces {
				whole += p
				r.Delta(record.Delta{MessageID: "m", Path: root, Text: p})
			}
			said <- struct{}{}
		}
		return add(ctx, r, &record.Event{MessageID: "m", Path: root, Text: whole + "."})
	})
	turn := f.start(session.Request{})
	w := turn.Watch()
	read := func() string {
		t.Helper()
		msgs, err := w.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return texts(msgs)["root"]
	}
	read()
	for _, step := range []struct {
		pieces []string
		want   string
	}{
		{[]string{"one ", "two "}, "one two "},
		{[]string{"three ", "four ", "five "}, "three four five "}, // more than the queue holds
		{[]string{"six "}, "six "},
	} {
		steps <- step.pieces
		<-said
		if got := read(); got != step.want {
			t.Errorf("after %q the watcher reads %q, want %q", step.pieces, got, step.want)
		}
	}
	close(steps)
	if got := texts(follow(t, w))["root"]; got != "." {
		t.Errorf("the rest is %q", got)
	}
}

// TestWatcherThatComesLate watches while messages are on their way.
func TestWatcherThatComesLate(t *testing.T) {
	f := newFixture(t, memory(t), limits.Limits{WatchBytes: 10})
	said, resumeLast := make(chan struct{}), make(chan struct{})
	f.on(func(ctx context.Context, r *session.Run) error {
		a, b := []string{"root", "a"}, []string{"root", "b"}
		r.Delta(record.Delta{MessageID: "1", Path: a, Text: "hm", Thought: true})
		r.Delta(record.Delta{MessageID: "1", Path: a, Text: "12345é7"})
		r.Delta(record.Delta{MessageID: "2", Path: b, Text: "one "})
		close(said)
		<-resumeLast
		r.Delta(record.Delta{MessageID: "2", Path: b, Text: "two"})
		return errors.Join(
			add(ctx, r, &record.Event{MessageID: "1", Path: a, Thoughts: "hm", Text: "12345é789"}),
			add(ctx, r, &record.Event{MessageID: "2", Path: b, Text: "one two"}))
	})
	turn := f.start(session.Request{})
	<-said
	w := turn.Watch()
	got := map[string]string{}
	for got["root/b"] == "" {
		<-w.Ready()
		msgs, err := w.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for agent, text := range texts(msgs) {
			got[agent] += text
		}
	}
	if got["root/a"] != "12345é7" || got["root/b"] != "one "[:len(got["root/b"])] {
		t.Errorf("before the messages are complete the watcher reads %q", got)
	}
	close(resumeLast)
	for agent, text := range texts(follow(t, w)) {
		got[agent] += text
	}
	if got["root/a"] != "12345é789" || got["root/b"] != "one two" {
		t.Errorf("in all the watcher reads %q", got)
	}
}

// TestWatcherThatIsFarBehind bounds what one call of Next gives, and what all of
// them cost.
func TestWatcherThatIsFarBehind(t *testing.T) {
	const limit, size, messages = 10_000, 1000, 200
	f := newFixture(t, memory(t), limits.Limits{WatchBytes: limit})
	var want strings.Builder
	f.on(func(ctx context.Context, r *session.Run) error {
		for i := range messages {
			text := strings.Repeat(string(rune('a'+i%26)), size)
			want.WriteString(text)
			if err := say(ctx, r, fmt.Sprint(i), root, text); err != nil {
				return err
			}
		}
		return nil
	})
	turn := f.start(session.Request{})
	w := turn.Watch()
	<-turn.Done()
	var got strings.Builder
	for {
		<-w.Ready()
		msgs, err := w.Next(t.Context())
		text := texts(msgs)["root"]
		if len(text) > limit {
			t.Fatalf("one call gives %d bytes of text, the watcher may hold %d", len(text), limit)
		}
		got.WriteString(text)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if got.String() != want.String() {
		t.Errorf("read %d bytes of %d, or others", got.Len(), want.Len())
	}
	if n := f.decoded.Load(); n > 2*messages {
		t.Errorf("%d events were decoded, of %d messages", n, messages)
	}
}

// TestLongMessageInABacklog reads a message that began before, and was complete only
// behind, far more than may wait for a watcher: none of it is lost.
func TestLongMessageInABacklog(t *testing.T) {
	f := newFixture(t, memory(t), limits.Limits{WatchBytes: 64})
	other := []string{"root", "other"}
	var want strings.Builder
	f.on(func(ctx context.Context, r *session.Run) error {
		r.Delta(record.Delta{MessageID: "long", Path: root, Text: "a"})
		for i := range 100 {
			want.WriteString("b")
			if err := say(ctx, r, fmt.Sprint(i), other, "b"); err != nil {
				return err
			}
		}
		if err := add(ctx, r, &record.Event{MessageID: "long", Path: root, Text: "a"}); err != nil {
			return err
		}
		return say(ctx, r, "last", root, "!")
	})
	turn := f.start(session.Request{})
	w := turn.Watch()
	<-turn.Done()
	got := texts(follow(t, w))
	if got["root"] != "a!" || got["root/other"] != want.String() {
		t.Errorf("read %q and %q", got["root"], got["root/other"])
	}
}

// TestIdleSessionHoldsNoTurn has a turn with a large tool result end: the
// session that stays in memory must not hold it.
func TestIdleSessionHoldsNoTurn(t *testing.T) {
	f := newFixture(t, memory(t), limits.Limits{})
	f.on(func(ctx context.Context, r *session.Run) error {
		_, err := call(ctx, r, "c")
		return err
	})
	freed := make(chan struct{})
	func() {
		turn := f.start(session.Request{})
		runtime.AddCleanup(turn, func(c chan struct{}) { close(c) }, freed)
		w := turn.Watch()
		await(t, w, isCall)
		if err := turn.SubmitResult(t.Context(), session.ClientResult{CallID: "c", Output: new("large")}); err != nil {
			t.Fatal(err)
		}
		follow(t, w)
		<-turn.Done()
	}()
	for range 1000 {
		runtime.GC()
		select {
		case <-freed:
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
	t.Fatal("the turn is still held")
}

// line is one response of an agent in a random turn.
type line struct {
	pieces   []string // streamed, a prefix of the text
	thoughts []string
	rest     string   // of the text, not streamed
	calls    []string // what becomes of each: see asks
	last     bool
}

// asks are what a person does about a call; of "" nobody is asked, and of
// "leave" nobody waits for what becomes of it.
var asks = []string{"", "", "approve", "edit", "deny", "reply", "cancel", "leave"}

// TestEveryWatcherReadsTheSame has agents speak at the same time, in any order,
// to watchers of any speed, and compares what each has read.
func TestEveryWatcherReadsTheSame(t *testing.T) {
	t.Parallel() // it takes long
	store := memory(t)
	rapid.Check(t, func(rt *rapid.T) {
		items := rapid.IntRange(1, 20).Draw(rt, "items")
		f := newFixture(t, store, limits.Limits{WatchItems: items, WatchBytes: 64})
		agents := rapid.IntRange(1, 4).Draw(rt, "agents")
		scripts := make([][]line, agents)
		text := rapid.StringMatching(`[a-zä ]{1,6}`)
		for a := range scripts {
			n := rapid.IntRange(1, 5).Draw(rt, "lines")
			for i := range n {
				scripts[a] = append(scripts[a], line{
					pieces:   rapid.SliceOfN(text, 0, 6).Draw(rt, "pieces"),
					thoughts: rapid.SliceOfN(text, 0, 3).Draw(rt, "thoughts"),
					rest:     rapid.SampledFrom([]string{"", "!"}).Draw(rt, "rest"),
					calls:    rapid.SliceOfN(rapid.SampledFrom(asks), 0, 3).Draw(rt, "calls"),
					last:     i == n-1 && rapid.Bool().Draw(rt, "last"),
				})
			}
		}
		f.on(func(ctx context.Context, r *session.Run) error {
			var wg sync.WaitGroup
			errs := make([]error, agents)
			for a := range scripts {
				wg.Go(func() { errs[a] = speak(ctx, r, a, scripts[a]) })
			}
			wg.Wait()
			return errors.Join(errs...)
		})
		turn := f.start(session.Request{})
		pauses := rapid.SliceOfN(rapid.IntRange(0, 3), 1, 4).Draw(rt, "watchers")
		leaves := rapid.SliceOfN(rapid.IntRange(1, 12), 1, 8).Draw(rt, "leaves")
		reads := make([][]*agentdv1.RunResponse, len(pauses)+1)
		var wg sync.WaitGroup
		for i, pause := range pauses {
			w := attach(t, f, turn, nil)
			wg.Go(func() { reads[i] = readSlowly(w, pause) })
		}
		wg.Go(func() { reads[len(pauses)] = readInPieces(t, f, turn, leaves) })
		w := turn.Watch()
		answerAll(t, turn, w)
		wg.Wait()
		<-turn.Done()
		reads = slices.Concat(reads, [][]*agentdv1.RunResponse{follow(t, turn.Watch()), readInPieces(t, f, turn, leaves)})
		want := facts(reads[0])
		for i, got := range reads {
			if facts(got) != want {
				rt.Errorf("watcher %d read the facts\n%s\nwatcher 0 read\n%s", i, facts(got), want)
			}
			said := texts(got)
			for a := range scripts {
				name, all := fmt.Sprintf("root/a%d", a), ""
				for _, l := range scripts[a] {
					all += strings.Join(l.pieces, "") + l.rest
				}
				if said[name] != all {
					rt.Errorf("watcher %d: %s said %q, want %q", i, name, said[name], all)
				}
			}
			checkLast(rt, got)
		}
	})
}

func speak(ctx context.Context, r *session.Run, a int, script []line) error {
	path := []string{"root", fmt.Sprint("a", a)}
	for i, l := range script {
		id := fmt.Sprintf("%d/%d", a, i)
		for _, p := range l.thoughts {
			r.Delta(record.Delta{MessageID: id, Path: path, Text: p, Thought: true})
		}
		for _, p := range l.pieces {
			r.Delta(record.Delta{MessageID: id, Path: path, Text: p})
		}
		ev := &record.Event{
			MessageID: id, Path: path, Last: l.last,
			Text: strings.Join(l.pieces, "") + l.rest, Thoughts: strings.Join(l.thoughts, ""),
			Usage: &record.Usage{Calls: 1, Total: 1},
		}
		for c, does := range l.calls {
			call := record.ToolCall{ID: fmt.Sprintf("%s/%d", id, c), Name: "t", Input: []byte("{}"), Path: path}
			if does != "" {
				call.Asks = &record.Question{Kind: agentdv1.InteractionKind_INTERACTION_KIND_APPROVAL, Text: does}
			}
			if does == "reply" {
				call.Asks.Kind = agentdv1.InteractionKind_INTERACTION_KIND_INPUT
			}
			ev.Calls = append(ev.Calls, call)
		}
		if err := add(ctx, r, ev); err != nil {
			return err
		}
		for c, does := range l.calls {
			if does == "leave" {
				continue
			}
			if _, err := r.Await(ctx, ev.Calls[c].ID); err != nil {
				return err
			}
		}
	}
	return nil
}

// attach watches a turn without tools.
func attach(t *testing.T, f *fixture, turn *session.Turn, after *int64) *session.Watcher {
	_, w, err := f.m.Attach(context.Background(), session.AttachRequest{SessionID: turn.SessionID(), After: after})
	if err != nil {
		t.Errorf("attach: %v", err)
		panic(err)
	}
	return w
}

// readInPieces reads some messages, leaves, and comes back with the position of
// the last one, many times.
func readInPieces(t *testing.T, f *fixture, turn *session.Turn, leaves []int) (out []*agentdv1.RunResponse) {
	var after *int64
	for i := 0; ; i++ {
		w := attach(t, f, turn, after)
		for left := leaves[i%len(leaves)]; left > 0; {
			msgs, err := w.Next(context.Background())
			for _, m := range msgs[:min(left, len(msgs))] {
				if after != nil && m.Seq <= *after {
					t.Errorf("%v comes after position %d", m, *after)
				}
				out = append(out, m)
				after = new(m.Seq)
			}
			left -= len(msgs)
			if errors.Is(err, io.EOF) && left >= 0 {
				return out
			}
			if len(msgs) == 0 {
				<-w.Ready()
			}
		}
		w.Close()
	}
}

func readSlowly(w *session.Watcher, pause int) (out []*agentdv1.RunResponse) {
	for {
		if pause > 0 {
			<-w.Ready()
			for range pause {
				runtime.Gosched() // let the queue fill
			}
		}
		msgs, err := w.Next(context.Background())
		out = append(out, msgs...)
		if errors.Is(err, io.EOF) {
			return out
		}
		if len(msgs) == 0 && pause == 0 {
			<-w.Ready()
		}
	}
}

func answerAll(t *testing.T, turn *session.Turn, w *session.Watcher) {
	for {
		msgs, err := w.Next(t.Context())
		for _, m := range msgs {
			if c := m.GetToolCall(); c != nil {
				if err := turn.SubmitResult(t.Context(), session.ClientResult{CallID: c.ToolCallId, Output: new("ok")}); err != nil {
					t.Errorf("answer: %v", err)
				}
			}
			if in := m.GetInteractionRequested().GetInteraction(); in != nil {
				person(t, turn, in)
			}
		}
		if errors.Is(err, io.EOF) {
			return
		}
		if len(msgs) == 0 {
			<-w.Ready()
		}
	}
}

// person does about an interaction what its question says.
func person(t *testing.T, turn *session.Turn, in *agentdv1.Interaction) {
	var err error
	switch in.Question {
	case "approve":
		err = turn.Resolve(t.Context(), in.Id, record.Resolution{Decision: record.Approve})
	case "edit":
		err = turn.Resolve(t.Context(), in.Id, record.Resolution{Decision: record.Approve, Input: []byte(`{"by": "a person"}`)})
	case "deny":
		err = turn.Resolve(t.Context(), in.Id, record.Resolution{Decision: record.Deny, Reason: "no"})
	case "reply":
		err = turn.Resolve(t.Context(), in.Id, record.Resolution{Decision: record.Reply, Answer: "yes"})
	case "cancel":
		err = turn.CancelCall(t.Context(), in.Id)
	}
	if err != nil {
		t.Errorf("%s: %v", in.Question, err)
	}
}

// facts is what was read without the text and its cuts.
func facts(msgs []*agentdv1.RunResponse) string {
	var b strings.Builder
	for _, m := range msgs {
		switch {
		case m.GetToolCall() != nil:
			fmt.Fprintln(&b, m.Seq, "call", m.GetToolCall().ToolCallId, m.GetToolCall().ToolInput)
		case m.GetToolCallAnnounced() != nil:
			fmt.Fprintln(&b, m.Seq, "call", m.GetToolCallAnnounced().ToolCallId, m.GetToolCallAnnounced().ToolInput)
		case m.GetToolCallAnswered() != nil:
			fmt.Fprintln(&b, "result", m.GetToolCallAnswered(), m.Seq)
		case m.GetInteractionRequested() != nil:
			fmt.Fprintln(&b, m.Seq, "ask", protojson.Format(m.GetInteractionRequested()))
		case m.GetInteractionResolved() != nil:
			fmt.Fprintln(&b, m.Seq, "asked", protojson.Format(m.GetInteractionResolved()))
		case m.GetOutputChunk() == nil:
			fmt.Fprintf(&b, "%T %v\n", m.Response, m.GetEnd().GetUsageSummary().GetLlmCalls())
		}
	}
	return b.String()
}

func checkLast(t *rapid.T, msgs []*agentdv1.RunResponse) {
	closed := map[string]bool{}
	spoke := map[string]bool{}
	for _, m := range msgs {
		c := m.GetOutputChunk()
		if c == nil {
			continue
		}
		key := strings.Join(c.AgentPath, "/")
		spoke[key] = true
		if closed[key] {
			t.Errorf("%v comes after the last chunk of its agent", c)
		}
		closed[key] = c.Last
	}
	for key := range spoke {
		if !closed[key] {
			t.Errorf("%s has no last chunk", key)
		}
	}
}
