package sealed

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
	"github.com/apzuk3/agentd/session/store/sqlite"
)

// BenchmarkAppend appends a record and a row by turns to a clear and to a sealed store, on disk and in memory. "ratio" is
// how much longer the sealed one takes.
func BenchmarkAppend(b *testing.B) {
	for _, on := range []string{"disk", "memory"} {
		for _, size := range []int{1 << 10, 64 << 10} {
			b.Run(fmt.Sprintf("%s/%dKiB", on, size>>10), func(b *testing.B) { benchAppend(b, on, size) })
		}
	}
}

func benchAppend(b *testing.B, on string, size int) {
	open := func() *sqlite.Store {
		if on == "disk" {
			return openInner(b, b.TempDir(), sqlite.Config{})
		}
		s, err := sqlite.Open(b.Context(), sqlite.Memory, sqlite.Config{})
		if err != nil {
			b.Fatal(err)
		}
		return s
	}
	plain, inner := open(), open()
	stores := []store.Store{plain, New(inner, openRing(b, inner, keys(b, "a")))}
	data := bytes.Repeat([]byte{'x'}, size)
	for _, s := range stores {
		if err := s.Create(b.Context(), store.NewSession{ID: "s", CreatedAt: at}, nil); err != nil {
			b.Fatal(err)
		}
	}
	var took [2]time.Duration
	seq := int64(0)
	for b.Loop() {
		seq++
		batch := store.Batch{
			SessionID: "s", After: seq - 1,
			Records: []record.Record{{Seq: seq, TurnID: "t", Kind: record.KindEvent, Time: at, Data: data}},
			Rows: []store.Row{{
				Kind: store.RowTurn, SessionID: "s", ID: "t", TurnID: "t", Seq: 1, CreatedAt: at, Status: "over", Data: data[:512],
			}},
		}
		for i, s := range stores {
			begun := time.Now()
			if err := s.Append(b.Context(), batch); err != nil {
				b.Fatal(err)
			}
			took[i] += time.Since(begun)
		}
	}
	b.ReportMetric(float64(took[1])/float64(took[0]), "ratio")
	b.ReportMetric(float64(took[0].Microseconds())/float64(seq), "clear-µs/op")
	b.ReportMetric(float64(took[1].Microseconds())/float64(seq), "sealed-µs/op")
	for _, s := range stores {
		closed(b, s)
	}
}

// BenchmarkSeal seals and opens a value, without a store.
func BenchmarkSeal(b *testing.B) {
	key, err := newDataKey(1, make([]byte, keyBytes))
	if err != nil {
		b.Fatal(err)
	}
	data, at := make([]byte, 1<<10), place("record\x00", "session", "turn", "event")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := key.aead.Open(nil, nil, key.seal(at, data)[headBytes:], at); err != nil {
			b.Fatal(err)
		}
	}
}
