package main

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/backoff"
	"github.com/apzuk3/agentd/internal/test/pgserver"
)

var (
	figuresFlag = flag.Bool("cluster.figures", false, "TestClusterFigures measures")
	paceFlag    = flag.Duration("cluster.pace", 10*time.Second, "how long a model call of the paced load takes")
	windowFlag  = flag.Duration("cluster.window", 30*time.Second, "how long each load is measured")
)

// figures is a database that writes to the disk what it acknowledges, and the environment of replicas over it.
type figures struct {
	t   *testing.T
	url string
	env map[string]string
}

func newFigures(t *testing.T, script string) *figures {
	t.Helper()
	server := pgserver.Start(t, pgserver.Options{Fsync: true,
		Settings: map[string]string{"shared_buffers": "256MB", "max_wal_size": "2GB"}})
	f := &figures{t: t, url: server.URL(t)}
	f.env = map[string]string{"AGENTD_STORE": f.url, "AGENTD_SCRIPTS": t.TempDir(), "AGENTD_SHUTDOWN_GRACE": "10s",
		"AGENTD_MAX_TURNS": "10000", "AGENTD_MAX_STREAMS": "10000", "AGENTD_LOG_LEVEL": "info"}
	if err := os.WriteFile(filepath.Join(f.env["AGENTD_SCRIPTS"], "work.yaml"), []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	return f
}

// replica starts a replica and returns the address of its metrics too.
func (f *figures) replica() (s *served, metrics string) {
	f.t.Helper()
	addr := freeAddr(f.t)
	f.env["AGENTD_ADMIN_ADDR"] = addr
	return replica(f.t, f.env), "http://" + addr + "/metrics"
}

// query returns the only value of a query.
func (f *figures) query(sql string, args ...any) (n int64) {
	f.t.Helper()
	conn, err := pgx.Connect(f.t.Context(), f.url)
	if err != nil {
		f.t.Fatal(err)
	}
	defer func() { _ = conn.Close(f.t.Context()) }()
	if err := conn.QueryRow(f.t.Context(), sql, args...).Scan(&n); err != nil {
		f.t.Fatal(sql, err)
	}
	return n
}

// TestClusterFigures prints the figures of docs/cluster.md. Replicas and the database are processes, all on one machine
// with the clients, which are this one.
func TestClusterFigures(t *testing.T) { //nolint:paralleltest // it measures
	if !*figuresFlag {
		t.Skip("make bench-cluster runs it")
	}
	for _, part := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"paced", figuresOfPaced}, {"saturated", figuresOfSaturated}, {"hop", figuresOfHop}, {"drain", figuresOfDrain},
		{"rest", figuresOfRest},
	} {
		t.Run(part.name, part.run)
	}
}

// round is a script of a turn with one tool call, whose model calls take so long.
func round(call time.Duration) string {
	return fmt.Sprintf(`answers:
  - {delay: %[1]v, when: {after_tool: a}, text: "that is all"}
  - {delay: %[1]v, when: {}, text: "I look", calls: [{name: a}]}
`, call)
}

// figuresOfPaced has each replica bring 1,000 sessions of its own, whose models set the pace: the database is what the
// replicas share.
func figuresOfPaced(t *testing.T) {
	var rates []float64
	for _, replicas := range []int{1, 3} {
		l := newWorkload(t, round(*paceFlag), replicas, 1000)
		l.spread = 2 * *paceFlag
		rates = append(rates, l.measure("paced", l.spread+2*time.Second))
	}
	fmt.Printf("figures paced: 3 replicas append %.2f times what 1 does\n", rates[1]/rates[0])
}

// figuresOfSaturated has 64 sessions do as many turns as the machine can.
func figuresOfSaturated(t *testing.T) {
	var rates []float64
	for _, replicas := range []int{1, 3} {
		rates = append(rates, newWorkload(t, round(0), replicas, 64/replicas).measure("saturated", 2*time.Second))
	}
	fmt.Printf("figures saturated: 3 replicas append %.2f times what 1 does\n", rates[1]/rates[0])
}

