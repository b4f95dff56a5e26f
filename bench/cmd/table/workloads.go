package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/apzuk3/agentd/bench/internal/peer"
	"github.com/apzuk3/agentd/bench/internal/script"
	"github.com/apzuk3/agentd/internal/backoff"
)

const (
	// atOnce is how many sessions run at the same time where CPU is measured.
	atOnce = 8
	// rounds is how many tool rounds a turn has.
	rounds = 20
	// chunks is how many pieces a long text has, pace the time between two.
	chunks = 200
	pace   = 10 * time.Millisecond
	// window is how many rounds or turns are measured at a length of history, at least.
	window = 10
	// waitsFor is longer than any measurement.
	waitsFor = 30 * time.Minute
	// settled is how long memory has to come to rest.
	settled = 3 * time.Second
	// heartbeat is how often a client says that it lives.
	heartbeat = 100 * time.Millisecond
	// busy is how many sessions run tools beside the streams whose latency is measured, each tool for toolTime.
	busy     = 8
	toolTime = 20 * time.Millisecond
)

// row is a line of the table.
type row struct {
	title string
	// must is what agentd on disk must not exceed; with above, it is so much above the floor.
	must  float64
	above bool
}

// workload is what is measured of one server in one go.
type workload struct {
	name string
	rows []row
	// without are the servers for which it means nothing.
	without []kind
	// once has it measured once: it repeats what counts by itself.
	once bool
	// run returns a value for each row.
	run func(ctx context.Context, b *bench, t *target) ([]float64, error)
}

// size is how much of something is run: less in the short form.
func (b *bench) size(full, short int) int {
	if b.short {
		return short
	}
	return full
}

var histories = []int{10, 100, 400, 1000}

func workloads() []workload {
	return []workload{
		{name: "session", rows: []row{{title: "µs, one-chunk session", must: 600}}, run: runSession},
		{name: "rounds", rows: []row{{title: "µs per tool round (20 in a row)", must: 530}}, run: runRounds},
		{name: "burst", rows: []row{{title: "µs per text chunk, burst of 200", must: 6}}, run: runBurst},
		{name: "paced", rows: []row{
			{title: "µs per text chunk, one every 10 ms", must: 75},
			{title: "ms end to end, p50 of 20 paced streams", must: 2010},
			{title: "ms end to end, p95 of 20 paced streams", must: 2020},
		}, run: runPaced},
		{name: "parallel", rows: []row{
			{title: "ms, two rounds of 8 parallel 50 ms tools, 16 sessions on one core", must: 115},
		}, run: runParallel},
		{name: "latency", rows: []row{
			{title: "ms, chunk latency p99 with heartbeats and tools", must: 5},
		}, run: runLatency},
		{name: "long-rounds", rows: perHistory("µs per tool round after %d rounds", 600), run: runLongRounds},
		{name: "long-turns", rows: perHistory("µs per user turn after %d turns", 900), run: runLongTurns},
		{name: "waiting", rows: []row{{title: "KB per attached turn that waits for a tool (1,000)", must: 40}},
			without: []kind{floor}, run: runWaiting},
		{name: "start", rows: []row{
			{title: "MB resident, idle after start", must: 35}, {title: "ms until it serves, empty store", must: 60},
		}, run: runStart},
		{name: "reconnect", rows: []row{
			{title: "ms, reconnect to an open turn of 1,000 events, p50", must: 2},
			{title: "ms, reconnect to a turn of 1,000 events that is over, p50", must: 2},
		}, without: []kind{floor, adk}, run: runReconnect},
		{name: "cancel", rows: []row{
			{title: "ms, cancel to quiet, p99", must: 1},
			{title: "ms, cancel until its model call is gone, p99", must: 1},
		}, without: []kind{floor, adk}, run: runCancel},
		{name: "start-open", rows: []row{{title: "ms until it serves, 10,000 open turns", must: 1000}},
			without: []kind{floor, adk, memory, baseMemory}, once: true, run: runStartOpen},
	}
}

