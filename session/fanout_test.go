package session_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/record"
)

// BenchmarkFanOut publishes deltas one by one, and has each watcher render each before the next one.
func BenchmarkFanOut(b *testing.B) {
	for _, watchers := range []int{1, 16} {
		b.Run(fmt.Sprint(watchers), func(b *testing.B) {
			f := newFixture(b, memory(b), limits.Limits{})
			words := make(chan string)
			published := make(chan struct{})
			f.on(func(ctx context.Context, r *session.Run) error {
				for text := range words {
					r.Delta(record.Delta{MessageID: "m1", Path: []string{"root"}, Text: text})
					published <- struct{}{}
				}
				return nil
			})
			turn := f.start(session.Request{Prompt: "talk"})
			var all []*session.Watcher
			for range watchers {
				all = append(all, turn.Watch())
			}
			say := func() {
				words <- "some words of an answer "
				<-published
				for _, w := range all {
					if msgs, err := w.Next(b.Context()); err != nil || len(msgs) == 0 {
						b.Fatalf("%d messages, error %v", len(msgs), err)
					}
				}
			}
			say()
			b.ReportAllocs()
			for b.Loop() {
				say()
			}
			close(words)
		})
	}
}

// TestShared: watchers share a delta that each shows alone; of one that is joined, or that nobody else receives, nothing
// is shared.
func TestShared(t *testing.T) {
	f := newFixture(t, memory(t), limits.Limits{})
	words := make(chan string)
	said := make(chan struct{})
	f.on(func(_ context.Context, r *session.Run) error {
		for text := range words {
			r.Delta(record.Delta{MessageID: "m1", Path: []string{"root"}, Text: text})
			said <- struct{}{}
		}
		return nil
	})
	defer close(words)
	say := func(texts ...string) {
		for _, text := range texts {
			words <- text
			<-said
		}
	}
	// next returns what is shared of the messages that a watcher has.
	next := func(w *session.Watcher) (shared []any) {
		msgs, err := w.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for i := range msgs {
			if s := w.Shared(i); s != nil {
				shared = append(shared, s)
			}
		}
		return shared
	}
	turn := f.start(session.Request{Prompt: "talk"})
	first := turn.Watch()
	next(first)
	say("alone")
	if got := next(first); len(got) != 0 {
		t.Errorf("the only watcher shares %v", got)
	}
	second := turn.Watch()
	next(second)
	for range 3 {
		say("together")
		if a, b := next(first), next(second); len(a) != 1 || len(b) != 1 || a[0] != b[0] {
			t.Errorf("the watchers share %v and %v", a, b)
		}
	}
	say("joined", "by one")
	if got := next(first); len(got) != 0 {
		t.Errorf("a joined chunk shares %v", got)
	}
	if got := next(first); len(got) != 0 {
		t.Errorf("nothing shares %v", got)
	}
	next(second)
}
