package chaos

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apzuk3/agentd/internal/ledger"
	"github.com/apzuk3/agentd/internal/ledger/sqlledger"
	"github.com/apzuk3/agentd/internal/sealed"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
	"github.com/apzuk3/agentd/session/store/sqlite"
)

var (
	faultsFlag = flag.Int("chaos.faults", 30, "how many faults TestChaos makes")
	seedFlag   = flag.Uint64("chaos.seed", uint64(time.Now().UnixNano()), "decides the trees, the answers and the faults of this package's tests")
)

const (
	// atOnce is how many sessions run side by side, a few in a short run.
	atOnce, few = 20, 8
	// short is how many faults make a run a short one.
	short = 100
	// roundFaults is how many faults come before the database is read.
	roundFaults = 250
	// roundLimit is how long a round may take before the test gives up.
	roundLimit = 5 * time.Minute
	// veterans are the sessions of a round that go on in the next one.
	veterans = 4
	// fronts share the sessions whose turns are carried by SessionService; each has
	// one connection to the daemon.
	fronts = 4
)

// TestChaos breaks a daemon under load as often as -chaos.faults says, lets
// everything finish, and holds what happened against the promises. Every other
// session's turns are carried by SessionService, over connections that break like
// those of the clients.
func TestChaos(t *testing.T) {
	t.Parallel()
	seed := *seedFlag
	t.Logf("-chaos.seed %d", seed)
	s := newStorm(t, seed, build(t))
	s.rage(int64(*faultsFlag))
	s.report()
}

// rage has rounds until there have been enough faults.
func (s *storm) rage(faults int64) {
	s.most = faults
	for s.total() < faults {
		s.round(min(faults, s.total()+roundFaults))
		s.t.Logf("after %d faults: lost=%d repeated=%d rerun=%d, %d facts checked", s.total(), s.verdict.lost, s.verdict.repeated, s.verdict.rerun, s.verdict.facts)
		if s.t.Failed() {
			break
		}
	}
	s.epilogue()
}

// storm is a run of TestChaos.
type storm struct {
	t      *testing.T
	seed   uint64
	most   int64 // faults that are to come
	w      *world
	fleet  *fleet // several daemons over one database; nil: there is one
	daemon *process
	told   *watched      // what the daemon tells of itself; nil if there are several
	keys   sealed.Config // what the database is encrypted with; zero for not
	rng    *rand.Rand    // of the faults; owned by the goroutine that makes them

	made                        atomic.Int64 // sessions
	kills, stops, deaths        atomic.Int64
	truncated, refused, resets  atomic.Int64 // of provider answers
	mu                          sync.Mutex   // protects the fields below
	armed                       []string     // faults of the provider that are due
	live                        map[*talk]bool
	ready                       []time.Duration // from a kill to the next daemon's readiness
	verdict                     verdict
	turns, failed, calls, tools int
	streams                     int
	goals                       map[string]int // that have ended, by reason
	fronted                     int            // sessions whose turns were carried by SessionService
	caught                      []time.Duration
	old                         []*talk // go on in the next round
	sealed                      map[string]seal
	audited                     int // sessions of which the audit trail says who has started turns
}

// seal is what a session's log began with.
type seal struct {
	records int
	hash    uint64
}

func newStorm(t *testing.T, seed uint64, binary string) *storm {
	p := newProvider(t, true)
	s := emptyStorm(t, seed)
	// So large that nothing is refused: what is reserved and spent is counted all the same.
	s.told = newWatched(t)
	env := append(s.told.env(), "AGENTD_TENANT_DAY_BUDGET=tokens=1000000000000")
	master := ""
	if seed%2 == 1 {
		s.keys.KeysFile, master = newMasterKey(t)
		env = append(env, "AGENTD_ENCRYPTION_KEYS="+s.keys.KeysFile)
	}
	s.daemon = newDaemon(t, binary, p.url, env...)
	s.w = &world{t: t, url: s.daemon.url(), key: s.daemon.createKey(), lines: &lines{open: map[*line]bool{}}, provider: p, slow: true}
	s.told.keys = func() []string { return []string{s.w.key, master} }
	for range fronts {
		s.w.fronts = append(s.w.fronts, inFront(t, s.w.url, s.w.lines, nil))
	}
	p.fault = s.providerFault
	return s
}

