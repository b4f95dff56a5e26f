package chaos

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/apzuk3/agentd/internal/test/link"
	"github.com/apzuk3/agentd/internal/test/natsserver"
	"github.com/apzuk3/agentd/internal/test/pgserver"
	"github.com/apzuk3/agentd/session/store/postgres"
)

var (
	clusterFaultsFlag = flag.Int("chaos.clusterfaults", 0, "how many faults TestCluster makes; 0: it does not run")
	traceFlag         = flag.Bool("chaos.trace", false, "TestCluster says when it makes which fault")
	ttlFlag           = flag.Duration("chaos.ttl", 3*time.Second, "after what time the replicas of TestCluster take one for dead")
)

const (
	// replicas run at the same time; one more comes and goes.
	replicas = 3
	// troubles go on at the same time at most.
	troubles = 3
	// endLimit is how long a replica may take to end that was asked to.
	endLimit = 30 * time.Second
)

// TestCluster breaks several daemons over one database, the database and each link between them, under load: see
// fleet.strike. A client has a way to any of them, and knows nothing of owners.
func TestCluster(t *testing.T) {
	t.Parallel()
	if *clusterFaultsFlag == 0 {
		t.Skip("make chaos-cluster runs it")
	}
	t.Logf("-chaos.seed %d -chaos.ttl %v", *seedFlag, *ttlFlag)
	s := newClusterStorm(t, *seedFlag, build(t))
	s.rage(int64(*clusterFaultsFlag))
	s.report()
}

func newClusterStorm(t *testing.T, seed uint64, binary string) *storm {
	p := newProvider(t, true)
	s := emptyStorm(t, seed)
	s.fleet = newFleet(t, binary, p.url, *ttlFlag)
	s.w = &world{
		t: t, url: "http://localhost:80", key: s.fleet.nodes[0].createKey(), lines: &lines{open: map[*line]bool{}},
		provider: p, slow: true, shared: s.fleet.shared, route: s.fleet.route,
	}
	for range fronts {
		s.w.fronts = append(s.w.fronts, inFront(t, s.w.url, s.w.lines, s.fleet.route()))
	}
	p.fault = s.providerFault
	return s
}

// fleet is daemons that share a database, and the links between all of them.
type fleet struct {
	t      *testing.T
	pg     *pgserver.Server
	nats   *natsserver.Server
	url    string // of the database, by no link
	nodes  []*node
	shared *shared
	made   atomic.Int64
	epoch  atomic.Int64

	// The fields below are owned by the goroutine that makes faults.
	pgTrouble bool
	noNATS    bool
	pending   []ending
	counts    map[string]int
	found     []string
}

// ending ends a trouble when its time has come.
type ending struct {
	at time.Time
	f  func()
}

// node is one daemon, and the links to and from it.
type node struct {
	*process
	database, others, clients, bus *link.Link

	state   nodeState
	trouble bool
	over    chan struct{} // closed when the process has ended
	asked   time.Time     // to end
	back    time.Time     // when another process is to start
}

type nodeState int

const (
	nodeDown nodeState = iota
	nodeUp
	nodeEnding
)

// foreseen are errors in the log of a replica that are no faults of it. One that starts without a database ends; one that
// has none cannot say what calls of a canceled turn have come to, which whoever resumes it does.
var foreseen = []string{
	"cannot reach the database", "took this one for dead", "an entry of the audit trail is not written", "an erasure has failed; it is tried again",
	"agentd: postgres: ", "agentd: cluster: ", "agentd: daemon: ", // of a start
	"history of a stopped turn is incomplete",
}

