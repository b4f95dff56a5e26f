package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apzuk3/agentd/bench/internal/fake"
	"github.com/apzuk3/agentd/bench/internal/peer"
	"github.com/apzuk3/agentd/bench/internal/script"
)

// load is what one measurement asks of a server.
type load struct {
	server peer.Server
	asked  atomic.Int64 // model calls that the turns take
	left   int          // those of them that the turns leave before their end
}

// turn runs a turn and judges what was heard.
func (l *load) turn(ctx context.Context, c peer.Conversation, t peer.Turn) ([]time.Duration, error) {
	heard, err := c.Turn(ctx, t)
	if err != nil {
		return nil, err
	}
	l.asked.Add(int64(t.ModelCalls()))
	return t.Check(heard)
}

// each runs n jobs, so many at once, and returns the first error.
func each(ctx context.Context, n, atOnce int, job func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(n, atOnce) {
		workers.Go(func() {
			for i := next.Add(1) - 1; i < int64(n) && ctx.Err() == nil; i = next.Add(1) - 1 {
				if err := job(ctx, int(i)); err != nil {
					cancel(fmt.Errorf("%d: %w", i, err))
				}
			}
		})
	}
	workers.Wait()
	return context.Cause(ctx)
}

// sessions runs n sessions of one turn each.
func (l *load) sessions(ctx context.Context, n, atOnce int, t peer.Turn) error {
	t.Script.Turn = 1
	return each(ctx, n, atOnce, func(ctx context.Context, _ int) error {
		_, err := l.turn(ctx, l.server.Begin(), t)
		return err
	})
}

// counted fails unless the model has answered what was asked, once, and forgets it.
func (b *bench) counted(ctx context.Context, l *load) error {
	counts, err := b.counts(ctx, http.MethodPost)
	want := int(l.asked.Load())
	switch {
	case err != nil:
		return err
	case counts.Refused > 0:
		return fmt.Errorf("the model has refused %d requests, the first since %s", counts.Refused, counts.Why)
	case counts.Answered != want, counts.Left != l.left:
		return fmt.Errorf("the model has answered %d calls, %d of them not in full, in place of %d",
			counts.Answered, counts.Left, want)
	}
	return nil
}

func (b *bench) counts(ctx context.Context, method string) (fake.Counts, error) {
	var counts fake.Counts
	req, err := http.NewRequestWithContext(ctx, method, b.model.URL+fake.CountsPath, http.NoBody)
	if err != nil {
		return counts, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return counts, err
	}
	defer func() { _ = resp.Body.Close() }()
	err = json.NewDecoder(resp.Body).Decode(&counts)
	return counts, err
}

// perUnit is the server's time on its core for each of n units of what work does, in microseconds.
func perUnit(t *target, n int, work func() error) (float64, error) {
	before, err := t.CPU()
	if err != nil {
		return 0, err
	}
	if err := work(); err != nil {
		return 0, err
	}
	after, err := t.CPU()
	return float64((after - before).Nanoseconds()) / 1e3 / float64(n), err
}

// quantile is that of values, which it sorts, in milliseconds.
func quantile(values []time.Duration, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	at := min(int(q*float64(len(values))), len(values)-1)
	return float64(values[at].Microseconds()) / 1e3
}

// waiting runs n sessions whose turns wait for a tool, until the context ends, and calls between when all do.
func (l *load) waiting(ctx context.Context, n int, between func() error) error {
	turn := peer.Turn{Script: script.Script{Chunks: 1, Rounds: 1, Calls: 1, Wait: waitsFor, Turn: 1}}
	ctx, cancel := context.WithCancel(ctx)
	var turns sync.WaitGroup
	defer turns.Wait()
	defer cancel()
	waits := make(chan struct{}, n)
	failed := make(chan error, n)
	start := func() {
		own := turn
		var once sync.Once
		own.Waiting = func() { once.Do(func() { waits <- struct{}{} }) }
		turns.Go(func() {
			if _, err := l.server.Begin().Turn(ctx, own); ctx.Err() == nil {
				failed <- errors.Join(errors.New("a turn did not wait for its tool"), err)
			}
		})
	}
	// A few start at a time.
	for i := range n + atOnce {
		if i < n {
			start()
		}
		if i < atOnce {
			continue
		}
		select {
		case <-waits:
		case err := <-failed:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	l.asked.Add(int64(n))
	return between()
}