func emptyStorm(t *testing.T, seed uint64) *storm {
	return &storm{t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 0)), live: map[*talk]bool{}, sealed: map[string]seal{}, goals: map[string]int{}}
}

// total counts the faults; where there are several daemons, those of them, their database and their links.
func (s *storm) total() int64 {
	if s.fleet != nil {
		return s.fleet.made.Load()
	}
	return s.kills.Load() + s.stops.Load() + s.deaths.Load() + s.w.lines.cuts.Load() + s.truncated.Load() + s.refused.Load() + s.resets.Load()
}

// providerFault takes a fault that is due.
func (s *storm) providerFault() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.armed) == 0 {
		return ""
	}
	f := s.armed[0]
	s.armed = s.armed[1:]
	switch f {
	case faultStatus:
		s.refused.Add(1)
	case faultCut:
		s.truncated.Add(1)
	case faultReset:
		s.resets.Add(1)
	}
	return f
}

// round makes faults until there have been enough, has everything finish, and
// checks it.
func (s *storm) round(until int64) {
	ctx, cancel := context.WithTimeout(s.t.Context(), roundLimit)
	defer cancel()
	s.begin()
	watching, watched := context.WithCancel(ctx)
	defer watched()
	var calm atomic.Bool
	var workers, scraper sync.WaitGroup
	if s.told != nil {
		scraper.Go(func() { s.told.scrape(watching) })
	}
	var mu sync.Mutex // protects done
	var done []*talk
	old := s.old
	s.old = nil
	sessions := atOnce
	if s.most < short {
		sessions = few
	}
	for i := range sessions {
		workers.Go(func() {
			for n := 0; ctx.Err() == nil && (n == 0 || !calm.Load()); n++ {
				var talk *talk
				if i < len(old) && n == 0 {
					talk = old[i]
				} else {
					talk = s.newTalk()
				}
				s.converse(ctx, talk, calm.Load)
				mu.Lock()
				done = append(done, talk)
				mu.Unlock()
			}
		})
	}
	for s.total() < until && ctx.Err() == nil {
		s.strike(ctx)
	}
	s.mu.Lock()
	s.armed = nil
	s.mu.Unlock()
	calm.Store(true)
	s.heal(ctx)
	workers.Wait()
	for _, talk := range done {
		workers.Go(func() { talk.newWatcher("auditor", false).watch(ctx) })
	}
	workers.Wait()
	watched()
	scraper.Wait()
	s.end()
	s.examine(done)
}

// begin has the daemons run.
func (s *storm) begin() {
	if s.fleet != nil {
		s.fleet.begin()
		return
	}
	s.told.calm.Store(false)
	s.daemon.start()
}

// heal ends what still goes on of faults.
func (s *storm) heal(ctx context.Context) {
	if s.fleet != nil {
		s.fleet.heal(ctx)
		return
	}
	s.told.calm.Store(true)
}

// end has the daemons end.
func (s *storm) end() {
	if s.fleet != nil {
		s.fleet.end()
		return
	}
	s.daemon.stop()
}

// newTalk is called by the workers.
func (s *storm) newTalk() *talk {
	seed := s.seed + uint64(s.made.Add(1)) // its own randomness, whoever makes it
	rng := rand.New(rand.NewPCG(seed, 1))
	journal := ""
	if rng.IntN(2) == 0 {
		journal = filepath.Join(s.t.TempDir(), "journal")
	}
	talk := s.w.newTalk(randomShape(rng), seed, journal)
	for i := range rng.IntN(3) {
		talk.newWatcher(fmt.Sprint("watcher ", i), rng.IntN(3) > 0)
	}
	return talk
}

