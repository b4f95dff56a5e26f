package cluster

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/apzuk3/agentd/internal/share"
	"github.com/apzuk3/agentd/internal/test/pgserver"
)

// placed is a member that counts the turns of tenants.
type placed struct {
	*member
	places *share.Places
	used   int
	// meanwhile, if not nil, is called while the desk sets a share.
	meanwhile func()
}

// Place implements share.Desk.
func (p *placed) Place(ctx context.Context, ask share.PlaceAsk) (share.PlaceShare, error) {
	if p.meanwhile != nil {
		p.meanwhile()
	}
	return p.member.Place(ctx, ask)
}

// tend does what share.Keep does.
func (p *placed) tend(t rapid.TB) {
	t.Helper()
	wanted, err := p.WantedPlaces(context.Background())
	if err == nil {
		err = p.places.Tend(context.Background(), wanted)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestPlaceProperty: what servers take never exceeds the bound together, in every order of takes, returns and deaths; and
// none of it is lost.
func TestPlaceProperty(t *testing.T) {
	t.Parallel()
	d := newDB(t, pgserver.URL(t))
	join := func(name string) *placed {
		p := &placed{member: d.join(name, "")}
		p.places = share.NewPlaces(share.Turns, p)
		return p
	}
	now, cancel := context.WithCancel(t.Context())
	cancel() // no Take waits for others
	take := func(t rapid.TB, p *placed, bound int) {
		took, err := p.places.Take(now, "acme", bound)
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if took {
			p.used++
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		bound := rapid.IntRange(1, 60).Draw(rt, "bound")
		all := []*placed{join("a"), join("b"), join("c")}
		defer func() {
			for _, p := range all {
				if err := p.Leave(t.Context()); err != nil {
					rt.Error(err)
				}
			}
		}()
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			i := rapid.IntRange(0, len(all)-1).Draw(rt, "member")
			p := all[i]
			switch rapid.SampledFrom([]string{"take", "take", "take", "leave", "leave", "tend", "die"}).Draw(rt, "step") {
			case "take":
				for range rapid.IntRange(1, 30).Draw(rt, "times") {
					take(rt, p, bound)
				}
			case "leave":
				for range rapid.IntRange(0, p.used).Draw(rt, "times") {
					p.places.Leave("acme")
					p.used--
				}
			case "tend":
				more := rapid.IntRange(0, 5).Draw(rt, "meanwhile")
				p.meanwhile = func() {
					for ; more > 0; more-- {
						take(rt, p, bound)
					}
				}
				for range rapid.IntRange(1, 7).Draw(rt, "times") {
					p.tend(rt)
				}
				p.meanwhile = nil
			case "die":
				if err := p.Leave(t.Context()); err != nil {
					rt.Fatal(err)
				}
				all[i] = join("n")
			}
			var used, shares int
			for _, p := range all {
				used += p.used
			}
			if err := d.pool.QueryRow(t.Context(),
				`SELECT coalesce(sum(amount), 0) FROM tenant_shares`).Scan(&shares); err != nil {
				rt.Fatal(err)
			}
			if used > shares || shares > bound {
				rt.Fatalf("%d places are taken, of shares of %d, of a bound of %d", used, shares, bound)
			}
		}
		for _, p := range all {
			for ; p.used > 0; p.used-- {
				p.places.Leave("acme")
			}
		}
		for range 7 {
			for _, p := range all {
				p.tend(rt)
			}
		}
		for n := range bound {
			if took, err := all[0].places.Take(now, "acme", bound); !took || err != nil {
				rt.Fatalf("%d places of %d are taken, and there is no other one: %v", n, bound, err)
			}
		}
	})
}

// TestPlacesAreGivenBack: who finds no place gets one that another server does not use, and what is held in any case
// counts.
func TestPlacesAreGivenBack(t *testing.T) {
	t.Parallel()
	d := newDB(t, pgserver.URL(t))
	a, b := d.join("a", ""), d.join("b", "")
	ofA, ofB := share.NewPlaces(share.Streams, a), share.NewPlaces(share.Streams, b)
	take := func(p *share.Places, want bool) {
		t.Helper()
		if took, err := p.Take(t.Context(), "acme", 2); took != want || err != nil {
			t.Errorf("took %v, want %v: %v", took, want, err)
		}
	}
	var kept sync.WaitGroup
	defer kept.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for m, p := range map[*member]*share.Places{a: ofA, b: ofB} {
		kept.Go(func() { share.Keep(ctx, m, func(err error) { t.Error(err) }, p) })
	}
	take(ofA, true)
	take(ofA, true)
	take(ofB, false)
	ofA.Leave("acme")
	ofA.Leave("acme") // the share stays for now
	await(t, "place of another server", func() bool {
		took, err := ofB.Take(t.Context(), "acme", 2)
		if err != nil {
			t.Fatal(err)
		}
		return took
	})
	ofB.Hold("acme")
	ofB.Hold("acme")
	await(t, "row of what is held", func() bool {
		var n int
		if err := d.pool.QueryRow(t.Context(), `SELECT coalesce(sum(amount), 0) FROM tenant_shares WHERE kind = 'streams'
			AND replica = $1`, b.ID()).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n == 3
	})
	take(ofA, false)
}

// away is a desk that may not be reached.
type away struct {
	share.Desk
	is bool
}

var errAway = errors.New("the desk is away")

func (a *away) Place(ctx context.Context, ask share.PlaceAsk) (share.PlaceShare, error) {
	if a.is {
		return share.PlaceShare{}, errAway
	}
	return a.Desk.Place(ctx, ask)
}

func (a *away) Requests(ctx context.Context, ask share.RequestsAsk) (share.RequestsLease, error) {
	if a.is {
		return share.RequestsLease{}, errAway
	}
	return a.Desk.Requests(ctx, ask)
}

// TestSharesWithoutDatabase: what a server has it uses while the database is away, and then says so.
func TestSharesWithoutDatabase(t *testing.T) {
	t.Parallel()
	d := newDB(t, pgserver.URL(t))
	desk := &away{Desk: d.join("a", "")}
	places := share.NewPlaces(share.Turns, desk)
	take := func() (bool, error) { return places.Take(t.Context(), "acme", 100) }
	if took, err := take(); !took || err != nil {
		t.Fatal(took, err)
	}
	desk.is = true
	var more int
	for {
		took, err := take()
		if !took {
			if !errors.Is(err, errAway) {
				t.Errorf("a place that nobody can tell of: %v", err)
			}
			break
		}
		more++
	}
	if more != 8 {
		t.Errorf("%d more turns without the database", more)
	}
	places.Leave("acme")
	if took, err := take(); !took || err != nil {
		t.Error("a place that was left:", took, err)
	}
	places.LostAll()
	if took, err := take(); took || !errors.Is(err, errAway) {
		t.Error("a share that was lost:", took, err)
	}
	if _, err := share.NewPace(desk).Take(t.Context(), "acme", 10); !errors.Is(err, errAway) {
		t.Error("a request that nobody can tell of:", err)
	}
	desk.is = false
	await(t, "place", func() bool { took, _ := take(); return took })
}

// TestRequestsProperty: leases within any time are at most what a bucket of two seconds gives, and nobody gets none while
// it has one.
func TestRequestsProperty(t *testing.T) {
	t.Parallel()
	d := newDB(t, pgserver.URL(t))
	m := d.join("a", "")
	rapid.Check(t, func(rt *rapid.T) {
		rate := rapid.IntRange(1, 1000).Draw(rt, "rate")
		if _, err := d.pool.Exec(t.Context(), `DELETE FROM tenant_requests`); err != nil {
			rt.Fatal(err)
		}
		full := 2 * float64(rate)
		least := full // is there if no time has passed but what the test says
		type lease struct {
			at      time.Time // before it was asked for
			passed  float64   // what the test has passed until then
			granted int
		}
		var leases []lease
		var passed float64
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			if rapid.Bool().Draw(rt, "passes") {
				s := rapid.Float64Range(-0.5, 3).Draw(rt, "seconds")
				if _, err := d.pool.Exec(t.Context(), `UPDATE tenant_requests SET at = at - $1 * interval '1 second'`, s); err != nil {
					rt.Fatal(err)
				}
				if s > 0 {
					passed += s
				}
				least = min(least+max(s, -0.5)*float64(rate), full)
			}
			want := rapid.IntRange(1, rate).Draw(rt, "want")
			at := time.Now()
			got, err := m.Requests(t.Context(), share.RequestsAsk{Tenant: "acme", PerSecond: rate, Want: want})
			if err != nil {
				rt.Fatal(err)
			}
			leases = append(leases, lease{at, passed, got.Granted})
			var granted int
			for _, l := range slices.Backward(leases) {
				granted += l.granted
				most := full + float64(rate)*(passed-l.passed+time.Since(l.at).Seconds())
				if float64(granted) > most+0.001 {
					rt.Fatalf("%d requests are leased, of %v", granted, most)
				}
			}
			if should := min(float64(want), math.Ceil(math.Floor(least-0.001)/2)); least >= 1 && float64(got.Granted) < should {
				rt.Fatalf("%d requests are leased of %v, want %v", got.Granted, least, should)
			}
			least -= float64(got.Granted)
			least = max(least, 0)
			if got.Granted == 0 && (got.Wait <= 0 || got.Wait > time.Second) {
				rt.Fatalf("there is a request in %v, of %d a second", got.Wait, rate)
			}
		}
	})
	if err := m.Forget(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestPaceOfMembers: callers at several servers make no more requests than the bound says.
func TestPaceOfMembers(t *testing.T) {
	t.Parallel()
	const rate, servers, callers = 40, 3, 4
	d := newDB(t, pgserver.URL(t))
	var mu sync.Mutex // protects admitted
	var admitted int
	began := time.Now()
	var wg sync.WaitGroup
	for range servers {
		pace := share.NewPace(d.join("a", ""))
		for range callers {
			wg.Go(func() {
				for time.Since(began) < 4*time.Second {
					wait, err := pace.Take(t.Context(), "acme", rate)
					if err != nil {
						t.Error(err)
						return
					}
					if wait == 0 {
						mu.Lock()
						admitted++
						mu.Unlock()
						continue
					}
					time.Sleep(min(wait, 50*time.Millisecond)) // as a caller does
				}
			})
		}
	}
	wg.Wait()
	most := rate * (time.Since(began).Seconds() + 3)
	t.Logf("%d requests, of at most %.0f", admitted, most)
	if float64(admitted) > most || admitted < 2*rate {
		t.Errorf("%d requests, of at most %.0f", admitted, most)
	}
}
