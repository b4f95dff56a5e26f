package e2e

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
)

// scenario is a test that drives turns.
type scenario struct {
	run func(*testing.T)
	// differ is why two runs of it over one service do not leave equal logs
	// either; "" is that they do.
	differ string
	// places is that it disturbs a turn at each place there is, how many that are:
	// its logs are the same but for their number.
	places bool
	// slow leaves it to -services.all.
	slow bool
}

var allServices = flag.Bool("services.all", false, "TestServices runs all scenarios, also those that take long")

const (
	byTime  = "where a turn is cut, stopped or answered depends on time"
	noOrder = "calls that are asked for again come in no order"
)

// scenarios are the tests that TestServices runs over both services.
var scenarios = map[string]scenario{
	"TestStructuredOutput":               {run: TestStructuredOutput, slow: true},
	"TestStructuredWithoutNetwork":       {run: TestStructuredWithoutNetwork},
	"TestOutputSchemaRefused":            {run: TestOutputSchemaRefused},
	"TestRules":                          {run: TestRules},
	"TestTree":                           {run: TestTree, slow: true},
	"TestStress":                         {run: TestStress, differ: byTime, slow: true},
	"TestRecordings":                     {run: TestRecordings, slow: true},
	"TestModelMisbehaves":                {run: TestModelMisbehaves, slow: true},
	"TestRetryUsage":                     {run: TestRetryUsage},
	"TestRetryWaits":                     {run: TestRetryWaits},
	"TestRetryRestart":                   {run: TestRetryRestart},
	"TestLastChunksOfAFailedTurn":        {run: TestLastChunksOfAFailedTurn, slow: true},
	"TestProviderFails":                  {run: TestProviderFails, slow: true},
	"TestProviderRetryAfter":             {run: TestProviderRetryAfter, slow: true},
	"TestProviderUnreachable":            {run: TestProviderUnreachable, slow: true},
	"TestProviderRefuses":                {run: TestProviderRefuses, slow: true},
	"TestProviderBreaks":                 {run: TestProviderBreaks, slow: true},
	"TestProviderStalls":                 {run: TestProviderStalls, slow: true},
	"TestProviderEndlessLine":            {run: TestProviderEndlessLine, slow: true},
	"TestFaultChecker":                   {run: TestFaultChecker},
	"TestFaultAnswerTwice":               {run: TestFaultAnswerTwice},
	"TestFaultAnswersAtOnce":             {run: TestFaultAnswersAtOnce, differ: byTime},
	"TestFaultTwoClients":                {run: TestFaultTwoClients},
	"TestFaultAnswerTooLate":             {run: TestFaultAnswerTooLate, differ: byTime},
	"TestFaultForeignAnswer":             {run: TestFaultForeignAnswer},
	"TestFaultToolNeverAnswers":          {run: TestFaultToolNeverAnswers},
	"TestFaultNobodyAnswers":             {run: TestFaultNobodyAnswers, differ: noOrder, slow: true},
	"TestFaultCancelAtEveryMessage":      {run: TestFaultCancelAtEveryMessage, differ: byTime, slow: true},
	"TestFaultContextCancelled":          {run: TestFaultContextCancelled, differ: byTime},
	"TestFaultDropAtEveryMessage":        {run: TestFaultDropAtEveryMessage, places: true, slow: true},
	"TestFaultAttachAtEveryMessage":      {run: TestFaultAttachAtEveryMessage, slow: true},
	"TestFaultGoClientDropsAtEveryEvent": {run: TestFaultGoClientDropsAtEveryEvent, places: true, slow: true},
	"TestFaultCutAtEveryByte":            {run: TestFaultCutAtEveryByte, differ: byTime, slow: true},
}