// converse has a session's turns, with its watchers.
func (s *storm) converse(ctx context.Context, talk *talk, calm func() bool) {
	s.mu.Lock()
	s.live[talk] = true
	s.mu.Unlock()
	var watchers sync.WaitGroup
	talk.reopen()
	for _, w := range talk.watchers {
		watchers.Go(func() { w.watch(ctx) })
	}
	talk.drive(ctx, calm)
	s.mu.Lock()
	delete(s.live, talk)
	s.mu.Unlock()
	watchers.Wait()
}

// strike makes one fault, or prepares one that strikes when there is an occasion.
func (s *storm) strike(ctx context.Context) {
	rest(ctx, time.Duration(s.rng.IntN(120))*time.Millisecond)
	switch n := s.rng.IntN(100); {
	case n < 36 && s.fleet != nil:
		s.fleet.strike(ctx, s.rng)
	case s.fleet != nil && s.rng.IntN(4) > 0: // what follows leaves few turns whole
	case n < 30:
		s.kill(ctx)
	case n < 36:
		s.daemon.stop()
		s.stops.Add(1)
		s.daemon.start()
	case n < 66:
		s.w.lines.cut()
	case n < 88:
		s.mu.Lock()
		if len(s.armed) < 3 {
			s.armed = append(s.armed, []string{faultStatus, faultCut, faultCut, faultReset}[s.rng.IntN(4)])
		}
		s.mu.Unlock()
	default:
		s.mu.Lock()
		victims := make([]*talk, 0, len(s.live))
		for talk := range s.live {
			victims = append(victims, talk)
		}
		s.mu.Unlock()
		for _, talk := range victims { // in no order
			if talk.die() {
				s.deaths.Add(1)
				break
			}
		}
	}
}

// kill kills the daemon, sometimes its successor too before that is ready, and
// waits for one that is.
func (s *storm) kill(ctx context.Context) {
	s.daemon.kill()
	s.kills.Add(1)
	for s.rng.IntN(4) == 0 {
		s.daemon.spawn()
		rest(ctx, time.Duration(s.rng.IntN(100))*time.Millisecond)
		s.daemon.kill()
		s.kills.Add(1)
	}
	took := s.daemon.start()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready = append(s.ready, took)
}

// examine reads the database and checks every session of the round.
func (s *storm) examine(talks []*talk) {
	file, store := s.database()
	defer func() {
		if err := file.Close(); err != nil {
			s.t.Error(err)
		}
	}()
	complaints := func() []string { return slices.Concat(s.fleet.complaints(), s.fleet.epochs(file)) }
	if s.fleet == nil {
		complaints = s.daemon.complaints
	}
	s.told.check(func(id string) []record.Record { return s.records(store, id) })
	known := map[string]bool{}
	for i, talk := range talks {
		if talk.id == "" {
			s.w.provider.forget(talk.number)
			continue
		}
		known[talk.id] = true
		records := s.records(store, talk.id)
		s.verdict.add(talk.evidence(records).check())
		s.sealed[talk.id] = sealOf(records)
		s.count(talk, records)
		if i >= len(talks)-veterans {
			s.old = append(s.old, talk)
			continue
		}
		s.w.provider.forget(talk.number)
	}
	s.open(store, known)
	for _, text := range slices.Concat(s.w.takeProblems(), s.w.provider.takeProblems(), complaints(), s.told.takeProblems()) {
		s.verdict.otherf("%s", text)
	}
	s.show()
}

// open finds turns without an end that are of no session of the round: only a
// session whose first answer was lost may have one, because nobody knows of it.
func (s *storm) open(store store.Store, known map[string]bool) {
	after := ""
	for {
		heads, err := store.OpenTurns(s.t.Context(), after, 100)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, h := range heads {
			after = h.ID
			if _, sealed := s.sealed[h.ID]; sealed && !known[h.ID] {
				s.verdict.lostf("session %s has an open turn again", h.ID)
			}
		}
		if len(heads) < 100 {
			return
		}
	}
}