func newFleet(t *testing.T, binary, provider string, ttl time.Duration) *fleet {
	f := &fleet{
		t: t, pg: pgserver.Start(t, pgserver.Options{}), nats: natsserver.Start(t, nil),
		shared: &shared{spells: map[int][]spell{}}, counts: map[string]int{},
	}
	f.url = f.pg.URL(t)
	for range replicas + 1 {
		n := &node{database: link.New(t, f.pg.Addr()), bus: link.New(t, f.nats.Addr())}
		at, err := url.Parse(f.url)
		if err != nil {
			t.Fatal(err)
		}
		at.Host = n.database.Addr()
		n.process = newDaemon(t, binary, provider, "AGENTD_STORE="+at.String(),
			"AGENTD_REPLICA_SECRET=a secret of replicas, of a test alone", "AGENTD_REPLICA_TTL="+ttl.String(),
			"AGENTD_BUS=nats://"+n.bus.Addr(), "AGENTD_LOG_LEVEL=info", // it says how far a stop is
			// So large that nothing is refused: what is reserved and spent is counted all the same.
			"AGENTD_TENANT_DAY_BUDGET=tokens=1000000000000")
		n.env = slices.DeleteFunc(n.env, func(v string) bool { return strings.HasPrefix(v, "AGENTD_DATA=") })
		n.others, n.clients = link.New(t, n.addr), link.New(t, n.addr)
		n.env = append(n.env, "AGENTD_ADVERTISE=http://"+n.others.Addr())
		n.next = func() int { return int(f.epoch.Add(1)) }
		n.expected = foreseen
		f.nodes = append(f.nodes, n)
	}
	return f
}

// route returns a way to the replicas for one client: always to the same, or to any.
func (f *fleet) route() func() string {
	home := rand.IntN(replicas)
	if rand.IntN(2) == 0 {
		return f.nodes[home].clients.Addr
	}
	return func() string { return f.nodes[rand.IntN(len(f.nodes))].clients.Addr() }
}

// run starts the process of a node.
func (f *fleet) run(n *node) {
	if n.over != nil {
		<-n.over
	}
	n.spawn()
	n.state, n.over = nodeUp, make(chan struct{})
	go func() { // ends with the process
		defer close(n.over)
		n.read.Wait()
	}()
}

// begin has the replicas run.
func (f *fleet) begin() {
	f.t.Helper()
	for _, n := range f.nodes[:replicas] {
		f.run(n)
	}
	for _, n := range f.nodes[:replicas] {
		if err := n.ready(); err != nil {
			f.t.Fatalf("a replica is not ready: %v: %v", err, n.complaints())
		}
	}
}

// tend ends troubles whose time has come, and starts what has ended. now may be a time to come, whose troubles end then.
func (f *fleet) tend(now time.Time) {
	clock := time.Now()
	f.pending = slices.DeleteFunc(f.pending, func(e ending) bool {
		if e.at.After(now) {
			return false
		}
		e.f()
		return true
	})
	for _, n := range f.nodes {
		ended := false
		select {
		case <-n.over:
			ended = n.state != nodeDown
		default:
		}
		switch {
		case ended:
			state := n.await()
			if status, _ := state.Sys().(syscall.WaitStatus); n.state == nodeEnding && !state.Success() &&
				status.Signal() != syscall.SIGTERM && !strings.HasPrefix(n.lastLine(), "agentd: ") { // it had just begun
				f.found = append(f.found, fmt.Sprintf("a replica that was asked to end did so with %v", state))
			}
			if n.state == nodeUp {
				f.counts["started in vain"]++
				if last := n.lastLine(); !strings.HasPrefix(last, "agentd: ") {
					f.found = append(f.found, fmt.Sprintf("a replica ended by itself with %v: %s", state, last))
				}
			}
			if n.state == nodeUp || n.back.IsZero() {
				n.back = now.Add(time.Second)
			}
			n.state = nodeDown
		case n.state == nodeEnding && (n.trouble || f.pgTrouble):
			n.asked = clock
		case n.state == nodeEnding && clock.Sub(n.asked) > endLimit:
			f.found = append(f.found, fmt.Sprintf("a replica has not ended %v after it was asked to; at %s its log ends with\n%s",
				endLimit, clock.UTC().Format(time.RFC3339Nano), n.lately()))
			_ = n.cmd.Process.Signal(syscall.SIGQUIT) // its goroutines are in the log then
			n.asked = clock
		case n.state == nodeDown && !n.back.IsZero() && !n.back.After(now) && !f.pgTrouble:
			n.back = time.Time{}
			f.run(n)
		}
	}
}

