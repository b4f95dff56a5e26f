package e2e

import (
	"bytes"
	"encoding/json"
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

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/test/plainlog"
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

var allServices = flag.Bool("services.all", false, "TestServices runs all scenarios, also those that take long, and TestTapes plays each tape in all ways")

const byTime = "where a turn is cut, stopped or answered depends on time"

// scenarios are the tests that TestServices runs over both services.
var scenarios = map[string]scenario{
	"TestStructuredOutput":               {run: TestStructuredOutput, slow: true},
	"TestStructuredOutputBehindRun":      {run: TestStructuredOutputBehindRun},
	"TestStructuredWithoutNetwork":       {run: TestStructuredWithoutNetwork},
	"TestOutputSchemaRefused":            {run: TestOutputSchemaRefused},
	"TestRules":                          {run: TestRules},
	"TestFiles":                          {run: TestFiles},
	"TestFilesLarge":                     {run: TestFilesLarge, slow: true},
	"TestFilesRefused":                   {run: TestFilesRefused},
	"TestFilesByTool":                    {run: TestFilesByTool},
	"TestFilesQueued":                    {run: TestFilesQueued},
	"TestBlocked":                        {run: TestBlocked, slow: true},
	"TestProviderSuspended":              {run: TestProviderSuspended, slow: true},
	"TestCompaction":                     {run: TestCompaction, slow: true},
	"TestCompactionOfSearches":           {run: TestCompactionOfSearches},
	"TestCallOutcomes":                   {run: TestCallOutcomes},
	"TestAbortedCallOutcome":             {run: TestAbortedCallOutcome, slow: true},
	"TestDeferredTools":                  {run: TestDeferredTools, slow: true},
	"TestFoundTools":                     {run: TestFoundTools, slow: true},
	"TestManyDeferredTools":              {run: TestManyDeferredTools, slow: true},
	"TestReferencesOfPrompts":            {run: TestReferencesOfPrompts},
	"TestProviderFallback":               {run: TestProviderFallback, slow: true},
	"TestProviderFallbackFails":          {run: TestProviderFallbackFails, slow: true},
	"TestProviderAlive":                  {run: TestProviderAlive, slow: true},
	"TestProviderNeverEnds":              {run: TestProviderNeverEnds, slow: true},
	"TestProviderNeverStops":             {run: TestProviderNeverStops, slow: true},
	"TestProviderTools":                  {run: TestProviderTools, slow: true},
	"TestRawPayloads":                    {run: TestRawPayloads, slow: true},
	"TestRawPayloadBounds":               {run: TestRawPayloadBounds, slow: true},
	"TestRawPayloadsInLog":               {run: TestRawPayloadsInLog, slow: true},
	"TestWildWordsOfModels":              {run: TestWildWordsOfModels, slow: true},
	"TestRecordedFiles":                  {run: TestRecordedFiles},
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
	"TestFaultNobodyAnswers":             {run: TestFaultNobodyAnswers, slow: true},
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
	"TestVerifyFinds":               "about logs, not about how turns are carried",
	"TestVerifyKinds":               "about logs, not about how turns are carried",
	"TestVerifyPrefixes":            "about logs, not about how turns are carried",
	"TestFaultHalfOpen":             "about the HTTP/2 pings of the connection that Run takes, under a daemon of its own",
	"TestFaultClientThatNeverReads": "about the flow control of Run's own stream; that of WatchTurn is tested by package daemon",
	"TestFaultFlood":                "about how fast messages are taken from Run's own stream",
	"TestFaultTooLarge":             "about the size of Run's own messages; that of SessionService's requests is tested by package daemon",
	"TestTapes":                     "about what models are asked and answer",
	"TestTapesOfFailures":           "about what models are asked and answer",
	"TestTapeDiffers":               "about what models are asked",
	"TestTapeOfFallback":            "about what models are asked and answer",
	"TestTapeOfParallelAgents":      "about what models are asked and answer",
	"TestRecordingsCut":             "as TestRecordings, with answers that break as in TestProviderBreaks",
	"TestProviderCut":               "as TestProviderBreaks, at every place of an answer",
}

// parts are what scenarios that run over both do over Run alone.
var parts = map[string]string{
	"TestRules/1 execute is first":                 "SessionService has no first message",
	"TestRules/8 a half-closed client gets it all": "a request of SessionService is always closed: clients come and go",
	"TestStress/executes":                          "CreateTurn while a turn runs is another turn, not a mistake on its stream",
	"TestStress/half-closes":                       "a request of SessionService is always closed: clients come and go",
	"TestFaultAnswerTwice/cancel":                  "CancelToolCall leaves a call that has its result as it is; on Run that is a mistake",
	"TestFaultForeignAnswer/cancel":                "a call that there is not is NOT_FOUND for CancelToolCall, INVALID_REQUEST on Run",
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
				books = append(books, b)
			}
			if sc.differ == "" {
				run, sessions := books[0].lines(t), books[1].lines(t)
				for _, lines := range [][]string{run, sessions} {
					for i := range lines {
						lines[i] = account.ReplaceAllString(lines[i], `"agentd.account":"ID"`)
					}
				}
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
		t.Errorf("%s differ %s", what, plainlog.Difference(run[i], sessions[i]))
		return
	}
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

// plainLog is a log as plainlog writes it.
func plainLog(t testing.TB, recs []session.Record) string {
	t.Helper()
	text, err := plainlog.Text(recs)
	if err != nil {
		t.Error(err)
	}
	return text
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
		lines = append(lines, plainlog.WithoutIDs(compact.String(), seen))
	}
	return strings.Join(plainlog.Loose(lines, `{"toolCallAnswered":`), "\n")
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
		e.Message, e.Violations = "", nil // of a refusal, which calls the request and its fields by their names
	}
	if r := m.GetModelCallRetried(); r != nil {
		r.Wait = nil
	}
	if c := m.GetModelCallEnded(); c != nil {
		c.Duration, c.TimeToFirstText = nil, nil
	}
}
