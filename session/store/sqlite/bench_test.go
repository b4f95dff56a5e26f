package sqlite

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
	"github.com/apzuk3/agentd/session/store/storetest"
)

const benchData = 1024 // bytes a record

// BenchmarkAppend appends records of 1 KiB, each goroutine to a session of its
// own. Beside the time of one append it reports the raw speed of the disk (a
// write of as many bytes and an fsync) and the ratio of both: below 1, one fsync
// serves several appends. bulk/op is how many records one append of many
// writes in the time of one of these appends: 1 is as fast as SQLite is.
func BenchmarkAppend(b *testing.B) {
	for _, writers := range []int{1, 16, 64, 128} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			dir := b.TempDir()
			raw := rawSync(b, dir)
			s := open(b, dir)
			defer mustClose(b, s)
			bulk := bulkAppend(b, s)
			data := bytes.Repeat([]byte{'x'}, benchData)
			for w := range writers {
				if err := s.Create(b.Context(), newSession(sessionID(w)), nil); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			b.ResetTimer()
			var wg sync.WaitGroup
			for w := range writers {
				wg.Go(func() {
					for i := range (b.N + writers - 1 - w) / writers {
						rec := record.Record{Seq: int64(i) + 1, TurnID: "turn", Kind: record.KindEvent, Time: time.Now(), Data: data}
						err := s.Append(b.Context(), store.Batch{SessionID: sessionID(w), After: int64(i), Records: []record.Record{rec}})
						if err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			each := float64(b.Elapsed()) / float64(b.N)
			b.ReportMetric(float64(raw), "ns/fsync")
			b.ReportMetric(each/float64(raw), "fsyncs/op")
			b.ReportMetric(each/float64(bulk), "bulk/op")
		})
	}
}

// BenchmarkStore measures what that of package postgres does.
func BenchmarkStore(b *testing.B) {
	s := open(b, b.TempDir())
	defer mustClose(b, s)
	storetest.Harness{}.Benchmark(b, s)
}

// bulkAppend returns the mean time of a record of 1 KiB of which one append has 500.
func bulkAppend(b *testing.B, s *Store) time.Duration {
	b.Helper()
	const times, records = 10, 500
	if err := s.Create(b.Context(), newSession("bulk"), nil); err != nil {
		b.Fatal(err)
	}
	start := time.Now()
	for i := range int64(times) {
		if err := s.Append(b.Context(), batchOf("bulk", i*records, records, benchData)); err != nil {
			b.Fatal(err)
		}
	}
	return time.Since(start) / (times * records)
}

// BenchmarkAppendMany appends so many records of 1 KiB at once, to a database in memory.
func BenchmarkAppendMany(b *testing.B) {
	for _, n := range []int64{1, 2, 3, 4, 8, 16} {
		b.Run(fmt.Sprintf("records=%d", n), func(b *testing.B) {
			s, err := openAs(b.Context(), Memory)
			if err != nil {
				b.Fatal(err)
			}
			defer mustClose(b, s)
			mustCreate(b, s, "a")
			for seq := int64(0); b.Loop(); seq += n {
				mustAppend(b, s, batchOf("a", seq, int(n), benchData))
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(int64(b.N)*n), "ns/record")
		})
	}
}

// BenchmarkAppendRow appends records of 1 KiB without a row, with one that is
// written over the last one, and with a new one, turn and turn about. Beside the
// time of the three it reports the ratios to the first.
func BenchmarkAppendRow(b *testing.B) {
	const chunk = 20 // appends of a writer before the next kind has its turn
	for _, writers := range []int{1, 16, 128} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			s := open(b, b.TempDir())
			defer mustClose(b, s)
			for w := range writers {
				if err := s.Create(b.Context(), newSession(sessionID(w)), nil); err != nil {
					b.Fatal(err)
				}
			}
			var took [3]time.Duration
			seq := int64(0)
			b.ResetTimer()
			for range (b.N + chunk*writers - 1) / (chunk * writers) {
				for kind := range took {
					begun := time.Now()
					var wg sync.WaitGroup
					for w := range writers {
						wg.Go(func() {
							for i := range int64(chunk) {
								if err := s.Append(b.Context(), rowBatch(sessionID(w), seq+i, kind)); err != nil {
									b.Error(err)
									return
								}
							}
						})
					}
					wg.Wait()
					took[kind] += time.Since(begun)
					seq += chunk
				}
			}
			b.StopTimer()
			b.ReportMetric(float64(took[1])/float64(took[0]), "same-row/none")
			b.ReportMetric(float64(took[2])/float64(took[0]), "new-row/none")
		})
	}
}

// rowBatch returns an append of one record without a row, with the session's row
// in another status, or with a row of its own.
func rowBatch(id string, after int64, kind int) store.Batch {
	b := batchOf(id, after, 1, benchData)
	b.Usage, b.LastTurn, b.LastStatus = record.Usage{Prompt: after, Total: after, Calls: 1}, "turn", "TURN_STATUS_RUNNING"
	if kind > 0 {
		row := store.Row{Kind: store.RowTurn, SessionID: id, ID: id, TurnID: id, Seq: 1, CreatedAt: start, Data: make([]byte, 512)}
		row.Status = []string{"TURN_STATUS_RUNNING", "TURN_STATUS_WAITING_FOR_CLIENT"}[after%2]
		if kind == 2 {
			row.ID, row.Seq, row.CreatedAt = fmt.Sprint(id, after), after+1, start.Add(time.Duration(after)*time.Second)
		}
		b.Rows = []store.Row{row}
	}
	return b
}

// rawSync returns the mean time of appending a record's bytes to a file and
// fsyncing it.
func rawSync(b *testing.B, dir string) time.Duration {
	b.Helper()
	const times = 500
	f, err := os.Create(filepath.Join(dir, "raw"))
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := f.Close(); err != nil {
			b.Error(err)
		}
	}()
	data := make([]byte, benchData)
	start := time.Now()
	for range times {
		if _, err := f.Write(data); err != nil {
			b.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			b.Fatal(err)
		}
	}
	return time.Since(start) / times
}

// BenchmarkRead reads pages of 100 records of 1 KiB of a log that was written
// turn and turn about with others.
func BenchmarkRead(b *testing.B) {
	const sessions, total, page = 20, 1000, 100
	s := open(b, b.TempDir())
	defer mustClose(b, s)
	for n := range sessions {
		if err := s.Create(b.Context(), newSession(sessionID(n)), nil); err != nil {
			b.Fatal(err)
		}
	}
	data := bytes.Repeat([]byte{'x'}, benchData)
	for i := range total {
		for n := range sessions {
			rec := record.Record{Seq: int64(i) + 1, TurnID: "turn", Kind: record.KindEvent, Time: time.Now(), Data: data}
			err := s.Append(b.Context(), store.Batch{SessionID: sessionID(n), After: int64(i), Records: []record.Record{rec}})
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for after := int64(0); pb.Next(); after = (after + page) % total {
			recs, err := s.Read(b.Context(), sessionID(7), after, page)
			if err != nil || len(recs) != page {
				b.Errorf("%d records, %v", len(recs), err)
				return
			}
		}
	})
}

// BenchmarkOpenMemory opens and closes a store in memory, as many tests do.
func BenchmarkOpenMemory(b *testing.B) {
	for b.Loop() {
		s, err := openAs(b.Context(), Memory)
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

func sessionID(n int) string { return fmt.Sprintf("0198c3a0-0000-7000-8000-%012d", n) }
