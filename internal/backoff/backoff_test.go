package backoff_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apzuk3/agentd/internal/backoff"
)

func TestBound(t *testing.T) {
	t.Parallel()
	for n, want := range []time.Duration{50, 100, 200, 400, 500, 500} {
		if got := backoff.Bound(50, 500, n); got != want {
			t.Errorf("Bound(50, 500, %d) is %d, want %d", n, got, want)
		}
	}
	for _, n := range []int{61, 62, 63, 64, 1 << 30} {
		if got := backoff.Bound(time.Millisecond, time.Hour, n); got != time.Hour {
			t.Errorf("Bound(1ms, 1h, %d) is %v, want 1h", n, got)
		}
	}
	if got := backoff.Bound(2*time.Second, time.Second, 0); got != time.Second {
		t.Errorf("Bound(2s, 1s, 0) is %v, want 1s", got)
	}
}

func TestJitter(t *testing.T) {
	t.Parallel()
	const base, limit = time.Second, 10 * time.Second
	for n := range 8 {
		most := backoff.Bound(base, limit, n)
		for range 1000 {
			if got := backoff.Full(base, limit, n); got < 0 || got >= most {
				t.Fatalf("Full(1s, 10s, %d) is %v, want at least 0 and below %v", n, got, most)
			}
			if got := backoff.Half(base, limit, n); got < most/2 || got >= most {
				t.Fatalf("Half(1s, 10s, %d) is %v, want at least %v and below %v", n, got, most/2, most)
			}
		}
	}
	if got := backoff.Full(0, 0, 3); got != 0 {
		t.Errorf("Full(0, 0, 3) is %v, want 0", got)
	}
	if got := backoff.Half(0, 0, 3); got != 0 {
		t.Errorf("Half(0, 0, 3) is %v, want 0", got)
	}
}

func TestWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		begin := time.Now()
		if err := backoff.Wait(ctx, 2*time.Second); err != nil || time.Since(begin) != 2*time.Second {
			t.Errorf("%v after %v, want nil after 2s", err, time.Since(begin))
		}
		if err := backoff.Wait(ctx, 2*time.Second); !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != 3*time.Second {
			t.Errorf("%v after %v, want the deadline after 3s", err, time.Since(begin))
		}
		if err := backoff.Wait(ctx, 0); err == nil || backoff.Wait(t.Context(), -1) != nil {
			t.Errorf("a wait for nothing: %v", err)
		}
	})
}
