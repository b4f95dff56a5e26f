package daemon_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apzuk3/agentd/adkbridge"
	"github.com/apzuk3/agentd/agentdtest"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/models/scripted"
	"github.com/apzuk3/agentd/internal/test/testdaemon"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
	"github.com/apzuk3/agentd/session/store/sqlite"
)

var storeSeeds = flag.Int("daemon.storeseeds", 50, "how many seeds TestStoreFaults runs at each rate of faults")

var errFault = errors.New("the connection to the database was reset")

// unreliable is a store of which every call may fail, in every way that passes.
type unreliable struct {
	store.Store
	rate float64

	mu     sync.Mutex
	rng    *rand.Rand // protected by mu
	faults int        // protected by mu
	off    bool       // protected by mu
}

// draw decides about a call: what, if anything, goes wrong.
func (s *unreliable) draw() (fault int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.off || s.rng.Float64() >= s.rate {
		return -1
	}
	s.faults++
	return s.rng.IntN(5)
}

// stop has nothing go wrong any more, and returns how often it did.
func (s *unreliable) stop() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.off = true
	return s.faults
}

// write makes a call that changes the store.
func (s *unreliable) write(ctx context.Context, call func(context.Context) error) error {
	switch s.draw() {
	case 0: // not done
		return errFault
	case 1: // done, but who asked does not learn it
		return errors.Join(errFault, call(ctx))
	case 2: // lost on the way
		<-ctx.Done()
		return ctx.Err()
	case 3: // done, and its reply is lost on the way
		_ = call(ctx)
		<-ctx.Done()
		return ctx.Err()
	case 4:
		return fmt.Errorf("disk: %w", store.ErrFull)
	}
	return call(ctx)
}

func (s *unreliable) Create(ctx context.Context, n store.NewSession, key *store.Key) error {
	return s.write(ctx, func(ctx context.Context) error { return s.Store.Create(ctx, n, key) })
}

func (s *unreliable) Append(ctx context.Context, b store.Batch) error {
	return s.write(ctx, func(ctx context.Context) error { return s.Store.Append(ctx, b) })
}

func (s *unreliable) Fork(ctx context.Context, f store.Fork) error {
	return s.write(ctx, func(ctx context.Context) error { return s.Store.Fork(ctx, f) })
}

func (s *unreliable) Delete(ctx context.Context, id string, lastSeq int64) error {
	return s.write(ctx, func(ctx context.Context) error { return s.Store.Delete(ctx, id, lastSeq) })
}

func (s *unreliable) Index(ctx context.Context, b store.Batch, lastSeq int64) error {
	return s.write(ctx, func(ctx context.Context) error { return s.Store.Index(ctx, b, lastSeq) })
}

func (s *unreliable) Update(ctx context.Context, id string, c store.Change) (info store.Info, err error) {
	err = s.write(ctx, func(ctx context.Context) (err error) {
		info, err = s.Store.Update(ctx, id, c)
		return err
	})
	return info, err
}

// look makes a call that reads.
func look[T any](ctx context.Context, s *unreliable, call func() (T, error)) (T, error) {
	var none T
	switch s.draw() {
	case 0, 1:
		return none, errFault
	case 2, 3:
		<-ctx.Done()
		return none, ctx.Err()
	}
	return call()
}

func (s *unreliable) Read(ctx context.Context, id string, after int64, limit int) ([]record.Record, error) {
	return look(ctx, s, func() ([]record.Record, error) { return s.Store.Read(ctx, id, after, limit) })
}

func (s *unreliable) Info(ctx context.Context, id string) (store.Info, error) {
	return look(ctx, s, func() (store.Info, error) { return s.Store.Info(ctx, id) })
}

func (s *unreliable) Sessions(ctx context.Context, q store.InfoQuery) ([]store.Info, error) {
	return look(ctx, s, func() ([]store.Info, error) { return s.Store.Sessions(ctx, q) })
}

func (s *unreliable) Row(ctx context.Context, kind store.RowKind, sessionID, id string) (store.Row, error) {
	return look(ctx, s, func() (store.Row, error) { return s.Store.Row(ctx, kind, sessionID, id) })
}

func (s *unreliable) Rows(ctx context.Context, q store.RowQuery) ([]store.Row, error) {
	return look(ctx, s, func() ([]store.Row, error) { return s.Store.Rows(ctx, q) })
}

func (s *unreliable) Key(ctx context.Context, scope, name string) (store.Key, error) {
	return look(ctx, s, func() (store.Key, error) { return s.Store.Key(ctx, scope, name) })
}

func (s *unreliable) Shared(ctx context.Context, scope string) (map[string]json.RawMessage, error) {
	return look(ctx, s, func() (map[string]json.RawMessage, error) { return s.Store.Shared(ctx, scope) })
}

// counted counts the calls of the models that it serves.
type counted struct {
	*scripted.Provider
	calls atomic.Int64
}

func (p *counted) Open(name, key string) (model.Model, error) {
	m, err := p.Provider.Open(name, key)
	m.LLM = countedLLM{m.LLM, p}
	return m, err
}

type countedLLM struct {
	model.LLM
	p *counted
}

func (m countedLLM) Generate(ctx context.Context, req *model.Request, emit func(model.Delta)) (*model.Response, error) {
	m.p.calls.Add(1)
	return m.LLM.Generate(ctx, req, emit)
}

