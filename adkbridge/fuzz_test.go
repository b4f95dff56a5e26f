package adkbridge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/test/logtext"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/record"
)

// untouched is a model that must not be called.
type untouched struct{ t testing.TB }

func (m untouched) Generate(context.Context, *model.Request, func(model.Delta)) (*model.Response, error) {
	m.t.Error("a model was called")
	return nil, errors.New("must not be called")
}

// fuzzTrees are requests as clients send them.
func fuzzTrees() (out []*agentdv1.RunRequest_ExecuteRequest) {
	offered := []*agentdv1.Tool{offer("search"), offer("fetch"), offer("calc")}
	for _, tc := range replayTrees() {
		req := &agentdv1.RunRequest_ExecuteRequest{Agent: tc.tree, Tools: offered}
		if tc.ask {
			req.Tools = slices.Concat(offered, []*agentdv1.Tool{offer("loop_continue")})
		}
		out = append(out, req)
	}
	late := offer("late")
	late.Deferred = true
	for _, tree := range []*agentdv1.Agent{
		nil, {}, deep(16), deep(17), seq("root", wide(65)...), seq("root", llm("a"), par("p", llm("a"))),
		rounds("root", 1001, llm("a")), llm("root", instruct("{a} {b?} {app:c} {artifact.d} {"), output("app:k")),
		llm("root", tools("late", "search"), builtin("tool_search", "google_search", "ask_user")),
		llm("root", func(a *agentdv1.LlmAgent) {
			a.FallbackModels = []string{"other", "third"}
			a.OutputSchema = new(`{"type":"object","properties":{"a":{"enum":[1,"x"]}},"required":["a"]}`)
			a.Generation = &agentdv1.GenerationSettings{
				Temperature: new(0.5), MaxOutputTokens: 9, StopSequences: []string{"x"},
				ToolChoice: &agentdv1.ToolChoice{Mode: agentdv1.ToolChoice_MODE_REQUIRED, ToolNames: []string{"search"}},
			}
			a.Compaction = &agentdv1.Compaction{}
		}),
		seq("root", llm("a", func(a *agentdv1.LlmAgent) { a.Model = "no such" })),
	} {
		out = append(out, &agentdv1.RunRequest_ExecuteRequest{Agent: tree, Tools: slices.Concat(offered, []*agentdv1.Tool{late})})
	}
	return out
}

// places are the paths of the agents of a tree, as far down as a check goes.
func places(a *agentdv1.Agent, above []string, found map[string]bool) {
	path := slices.Concat(above, []string{a.GetName()})
	found[pathString(path)] = true
	if len(path) > new(Limits).WithDefaults().Depth {
		found[pathString(path[:3])+"…"] = true
		return
	}
	for _, kids := range [][]*agentdv1.Agent{
		a.GetLlm().GetSubAgents(), a.GetSequential().GetAgents(), a.GetParallel().GetAgents(), a.GetLoop().GetAgents(),
	} {
		for _, kid := range kids {
			places(kid, path, found)
		}
	}
}

// named reports whether a refusal says where in a request it is.
func named(message string, req *agentdv1.RunRequest_ExecuteRequest) bool {
	for _, prefix := range []string{"tools[", `tool "`, "user_parts[", "the agent tree is missing"} {
		if strings.HasPrefix(message, prefix) {
			return true
		}
	}
	found := map[string]bool{}
	places(req.GetAgent(), nil, found)
	for place := range found {
		if strings.HasPrefix(message, place+": ") {
			return true
		}
	}
	return false
}

// FuzzTree checks any tree: twice with the same result, and a refusal says where. A tree that is accepted is accepted
// again when the log has it, and the engine builds it.
func FuzzTree(f *testing.F) {
	f.Add([]byte{}) // the other inputs are those of TestSeeds, and what was found
	f.Fuzz(func(t *testing.T, data []byte) {
		req := &agentdv1.RunRequest_ExecuteRequest{}
		if proto.Unmarshal(data, req) != nil {
			return
		}
		opened := 0
		r := New(Config{Resolve: func(name string, _ map[string]string) (Model, error) {
			opened++
			if strings.HasPrefix(name, "no") {
				return Model{}, &model.Error{Kind: model.KindAuth, Provider: "fake", Message: "set FAKE_API_KEY"}
			}
			name, _, _ = strings.Cut(name, "@")
			return Model{LLM: untouched{t}, Provider: "fake", Name: name, Builtins: []string{googleSearchTool, toolSearchTool}}, nil
		}})
		spec := func() *record.Spec {
			return &record.Spec{Prompt: "go", Parts: req.GetUserParts(), Agent: req.GetAgent(), Tools: req.GetTools()}
		}
		checked := spec()
		err := r.Check(t.Context(), checked, nil)
		if most := r.limits().Nodes * (1 + maxFallbacks); opened > most {
			t.Errorf("%d models were opened, at most %d may be", opened, most)
		}
		if again := r.Check(t.Context(), spec(), nil); fmt.Sprint(err) != fmt.Sprint(again) {
			t.Fatalf("%v, and then %v", err, again)
		}
		if err != nil {
			e, ok := errors.AsType[*fault.Error](err)
			if !ok || !named(e.Message, req) || len(e.Message) > 20_000 {
				t.Fatalf("a refusal does not say where: %q", err)
			}
			return
		}
		built(t, r, checked)
		logged := fromLog(t, checked)
		if err := r.Check(t.Context(), logged, nil); err != nil {
			t.Fatalf("refused when the log has it: %v", err)
		}
		built(t, r, logged)
	})
}