func perHistory(title string, above float64) []row {
	var rows []row
	for _, n := range histories {
		rows = append(rows, row{title: fmt.Sprintf(title, n), must: above, above: true})
	}
	return rows
}

// steady measures a number of sessions of one turn each, after others that warm the server up.
func (b *bench) steady(ctx context.Context, t *target, sessions, units int, s script.Script) ([]float64, error) {
	l := &load{server: t.server}
	if err := l.sessions(ctx, max(sessions/10, 2), atOnce, peer.Turn{Script: s}); err != nil {
		return nil, err
	}
	v, err := perUnit(t, sessions*units, func() error {
		return l.sessions(ctx, sessions, atOnce, peer.Turn{Script: s})
	})
	if err != nil {
		return nil, err
	}
	return []float64{v}, b.counted(ctx, l)
}

func runSession(ctx context.Context, b *bench, t *target) ([]float64, error) {
	return b.steady(ctx, t, b.size(2000, 40), 1, script.Script{Chunks: 1})
}

func runRounds(ctx context.Context, b *bench, t *target) ([]float64, error) {
	return b.steady(ctx, t, b.size(160, 8), rounds, script.Script{Chunks: 1, Rounds: rounds, Calls: 1})
}

func runBurst(ctx context.Context, b *bench, t *target) ([]float64, error) {
	return b.steady(ctx, t, b.size(800, 16), chunks, script.Script{Chunks: chunks})
}

