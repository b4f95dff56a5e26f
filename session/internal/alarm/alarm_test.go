package alarm_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apzuk3/agentd/session/internal/alarm"
	"github.com/apzuk3/agentd/session/internal/lock"
)

// An alarm fires once, under the lock, and is not set then.
func TestFires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var a alarm.Alarm
		var fired, after int
		g := alarm.NewGroup(&mu, func() { after++ })
		lock.Do(&mu, func() {
			g.Set(&a, time.Hour, func() { t.Error("an alarm fired that was set again") })
			g.Set(&a, time.Minute, func() {
				if mu.TryLock() {
					t.Error("the alarm fires without the lock")
				}
				if fired++; a.IsSet() || after != 0 {
					t.Error("the alarm is set while it fires, or what comes after it came before")
				}
			})
		})
		time.Sleep(time.Minute - 1)
		lock.Do(&mu, func() {
			if fired != 0 || !a.IsSet() {
				t.Error("the alarm fired too early")
			}
		})
		time.Sleep(2 * time.Hour)
		mu.Lock()
		defer mu.Unlock()
		if fired != 1 || after != 1 {
			t.Errorf("the alarm fired %d times, %d times something followed, want 1 and 1", fired, after)
		}
	})
}

// An alarm that is stopped under the lock does not fire, although its timer has and waits for the lock.
func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var a alarm.Alarm
		g := alarm.NewGroup(&mu, func() {})
		lock.Do(&mu, func() {
			g.Set(&a, time.Minute, func() { t.Error("a stopped alarm fired") })
			time.Sleep(time.Minute) // the timer fires while the lock is held
			a.Stop()
			a.Stop()
		})
		synctest.Wait()
	})
}

// An alarm that is wanted is set once, and one that is not wanted is stopped.
func TestLacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var a alarm.Alarm
		fired := 0
		g := alarm.NewGroup(&mu, func() {})
		keep := func(wanted bool) {
			lock.Do(&mu, func() {
				if a.Lacks(wanted) {
					g.Set(&a, time.Minute, func() { fired++ })
				}
			})
		}
		keep(true)
		time.Sleep(30 * time.Second)
		keep(true) // it goes on
		time.Sleep(31 * time.Second)
		lock.Do(&mu, func() {
			if fired != 1 {
				t.Errorf("fired %d times, want 1", fired)
			}
		})
		keep(true)
		keep(false)
		time.Sleep(time.Hour)
		mu.Lock()
		defer mu.Unlock()
		if fired != 1 || a.IsSet() {
			t.Errorf("an alarm that is not wanted is set: %v; fired %d times, want 1", a.IsSet(), fired)
		}
	})
}
