package session_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/limits"
)

// account is what messages of a session say, however their text is cut: that of a
// message stands where it is completed, and what was retracted, or not kept at the end
// of the turn, is left out. Text that is on its way stands at the end.
func account(msgs []*agentdv1.RunResponse) []string {
	var out, order []string
	texts := map[string]string{}
	drop := func(id string) {
		delete(texts, id)
		order = slices.DeleteFunc(order, func(o string) bool { return o == id })
	}
	for _, m := range msgs {
		switch c := m.GetOutputChunk(); {
		case m.GetSeq() == 0: // it has no place
			continue
		case c.GetMessageId() != "":
			if _, ok := texts[c.GetMessageId()]; !ok {
				order = append(order, c.GetMessageId())
			}
			texts[c.GetMessageId()] += c.GetContent()
			continue
		}
		if id := m.GetMessageCompleted().GetMessageId(); id != "" {
			out = append(out, "text of "+id+": "+texts[id])
			drop(id)
		}
		if m.GetMessageRetracted() != nil || m.GetEnd() != nil {
			clear(texts)
			order = nil
		}
		m = proto.CloneOf(m)
		m.Replayed = false
		data, _ := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		out = append(out, fmt.Sprintf("%d %T %x", m.GetSeq(), m.GetResponse(), data))
	}
	for _, id := range order {
		out = append(out, "on its way, "+id+": "+texts[id])
	}
	return out
}

func messagesOf(placed []session.Placed) []*agentdv1.RunResponse {
	var out []*agentdv1.RunResponse
	for _, p := range placed {
		out = append(out, p.Message)
	}
	return out
}

// reading is a client that reads a session, and continues when it is cut off.
type reading struct {
	id, cursor string
	from       string // where it began
	w          *session.SessionWatcher
	got        []*agentdv1.RunResponse
	err        error // the session is gone
}

// drain takes what there is now.
func (r *reading) drain(x *world) {
	for r.err == nil {
		if r.w == nil {
			if r.w, r.err = x.m.WatchSession(x.t.Context(), r.id, r.cursor); r.err != nil {
				return
			}
		}
		select {
		case <-r.w.Ready():
		default:
			return
		}
		got, err := r.w.Next(x.t.Context())
		for _, p := range got {
			if p.Cursor != "" {
				r.cursor = p.Cursor
			}
			if (p.Cursor == "") != (p.Message.GetSeq() == 0) {
				x.t.Errorf("%v has the cursor %q", p.Message, p.Cursor)
			}
		}
		r.got = append(r.got, messagesOf(got)...)
		if err != nil {
			r.w.Close()
			if r.w = nil; code(err) != unavailable {
				r.err = err
			}
		}
	}
}

// list reads a session page by page.
func (x *world) list(id, cursor string, size int) (out []session.Placed) {
	for more := true; more; {
		page, m, err := x.m.SessionEvents(x.t.Context(), id, cursor, size, nil)
		if err != nil || len(page) > size || m && len(page) == 0 {
			x.t.Errorf("a page of %d has %d, more: %v, %v", size, len(page), m, err)
			return out
		}
		if out, more = append(out, page...), m; len(page) > 0 {
			cursor = page[len(page)-1].Cursor
		}
	}
	return out
}

// checkReading compares what there is to read of a session in each way, behind so many
// of its cursors; with 0 behind all of them, and in pages of each size, unless the
// session is long.
func (x *world) checkReading(id string, cursors int) {
	all := x.list(id, "", 10000)
	whole := messagesOf(all)
	if cursors == 0 {
		cursors = 10
		step := 1 + len(all)/10 // of a long session not each size
		for size := 1; size <= len(all)+step; size += step {
			if got := messagesOf(x.list(id, "", size)); !slices.Equal(account(got), account(whole)) {
				x.t.Errorf("pages of %d have\n%q\nwant\n%q", size, account(got), account(whole))
			}
		}
	}
	at := make([]int, 0, len(all)+1)
	for i := range len(all) + 1 {
		at = append(at, i)
	}
	for len(at) > cursors {
		i := x.pick(len(at), "cursor")
		at = slices.Delete(at, i, i+1)
	}
	for _, i := range at {
		cursor := ""
		if i > 0 {
			cursor = all[i-1].Cursor
		}
		want := account(whole[i:])
		if got := account(messagesOf(x.list(id, cursor, 10000))); !slices.Equal(got, want) {
			x.t.Errorf("behind event %d there are\n%q\nwant\n%q", i, got, want)
		}
		r := &reading{id: id, cursor: cursor}
		r.drain(x)
		if r.w != nil {
			r.w.Close()
		}
		if got := account(r.got); r.err != nil || !slices.Equal(got, want) {
			x.t.Errorf("who watches behind event %d reads\n%q, %v\nwant\n%q", i, got, r.err, want)
		}
	}
	x.checkTurns(id, whole)
}