// workload is turns of clients at replicas.
type workload struct {
	*figures

	replicas []*served
	metrics  []string
	sessions int           // of each replica
	spread   time.Duration // within which the sessions begin
}

func newWorkload(t *testing.T, script string, replicas, sessions int) *workload {
	t.Helper()
	l := &workload{figures: newFigures(t, script), sessions: sessions}
	for range replicas {
		s, metrics := l.replica()
		l.replicas, l.metrics = append(l.replicas, s), append(l.metrics, metrics)
	}
	return l
}

// measure runs the load, prints what it does after the time warm, and returns the appends a second.
func (l *workload) measure(name string, warm time.Duration) float64 {
	ctx, stop := context.WithCancel(l.t.Context())
	defer stop()
	var clients sync.WaitGroup
	var turns, failed atomic.Int64
	for r, s := range l.replicas {
		var clnt *client.Client
		for i := range l.sessions {
			if i%100 == 0 { // sessions share connections
				clnt = client.New(s.url)
				l.t.Cleanup(clnt.CloseIdleConnections)
				err := client.AddTool(clnt, "a", "a tool", func(context.Context, struct{}) (string, error) { return "b", nil })
				if err != nil {
					l.t.Fatal(err)
				}
			}
			own := clnt
			clients.Go(func() {
				if backoff.Wait(ctx, time.Duration(rand.Int64N(int64(l.spread)+1))) != nil {
					return
				}
				for ctx.Err() == nil {
					_, err := own.Do(ctx, client.LLM("root", "scripted/work", client.Tools("a")), "go",
						client.WithSessionOrNew(fmt.Sprintf("s%d-%d", r, i)))
					if err == nil {
						turns.Add(1)
					} else if ctx.Err() == nil {
						failed.Add(1)
					}
				}
			})
		}
	}
	_ = backoff.Wait(ctx, warm)
	before, cpu, done, begun := l.appends(), readCPU(l.t), turns.Load(), time.Now()
	_ = backoff.Wait(ctx, *windowFlag)
	after, cpu, done, took := l.appends(), readCPU(l.t).minus(cpu), turns.Load()-done, time.Since(begun)
	stop()
	clients.Wait()
	n := after.count() - before.count()
	rate := n / took.Seconds()
	fmt.Printf("figures %s: replicas=%d sessions=%d: %.0f appends/s in %.0f turns/s, p50 %.1f ms, p99 %.1f ms, "+
		"%d turns failed; of %d processors replicas %.2f, database %.2f, clients %.2f; "+
		"an append takes %.2f ms of a replica and %.2f ms of the database\n",
		name, len(l.replicas), len(l.replicas)*l.sessions, rate, float64(done)/took.Seconds(),
		after.quantile(before, 0.5), after.quantile(before, 0.99), failed.Load(), runtime.NumCPU(),
		cpu.replicas/took.Seconds(), cpu.database/took.Seconds(), cpu.clients/took.Seconds(),
		cpu.replicas*1e3/n, cpu.database*1e3/n)
	for _, s := range l.replicas {
		s.signal(syscall.SIGTERM)
		s.wait()
	}
	return rate
}

// buckets are those of a histogram: how many took at most so many seconds.
type buckets map[float64]float64

func (b buckets) count() float64 { return b[math.Inf(1)] }

// quantile is interpolated, in milliseconds, of what came since before.
func (b buckets) quantile(before buckets, q float64) float64 {
	want, low, below := q*(b.count()-before.count()), 0.0, 0.0
	for _, le := range slices.Sorted(func(yield func(float64) bool) {
		for le := range b {
			if !yield(le) {
				return
			}
		}
	}) {
		n := b[le] - before[le]
		if n >= want {
			return 1e3 * (low + (le-low)*(want-below)/max(n-below, 1))
		}
		low, below = le, n
	}
	return math.NaN()
}