// built has the engine make the agents of a tree that was checked.
func built(t *testing.T, r *Runner, spec *record.Spec) {
	t.Helper()
	run := newFakeRun(t, nil, "go")
	turn := newTurn(run, newHistory(), r, openTurn{})
	var err error
	if turn.tree, err = r.planFor(spec, nil); err != nil {
		t.Fatalf("accepted, and then refused: %v", err)
	}
	if _, err := turn.build(); err != nil {
		t.Fatalf("accepted, and then not built: %v", err)
	}
}

// fromLog is a spec as the log has it.
func fromLog(t *testing.T, spec *record.Spec) *record.Spec {
	t.Helper()
	started := &record.TurnStarted{Prompt: spec.Prompt, Parts: spec.Parts}
	var err error
	if started.Agent, err = protojson.Marshal(spec.Agent); err != nil {
		t.Fatal(err)
	}
	for _, tool := range spec.Tools {
		data, err := protojson.Marshal(tool)
		if err != nil {
			t.Fatal(err)
		}
		started.Tools = append(started.Tools, data)
	}
	data, err := json.Marshal(started)
	if err != nil {
		t.Fatal(err)
	}
	read := &record.TurnStarted{}
	if err := unmarshal(data, read); err != nil {
		t.Fatal(err)
	}
	logged, err := read.ReadSpec()
	if err != nil {
		t.Fatal(err)
	}
	return logged
}

// fuzzLogs are the logs of real turns.
func fuzzLogs(t testing.TB) map[string][]record.Record {
	t.Helper()
	out := map[string][]record.Record{}
	for _, tc := range replayTrees() {
		w := newWorld(t, tc.steps)
		w.state = map[string]any{"seen": "s", "app:all": 1, "temp:t": nil}
		if tc.ask {
			w.tools = append(w.tools, offer("loop_continue"))
		}
		w.script.always = func(string) step { return say("more") }
		for _, tool := range w.tools {
			tool.NeedsApproval = tc.leave && tool.GetName() == "calc"
		}
		w.watch = func(turn *session.Turn, m *agentdv1.RunResponse) {
			in := m.GetInteractionRequested().GetInteraction()
			says := record.Resolution{Decision: record.Reply, Answer: "so"}
			if in.GetKind() == agentdv1.InteractionKind_INTERACTION_KIND_APPROVAL {
				says = record.Resolution{Decision: record.Approve}
			}
			if in != nil {
				if err := turn.Resolve(t.Context(), in.GetId(), says); err != nil {
					t.Error(err)
				}
			}
		}
		for range tc.turns {
			w.run(tc.tree, "go")
		}
		recs, err := w.store.Read(t.Context(), w.session, 0, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		out[tc.name] = recs
	}
	return out
}

// FuzzLog reads any log as a server does: it is rendered, run again, stopped and read again. Each ends, with a result or
// an error.
func FuzzLog(f *testing.F) {
	// The inputs of testdata are those of TestSeeds, and what was found.
	f.Add([]byte("t\tturn_queued\t{}\nt\tturn_dropped\t{}\n"), []byte{})
	f.Fuzz(func(t *testing.T, text, edits []byte) {
		recs := logtext.Parse(text, edits)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond) // a turn that is stopped is waited for
		defer cancel()
		_, verr := Verify(ctx, "s", logtext.All(recs), nil)
		r := New(Config{Resolve: func(string, map[string]string) (Model, error) {
			return Model{LLM: untouched{t}, Provider: "fake", Builtins: []string{googleSearchTool, toolSearchTool}}, nil
		}})
		turns := map[string]bool{}
		for _, rec := range recs {
			if turns[rec.TurnID] {
				continue
			}
			turns[rec.TurnID] = true
			_, _, err := r.ModelCalls(ctx, session.TurnLog{SessionID: "s", TurnID: rec.TurnID, Records: logtext.All(recs)}, 10)
			notPanicked(t, err)
		}
		notPanicked(t, verr)

		db := newMemStore()
		db.logs["s"] = recs
		_, before := shownBy(t, db, r)
		m, err := session.NewManager(session.Config{Store: db, Runner: r})
		if err != nil {
			t.Fatal(err)
		}
		err = m.CancelTurn(t.Context(), "s", "", "enough")
		notPanicked(t, err)
		if err := m.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, after := shownBy(t, db, r); before == nil && after != nil {
			t.Fatalf("the log can be read, and cannot be when its turn was stopped (%v): %v", err, after)
		}
	})
}