// later has a trouble end within a time.
func (f *fleet) later(rng *rand.Rand, most time.Duration, end func()) {
	if rng.IntN(2) == 0 {
		most /= 8
	}
	wait := time.Duration(rng.Int64N(int64(most)))
	f.pending = append(f.pending, ending{time.Now().Add(wait), end})
}

// strike makes one fault, unless there are enough.
func (f *fleet) strike(ctx context.Context, rng *rand.Rand) {
	f.tend(time.Now())
	if len(f.pending) >= troubles {
		return
	}
	var what string
	victim := f.nodes[rng.IntN(len(f.nodes))]
	switch n := rng.IntN(100); {
	case n < 30:
		what = f.strikeNode(rng, victim)
	case n < 80:
		what = f.strikeLink(rng, victim)
	case n < 87:
		what = f.strikeNATS(rng)
	default:
		what = f.strikeDatabase(ctx, rng)
	}
	if what != "" {
		if *traceFlag {
			f.t.Logf("%s %s", time.Now().Format("15:04:05.000"), what)
		}
		f.counts[what]++
		f.made.Add(1)
	}
}

// longest is how long a trouble goes on at most: so long that some are taken for dead.
func longest() time.Duration { return *ttlFlag * 5 / 2 }

// strikeNode kills a replica, stops it for a while, or has it end; or adds one.
func (f *fleet) strikeNode(rng *rand.Rand, n *node) string {
	switch k := rng.IntN(10); {
	case n.trouble:
		return ""
	case n.state == nodeDown:
		if !n.back.IsZero() {
			return ""
		}
		n.back = time.Now()
		return "added"
	case k < 4:
		n.kill()
		n.state, n.back = nodeDown, time.Now().Add(time.Duration(rng.IntN(2)*rng.IntN(5000))*time.Millisecond)
		return "killed"
	case k < 7:
		ended := f.shared.began(n.epoch)
		p := n.cmd.Process
		if err := p.Signal(syscall.SIGSTOP); err != nil {
			f.found = append(f.found, err.Error())
		}
		n.trouble = true
		f.later(rng, longest(), func() {
			_ = p.Signal(syscall.SIGCONT)
			ended()
			n.trouble = false
		})
		return "stopped"
	case n.state == nodeUp:
		if err := n.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			f.found = append(f.found, err.Error())
		}
		n.state, n.asked, n.back = nodeEnding, time.Now(), time.Now().Add(time.Duration(rng.IntN(4000))*time.Millisecond)
		return "drained"
	}
	return ""
}

// strikeLink breaks a link of a replica, or has it lose or delay what is sent.
func (f *fleet) strikeLink(rng *rand.Rand, n *node) string {
	if n.trouble || n.state == nodeDown {
		return ""
	}
	k := rng.IntN(4)
	l, name := []*link.Link{n.database, n.others, n.clients, n.bus}[k], []string{"database", "replicas", "clients", "bus"}[k]
	ended := func() {}
	if k == 0 {
		ended = f.shared.began(n.epoch)
	}
	var how string
	switch rng.IntN(4) {
	case 0:
		l.Break()
		ended()
		return "link to " + name + " broken"
	case 1:
		l.Cut()
		how = "cut"
	case 2:
		l.Hold()
		how = "held"
	default:
		l.Slow(time.Duration(1+rng.IntN(80)) * time.Millisecond)
		how = "slow"
	}
	n.trouble = true
	f.later(rng, longest(), func() {
		l.Heal()
		ended()
		n.trouble = false
	})
	return "link to " + name + " " + how
}

// strikeNATS kills NATS for a while.
func (f *fleet) strikeNATS(rng *rand.Rand) string {
	if f.noNATS {
		return ""
	}
	f.nats.Kill()
	f.noNATS = true
	f.later(rng, longest(), func() {
		f.nats.Restart()
		f.noNATS = false
	})
	return "NATS killed"
}

