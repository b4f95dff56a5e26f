package sqlite

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apzuk3/agentd/session/store"
)

// TestLargeAppendsWait: small appends overtake large ones, one that comes during a transaction
// of large ones does not wait for a second, of two transactions one takes some of the large ones, the
// oldest first, and the order within a session is kept.
func TestLargeAppendsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		s, err := openAs(t.Context(), Memory, g.option())
		if err != nil {
			t.Fatal(err)
		}
		const larges = 6 // of 300 KiB: one a transaction
		ids := []string{"held", "small"}
		for i := range larges {
			ids = append(ids, fmt.Sprint("large", i))
		}
		for _, id := range ids {
			created := make(chan error, 1)
			go func() { created <- s.Create(t.Context(), newSession(id), nil) }()
			<-g.entered
			g.pass <- struct{}{}
			if err := <-created; err != nil {
				t.Fatal(err)
			}
		}
		var order []string
		ended := make(chan string, 100)
		queue := func(b store.Batch) {
			go func() {
				if err := s.Append(t.Context(), b); err != nil {
					t.Errorf("append to %s after %d: %v", b.SessionID, b.After, err)
				}
				ended <- fmt.Sprint(b.SessionID, " ", b.After)
			}()
			synctest.Wait()
		}
		queue(batchOf("held", 0, 1, 10))
		<-g.entered
		for i := range larges {
			queue(batchOf(fmt.Sprint("large", i), 0, 1, 300<<10))
		}
		queue(batchOf("large3", 1, 1, 10)) // behind the large one of its session
		queue(batchOf("small", 0, 1, 10))
		var steps [][]string
		for len(order) < larges+4 {
			g.pass <- struct{}{}
			synctest.Wait()
			var step []string
			for len(ended) > 0 {
				step = append(step, <-ended)
			}
			slices.Sort(step)
			steps, order = append(steps, step), append(order, step...)
			if len(steps) == 3 { // a small one that comes now waits for no more than the transaction under way
				queue(batchOf("small", 1, 1, 10))
			}
			if len(order) < larges+4 {
				<-g.entered
			}
		}
		want := [][]string{
			{"held 0"}, {"large0 0", "small 0"}, {"large1 0"}, {"large2 0"},
			{"small 1"}, {"large3 0"}, {"large4 0"}, {"large3 1", "large5 0"},
		}
		if fmt.Sprint(steps) != fmt.Sprint(want) {
			t.Errorf("transactions were\n%v\nwant\n%v", steps, want)
		}
		close(g.pass)
		mustClose(t, s)
	})
}

// BenchmarkStranger (F42) has a stranger append one byte b.N times beside 100 writers of one
// byte, then beside 100 of 1 MiB, and reports the second as a multiple of the first.
func BenchmarkStranger(b *testing.B) {
	var median, longest [2]time.Duration
	for i, size := range []int{1, 1 << 20} {
		took := besideWriters(b, size)
		slices.Sort(took)
		median[i], longest[i] = took[len(took)/2], took[len(took)-1]
	}
	b.ReportMetric(float64(median[1])/float64(median[0]), "median-ratio")
	b.ReportMetric(float64(longest[1])/float64(longest[0]), "longest-ratio")
	b.ReportMetric(float64(median[1])/1e6, "median-ms")
	b.ReportMetric(float64(longest[1])/1e6, "longest-ms")
}

// besideWriters returns how long each append of a stranger took.
func besideWriters(b *testing.B, size int) (took []time.Duration) {
	b.Helper()
	s := open(b, b.TempDir())
	defer mustClose(b, s)
	ctx, stop := context.WithCancel(b.Context())
	var wg sync.WaitGroup
	for w := range 100 {
		mustCreate(b, s, sessionID(w))
		wg.Go(func() {
			for n := int64(0); ; n++ {
				err := s.Append(ctx, batchOf(sessionID(w), n, 1, size))
				if errors.Is(err, context.Canceled) {
					return
				}
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	mustCreate(b, s, "stranger")
	pause := rand.New(rand.NewPCG(1, 2)) // as between the events of a turn, so that it comes at any time of a transaction
	for n := range b.N {
		time.Sleep(time.Duration(pause.Int64N(int64(10 * time.Millisecond))))
		begun := time.Now()
		mustAppend(b, s, batchOf("stranger", int64(n), 1, 1))
		took = append(took, time.Since(begun))
	}
	stop()
	wg.Wait()
	return took
}
