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