// checkTurns compares a session with its turns.
func (x *world) checkTurns(id string, whole []*agentdv1.RunResponse) {
	turns, _, err := x.m.ListTurns(x.t.Context(), index.TurnQuery{SessionID: id}, "", 1000)
	x.ok("list turns", err)
	for _, turn := range turns {
		if turn.Into != "" {
			continue // of this turn the session has the events of the other one
		}
		not := func(m *agentdv1.RunResponse) bool { return m.GetTurnId() != turn.ID || m.GetStateUpdate() != nil }
		msgs, _, err := x.m.Events(x.t.Context(), session.AttachRequest{SessionID: id, TurnID: turn.ID}, 10000, nil)
		x.ok("events", err)
		got, want := account(slices.DeleteFunc(slices.Clone(whole), not)), account(slices.DeleteFunc(msgs, not))
		if !slices.Equal(got, want) {
			x.t.Errorf("turn %+v is\n%q\nin its session\n%q", turn, want, got)
		}
	}
}

// Whatever happens to sessions: who reads one from any cursor on, page by page or as
// it happens, across restarts, reads all of its turns, nothing twice and nothing not.
func TestReadingWhateverHappens(t *testing.T) {
	t.Parallel() // it takes long
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(t *testing.T) {
			pick := func(n int, what string) int { return rapid.IntRange(0, n-1).Draw(rt, what) }
			limits := limits.Limits{IdleTurn: 10 * time.Second, WatchItems: 1 + pick(20, "items"), WatchBytes: 1 + pick(500, "bytes"), MaxIdleSessions: 1}
			x := &world{pick: pick, limits: limits, fixture: newFixture(t, memory(t), limits)}
			x.on(busy)
			var readings []*reading
			for range 1 + pick(8, "steps") {
				what := whatever[pick(len(whatever), "what")]
				if what == "restart" {
					x.stop()
					for _, r := range readings {
						r.drain(x)
					}
				}
				x.step(what)
				synctest.Wait()
				for _, r := range readings {
					r.drain(x)
				}
				if list := x.sessions(); len(list) > 0 {
					id := list[pick(len(list), "read")].ID
					if x.bool("checked") {
						x.checkReading(id, 2)
					}
					r := &reading{id: id}
					if all := x.list(id, "", 10000); len(all) > 0 && x.bool("behind") {
						r.cursor = all[pick(len(all), "event")].Cursor
					}
					r.from = r.cursor
					r.drain(x)
					readings = append(readings, r)
				}
				if t.Failed() {
					rt.Fatal("see above")
				}
			}
			x.settle()
			synctest.Wait()
			left := map[string]bool{}
			for _, s := range x.sessions() {
				left[s.ID] = true
				x.checkReading(s.ID, 0)
			}
			for _, r := range readings {
				r.drain(x)
				if r.w != nil {
					r.w.Close()
				}
				if !left[r.id] {
					if code(r.err) != agentdv1.ErrorCode_ERROR_CODE_SESSION_NOT_FOUND {
						t.Errorf("the reading of a deleted session ends with %v", r.err)
					}
					continue
				}
				if got, want := account(r.got), account(messagesOf(x.list(r.id, r.from, 10000))); r.err != nil || !slices.Equal(got, want) {
					t.Errorf("read as it happened\n%q, %v\nwant\n%q", got, r.err, want)
				}
			}
			if t.Failed() {
				rt.Fatal("see above")
			}
		})
	})
}

// So they do when it is done at once.
func TestReadingWhateverHappensAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pick := func(n int, _ string) int { return rand.IntN(n) }
		limits := limits.Limits{IdleTurn: 10 * time.Second, WatchItems: 5, MaxIdleSessions: 1}
		x := &world{pick: pick, atOnce: true, limits: limits, fixture: newFixture(t, memory(t), limits)}
		x.on(busy)
		var readings []*reading
		for range 6 {
			for range 2 {
				x.step("start")
			}
			done := make(chan struct{})
			var reads, steps sync.WaitGroup
			for _, s := range x.sessions() {
				if !slices.ContainsFunc(readings, func(r *reading) bool { return r.id == s.ID }) {
					readings = append(readings, &reading{id: s.ID}, &reading{id: s.ID})
				}
			}
			for _, r := range readings {
				reads.Go(func() {
					for r.drain(x); r.err == nil; r.drain(x) {
						select {
						case <-r.w.Ready():
							r.w.Rouse()
						case <-done:
							return
						}
					}
				})
			}
			for range 6 {
				steps.Go(func() {
					for range 1 + pick(4, "steps") {
						x.step(whatever[pick(len(whatever)-loneAgent, "what")])
					}
				})
			}
			steps.Wait()
			synctest.Wait()
			close(done)
			reads.Wait()
		}
		x.settle()
		synctest.Wait()
		for _, r := range readings {
			r.drain(x)
			if r.w != nil {
				r.w.Close()
			}
			if r.err != nil {
				if code(r.err) != agentdv1.ErrorCode_ERROR_CODE_SESSION_NOT_FOUND {
					t.Errorf("the reading of a deleted session ends with %v", r.err)
				}
				continue
			}
			if got, want := account(r.got), account(messagesOf(x.list(r.id, "", 10000))); !slices.Equal(got, want) {
				t.Errorf("read as it happened\n%q\nwant\n%q", got, want)
			}
		}
	})
}