// strikeDatabase ends PostgreSQL, or stops it for a while.
func (f *fleet) strikeDatabase(_ context.Context, rng *rand.Rand) string {
	if f.pgTrouble {
		return ""
	}
	var epochs []int
	for _, n := range f.nodes {
		epochs = append(epochs, n.epoch)
	}
	ended := f.shared.began(epochs...)
	f.pgTrouble = true
	end := f.pg.Restart
	what := "database restarted"
	switch rng.IntN(4) {
	case 0:
		f.pg.Stop()
	case 1:
		f.pg.Kill()
	default:
		f.pg.Freeze()
		end, what = f.pg.Thaw, "database frozen"
	}
	f.later(rng, longest(), func() {
		end()
		ended()
		f.pgTrouble = false
	})
	return what
}

// heal ends all troubles, and has as many replicas run as there are at the beginning.
func (f *fleet) heal(ctx context.Context) {
	f.tend(time.Now().Add(time.Hour))
	for f.lacking() && rest(ctx, 20*time.Millisecond) {
		f.tend(time.Now().Add(time.Hour))
	}
	for _, n := range f.nodes {
		if n.state == nodeUp && ctx.Err() == nil {
			if err := n.ready(); err != nil {
				f.found = append(f.found, fmt.Sprintf("all is well and a replica is not ready: %v", err))
			}
		}
	}
}

func (f *fleet) lacking() bool {
	for i, n := range f.nodes {
		if n.state == nodeEnding || i < replicas && n.state != nodeUp {
			return true
		}
	}
	return false
}

// end has all replicas end.
func (f *fleet) end() {
	for _, n := range f.nodes {
		if n.state == nodeUp {
			if err := n.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				f.t.Error(err)
			}
		}
	}
	for _, n := range f.nodes {
		n.back = time.Time{}
		if n.state == nodeDown {
			continue
		}
		if state := n.await(); !state.Success() {
			f.t.Errorf("a replica ended with %v: %v", state, n.complaints())
		}
		n.state = nodeDown
	}
}

// complaints are what no replica should have said, and what should not have happened.
func (f *fleet) complaints() []string {
	out := f.found
	f.found = nil
	for i, n := range f.nodes {
		for _, line := range n.complaints() {
			out = append(out, fmt.Sprintf("replica %d: %s", i, line))
		}
	}
	return out
}

// database opens the database once the server has noticed that all connections of replicas have ended.
func (f *fleet) database() *postgres.Store {
	db, err := postgres.Open(f.t.Context(), f.url, postgres.Config{Alone: true, AloneWait: 30 * time.Second})
	if err != nil {
		f.t.Fatal(err)
	}
	return db
}

// epochs finds logs in which the epoch falls, or is above that of the session.
func (f *fleet) epochs(db database) (wrong []string) {
	rows, err := db.(*postgres.Store).Pool().Query(f.t.Context(), `SELECT session_id, seq, epoch, before, head FROM (
		SELECT r.session_id, r.seq, r.epoch, h.epoch AS head,
			lag(r.epoch) OVER (PARTITION BY r.session_id ORDER BY r.seq) AS before
		FROM records r JOIN heads h ON h.id = r.session_id) AS l WHERE epoch < before OR epoch > head LIMIT 20`)
	if err != nil {
		f.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		var seq, epoch, before, head int64
		if err := rows.Scan(&id, &seq, &epoch, &before, &head); err != nil {
			f.t.Fatal(err)
		}
		wrong = append(wrong, fmt.Sprintf("session %s: record %d has epoch %d, the one before %d, the session %d", id, seq, epoch, before, head))
	}
	if rows.Err() != nil {
		f.t.Fatal(rows.Err())
	}
	return wrong
}

// String says what was done.
func (f *fleet) String() string {
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(f.counts)) {
		parts = append(parts, fmt.Sprintf("%s %d", what, f.counts[what]))
	}
	f.shared.mu.Lock()
	defer f.shared.mu.Unlock()
	return fmt.Sprintf("%s; %d processes; %d calls made again by replicas that were cut off or stopped, or just back",
		strings.Join(parts, ", "), f.epoch.Load(), f.shared.blind)
}