// survive runs the turn in which everything happens, as a client that comes back
// as long as errors say that it may retry. lost is how often it had to.
func survive(t *testing.T, dial dialer) (got []*agentdv1.RunResponse, lost int) {
	t.Helper()
	first := everything(t)
	for lost < 100 {
		c := dial.open(t, first)
		c.got = got
		last := c.rest()
		got = c.got
		switch {
		case last.GetEnd() != nil:
			return got, lost
		case !last.GetError().GetRetryable():
			t.Fatalf("the stream ended with %v", last)
		}
		lost++
		got = slices.DeleteFunc(got, isError)
		if len(got) > 0 {
			first = attach(c.session(), c.seq(), tools()...)
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("the turn does not come to its end")
	return nil, 0
}

// TestStoreFaults (F19): turns end as they do on a store that never fails,
// whatever passing faults its calls meet and whether the writes that failed were done: the
// same text, each result once, one end, no number twice or missing, no model called
// once more than needed.
func TestStoreFaults(t *testing.T) {
	for _, rate := range []float64{0, 0.01, 0.1} {
		t.Run(fmt.Sprint(rate), func(t *testing.T) {
			t.Parallel()
			seeds := uint64(*storeSeeds)
			if rate == 0 {
				seeds = 1
			}
			faults, lost := 0, 0
			for seed := range seeds {
				synctest.Test(t, func(t *testing.T) {
					f, l := storeFaults(t, rate, seed)
					faults, lost = faults+f, lost+l
				})
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
			if rate > 0 && faults == 0 {
				t.Error("nothing has ever gone wrong")
			}
			t.Logf("%d turns, %d faults, %d streams that ended before their turns", seeds, faults, lost)
		})
	}
}

func storeFaults(t *testing.T, rate float64, seed uint64) (faults, lost int) {
	memory, err := sqlite.Open(t.Context(), sqlite.Memory, sqlite.Config{})
	if err != nil {
		t.Fatal(err)
	}
	store := &unreliable{Store: memory, rate: rate, rng: rand.New(rand.NewPCG(seed, 19))}
	recorded := map[string]*scripted.Script{}
	for name, text := range scripts("1ms") {
		if recorded[name], err = scripted.Parse([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	provider, err := scripted.New(scripted.Config{Scripts: recorded})
	if err != nil {
		t.Fatal(err)
	}
	models := &counted{Provider: provider}
	d := agentdtest.Start(t, agentdtest.Config{
		Providers: []model.Provider{models},
		Logger:    slog.New(slog.DiscardHandler),
	}, testdaemon.WithStore(store))
	dial := connectDialer(d.HTTPClient(), d.URL)
	live, lost := survive(t, dial)
	faults = store.stop()
	complete(t, live)

	// What the client saw is what the log says, position for position; text that a
	// lost session took back was repeated.
	all := dial.open(t, attach(live[0].GetExecute().GetSessionId(), -1))
	all.rest()
	complete(t, all.got)
	retracted := slices.ContainsFunc(live, func(m *agentdv1.RunResponse) bool { return m.GetMessageRetracted() != nil })
	if !retracted {
		sameStory(t, live, all.got)
	}
	resumed := soundLog(t, memory, all.session())
	if calls := models.calls.Load(); calls > 4+int64(4*resumed) || resumed == 0 && calls != 4 {
		t.Errorf("%d model calls in a turn that needs 4 and was resumed %d times", calls, resumed)
	}
	return faults, lost
}

// soundLog checks what must hold for every log, and returns how often its turn was
// resumed.
func soundLog(t *testing.T, store store.Store, id string) (resumed int) {
	t.Helper()
	log, err := store.Read(t.Context(), id, 0, 10000)
	if err != nil {
		t.Fatal(err)
	}
	engine := adkbridge.New(adkbridge.Config{})
	calls, results := map[string]int{}, map[string]int{}
	modelCalls := 0
	for i, rec := range log {
		if rec.Seq != int64(i)+1 {
			t.Errorf("record %d stands at place %d", rec.Seq, i+1)
		}
		switch rec.Kind {
		case record.KindTurnResumed:
			resumed++
		case record.KindToolResult:
			var res record.ToolResult
			if err := json.Unmarshal(rec.Data, &res); err != nil {
				t.Fatal(err)
			}
			results[res.CallID]++
		case record.KindEvent:
			ev, err := engine.Decode(rec.Data)
			if err != nil {
				t.Fatal(err)
			}
			for _, call := range ev.Calls {
				calls[call.ID]++
			}
			if ev.Usage != nil {
				modelCalls++
			}
		case record.KindTurnStarted:
			if i != 0 {
				t.Errorf("a turn starts at record %d", i+1)
			}
		case record.KindTurnEnded:
			if i != len(log)-1 {
				t.Errorf("the turn ends at record %d of %d", i+1, len(log))
			}
		case record.KindAgentsChanged:
		default:
			t.Errorf("unexpected record %d: %s %s", rec.Seq, rec.Kind, rec.Data)
		}
	}
	for call, n := range calls {
		if n != 1 || results[call] != 1 {
			t.Errorf("call %s was asked %d times and has %d results", call, n, results[call])
		}
	}
	if len(calls) != 2 || len(results) != 2 || modelCalls != 4 || log[len(log)-1].Kind != record.KindTurnEnded {
		var kinds []string
		for _, rec := range log {
			kinds = append(kinds, string(rec.Kind))
		}
		t.Errorf("%d calls, %d results, %d model calls in %s", len(calls), len(results), modelCalls, strings.Join(kinds, " "))
	}
	return resumed
}
