package storetest

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// Benchmark measures an empty store, so that the figures of two stores stand beside each other: appends of 1 KiB, and
// appends that create a session, with a key, by 1, 8 and 64 goroutines each with a session of its own; and a log of
// 5,000 records that is read in pages. It reports an operation's time at the 50th and the 99th of 100, and how many
// there are a second. The sessions that it makes stay.
func (Harness) Benchmark(b *testing.B, s store.Store) {
	for _, n := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("append/sessions=%d", n), func(b *testing.B) {
			run := fmt.Sprint("append", time.Now().UnixNano())
			id := func(g int) string { return fmt.Sprint(run, "-", g) }
			for g := range n {
				create(b, s, id(g))
			}
			timed(b, n, func(g, i int) error {
				return s.Append(b.Context(), batch(id(g), kibibyte(int64(i)+1)))
			})
		})
	}
	for _, n := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("create/sessions=%d", n), func(b *testing.B) {
			run := fmt.Sprint("acme/create", time.Now().UnixNano())
			timed(b, n, func(g, i int) error {
				made := creating(fresh(fmt.Sprint(run, "-", g, "-", i)))
				made.Records = []record.Record{kibibyte(1)}
				made.Key = &store.Key{Scope: "bench", Name: made.SessionID, SessionID: made.SessionID}
				return s.Append(b.Context(), made)
			})
		})
	}
	b.Run("read", func(b *testing.B) { benchmarkRead(b, s) })
}

func benchmarkRead(b *testing.B, s store.Store) {
	const records, page = 5000, 512
	id := fmt.Sprint("read", time.Now().UnixNano())
	create(b, s, id)
	for after := int64(0); after < records; after += 100 {
		var recs []record.Record
		for seq := after + 1; seq <= after+100; seq++ {
			recs = append(recs, kibibyte(seq))
		}
		if err := s.Append(b.Context(), batch(id, recs...)); err != nil {
			b.Fatal(err)
		}
	}
	timed(b, 1, func(int, int) error {
		for after := int64(0); after < records; {
			recs, err := s.Read(b.Context(), id, after, page)
			if err != nil || len(recs) == 0 {
				return fmt.Errorf("%d records after %d: %w", len(recs), after, err)
			}
			after += int64(len(recs))
		}
		return nil
	})
}

// kibibyte returns a record of 1 KiB.
func kibibyte(seq int64) record.Record {
	data := bytes.Repeat([]byte{'x'}, 1024)
	return record.Record{Seq: seq, TurnID: "turn", Kind: record.KindEvent, Time: epoch, Data: data}
}

// timed calls do b.N times by some goroutines, with the number of the goroutine and of its call.
func timed(b *testing.B, goroutines int, do func(g, i int) error) {
	b.Helper()
	took := make([][]time.Duration, goroutines)
	b.ResetTimer()
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for i := range (b.N + goroutines - 1 - g) / goroutines {
				begun := time.Now()
				if err := do(g, i); err != nil {
					b.Error(err)
					return
				}
				took[g] = append(took[g], time.Since(begun))
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	all := slices.Sorted(slices.Values(slices.Concat(took...)))
	if len(all) == 0 {
		return
	}
	b.ReportMetric(float64(len(all))/b.Elapsed().Seconds(), "op/s")
	b.ReportMetric(float64(all[len(all)/2].Microseconds())/1e3, "p50-ms")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1e3, "p99-ms")
}
