package main

import (
	"context"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/apzuk3/agentd/internal/test/plainlog"
	"github.com/apzuk3/agentd/internal/test/sessionfront"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
	"github.com/apzuk3/agentd/session/store/sqlite"
)

// runOnly are the tests that start the real agentd and do not call overBoth, and
// why.
var runOnly = map[string]string{
	"TestDataInUse": "drives no turn",
	"TestServe":     "about starting and stopping: no turn outlives its server",
	"TestScreens":   "about what a person sees of a turn, which is the client's",
	"TestInterrupt": "about signals to the command, whose server is gone for good",

	"TestReplicas":      "about which server runs a turn, and forwards it; server has tests of both services",
	"TestRollingDeploy": "as TestReplicas",
	"TestVersionBefore": "as TestReplicas",
	"TestBus":           "as TestReplicas",

	"TestClusterFigures": "as TestReplicas",

	"TestCluster":            "about what a database says of its replicas",
	"TestOperatePostgres":    "as TestExportAndErase",
	"TestRotationOfReplicas": "as TestExportAndErase",
	"TestMigrate":            "as TestStore",
	"TestStore":              "about where a daemon keeps its data, which is the same for both services",

	"TestBackupOfALoadedDaemon": "about the file of the database, which is the same for both services",
	"TestKilledBackup":          "as TestBackupOfALoadedDaemon",

	"TestSchedules":           "about what starts turns without a service",
	"TestSchedulesOfReplicas": "as TestSchedules",

	"TestWebhooks":           "about what others are told of a turn, whichever service has started it",
	"TestWebhooksOfReplicas": "as TestWebhooks",

	"TestEncryptedCallers": "as TestExportAndErase",
	"TestFaceDrains":       "about a face, which asks SessionService alone",

	"TestEncryption":     "as TestExportAndErase",
	"TestKilledReseal":   "as TestExportAndErase",
	"TestExportAndErase": "about a database, which is the same for both services",
	"TestAuditTrail":     "as TestKeys",
	"TestKeys":           "about who may call, which one seam answers for both services",

	"TestWatchAcrossAKill": "reads by SessionService what a turn over Run has written, which is what it is about",

	"TestStopped":                 "about the timers of a process that is stopped, which are the same for both services",
	"TestToolTimeoutWhileStopped": "as TestStopped",
}

// byTurn are the scenarios that two runs over one service do not leave equal logs
// of either, and why: of these each completed turn is compared, without where it
// was resumed and how many tokens came before, and however many say the same.
var byTurn = map[string]string{
	"TestRollingRestart": "how many turns there are, and where a restart meets them, depends on time",
}

// tokens are those of an answer whose number rises with the turns before it.
var tokens = regexp.MustCompile(`"(prompt|total|context)":\d+`)

// carrier is the service over which the turns of a scenario are driven.
type carrier struct {
	sessions bool // by SessionService

	mu     sync.Mutex // protects the fields below
	ran    bool
	relays map[string]*relay // by data folder
	logs   [][]record.Record
}

// overBoth runs a scenario over Run and over SessionService, side by side, and
// compares the logs that they leave. The scenario starts its servers with
// carrier.binary.
func overBoth(t *testing.T, scenario func(*testing.T, *carrier)) {
	t.Helper()
	carriers := map[string]*carrier{"Run": {relays: map[string]*relay{}}, "SessionService": {sessions: true, relays: map[string]*relay{}}}
	ok := t.Run("over", func(t *testing.T) { // returns when both are over
		for name, c := range carriers {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				c.ran = true
				scenario(t, c)
			})
		}
	})
	a, b := carriers["Run"], carriers["SessionService"]
	if !ok || !a.ran || !b.ran {
		return
	}
	root, _, _ := strings.Cut(t.Name(), "/")
	run, sessions := texts(t, a.logs, byTurn[root] != ""), texts(t, b.logs, byTurn[root] != "")
	if len(run) == 0 || len(run) != len(sessions) {
		t.Errorf("%d logs over Run and %d over SessionService, want as many and some", len(run), len(sessions))
		return
	}
	for i := range run {
		if run[i] != sessions[i] {
			t.Errorf("the logs differ %s", plainlog.Difference(run[i], sessions[i]))
		}
	}
}

// texts are what is compared of logs, in the order of what they say.
func texts(t *testing.T, logs [][]record.Record, byTurn bool) []string {
	t.Helper()
	if byTurn {
		logs = completedTurns(t, logs)
	}
	var out []string
	for _, log := range logs {
		text, err := plainlog.Text(log)
		if err != nil {
			t.Error(err)
		}
		if byTurn {
			text = tokens.ReplaceAllString(text, `"$1":N`)
		}
		out = append(out, text)
	}
	slices.Sort(out)
	if byTurn {
		out = slices.Compact(out)
	}
	return out
}

