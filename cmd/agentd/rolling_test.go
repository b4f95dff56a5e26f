package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/test/heldaddr"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store/sqlite"
)

const (
	rollingSessions = 6
	rollingRestarts = 3
	// rollingTurn is what each turn of the load says: two answers with tools, and
	// a last one.
	rollingTurn = `answers:
  - {when: {step: 1}, thoughts: "hm hm", text: "` + long + `", chunk_delay: 30ms, calls: [{name: a}, {name: b}]}
  - {when: {step: 2}, text: " and more", chunk_delay: 30ms, calls: [{name: c}]}
  - {when: {}, text: " {{tool_result \"a\"}}, {{tool_result \"b\"}}, {{tool_result \"c\"}}", chunk_delay: 30ms}
`
	rollingText = long + " and more a done, b done, c done"
	// rollingCall is a model call that is under way when a server is told to stop.
	rollingCall = `answers: [{text: "one two three four five six", chunk_delay: 200ms}]`
)

// underWay begins a turn of one model call, and returns when the model speaks. end waits for the turn.
func underWay(t *testing.T, url string) (end func()) {
	t.Helper()
	c := client.New(url)
	speaks, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		defer c.CloseIdleConnections()
		spoken, completed := sync.OnceFunc(func() { close(speaks) }), false
		defer spoken()
		for event, err := range c.Run(t.Context(), agent("scripted/under-way"), "go") {
			if err != nil {
				t.Errorf("a turn whose only model call is under way: %v", err)
				return
			}
			if event.OutputChunk != nil {
				spoken()
			}
			completed = completed || event.End != nil && event.End.Completed
		}
		if !completed {
			t.Error("a turn whose only model call was under way has not completed")
		}
	}()
	<-speaks
	return func() { <-ended }
}

// load is clients that run one turn after the other, each in a session of its own,
// whatever becomes of the server.
type load struct {
	t       *testing.T
	agent   *agentdv1.Agent
	stop    chan struct{}
	workers sync.WaitGroup
	turn    chan struct{} // receives when a turn has completed; has room for some
	refused atomic.Int64  // starts that had to be tried again

	mu       sync.Mutex
	sessions map[string]int // completed turns of each; protected by mu
	runs     map[string]int // of each tool; protected by mu
}

func newLoad(t *testing.T) *load {
	return &load{
		t: t, agent: agent("scripted/rolling", "a", "b", "c"), stop: make(chan struct{}), turn: make(chan struct{}, 1<<12),
		sessions: map[string]int{}, runs: map[string]int{},
	}
}

func (l *load) start(url string) {
	for range rollingSessions {
		l.workers.Go(func() { l.work(url) })
	}
}

func (l *load) work(url string) {
	c := client.New(url, client.WithReconnect(client.ReconnectPolicy{Base: time.Millisecond, Cap: 50 * time.Millisecond, Dial: true}))
	defer c.CloseIdleConnections()
	for _, name := range []string{"a", "b", "c"} {
		if err := client.AddTool(c, name, "a tool", func(context.Context, struct{}) (any, error) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.runs[name]++
			return name + " done", nil
		}); err != nil {
			l.t.Error(err)
			return
		}
	}
	var opts []client.RunOption
	for {
		select {
		case <-l.stop:
			return
		default:
		}
		res, err := c.Do(l.t.Context(), l.agent, "go", opts...)
		if failure, ok := errors.AsType[*client.Error](err); ok && errors.Is(err, client.ErrUnavailable) && failure.Retryable && res.Text == "" && res.Thoughts == "" {
			l.refused.Add(1) // it did not begin, as far as anybody knows
			time.Sleep(5 * time.Millisecond)
			continue
		}
		if err != nil || !res.Completed || res.Text != rollingText || res.Usage.ModelCalls != 3 {
			l.t.Errorf("a turn has failed: %+v, %v", res, err)
			return
		}
		opts = []client.RunOption{client.WithSessionID(res.SessionID)}
		l.mu.Lock()
		l.sessions[res.SessionID]++
		l.mu.Unlock()
		l.turn <- struct{}{}
	}
}

// ready asks a server over one connection whether it is ready.
type ready struct {
	hc  *http.Client
	url string
}

func newReady(t *testing.T, s *served) ready {
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(tr.CloseIdleConnections)
	return ready{&http.Client{Transport: tr}, "http://" + s.addr + "/readyz"}
}

