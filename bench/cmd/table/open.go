package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/apzuk3/agentd/bench/internal/peer"
	"github.com/apzuk3/agentd/bench/internal/script"
	"github.com/apzuk3/agentd/internal/backoff"
)

// What is measured of turns that clients leave, come back to, and cancel.

const (
	// longRounds and longCalls make a turn of 1,000 events: each round has the event of its model call, its calls, and
	// their results.
	longRounds = 48
	longCalls  = 10
	// openTurns is how many open turns a store has.
	openTurns = 10_000
	// resumed is how many of them are followed after the start.
	resumed = 20
)

// leave runs a turn until it waits for a tool, and leaves it open. Its first calls, so many, are answered.
func (l *load) leave(ctx context.Context, s script.Script, answers int) (session string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.Turn = 1
	var waits sync.Once
	left := false
	turn := peer.Turn{Script: s, Answers: answers, Waiting: func() {
		waits.Do(func() {
			left = true
			cancel()
		})
	}}
	heard, err := l.server.Begin().Turn(ctx, turn)
	if !left {
		return "", errors.Join(errors.New("a turn did not wait for its tool"), err)
	}
	l.asked.Add(int64(answers/s.Calls + 1))
	return heard.Session, nil
}

func runReconnect(ctx context.Context, b *bench, t *target) ([]float64, error) {
	l := &load{server: t.server}
	rounds, times := b.size(longRounds, 5), b.size(100, 5)
	s := script.Script{Chunks: 1, Rounds: rounds + 1, Calls: longCalls}
	open, err := l.leave(ctx, s, rounds*longCalls)
	if err != nil {
		return nil, err
	}
	over := peer.Turn{Script: script.Script{Chunks: 1, Rounds: rounds, Calls: longCalls, Turn: 1}}
	heard, err := l.server.Begin().Turn(ctx, over)
	if err != nil {
		return nil, err
	}
	if _, err := over.Check(heard); err != nil {
		return nil, err
	}
	l.asked.Add(int64(over.ModelCalls()))
	var values []float64
	for _, turn := range []struct {
		session string
		calls   int
		ended   bool
	}{{open, (rounds + 1) * longCalls, false}, {heard.Session, rounds * longCalls, true}} {
		events, err := t.turns.List(ctx, turn.session)
		if err != nil {
			return nil, err
		}
		want := peer.Events{
			Count: events.Count, Last: events.Last,
			Calls: turn.calls, Answers: rounds * longCalls, Ended: turn.ended,
		}
		if events != want || (!b.short && events.Count < 1000) {
			return nil, fmt.Errorf("the turn has %+v", events)
		}
		took, err := reconnects(ctx, t, turn.session, events, times)
		if err != nil {
			return nil, err
		}
		values = append(values, quantile(took, 0.5))
	}
	return values, b.counted(ctx, l)
}

// reconnects comes back to a turn so many times, and returns how long it takes until its client has all events.
func reconnects(
	ctx context.Context, t *target, session string, want peer.Events, times int,
) ([]time.Duration, error) {
	var took []time.Duration
	for range times + times/10 {
		began := time.Now()
		got, err := t.turns.Reconnect(ctx, session, want)
		if err != nil {
			return nil, err
		}
		took = append(took, time.Since(began))
		// Calls are not asked of a new client while the one before may come back.
		if got.Asked = 0; got != want {
			return nil, fmt.Errorf("who comes back hears %+v, not %+v", got, want)
		}
	}
	return took[times/10:], nil // after some that warm up
}

func runCancel(ctx context.Context, b *bench, t *target) ([]float64, error) {
	l := &load{server: t.server}
	turn := peer.Turn{Script: script.Script{Chunks: 1000, Every: pace, Turn: 1}, Cancel: true}
	times := b.size(200, 5)
	var quiet, aborted []time.Duration
	for i := range times + times/10 {
		heard, err := l.server.Begin().Turn(ctx, turn)
		if err != nil {
			return nil, err
		}
		if heard.Canceled.IsZero() || heard.Aborted != 1 {
			return nil, fmt.Errorf("agentd has aborted %d model calls, not 1", heard.Aborted)
		}
		l.asked.Add(1)
		l.left++
		gone, err := b.left(ctx, l.left)
		if err != nil {
			return nil, err
		}
		if i >= times/10 { // after some that warm up
			aborted = append(aborted, gone.Sub(heard.Canceled))
			quiet = append(quiet, max(heard.Ended.Sub(heard.Canceled), aborted[len(aborted)-1]))
		}
	}
	return []float64{quantile(quiet, 0.99), quantile(aborted, 0.99)}, b.counted(ctx, l)
}

// left waits until the callers of so many model calls are gone, and returns when the last one was.
func (b *bench) left(ctx context.Context, n int) (time.Time, error) {
	for {
		counts, err := b.counts(ctx, http.MethodGet)
		if err != nil || counts.Left >= n {
			return counts.LeftAt, err
		}
		if err := backoff.Wait(ctx, time.Millisecond); err != nil {
			return time.Time{}, err
		}
	}
}

// runStartOpen fills a store with turns that wait for a tool, and starts the server on it again and again.
func runStartOpen(ctx context.Context, b *bench, t *target) ([]float64, error) {
	n := b.size(openTurns, 50)
	l := &load{server: t.server}
	sessions := make([]string, n)
	s := script.Script{Chunks: 1, Rounds: 1, Calls: 1}
	err := each(ctx, n, atOnce, func(ctx context.Context, i int) error {
		var err error
		sessions[i], err = l.leave(ctx, s, 0)
		return err
	})
	if err != nil {
		return nil, err
	}
	var took []float64
	for range b.repeats {
		if err := t.restart(ctx); err != nil {
			return nil, err
		}
		took = append(took, float64(t.Started.Microseconds())/1e3)
		if err := stillOpen(ctx, t, n, sessions[:min(n, resumed)]); err != nil {
			return nil, err
		}
	}
	return []float64{median(took)}, b.counted(ctx, l)
}

// stillOpen fails unless so many turns are open, and some of them ask for their tool again.
func stillOpen(ctx context.Context, t *target, n int, some []string) error {
	open, err := t.turns.Open(ctx)
	if err != nil {
		return err
	}
	if open != n {
		return fmt.Errorf("%d turns are open after the start, not %d", open, n)
	}
	for _, session := range some {
		want, err := t.turns.List(ctx, session)
		if err != nil {
			return err
		}
		want.Asked = 1
		got, err := t.turns.Reconnect(ctx, session, want)
		if err != nil {
			return err
		}
		if got.Calls != 1 || got.Answers > 0 || got.Ended {
			return fmt.Errorf("an open turn has %+v, and who comes back hears %+v", want, got)
		}
	}
	return nil
}