func completedTurns(t *testing.T, logs [][]record.Record) (out [][]record.Record) {
	t.Helper()
	for _, log := range logs {
		turns := map[string][]record.Record{}
		for _, rec := range log {
			if rec.Kind == record.KindTurnResumed {
				continue
			}
			turns[rec.TurnID] = append(turns[rec.TurnID], rec)
			if rec.Kind != record.KindTurnEnded {
				continue
			}
			var end record.TurnEnded
			if err := json.Unmarshal(rec.Data, &end); err != nil {
				t.Error(err)
			}
			if end.Completed {
				out = append(out, turns[rec.TurnID])
			}
		}
	}
	return out
}

// binary runs serve in a process of its own. The url is where the scenario's
// clients go: the same for all servers of a data folder if SessionService carries
// their turns.
func (c *carrier) binary(t *testing.T, env map[string]string) *served {
	t.Helper()
	c.mu.Lock()
	r, known := c.relays[env["AGENTD_DATA"]]
	if !known {
		r = &relay{}
		c.relays[env["AGENTD_DATA"]] = r
	}
	c.mu.Unlock()
	if !known {
		// What is registered first comes last: no server writes any more.
		t.Cleanup(func() { c.keep(t, env["AGENTD_DATA"]) })
		if c.sessions {
			r.start(t)
		}
	}
	s := binary(t, env)
	if c.sessions {
		r.to.Store(&s.addr)
		s.url = r.url
	}
	return s
}

// keep reads the logs of all sessions of a data folder.
func (c *carrier) keep(t *testing.T, dir string) {
	db, err := sqlite.Open(context.Background(), filepath.Join(dir, "agentd.db"), sqlite.Config{})
	if err != nil {
		t.Error(err)
		return
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	rows, err := db.Rows(context.Background(), store.RowQuery{Kind: store.RowTurn, Limit: 10_000})
	if err != nil {
		t.Error(err)
	}
	ids := map[string]bool{}
	for _, row := range rows {
		ids[row.SessionID] = true
	}
	for id := range ids {
		log, err := db.Read(context.Background(), id, 0, 10_000)
		if err != nil {
			t.Error(err)
		}
		c.mu.Lock()
		c.logs = append(c.logs, log)
		c.mu.Unlock()
	}
}

// relay is a front of whichever server runs now: it outlives them.
type relay struct {
	url string
	to  atomic.Pointer[string] // the address of the server that was started last
}

func (r *relay) start(t *testing.T) {
	t.Helper()
	inner := &http.Transport{
		Protocols: new(http.Protocols),
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			to := r.to.Load()
			if to == nil {
				return nil, errors.New("no server has been started")
			}
			return new(net.Dialer).DialContext(ctx, network, *to)
		},
	}
	inner.Protocols.SetUnencryptedHTTP2(true)
	f, err := sessionfront.New(&http.Client{Transport: inner}, "http://localhost")
	if err != nil {
		t.Fatal(err)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: f.Handler(), Protocols: new(http.Protocols)}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	r.url = "http://" + l.Addr().String()
	t.Cleanup(func() {
		_ = s.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
		inner.CloseIdleConnections()
	})
}

// TestScenarios has each test that starts the real agentd call overBoth, or say
// why not.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	calls := map[string]map[string]bool{} // what each function names
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range parsed.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Recv != nil || f.Name.Name == "TestScenarios" {
				continue
			}
			named := map[string]bool{}
			ast.Inspect(f.Body, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok {
					named[id.Name] = true
				}
				return true
			})
			calls[f.Name.Name] = named
		}
	}
	reaches := func(from, to string) bool {
		seen := map[string]bool{from: true}
		for queue := []string{from}; len(queue) > 0; queue = queue[1:] {
			for name := range calls[queue[0]] {
				if name == to {
					return true
				}
				if calls[name] != nil && !seen[name] {
					seen[name] = true
					queue = append(queue, name)
				}
			}
		}
		return false
	}
	both, unused := 0, maps.Clone(runOnly)
	for name := range calls {
		if !strings.HasPrefix(name, "Test") || !reaches(name, "program") {
			continue
		}
		delete(unused, name)
		switch over := reaches(name, "overBoth"); {
		case over && runOnly[name] != "":
			t.Errorf("%s runs over both services, and has a reason not to", name)
		case over:
			both++
		case runOnly[name] == "":
			t.Errorf("%s starts agentd, and is neither run over both services nor among those that have a reason not to be", name)
		}
	}
	for name := range unused {
		t.Errorf("%s does not start agentd", name)
	}
	for name := range byTurn {
		if calls[name] == nil {
			t.Errorf("there is no %s", name)
		}
	}
	if both == 0 {
		t.Error("no test runs over both services")
	}
}
