package chaos

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/apzuk3/agentd/internal/test/sessionfront"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store/sqlite"
)

// killStride is the stride of TestKillPoints by itself; make chaos kills at each record.
const killStride = 25

var strideFlag = flag.Int("chaos.stride", killStride,
	"TestKillPoints kills at each stride-th record, before or after it; 1 is at all, before and after")

// pointLimit is how long one session with one kill may take before the test
// gives up.
const pointLimit = 60 * time.Second

// TestKillPoints kills the daemon before and after each record of the log of each
// of twelve trees, in a process and on a file of its own: what the next daemon and
// the client make of it is what they would have come to without. Every other
// client's turns are carried by SessionService; what came to its end over Run
// undisturbed is what they are held against. By itself it kills at some thirty of
// more than seven hundred places, others in each run; make kills, which CI runs, at a
// third of them, and make chaos at all.
func TestKillPoints(t *testing.T) { //nolint:tparallel // the group of its subtests ends before their sum is checked
	t.Parallel()
	p := newProvider(t, false)
	var mu sync.Mutex // protects the fields below
	var ready []time.Duration
	kills, missed, facts := 0, 0, 0
	t.Run("shapes", func(t *testing.T) {
		for number, sh := range shapes() {
			t.Run(strings.ReplaceAll(sh.name, " ", "_"), func(t *testing.T) {
				t.Parallel()
				whole := (&point{p: p, shape: sh, number: number}).run(t)
				whole.does(t)
				for n := range whole.records { // as forks have them
					whole.verified(t, whole.records[:n+1])
				}
				sessions := number%2 == 1
				for i := range 2 * (len(whole.records) + 1) {
					if (i+number+int(*seedFlag%uint64(*strideFlag)))%*strideFlag != 0 {
						continue
					}
					sessions = !sessions
					at := fmt.Sprintf("%s:%d", []string{"before", "after"}[i%2], i/2)
					got := (&point{p: p, shape: sh, number: number, at: at, sessions: sessions}).run(t)
					if diff := cmp.Diff(whole.story, got.story); diff != "" {
						t.Errorf("killed %s (by SessionService: %v), it is not the same (-undisturbed +killed):\n%s", at, sessions, diff)
					}
					mu.Lock()
					ready = append(ready, got.ready)
					kills++
					if got.unreached {
						missed++
					}
					facts += got.facts
					mu.Unlock()
					if t.Failed() {
						return // what is wrong at one record is so at many
					}
				}
			})
		}
	})
	t.Logf("%d kills at records of the log, %d of them past its end, %d facts checked, ready after a kill: p50 %v, p99 %v", kills, missed, facts, percentile(ready, 50), percentile(ready, 99))
	if missed > max(kills/20, 2) { // of few, two may be by chance
		t.Errorf("%d of %d records were not reached", missed, kills)
	}
	for _, text := range p.takeProblems() {
		t.Error(text)
	}
}

// point is one session whose daemon is killed at a record.
type point struct {
	p      *provider
	shape  shape
	number int
	at     string // see crashAt; "" is never
	// sessions is that SessionService carries the turns.
	sessions bool
}

// told is what became of it.
type told struct {
	evidence
	story []string // what the log says, without what may differ
	ready time.Duration
	facts int
	// unreached is that the log ended before the record was written at which the
	// daemon was to be killed, as agents that start at once are told in one record or in
	// two. It was killed after the turns then.
	unreached bool
}

// inFront serves Run by means of the SessionService of a daemon, to which it has a
// phone of its own, and returns its address.
func inFront(t *testing.T, daemon string, l *lines, route func() string) string {
	t.Helper()
	phone := l.phone(route)
	phone.far = true
	hc := phone.client()
	f, err := sessionfront.New(hc, daemon)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	s := &http.Server{Handler: f.Handler(), Protocols: protocols}
	served := make(chan error, 1)
	go func() { served <- s.Serve(listener) }()
	t.Cleanup(func() {
		_ = s.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
		hc.CloseIdleConnections()
	})
	return "http://" + listener.Addr().String()
}