func runPaced(ctx context.Context, b *bench, t *target) ([]float64, error) {
	const streams = 20
	turn := peer.Turn{Script: script.Script{Chunks: b.size(chunks, 20), Every: pace, Turn: 1}}
	l := &load{server: t.server}
	if err := l.sessions(ctx, atOnce, atOnce, peer.Turn{Script: script.Script{Chunks: 1}}); err != nil {
		return nil, err
	}
	took := make([]time.Duration, streams)
	cpu, err := perUnit(t, streams*turn.Chunks, func() error {
		return each(ctx, streams, streams, func(ctx context.Context, i int) error {
			began := time.Now()
			_, err := l.turn(ctx, l.server.Begin(), turn)
			took[i] = time.Since(began)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return []float64{cpu, quantile(took, 0.5), quantile(took, 0.95)}, b.counted(ctx, l)
}

func runParallel(ctx context.Context, b *bench, t *target) ([]float64, error) {
	const sessions = 16
	turn := peer.Turn{Script: script.Script{Chunks: 1, Rounds: 2, Calls: 8, Wait: 50 * time.Millisecond}}
	l := &load{server: t.server}
	var took []time.Duration
	// The first warms the server up.
	for i := range b.size(10, 1) + 1 {
		began := time.Now()
		if err := l.sessions(ctx, sessions, sessions, turn); err != nil {
			return nil, err
		}
		if i > 0 {
			took = append(took, time.Since(began))
		}
	}
	return []float64{quantile(took, 0.5)}, b.counted(ctx, l)
}

func runLatency(ctx context.Context, b *bench, t *target) ([]float64, error) {
	const streams = 20
	turn := peer.Turn{
		Script:    script.Script{Chunks: b.size(2*chunks, 20), Every: pace, Stamped: true, Turn: 1},
		Heartbeat: heartbeat,
	}
	tools := peer.Turn{
		Script:    script.Script{Chunks: 1, Rounds: rounds, Calls: 1, Wait: toolTime, Turn: 1},
		Heartbeat: heartbeat,
	}
	l := &load{server: t.server}
	if err := l.sessions(ctx, atOnce, atOnce, peer.Turn{Script: script.Script{Chunks: 1}}); err != nil {
		return nil, err
	}
	var mu sync.Mutex // protects the two below
	var late []time.Duration
	open := streams
	err := each(ctx, streams+busy, streams+busy, func(ctx context.Context, i int) error {
		if i < streams {
			own, err := l.turn(ctx, l.server.Begin(), turn)
			mu.Lock()
			defer mu.Unlock()
			late = append(late, own...)
			open--
			return err
		}
		for more := true; more; {
			if _, err := l.turn(ctx, l.server.Begin(), tools); err != nil {
				return err
			}
			mu.Lock()
			more = open > 0
			mu.Unlock()
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return []float64{quantile(late, 0.99)}, b.counted(ctx, l)
}

// runLongRounds measures the rounds of one conversation, whose turns have ten each, as it grows.
func runLongRounds(ctx context.Context, b *bench, t *target) ([]float64, error) {
	return b.long(ctx, t, func(turn int) (peer.Turn, int) {
		s := script.Script{Chunks: 1, Rounds: window, Calls: 1, Turn: turn, Past: (turn - 1) * window}
		return peer.Turn{Script: s}, window
	})
}

// runLongTurns measures the turns of one conversation, of one piece of text each.
func runLongTurns(ctx context.Context, b *bench, t *target) ([]float64, error) {
	return b.long(ctx, t, func(turn int) (peer.Turn, int) {
		return peer.Turn{Script: script.Script{Chunks: 1, Turn: turn}}, 1
	})
}

// long runs one conversation until it is longer than the longest history, and measures a window behind each.
func (b *bench) long(ctx context.Context, t *target, next func(turn int) (peer.Turn, int)) ([]float64, error) {
	l := &load{server: t.server}
	if err := l.sessions(ctx, atOnce, atOnce, peer.Turn{Script: script.Script{Chunks: 1}}); err != nil {
		return nil, err
	}
	c := l.server.Begin()
	var values []float64
	turn, length := 0, 0
	until := func(n int) error {
		for length < n {
			turn++
			t, units := next(turn)
			if _, err := l.turn(ctx, c, t); err != nil {
				return fmt.Errorf("turn %d: %w", turn, err)
			}
			length += units
		}
		return nil
	}
	for _, n := range histories {
		n = min(n, b.size(n, 20))
		if err := until(n); err != nil {
			return nil, err
		}
		// A longer one where it changes the history less, so that collections of garbage spread evenly.
		width := max(window, min(n/4, 5*window)/window*window)
		v, err := perUnit(t, width, func() error { return until(length + width) })
		if err != nil {
			return nil, err
		}
		values = append(values, v)
	}
	return values, b.counted(ctx, l)
}

func runWaiting(ctx context.Context, b *bench, t *target) ([]float64, error) {
	n := b.size(1000, 50)
	l := &load{server: t.server}
	first := script.Script{Chunks: 1, Rounds: 1, Calls: 1}
	if err := l.sessions(ctx, atOnce, atOnce, peer.Turn{Script: first}); err != nil {
		return nil, err
	}
	if err := backoff.Wait(ctx, b.settle()); err != nil {
		return nil, err
	}
	before, err := t.Resident()
	if err != nil {
		return nil, err
	}
	var after int64
	err = l.waiting(ctx, n, func() error {
		if err := backoff.Wait(ctx, b.settle()); err != nil {
			return err
		}
		if err := b.counted(ctx, l); err != nil {
			return err
		}
		after, err = t.Resident()
		return err
	})
	return []float64{float64(after-before) / 1024 / float64(n)}, err
}

func runStart(ctx context.Context, b *bench, t *target) ([]float64, error) {
	if err := backoff.Wait(ctx, b.settle()); err != nil {
		return nil, err
	}
	resident, err := t.Resident()
	return []float64{float64(resident) / 1e6, float64(t.Started.Microseconds()) / 1e3}, err
}

func (b *bench) settle() time.Duration {
	if b.short {
		return settled / 30
	}
	return settled
}

// median is the value in the middle; values is not empty.
func median(values []float64) float64 {
	values = slices.Sorted(slices.Values(values))
	return (values[(len(values)-1)/2] + values[len(values)/2]) / 2
}