// appends adds up the times of appends of all replicas.
func (l *workload) appends() buckets {
	l.t.Helper()
	all := buckets{}
	for _, url := range l.metrics {
		req, err := http.NewRequestWithContext(l.t.Context(), http.MethodGet, url, nil)
		if err != nil {
			l.t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			l.t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			l.t.Fatal(err)
		}
		_ = resp.Body.Close()
		for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
			rest, is := strings.CutPrefix(lines.Text(), "agentd_store_append_duration_seconds_bucket{")
			if !is {
				continue
			}
			_, le, _ := strings.Cut(rest, `le="`)
			le, value, _ := strings.Cut(le, `"`)
			bound, err := strconv.ParseFloat(le, 64)
			n, err2 := strconv.ParseFloat(value[strings.LastIndexByte(value, ' ')+1:], 64)
			if err != nil || err2 != nil {
				l.t.Fatal(lines.Text())
			}
			all[bound] += n
		}
	}
	return all
}

// cpuTimes are seconds of processors.
type cpuTimes struct{ replicas, database, clients float64 }

func (c cpuTimes) minus(d cpuTimes) cpuTimes {
	return cpuTimes{c.replicas - d.replicas, c.database - d.database, c.clients - d.clients}
}

// readCPU returns what this process, its replicas and its databases with their children have used.
func readCPU(t *testing.T) (c cpuTimes) {
	t.Helper()
	type process struct {
		name   string
		parent int
		used   float64
	}
	all := map[int]process{}
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		open, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
		if err != nil || open < 0 || end < 0 {
			continue // it has ended
		}
		pid, _ := strconv.Atoi(strings.TrimSpace(string(text[:open])))
		fields := strings.Fields(string(text[end+1:]))
		p := process{name: string(text[open+1 : end])}
		p.parent, _ = strconv.Atoi(fields[1])
		for _, f := range fields[11:15] { // its own and its children's, of whom it has heard
			ticks, _ := strconv.ParseFloat(f, 64)
			p.used += ticks / 100
		}
		all[pid] = p
	}
	me := os.Getpid()
	for pid, p := range all {
		switch {
		case pid == me:
			var own syscall.Rusage
			if err := syscall.Getrusage(syscall.RUSAGE_SELF, &own); err != nil {
				t.Fatal(err)
			}
			c.clients += float64(own.Utime.Nano()+own.Stime.Nano()) / 1e9
		case p.parent == me && p.name == "postgres", all[p.parent].parent == me && all[p.parent].name == "postgres":
			c.database += p.used
		case p.parent == me && p.name != "sh":
			c.replicas += p.used
		}
	}
	return c
}

// figuresOfHop measures a tool round and a piece of text at the owner and through another replica, of two turns of one
// owner whose rounds take turns.
func figuresOfHop(t *testing.T) {
	const rounds, pieces = 400, 1000
	f := newFigures(t, `answers:
  - {when: {after_tool: b}, chunk_delay: 2ms, text: "`+strings.Repeat("word ", pieces)+`"}
  - {when: {call: 402}, calls: [{name: b}]}
  - {when: {}, calls: [{name: a}]}
`)
	owner, _ := f.replica()
	other, _ := f.replica()
	isCall := func(m *agentdv1.RunResponse) bool { return m.GetToolCall() != nil }
	var turns [2]*follower
	var calls [2]*agentdv1.RunResponse_ToolCallRequest
	var started [2][]*agentdv1.RunResponse
	for i, s := range []*served{owner, other} {
		turn := &follower{t: t, asked: map[string]int{}, tools: []*agentdv1.Tool{
			{Name: "a", Description: "a tool"}, {Name: "b", Description: "a tool"}}}
		turn.open(owner, agent("scripted/work", "a", "b"))
		turn.until(isCall)
		started[i] = turn.got[:1]
		turn.drop()
		turn.open(s, nil)
		turns[i], calls[i] = turn, turn.until(isCall).GetToolCall()
	}
	round := func(i int) time.Duration {
		turn, begun := turns[i], time.Now()
		turn.sendResult(calls[i])
		calls[i] = turn.until(isCall).GetToolCall()
		took := time.Since(begun)
		turn.got = turn.got[len(turn.got)-1:]
		return took
	}
	var took [2][]time.Duration
	for range rounds {
		for i := range turns {
			took[i] = append(took[i], round(i))
		}
	}
	for i, where := range []string{"at the owner", "through another replica"} {
		slices.Sort(took[i])
		fmt.Printf("figures hop: a tool round %s: p50 %.2f ms, p99 %.2f ms\n",
			where, ms(took[i][rounds/2]), ms(took[i][rounds*99/100]))
	}
	fmt.Printf("figures hop: a tool round through another replica takes %.2f ms more, p50\n",
		ms(took[1][rounds/2]-took[0][rounds/2]))
	round(1) // asks for b
	f.pieces(turns[1], calls[1], started[1], []*served{owner, owner, other})
	for _, turn := range turns {
		turn.drop()
	}
}