func (p *point) run(t *testing.T) (out told) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), pointLimit)
	defer cancel()
	d := newDaemon(t, os.Args[0], p.p.url, asDaemon+"=1")
	w := &world{t: t, url: d.url(), lines: &lines{open: map[*line]bool{}}, provider: p.p}
	if p.sessions {
		w.daemon, w.url = w.url, inFront(t, w.url, w.lines, nil)
	}
	d.start(crashAt + "=" + p.at)
	journal := filepath.Join(t.TempDir(), "journal")
	var talk *talk
	var driver sync.WaitGroup
	driver.Go(func() {
		for known := false; !known && ctx.Err() == nil; {
			talk = w.newTalk(p.shape, 1, journal)
			known = talk.drive(ctx, func() bool { return false })
		}
	})
	var unreached atomic.Bool // the turns have ended, and the daemon lives
	if p.at != "" {
		abandon := d.abandon()
		unwatch := context.AfterFunc(ctx, abandon)
		go func() { // until the driver ends, at pointLimit at the latest
			driver.Wait()
			unreached.Store(ctx.Err() == nil)
			abandon()
		}()
		state := d.await()
		unwatch()
		out.unreached = unreached.Load()
		if status, ok := state.Sys().(syscall.WaitStatus); !ok || !status.Signaled() || ctx.Err() != nil {
			t.Fatalf("killed %s: the daemon ended with %v: %v", p.at, state, d.complaints())
		}
		out.ready = d.start()
	}
	driver.Wait()
	if talk.id == "" {
		t.Fatalf("killed %s: no session: %v", p.at, w.takeProblems())
	}
	talk.newWatcher("auditor", false).watch(ctx)
	d.stop()
	records := readRecords(t, d.dir, talk.id)
	out.evidence = talk.evidence(records)
	v := out.evidence.check()
	out.evidence.replayed(t)
	for _, text := range slices.Concat(v.texts, w.takeProblems(), d.complaints()) {
		t.Errorf("killed %s: %s", p.at, text)
	}
	if n := number(t, p.at); out.unreached && n <= len(records) {
		t.Errorf("killed %s: %d records were written, and the daemon lived", p.at, len(records))
	}
	p.p.forget(talk.number)
	out.story, out.facts = story(records, p.shape.loose), v.facts
	return out
}

// number is that of the record of a crashAt, 0 for none.
func number(t *testing.T, at string) int {
	_, text, found := strings.Cut(at, ":")
	if !found {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func readRecords(t *testing.T, dir, id string) []record.Record {
	t.Helper()
	store, err := sqlite.Open(t.Context(), filepath.Join(dir, "agentd.db"), sqlite.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}()
	records, err := store.Read(t.Context(), id, 0, 10_000)
	if err != nil {
		t.Fatal(err)
	}
	return records
}

// What a log has of its session, the try of a turn and the attempt of an answer.
var (
	markInText = regexp.MustCompile(`<\d+\.\d+\.`)
	goalInText = regexp.MustCompile(`goal of session \d+`)
	keyInText  = regexp.MustCompile(`\b\d+\.\d+\.(\w+\.\d+\.\d+)\b`)
	tryInWord  = regexp.MustCompile(`\b([wt]\d+):\d+`)
)

func plain(s string) string {
	s = goalInText.ReplaceAllString(tryInWord.ReplaceAllString(s, "$1"), "goal")
	return keyInText.ReplaceAllString(markInText.ReplaceAllString(s, "<"), "$1")
}

// story is what a log says: for each turn its end and what its answers took, what each agent
// said and called, and the results, each in their order. A model that fails is asked
// again after a kill, and paid again. Where agents are told what
// the others happen to have said before, what that takes is left out.
func story(records []record.Record, loose bool) []string {
	l := readLog(records)
	var out []string
	for i, t := range l.turns {
		said := map[string][]string{}
		for _, a := range t.answers {
			said[a.agent] = append(said[a.agent], plain(fmt.Sprint(a.text, "|", a.thoughts, "|", a.calls)))
		}
		for _, agent := range slices.Sorted(maps.Keys(said)) {
			out = append(out, fmt.Sprint(i, " ", agent, ": ", strings.Join(said[agent], "\n")))
		}
		var results []string
		for _, c := range l.calls {
			if c.turn != t || c.internal {
				continue
			}
			res := "none"
			if c.result != nil && c.result.Output != nil {
				res = *c.result.Output
			} else if c.result != nil {
				res = c.result.Error
			}
			results = append(results, plain(c.text+" = "+res))
		}
		slices.Sort(results)
		out = append(out, fmt.Sprint(i, " results: ", strings.Join(results, "\n")))
		u := t.said
		if loose {
			u = record.Usage{}
		}
		out = append(out, fmt.Sprint(i, " ", usageText(u.Calls, u.Prompt, u.Completion, u.Total), ", ended ", t.ended != nil && t.ended.Completed))
	}
	return append(out, goalStory(records)...)
}
