package backlog

import (
	"errors"
	"slices"
	"testing"
)

// TestBacklog: items come in order; beyond a bound all are dropped, until the reader has caught up.
func TestBacklog(t *testing.T) {
	b := New[int](make(chan struct{}, 1), nil)
	push := func(item int) bool { return b.Push(item, 10, 3, 25) }
	take := func(wantLags bool, want ...int) {
		t.Helper()
		items, lags, err := b.Take()
		if !slices.Equal(items, want) || lags != wantLags || err != nil {
			t.Errorf("took %v, lags %v, %v; want %v, %v", items, lags, err, want, wantLags)
		}
	}
	if push(1) {
		t.Error("a reader that lags begins to lag")
	}
	take(true)
	b.CaughtUp()
	push(2)
	push(3)
	if items, lags := b.Len(); items != 2 || lags {
		t.Errorf("%d items, lags %v; want 2 of a reader that does not lag", items, lags)
	}
	for item, want := range map[int]bool{3: true, 4: false} {
		if bytes, has, lags := b.Size(func(i int) bool { return i == item }); bytes != 20 || has != want || lags {
			t.Errorf("%d bytes, has %d: %v, lags %v; want 20 bytes, %v, of a reader that does not lag", bytes, item, has, lags, want)
		}
	}
	take(false, 2, 3)
	b.Push(4, 100, 3, 25) // the only one: it has to go somewhere
	take(false, 4)
	push(5)
	push(6)
	if !push(7) || !b.Lags() {
		t.Error("more bytes than may be are kept")
	}
	take(true)
	b.CaughtUp()
	for range 3 {
		b.Push(8, 1, 3, 25)
	}
	if !b.Push(9, 1, 3, 25) {
		t.Error("more items than may be are kept")
	}
	b.CaughtUp()
	push(10)
	b.Lag()
	take(true)
	<-b.Ready()
	b.Fail(errors.New("over"))
	<-b.Ready()
	if _, _, err := b.Take(); err == nil {
		t.Error("no failure")
	}
	b.CaughtUp()
	b.Close()
	push(11)
	select {
	case <-b.Ready():
		t.Error("a closed backlog signals")
	default:
	}
	if n, _ := b.Len(); n != 0 {
		t.Error("a closed backlog keeps an item")
	}
}