// runOnly are the tests that TestServices does not run, and why.
var runOnly = map[string]string{
	"TestServices":                  "it runs the others",
	"TestGeneratedTurns":            "it drives both services itself",
	"TestWatchQueuedTurn":           "about WatchTurn alone",
	"TestWatchLeft":                 "about WatchTurn alone",
	"TestSubmitAgain":               "about SubmitToolResults alone",
	"TestQuietWatch":                "about WatchTurn alone",
	"TestFaultDocs":                 "about a page",
	"TestFaultHalfOpen":             "about the HTTP/2 pings of the connection that Run takes, under a daemon of its own",
	"TestFaultClientThatNeverReads": "about the flow control of Run's own stream; that of WatchTurn is tested by package daemon",
	"TestFaultFlood":                "about how fast messages are taken from Run's own stream",
	"TestFaultTooLarge":             "about the size of Run's own messages; that of SessionService's requests is tested by package daemon",
	"TestRecordingsCut":             "as TestRecordings, with answers that break as in TestProviderBreaks",
	"TestProviderCut":               "as TestProviderBreaks, at every place of an answer",
}

// parts are what scenarios that run over both do over Run alone.
var parts = map[string]string{
	"TestRules/1 execute is first":                 "SessionService has no first message",
	"TestRules/7 cancel a call":                    "SessionService has no method to cancel a single call",
	"TestRules/8 a half-closed client gets it all": "a request of SessionService is always closed: clients come and go",
	"TestStress/executes":                          "CreateTurn while a turn runs is another turn, not a mistake on its stream",
	"TestStress/half-closes":                       "a request of SessionService is always closed: clients come and go",
	"TestStress/cancels calls":                     "SessionService has no method to cancel a single call",
	"TestFaultAnswerTwice/cancel":                  "SessionService has no method to cancel a single call",
	"TestFaultAnswerTooLate/cancelled":             "SessionService has no method to cancel a single call",
	"TestFaultForeignAnswer/cancel":                "SessionService has no method to cancel a single call",
	"TestFaultForeignAnswer/flood":                 "about how many refused messages Run's own stream takes",
}

// overBoth tells whether a part of a scenario can be run over the service that
// is used.
func overBoth(t *testing.T, part string) bool {
	t.Helper()
	if _, ok := parts[part]; !ok {
		t.Errorf("%s is not in the table of what one service alone can do", part)
	}
	if now == nil {
		return true
	}
	now.mu.Lock()
	defer now.mu.Unlock()
	now.parts[part] = true
	return false
}

// TestScenarios has each test of this package be run over both services, or say
// why not.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	known := maps.Clone(runOnly)
	known["TestScenarios"] = "this one"
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
				t.Errorf("%s: %s is neither run over both services nor among those that have a reason not to be", file, f.Name.Name)
			}
			delete(known, f.Name.Name)
		}
	}
	for name := range known {
		t.Errorf("there is no %s", name)
	}
}

// TestServices runs each scenario once over Run and once over SessionService. It
// must go well over both, and leave equal logs and equal streams; where time
// decides what they hold, its own checks are all there is.
func TestServices(t *testing.T) {
	unused, ran := maps.Clone(parts), 0
	for _, name := range slices.Sorted(maps.Keys(scenarios)) {
		sc := scenarios[name]
		if sc.slow && !*allServices {
			continue
		}
		t.Run(name, func(t *testing.T) {
			ran++
			var books []*logbook
			for _, s := range []service{overRun, overSessions} {
				if s == overRun && sc.differ != "" {
					continue // there is nothing to compare, and over Run it is a test already
				}
				b := &logbook{over: s, logs: map[string][]session.Record{}, parts: map[string]bool{}}
				now = b
				ok := t.Run(s.String(), sc.run)
				now = nil
				if !ok {
					return
				}
				for part := range b.parts {
					delete(unused, part)
				}
				if n := b.lacks(); n > 0 {
					t.Errorf("%d requests were made that SessionService cannot serve", n)
				}
				books = append(books, b)
			}
			if sc.differ == "" {
				run, sessions := books[0].lines(t), books[1].lines(t)
				if sc.places {
					run, sessions = distinct(run), distinct(sessions)
				}
				sameLines(t, "logs", run, sessions)
				sameLines(t, "streams", books[0].streams, books[1].streams)
			}
			t.Logf("%d logs and %d streams over each service %s", len(books[0].logs), len(books[0].streams), sc.differ)
		})
	}
	for part := range unused {
		if ran < len(scenarios) {
			break // not all were asked for
		}
		t.Errorf("no scenario has a part %s", part)
	}
}

// numbered is the number of a turn that is one of many.
var numbered = regexp.MustCompile(`turn \d+`)

