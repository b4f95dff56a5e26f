package harness

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/internal/test/plainlog"
	"github.com/apzuk3/agentd/session/record"
)

// Scenario is a test that drives turns.
type Scenario struct {
	// Run is the test.
	Run func(*testing.T)
	// Differ is why two runs of it over one service do not leave equal logs
	// either; "" is that they do.
	Differ string
	// Places is that it disturbs a turn at each place there is, how many that are:
	// its logs are the same but for their number.
	Places bool
	// Slow leaves it to -services.all.
	Slow bool
}

// AllServices is the flag -services.all.
var AllServices = flag.Bool("services.all", false, "TestServices runs all scenarios, also those that take long, "+
	"and TestTapes plays each tape in all ways")

// ByTime is why the logs of two runs of many scenarios differ.
const ByTime = "where a turn is cut, stopped or answered depends on time"

// Alone are what parts of scenarios can be done over Run alone, and why.
type Alone map[string]string

// OverBoth tells whether a part of a scenario can be run over the service that
// is used.
func (a Alone) OverBoth(t *testing.T, part string) bool {
	t.Helper()
	if _, ok := a[part]; !ok {
		t.Errorf("%s is not in the table of what one service alone can do", part)
	}
	if current == nil {
		return true
	}
	current.mu.Lock()
	defer current.mu.Unlock()
	current.parts[part] = true
	return false
}

// CheckScenarios checks that each test of the package under test is a scenario or
// has a reason not to be.
func CheckScenarios(t *testing.T, scenarios map[string]Scenario, runOnly map[string]string) {
	t.Helper()
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]string{"TestScenarios": "it checks these tables"}
	if len(scenarios) > 0 {
		known["TestServices"] = "it runs the scenarios"
	}
	maps.Copy(known, runOnly)
	for name := range scenarios {
		if known[name] != "" {
			t.Errorf("%s is in both tables", name)
		}
		known[name] = "run over both"
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range parsed.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Recv != nil || !strings.HasPrefix(f.Name.Name, "Test") || f.Name.Name == "TestMain" {
				continue
			}
			if known[f.Name.Name] == "" {
				t.Errorf("%s: %s is neither run over both services nor among those that have a reason not to be",
					file, f.Name.Name)
			}
			delete(known, f.Name.Name)
		}
	}
	for name := range known {
		t.Errorf("there is no %s", name)
	}
}

// RunScenarios runs each scenario once over Run, once over SessionService, and once
// over Run at a daemon that another one stands behind, which owns the sessions. It
// must go well over all, and leave equal logs and equal streams; where time
// decides what they hold, its own checks are all there is.
func RunScenarios(t *testing.T, scenarios map[string]Scenario, parts Alone) {
	t.Helper()
	unused, ran := map[string]string{}, 0
	maps.Copy(unused, parts)
	for _, name := range slices.Sorted(maps.Keys(scenarios)) {
		sc := scenarios[name]
		if sc.Slow && !*AllServices {
			continue
		}
		t.Run(name, func(t *testing.T) {
			ran++
			var books []*logbook
			for _, s := range []Service{OverRun, OverSessions, OverFront} {
				if s == OverRun && sc.Differ != "" {
					continue // there is nothing to compare, and over Run it is a test already
				}
				b := &logbook{over: s, logs: map[string][]record.Record{}, parts: map[string]bool{}}
				current = b
				ok := t.Run(s.String(), sc.Run)
				current = nil
				if !ok {
					return
				}
				for part := range b.parts {
					delete(unused, part)
				}
				books = append(books, b)
			}
			if sc.Differ == "" {
				for _, other := range books[1:] {
					books[0].sameAs(t, other, sc)
				}
			}
			t.Logf("%d logs and %d streams over each service %s", len(books[0].logs), len(books[0].streams), sc.Differ)
		})
	}
	for part := range unused {
		if ran < len(scenarios) {
			break // not all were asked for
		}
		t.Errorf("no scenario has a part %s", part)
	}
}

// sameAs checks that a scenario has left the same over two services.
func (b *logbook) sameAs(t *testing.T, other *logbook, sc Scenario) {
	t.Helper()
	logs, others := b.lines(t), other.lines(t)
	for _, lines := range [][]string{logs, others} {
		for i := range lines {
			lines[i] = account.ReplaceAllString(lines[i], `"agentd.account":"ID"`)
		}
	}
	if sc.Places {
		logs, others = distinct(logs), distinct(others)
	}
	sameLines(t, other.over, "logs", logs, others)
	sameLines(t, other.over, "streams", b.streams, other.streams)
}

// numbered is the number of a turn that is one of many.
var (
	numbered = regexp.MustCompile(`turn \d+`)
	// account is made of the provider's address, which is another one in each run.
	account = regexp.MustCompile(`"agentd.account":"[0-9a-f]+"`)
)

// distinct are the texts that differ in more than in the number of their turn.
func distinct(texts []string) []string {
	for i := range texts {
		texts[i] = numbered.ReplaceAllString(texts[i], "turn N")
	}
	slices.Sort(texts)
	return slices.Compact(texts)
}

func sameLines(t *testing.T, other Service, what string, run, sessions []string) {
	t.Helper()
	slices.Sort(run)
	slices.Sort(sessions)
	if len(run) != len(sessions) {
		t.Errorf("%d %s over Run, %d over %s", len(run), what, len(sessions), other)
	}
	for i := range min(len(run), len(sessions)) {
		if run[i] == sessions[i] {
			continue
		}
		t.Errorf("%s differ over %s: %s", what, other, plainlog.Difference(run[i], sessions[i]))
		return
	}
}

// lines are the logs, each as one text.
func (b *logbook) lines(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, recs := range b.logs {
		out = append(out, PlainLog(t, recs))
	}
	return out
}