func (r ready) ask() (status int, text string, err error) {
	resp, err := r.hc.Get(r.url)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

// TestRollingRestart is F32 on one machine: the server is stopped and started
// again, three times, while clients run turns with tools. No turn fails, each
// client gets all of its turns, a model call under way finishes, and a server that stops says so: readyz is 503, and
// streams end with UNAVAILABLE and how to continue.
func TestRollingRestart(t *testing.T) { //nolint:tparallel // overBoth runs them side by side
	t.Parallel()
	overBoth(t, rollingRestart)
}

func rollingRestart(t *testing.T, c *carrier) {
	env, f := killable(t)
	env["AGENTD_ADDR"] = heldaddr.New(t)
	env["AGENTD_SHUTDOWN_GRACE"] = "1m"
	for name, script := range map[string]string{"rolling": rollingTurn, "under-way": rollingCall} {
		if err := os.WriteFile(filepath.Join(env["AGENTD_SCRIPTS"], name+".yaml"), []byte(script), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := c.binary(t, env)
	l := newLoad(t)
	l.start(s.url)
	f.open(s, agent("scripted/work", "a", "b", "c", "d")) // waits for its client all the time
	f.until(func(m *agentdv1.RunResponse) bool { return m.GetToolCall() != nil })
	for range rollingRestarts {
		for range 2 * rollingSessions {
			<-l.turn
		}
		r := newReady(t, s)
		if status, text, err := r.ask(); err != nil || status != http.StatusOK {
			t.Fatalf("before the stop: %d %q, %v", status, text, err)
		}
		end := underWay(t, s.url)
		s.signal(syscall.SIGTERM)
		status, text, err := r.ask()
		for err == nil && status == http.StatusOK {
			status, text, err = r.ask()
		}
		if err != nil || status != http.StatusServiceUnavailable || !strings.Contains(text, "stopping") {
			t.Errorf("while the server stops: %d %q, %v; want 503", status, text, err)
		}
		f.suspended() // at once: it waits for its client
		end()
		f.drop()
		if code := s.wait(); code != exitOK {
			t.Errorf("exit code %d: %s", code, s.log)
		}
		s = c.binary(t, env)
		f.open(s, nil)
	}
	for range 2 * rollingSessions {
		<-l.turn
	}
	close(l.stop)
	l.workers.Wait()
	if end := f.end(); !end.GetCompleted() || end.GetUsageSummary().GetLlmCalls() != 3 {
		t.Errorf("got %v, want a completed turn of 3 model calls", end)
	}
	s.signal(syscall.SIGTERM)
	if code := s.wait(); code != exitOK {
		t.Errorf("exit code %d: %s", code, s.log)
	}
	l.check(env["AGENTD_DATA"])
}

// check holds the logs of the load's sessions against what the clients know.
func (l *load) check(dir string) {
	t := l.t
	store, err := sqlite.Open(t.Context(), filepath.Join(dir, "agentd.db"), sqlite.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}()
	turns, resumed := 0, 0
	for id, completed := range l.sessions {
		log := journal{results: map[string]bool{}, ends: map[string]record.TurnEnded{}}
		for rest := true; rest; {
			records, err := store.Read(t.Context(), id, log.last, 500)
			if err != nil {
				t.Fatal(err)
			}
			for _, rec := range records {
				if err := log.add(rec); err != nil {
					t.Errorf("session %s: record %d: %v", id, rec.Seq, err)
				}
			}
			rest = len(records) == 500
		}
		resumed += log.resumed
		ended := slices.Collect(maps.Values(log.ends))
		if n := len(slices.DeleteFunc(ended, func(e record.TurnEnded) bool { return !e.Completed })); n != completed || log.open != "" {
			t.Errorf("session %s: %d turns have completed, the client knows of %d; open: %q", id, n, completed, log.open)
		}
		turns += completed
	}
	t.Logf("%d turns completed, %d went on after a restart, %d starts were tried again; tools ran %v", turns, resumed, l.refused.Load(), l.runs)
	if len(l.sessions) != rollingSessions || resumed == 0 {
		t.Errorf("nothing was tested: %d sessions, %d turns that went on", len(l.sessions), resumed)
	}
	for tool, n := range l.runs {
		if n < turns || n > turns+int(l.refused.Load()) {
			t.Errorf("tool %s has run %d times in %d turns", tool, n, turns)
		}
	}
}

// journal is what a session's log says about its turns.
type journal struct {
	last    int64
	open    string // the turn that runs
	results map[string]bool
	ends    map[string]record.TurnEnded // by turn
	resumed int
}

// add takes in a record, and says what must not be.
func (j *journal) add(rec record.Record) error {
	if rec.Seq != j.last+1 {
		return fmt.Errorf("follows %d", j.last)
	}
	j.last = rec.Seq
	if _, over := j.ends[rec.TurnID]; over {
		return fmt.Errorf("%s follows the end of its turn", rec.Kind)
	}
	switch rec.Kind {
	case record.KindTurnStarted:
		if j.open != "" {
			return fmt.Errorf("turn %s starts while %s runs", rec.TurnID, j.open)
		}
		j.open = rec.TurnID
	case record.KindTurnResumed:
		j.resumed++
	case record.KindToolResult:
		var res record.ToolResult
		if err := json.Unmarshal(rec.Data, &res); err != nil {
			return err
		}
		if j.results[res.CallID] {
			return fmt.Errorf("a second result of call %s", res.CallID)
		}
		j.results[res.CallID] = true
	case record.KindTurnEnded:
		var end record.TurnEnded
		if err := json.Unmarshal(rec.Data, &end); err != nil {
			return err
		}
		j.ends[rec.TurnID], j.open = end, ""
		if end.Code != 0 {
			return fmt.Errorf("turn %s has failed: %+v", rec.TurnID, end)
		}
	default: // says nothing about turns
	}
	return nil
}