// distinct are the texts that differ in more than in the number of their turn.
func distinct(texts []string) []string {
	for i := range texts {
		texts[i] = numbered.ReplaceAllString(texts[i], "turn N")
	}
	slices.Sort(texts)
	return slices.Compact(texts)
}

func sameLines(t *testing.T, what string, run, sessions []string) {
	t.Helper()
	slices.Sort(run)
	slices.Sort(sessions)
	if len(run) != len(sessions) {
		t.Errorf("%d %s over Run, %d over SessionService", len(run), what, len(sessions))
	}
	for i := range min(len(run), len(sessions)) {
		if run[i] == sessions[i] {
			continue
		}
		t.Errorf("%s differ %s", what, difference(run[i], sessions[i]))
		return
	}
}

// difference shows where two texts begin to differ.
func difference(run, sessions string) string {
	a, b := strings.Split(run, "\n"), strings.Split(sessions, "\n")
	at := 0
	for at < min(len(a), len(b)) && a[at] == b[at] {
		at++
	}
	some := func(lines []string) string { return strings.Join(lines[:min(len(lines), 8)], "\n") }
	return fmt.Sprintf("from line %d on, after\n%s\nover Run\n%s\nover SessionService\n%s",
		at, some(a[max(0, at-4):at]), some(a[at:]), some(b[at:]))
}

// loose leaves out which id is which, and the order of results that come one after
// the other: whose tools run side by side answers in any.
func loose(lines []string, mark string) []string {
	for i := range lines {
		lines[i] = anyID.ReplaceAllString(lines[i], "ID")
	}
	for from := 0; from < len(lines); from++ {
		to := from
		for to < len(lines) && strings.HasPrefix(lines[to], mark) {
			to++
		}
		slices.Sort(lines[from:to])
		from = max(from, to)
	}
	return lines
}

// lines are the logs, each as one text.
func (b *logbook) lines(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, recs := range b.logs {
		out = append(out, plainLog(t, recs))
	}
	return out
}

// plainLog is a log without ids and times, turn by turn. Of agents that run side
// by side each has its own order.
func plainLog(t testing.TB, recs []session.Record) string {
	t.Helper()
	var order []string // of the turns
	turns := map[string][]session.Record{}
	var out strings.Builder
	for _, rec := range recs {
		if turns[rec.TurnID] == nil {
			order = append(order, rec.TurnID)
		}
		turns[rec.TurnID] = append(turns[rec.TurnID], rec)
	}
	beside := slices.ContainsFunc(recs, func(rec session.Record) bool {
		return rec.Kind == session.KindTurnStarted && bytes.Contains(rec.Data, []byte(`"parallel"`))
	})
	if !beside && len(order) > 1 {
		for _, rec := range recs {
			fmt.Fprintf(&out, "%d ", slices.Index(order, rec.TurnID))
		}
		out.WriteString("are the turns of the records\n")
	}
	for _, id := range order {
		for _, line := range loose(plainTurn(t, turns[id], beside), string(session.KindToolResult)+" ") {
			out.WriteString(line + "\n")
		}
	}
	return out.String()
}

func plainTurn(t testing.TB, recs []session.Record, beside bool) []string {
	t.Helper()
	seen := map[string]int{}
	var common []string
	agents := map[string][]string{}
	for _, rec := range recs {
		var body any
		if err := json.Unmarshal(rec.Data, &body); err != nil {
			t.Errorf("record %d (%s): %v", rec.Seq, rec.Kind, err)
			continue
		}
		author := ""
		if ev, ok := body.(map[string]any); ok && rec.Kind == session.KindEvent {
			author, _ = ev["author"].(string)
		}
		scrub(body)
		untimed(body)
		data, err := json.Marshal(body)
		if err != nil {
			t.Error(err)
		}
		line := string(rec.Kind) + " " + withoutIDs(string(data), seen, beside)
		switch {
		case beside && author != "":
			agents[author] = append(agents[author], line)
		case beside && rec.Kind == session.KindToolResult:
			agents[" results"] = append(agents[" results"], line)
		default:
			common = append(common, line)
		}
	}
	slices.Sort(agents[" results"])
	for _, author := range slices.Sorted(maps.Keys(agents)) {
		common = append(common, agents[author]...)
	}
	return common
}