func (s *storm) records(db store.Store, id string) []record.Record {
	var out []record.Record
	for {
		page, err := db.Read(s.t.Context(), id, int64(len(out)), 500)
		if errors.Is(err, store.ErrNoSession) {
			return nil
		}
		if err != nil {
			s.t.Fatal(err)
		}
		out = append(out, page...)
		if store.LastPage(page, 500) {
			return out
		}
	}
}

func (s *storm) count(talk *talk, records []record.Record) {
	from := talk.counted
	if from == 0 && talk.url != s.w.url {
		s.fronted++
	}
	for _, rec := range records[from:] {
		switch rec.Kind {
		case record.KindTurnEnded:
			s.turns++
		case record.KindToolResult:
			s.tools++
		default:
		}
	}
	for _, d := range talk.outcome[talk.judged:] {
		if d.result == failed {
			s.failed++
		}
	}
	recorders := []*recorder{&talk.recorder}
	for _, w := range talk.watchers {
		recorders = append(recorders, &w.recorder)
	}
	for _, r := range recorders {
		s.streams += r.streams
		s.caught = append(s.caught, r.caught...)
		r.streams, r.caught = 0, nil
	}
	calls := 0
	for _, as := range s.w.provider.of(talk.number) {
		calls += len(as)
	}
	s.calls += calls - talk.asked
	if p := talk.pursuit; p != nil {
		for _, g := range p.ended[p.counted:] {
			s.goals[strings.ToLower(strings.TrimPrefix(g.GetReason().String(), "GOAL_REASON_"))]++
		}
		p.counted = len(p.ended)
	}
	talk.counted, talk.judged, talk.asked = len(records), len(talk.outcome), calls
}

func sealOf(records []record.Record) seal {
	h := fnv.New64a()
	for _, rec := range records {
		_, _ = fmt.Fprintf(h, "%d %s %s %v %s\n", rec.Seq, rec.TurnID, rec.Kind, rec.Time, rec.Data)
	}
	return seal{records: len(records), hash: h.Sum64()}
}

// epilogue reads all sessions once more: what was written stays as it is.
func (s *storm) epilogue() {
	file, store := s.database()
	for id, was := range s.sealed {
		if records := s.records(store, id); len(records) < was.records || sealOf(records[:was.records]) != was {
			s.verdict.lostf("session %s: the first %d of its records are not what they were", id, was.records)
		}
	}
	s.accounts(file)
	s.trail(file)
	if err := file.Close(); err != nil {
		s.t.Error(err)
	}
	if s.fleet == nil {
		s.readable()
	}
}

// database is what is read of one that no daemon has open.
type database interface {
	store.Store
	sqlledger.DB
}

// database opens the database of the daemon, which is down, and what decrypts it.
func (s *storm) database() (database, store.Store) {
	if s.fleet != nil {
		db := s.fleet.database()
		return db, db
	}
	file, err := sqlite.Open(s.t.Context(), filepath.Join(s.daemon.dir, "agentd.db"), sqlite.Config{})
	if err != nil {
		s.t.Fatal(err)
	}
	ring, err := sealed.OpenReadOnly(s.t.Context(), file, s.keys)
	if err != nil {
		s.t.Fatal(err)
	}
	if ring == nil {
		return file, file
	}
	return file, sealed.New(file, ring)
}