// pieces has the model of a turn speak, and measures how much later than by the first of its streams each piece is
// received by the others.
func (f *figures) pieces(turn *follower, call *agentdv1.RunResponse_ToolCallRequest, started []*agentdv1.RunResponse,
	at []*served) {
	heard := make([]map[int]time.Time, len(at))
	var watching sync.WaitGroup
	for i, s := range at {
		heard[i] = map[int]time.Time{}
		watch := &follower{t: f.t, asked: map[string]int{}, got: started}
		watch.open(s, nil)
		watch.flushed()
		watching.Go(func() {
			for length := 0; ; {
				m, err := watch.stream.Receive()
				if err != nil || m.GetEnd() != nil {
					watch.drop()
					return
				}
				if text := m.GetOutputChunk().GetContent(); text != "" {
					length += len(text)
					heard[i][length] = time.Now()
				}
			}
		})
	}
	turn.sendResult(call)
	turn.until(func(m *agentdv1.RunResponse) bool { return m.GetEnd() != nil })
	watching.Wait()
	for i := 1; i < len(at); i++ {
		var later []time.Duration
		for length, when := range heard[i] {
			if first, both := heard[0][length]; both {
				later = append(later, when.Sub(first))
			}
		}
		if slices.Sort(later); len(later) == 0 {
			f.t.Fatal("two streams have no piece of text in common")
		}
		fmt.Printf("figures hop: of %d pieces of text %s receives each p50 %.2f ms later than the first, p99 %.2f ms\n",
			len(later), []string{"", "a second stream at the owner", "one through another replica"}[i],
			ms(later[len(later)/2]), ms(later[len(later)*99/100]))
	}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// figuresOfDrain stops the owner of turns that wait for tools, of our clients.
func figuresOfDrain(t *testing.T) {
	const turns = 100
	f := newFigures(t, round(0))
	b := balance(t)
	owner, _ := f.replica()
	first, _ := f.replica()
	second, _ := f.replica()
	b.set(owner)
	release := make(chan struct{})
	var begun, failed atomic.Int64
	var clients sync.WaitGroup
	for range turns {
		clients.Go(func() {
			clnt := client.New(b.url)
			defer clnt.CloseIdleConnections()
			err := client.AddTool(clnt, "a", "a tool", func(context.Context, struct{}) (string, error) {
				begun.Add(1)
				<-release
				return "b", nil
			})
			if err == nil {
				_, err = clnt.Do(t.Context(), client.LLM("root", "scripted/work", client.Tools("a")), "go")
			}
			if err != nil {
				failed.Add(1)
				t.Error(err)
			}
		})
	}
	for begun.Load()+failed.Load() < turns {
		_ = backoff.Wait(t.Context(), 5*time.Millisecond)
	}
	b.set(first, second)
	conn, err := pgx.Connect(t.Context(), f.url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	var old, owns, others int64
	if err := conn.QueryRow(t.Context(), `SELECT max(owner) FROM heads`).Scan(&old); err != nil {
		t.Fatal(err)
	}
	from := time.Now()
	owner.signal(syscall.SIGTERM)
	ended := make(chan time.Duration, 1)
	go func() {
		owner.wait()
		ended <- time.Since(from)
	}()
	var left, taken time.Duration
	for end := from.Add(time.Minute); taken == 0 && time.Now().Before(end); {
		err := conn.QueryRow(t.Context(), `SELECT count(*) FILTER (WHERE owner = $1), count(*) FILTER (WHERE owner <> $1)
			FROM heads WHERE open_turn <> ''`, old).Scan(&owns, &others)
		if err != nil {
			t.Fatal(err)
		}
		if owns == 0 && left == 0 {
			left = time.Since(from)
		}
		if others == turns {
			taken = time.Since(from)
		}
		_ = backoff.Wait(t.Context(), 2*time.Millisecond)
	}
	exit := <-ended
	close(release)
	clients.Wait()
	fmt.Printf("figures drain: %d turns that wait for tools: let go of after %.2f s, all taken up after %.2f s, "+
		"the process ends after %.2f s; %d turns failed\n", turns, left.Seconds(), taken.Seconds(), exit.Seconds(), failed.Load())
}

// figuresOfRest compares what a replica and the database do with nobody there, without sessions and with many at rest.
func figuresOfRest(t *testing.T) {
	const sessions = 100_000
	f := newFigures(t, round(0))
	s, _ := f.replica()
	idle := func(what string) {
		_ = backoff.Wait(t.Context(), 5*time.Second)
		before, begun := readCPU(t), time.Now()
		_ = backoff.Wait(t.Context(), *windowFlag)
		used, took := readCPU(t).minus(before), time.Since(begun).Seconds()
		fmt.Printf("figures rest: with %s the replica uses %.2f %% of a processor, the database %.2f %%\n",
			what, 100*used.replicas/took, 100*used.database/took)
	}
	idle("no sessions")
	clnt := newClient(t, s)
	err := client.AddTool(clnt, "a", "a tool", func(context.Context, struct{}) (string, error) { return "b", nil })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := clnt.Do(t.Context(), client.LLM("root", "scripted/work", client.Tools("a")), "go"); err != nil {
		t.Fatal(err)
	}
	size := f.query(`SELECT pg_database_size(current_database())`)
	conn, err := pgx.Connect(t.Context(), f.url)
	if err != nil {
		t.Fatal(err)
	}
	rows := int64(0)
	for _, table := range []struct{ name, id, columns string }{
		{"heads", "id", "created_at, last_seq, updated_at, epoch, usage, last_turn, last_status"},
		{"sessions", "id", "created_at, creator, client_ref, metadata, agent, budget, drop_payloads"},
		{"records", "session_id", "seq, epoch, turn_id, kind, time, data"},
		{"entries", "session_id", "kind, id, turn_id, seq, created_at, status, data"},
	} {
		tag, err := conn.Exec(t.Context(), fmt.Sprintf(`INSERT INTO %[1]s (%[2]s, %[3]s) SELECT %[2]s || '-' || n, %[3]s
			FROM %[1]s, generate_series(1, %[4]d) n`, table.name, table.id, table.columns, sessions))
		if err != nil {
			t.Fatal(err)
		}
		rows += tag.RowsAffected()
	}
	if _, err := conn.Exec(t.Context(), `VACUUM ANALYZE`); err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	grown := f.query(`SELECT pg_database_size(current_database())`) - size
	fmt.Printf("figures rest: a session of one turn with a tool call is %d rows and %.1f KB with indexes\n",
		rows/sessions, float64(grown)/sessions/1000)
	idle(fmt.Sprint(sessions, " sessions at rest"))
	s.signal(syscall.SIGTERM)
	s.wait()
}