// untimed takes out how long things took.
func untimed(v any) {
	switch v := v.(type) {
	case map[string]any:
		for _, key := range []string{"took", "Took", "ran", "Ran", "wait", "Wait", "queued_seq"} {
			delete(v, key)
		}
		for _, sub := range v {
			untimed(sub)
		}
	case []any:
		for _, sub := range v {
			untimed(sub)
		}
	}
}

var (
	// anID is what the daemon names sessions, turns and calls.
	anID = regexp.MustCompile(`(?:call_|loop_|e-|\b)[a-z2-7]{26}\b`)
	// anyID is one that withoutIDs has numbered.
	anyID = regexp.MustCompile(`ID\d+`)
	// local is what of an error's text depends on where and when it was made.
	local = regexp.MustCompile(`127\.0\.0\.1:\d+|retry after [0-9hms.]+`)
)

// withoutIDs writes for each id how many others came first, or nothing of it.
func withoutIDs(s string, seen map[string]int, mix bool) string {
	s = local.ReplaceAllString(s, "HERE")
	return anID.ReplaceAllStringFunc(s, func(id string) string {
		if mix {
			return "ID"
		}
		if _, ok := seen[id]; !ok {
			seen[id] = len(seen)
		}
		return fmt.Sprint("ID", seen[id])
	})
}

// keepStream has what a client was sent compared. Pieces of one text that follow
// each other are one; positions, times and ids are left out.
func keepStream(t testing.TB, msgs []*agentdv1.RunResponse) {
	t.Helper()
	if now == nil {
		return
	}
	text := plainStream(t, msgs)
	now.mu.Lock()
	defer now.mu.Unlock()
	now.streams = append(now.streams, text)
}

func plainStream(t testing.TB, msgs []*agentdv1.RunResponse) string {
	t.Helper()
	seen := map[string]int{}
	var joined, replies []*agentdv1.RunResponse
	last := ""
	for _, m := range msgs {
		m = proto.CloneOf(m)
		if m.GetTurnId() == "" { // no event of the turn: has no place among them
			replies = append(replies, m)
			continue
		}
		key := ""
		if o := m.GetOutputChunk(); o.GetContent() != "" && !o.GetLast() {
			if key = textKey(o); key == last {
				joined[len(joined)-1].GetOutputChunk().Content += o.GetContent()
				continue
			}
		}
		last = key
		joined = append(joined, m)
	}
	if n := len(joined); n > 0 && !joined[n-1].GetEnd().GetCompleted() {
		joined = withoutHalves(joined)
	}
	var lines []string
	for _, m := range append(joined, replies...) {
		timeless(m)
		data, err := protojson.Marshal(m)
		if err != nil {
			t.Error(err)
		}
		var compact bytes.Buffer // protojson varies its spaces
		if err := json.Compact(&compact, data); err != nil {
			t.Error(err)
		}
		lines = append(lines, withoutIDs(compact.String(), seen, false))
	}
	return strings.Join(loose(lines, `{"toolResult":`), "\n")
}

// withoutHalves leaves out the text of the last message of a turn that was not
// completed. If the message was not complete either, who is slow may not be told
// of it.
func withoutHalves(msgs []*agentdv1.RunResponse) []*agentdv1.RunResponse {
	id := ""
	for _, m := range msgs {
		if o := m.GetOutputChunk(); o.GetContent() != "" {
			id = o.GetMessageId()
		}
	}
	return slices.DeleteFunc(msgs, func(m *agentdv1.RunResponse) bool {
		o := m.GetOutputChunk()
		return o.GetContent() != "" && o.GetMessageId() == id
	})
}

// timeless takes out of a message what differs from run to run.
func timeless(m *agentdv1.RunResponse) {
	m.Seq, m.Time, m.Replayed = 0, nil, false
	if r := m.GetEnd().GetReceipt(); r != nil {
		r.Took = nil
		for _, c := range r.GetAbortedModelCalls() {
			c.Ran = nil
		}
	}
	if e := m.GetError(); e != nil && m.GetTurnId() == "" {
		e.Message = "" // of a refusal, which calls the request by its name
	}
	if r := m.GetModelRetry(); r != nil {
		r.Wait = nil
	}
}