// shownBy returns what a client reads of a session.
func shownBy(t *testing.T, db *memStore, r *Runner) ([]session.Placed, error) {
	t.Helper()
	m, err := session.NewManager(session.Config{Store: db, Runner: r})
	if err != nil {
		t.Fatal(err)
	}
	shown, _, read := m.SessionEvents(t.Context(), "s", "", 1<<20, nil)
	notPanicked(t, read)
	if err := m.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	return shown, read
}

func notPanicked(t *testing.T, err error) {
	t.Helper()
	if err != nil && strings.Contains(err.Error(), "panic") {
		t.Fatal(err)
	}
}

var seedsFlag = flag.Bool("adkbridge.seeds", false, "have TestSeeds write the inputs that it checks, here and in packages record and check")

// TestSeeds runs the logs again that the fuzzers begin with: they are those of real turns.
func TestSeeds(t *testing.T) {
	const own, checks = "testdata/fuzz/FuzzLog", "../internal/check/testdata/fuzz/FuzzLog"
	if *seedsFlag {
		for name, recs := range fuzzLogs(t) {
			for _, dir := range []string{own, checks} {
				writeSeed(t, dir, name, logtext.Format(recs), []byte{})
			}
			for _, rec := range recs { // the last of each kind
				if rec.Kind == record.KindEvent {
					writeSeed(t, "testdata/fuzz/FuzzDecode", name, rec.Data)
					continue
				}
				writeSeed(t, "../session/record/testdata/fuzz/FuzzDecode", string(rec.Kind), string(rec.Kind), rec.Data)
			}
		}
		for i, req := range fuzzTrees() {
			data, err := proto.Marshal(req)
			if err != nil {
				t.Fatal(err)
			}
			writeSeed(t, "testdata/fuzz/FuzzTree", fmt.Sprint(i), data)
		}
	}
	for _, tc := range replayTrees() {
		text := readSeed(t, own, tc.name)
		if other := readSeed(t, checks, tc.name); !bytes.Equal(text, other) {
			t.Errorf("%s: the log is another one in %s", tc.name, checks)
		}
		recs := logtext.Parse(text, nil)
		rep, err := Verify(t.Context(), "s", logtext.All(recs), nil)
		if err != nil || rep.Divergence != nil || rep.Turns != tc.turns {
			t.Errorf("%s: %+v, %v: %v", tc.name, rep, err, rep.Divergence)
		}
		db := newMemStore()
		db.logs["s"] = recs
		if shown, err := shownBy(t, db, New(Config{})); err != nil || len(shown) < tc.turns*4 {
			t.Errorf("%s: %d messages, %v", tc.name, len(shown), err)
		}
	}
}

// seedFile is the file of an input.
func seedFile(dir, name string) string {
	return filepath.Join(filepath.FromSlash(dir), "real-"+strings.ReplaceAll(name, " ", "-"))
}

// writeSeed writes an input of texts and bytes as `go test -fuzz` keeps it.
func writeSeed(t *testing.T, dir, name string, values ...any) {
	t.Helper()
	var b strings.Builder
	b.WriteString("go test fuzz v1\n")
	for _, v := range values {
		switch v := v.(type) {
		case string:
			fmt.Fprintf(&b, "string(%q)\n", v)
		case []byte:
			fmt.Fprintf(&b, "[]byte(%q)\n", v)
		}
	}
	file := seedFile(dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(b.String()), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// readSeed reads the first bytes of an input.
func readSeed(t *testing.T, dir, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(seedFile(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	_, quoted, _ := strings.Cut(string(data), "[]byte(")
	quoted, _, _ = strings.Cut(quoted, "\n")
	text, err := strconv.Unquote(strings.TrimSuffix(strings.TrimSpace(quoted), ")"))
	if err != nil {
		t.Fatal(err)
	}
	return []byte(text)
}