// newMasterKey returns a key to encrypt databases with, and a file that holds it.
func newMasterKey(t *testing.T) (file, key string) {
	line, err := sealed.NewKey("chaos")
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(file, []byte(line+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file, strings.TrimPrefix(line, "chaos ")
}

// readable looks for what models have said in the file of the database: it is there, unless it is encrypted.
func (s *storm) readable() {
	data, err := os.ReadFile(filepath.Join(s.daemon.dir, "agentd.db"))
	if err != nil {
		s.t.Fatal(err)
	}
	said := stepMark.Find(data)
	if encrypted := s.keys.KeysFile != ""; (said == nil) != encrypted {
		s.verdict.otherf("encrypted: %v, and the database has %q", encrypted, said)
	}
}

// trail reads the audit trail: it says who has started turns, in the order of time, as far as no kill took its end.
func (s *storm) trail(db sqlledger.DB) {
	started, last := map[string]bool{}, int64(0)
	for {
		page, err := sqlledger.New(db).Entries(s.t.Context(), ledger.EntryQuery{AllTenants: true, After: last, Limit: 500})
		if err != nil {
			s.t.Fatal(err)
		}
		for i := range page {
			e := &page[i]
			if e.Seq <= last || e.Action == "" || e.Outcome == "" || e.Time.IsZero() || e.Principal == "" {
				s.verdict.otherf("after entry %d the audit trail has %+v", last, e)
			}
			last = e.Seq
			if e.Outcome == "ok" && e.Turn != "" {
				started[e.Session] = true
			}
		}
		if len(page) < 500 {
			break
		}
	}
	s.audited = len(started)
	if s.audited == 0 || last == 0 {
		s.verdict.otherf("the audit trail has %d entries, of %d sessions", last, s.audited)
	}
}

// accounts compares what was spent with the usage of all sessions.
func (s *storm) accounts(db store.Store) {
	var used int64
	for q := (store.InfoQuery{Limit: 500}); ; {
		page, err := db.Sessions(s.t.Context(), q)
		if err != nil {
			s.t.Fatal(err)
		}
		for i := range page {
			used += page[i].Usage.Total
			q.After = &page[i]
		}
		if len(page) < q.Limit {
			break
		}
	}
	spent, err := db.Spent(s.t.Context(), "", 0, 1<<40)
	if err != nil {
		s.t.Fatal(err)
	}
	if used == 0 || spent.Tokens != used {
		s.verdict.otherf("%d tokens were spent, the sessions have used %d", spent.Tokens, used)
	}
}

// show prints what was found, as it is found.
func (s *storm) show() {
	for _, text := range s.verdict.texts {
		s.t.Error(text)
	}
	s.verdict.texts = nil
}

func (s *storm) report() {
	s.show()
	v := s.verdict
	s.t.Logf("%d sessions, %d of them over SessionService, %d turns, %d of them failed with their provider, %d model calls, %d tool results, %d streams",
		len(s.sealed), s.fronted, s.turns, s.failed, s.calls, s.tools, s.streams)
	s.t.Logf("%d kills, %d restarts, %d connections cut (%d of them behind a front), %d clients killed, provider: %d answers truncated, %d reset, %d refused",
		s.kills.Load(), s.stops.Load(), s.w.lines.cuts.Load(), s.w.lines.far.Load(), s.deaths.Load(), s.truncated.Load(), s.resets.Load(), s.refused.Load())
	s.t.Logf("ready after a kill: p50 %v, p99 %v; caught up after a reconnect: p50 %v, p99 %v; %d facts checked, %d other faults found",
		percentile(s.ready, 50), percentile(s.ready, 99), percentile(s.caught, 50), percentile(s.caught, 99), v.facts, v.other)
	s.t.Logf("goals: %v", s.goals)
	if len(s.goals) == 0 && s.total() >= short {
		s.t.Error("no goal has ended")
	}
	s.t.Logf("%v; encrypted: %v; the audit trail has turns of %d sessions", s.told, s.keys.KeysFile != "", s.audited)
	if s.told != nil {
		for _, text := range s.told.whole(*faultsFlag >= short) {
			s.t.Error(text)
		}
	}
	if s.fleet != nil {
		s.t.Logf("%v", s.fleet)
	}
	if s.fronted == 0 || s.fronted == len(s.sealed) {
		s.t.Errorf("%d of %d sessions were driven over SessionService, want some over either service", s.fronted, len(s.sealed))
	}
	kind := ""
	if s.fleet != nil {
		kind = "cluster "
	}
	fmt.Printf("%sfaults=%d lost=%d repeated=%d rerun=%d\n", kind, s.total(), v.lost, v.repeated, v.rerun)
	if v.bad() {
		s.t.Fail()
	}
}

func percentile(of []time.Duration, p int) time.Duration {
	if len(of) == 0 {
		return 0
	}
	slices.Sort(of)
	return of[min(len(of)-1, len(of)*p/100)].Round(100 * time.Microsecond)
}
