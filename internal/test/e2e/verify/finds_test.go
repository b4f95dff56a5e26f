package verify

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/adkbridge"
	"github.com/apzuk3/agentd/agentdtest"
	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/test/harness"
	"github.com/apzuk3/agentd/internal/test/testdaemon"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store/sqlite"
)

// verifiedLog is the log of a session of two turns: agents that call a tool, write
// the state, and read it.
func verifiedLog(t *testing.T) (id string, recs []record.Record) {
	t.Helper()
	disk, err := sqlite.Open(t.Context(), sqlite.Memory, sqlite.Config{})
	if err != nil {
		t.Fatal(err)
	}
	store := &harness.RecordedStore{Store: disk, Keep: true}
	t.Cleanup(func() {
		if err := disk.Close(); err != nil {
			t.Error(err)
		}
	})
	d := agentdtest.Start(t, agentdtest.Config{
		Scripts: map[string]string{
			"asker": `answers:
  - when: {after_tool: look}
    text: seen
  - when: {}
    calls: [{name: look, args: {at: sky}}]`,
			"writer": `answers: [{when: {}, text: "It is {{system}}."}]`,
		},
	}, testdaemon.WithStore(store))
	clnt := d.Client()
	err = client.AddTool(clnt, "look", "Looks.", func(context.Context, struct {
		At string `json:"at"`
	},
	) (any, error) {
		return map[string]any{"color": "blue"}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	asker := harness.LLMAgent("asker", "scripted/asker", "Look.", "look")
	asker.GetLlm().OutputKey = "found"
	tree := harness.SequentialAgent("root", asker, harness.LLMAgent("writer", "scripted/writer", "{found}"))
	run := func(opts ...client.RunOption) {
		for _, err := range clnt.Run(t.Context(), tree, "What is up?", opts...) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	run()
	id = store.Started(t)[0]
	run(client.WithSessionID(id))
	for rec, err := range harness.RecordsOf(t.Context(), store, id) {
		if err != nil {
			t.Fatal(err)
		}
		recs = append(recs, rec)
	}
	return id, recs
}

// logOf yields records as a log.
func logOf(recs []record.Record) func(func(record.Record, error) bool) {
	return func(yield func(record.Record, error) bool) {
		for _, rec := range recs {
			if !yield(rec, nil) {
				return
			}
		}
	}
}

// Whatever is changed of a log that follows from the rest of it is found, at its
// record and field.
func TestVerifyFinds(t *testing.T) {
	id, recs := verifiedLog(t)
	rep, err := adkbridge.Verify(t.Context(), id, logOf(recs), nil)
	if err != nil || rep.Divergence != nil || rep.Turns != 2 || rep.Records != len(recs) {
		t.Fatalf("%+v, %v", rep, err)
	}
	// Of each turn: started, agents_changed, call, tool_result, response, answer,
	// agents_changed, answer, ended.
	if len(recs) != 18 {
		t.Fatalf("%d records", len(recs))
	}
	for name, c := range map[string]struct {
		at           int // index of the record
		old, new     string
		seq          int64
		field        string
		recorded     string
		replayed     string
		without, end bool
	}{
		"result": {
			at: 3, old: "blue", new: "grey", seq: 5,
			field: "content.parts[0].functionResponse.response.color", recorded: `"blue"`, replayed: `"grey"`,
		},
		"response": {
			at: 13, old: "blue", new: "grey", seq: 14,
			field: "content.parts[0].functionResponse.response.color", recorded: `"grey"`, replayed: `"blue"`,
		},
		"answer":      {at: 5, old: `"text":"seen"`, new: `"text":"unseen"`, seq: 6, field: "actions.stateDelta.found", recorded: `"seen"`, replayed: `"unseen"`},
		"state":       {at: 5, old: `"found":"seen"`, new: `"found":"lost"`, seq: 6, field: "actions.stateDelta.found", recorded: `"lost"`, replayed: `"seen"`},
		"no state":    {at: 14, old: `"stateDelta":{"found":"seen"},`, seq: 15, field: "actions.stateDelta", recorded: "nothing", replayed: `{"found":"seen"}`},
		"path":        {at: 7, old: `"path":["root","writer"]`, new: `"path":["root"]`, seq: 8, field: "customMetadata.agentd.path[1]", recorded: "nothing", replayed: `"writer"`},
		"last":        {at: 7, old: `"last":true,`, seq: 8, field: "customMetadata.agentd.last", recorded: "nothing", replayed: "true"},
		"tree":        {at: 0, old: `"outputKey":"found"`, new: `"outputKey":"gone"`, seq: 6, field: "actions.stateDelta.found", recorded: `"seen"`, replayed: "nothing"},
		"tool":        {at: 0, old: `"toolNames":["look"]`, new: `"toolNames":[]`, seq: 3, field: "customMetadata.agentd.calls", recorded: `["call_`, replayed: "nothing"},
		"lost result": {at: 3, without: true, seq: 9, recorded: "no result of call", replayed: "waits for one"},
		"lost answer": {at: 5, without: true, seq: 9, recorded: "no more of asker", replayed: "calls the model scripted/asker"},
		"lost event":  {at: 7, without: true, seq: 9, recorded: "no more of writer", replayed: "calls the model scripted/writer"},
		"more than it needs": {
			at: 0, old: `{"name":"writer"`, new: `{"name":"other"`, seq: 9,
			recorded: "no more of other", replayed: "calls the model",
		},
		"a start of another": {at: 1, old: `"path":["root","asker"]`, new: `"path":["boot","asker"]`, seq: 2, field: "changes[1].path[0]", recorded: `"boot"`, replayed: `"root"`},
		"a start of a kind":  {at: 1, old: `"kind":"sequential"`, new: `"kind":"loop"`, seq: 2, field: "changes[0].kind", recorded: `"loop"`, replayed: `"sequential"`},
		"a start's model":    {at: 15, old: `"model":"scripted/writer"`, new: `"model":"echo"`, seq: 16, field: "changes[1].model", recorded: `"echo"`, replayed: `"scripted/writer"`},
		"an end":             {at: 6, old: `"ended":"completed"`, new: `"ended":"transferred"`, seq: 7, field: "changes[0].ended", recorded: `"transferred"`, replayed: `"completed"`},
		"lost starts":        {at: 1, without: true, seq: 7, field: "changes[0].ended", recorded: `"completed"`, replayed: "nothing"},
		"lost changes":       {at: 6, without: true, seq: 8, recorded: "no start of agent root/writer before it", replayed: "records it"},
		"a start too many": {
			at: 6, old: `"changes":[`, new: `"changes":[{"path":["root","ghost"],"kind":"llm"},`, seq: 7,
			field: "changes[0]", recorded: "start of agent root/ghost", replayed: "nothing",
		},
		"how it ended": {
			at: 8, old: `"completed":true`, new: `"completed":false,"code":23`, seq: 9, end: true,
			field: "code", recorded: "ERROR_CODE_OUTPUT_INVALID", replayed: "finishes naturally",
		},
	} {
		t.Run(name, func(t *testing.T) {
			edited := slices.Clone(recs)
			if c.without {
				edited = slices.Delete(edited, c.at, c.at+1)
			} else {
				text := string(edited[c.at].Data)
				if c.end {
					c.new = strings.Replace(c.new, "23", agentdv1Code(t), 1)
				}
				changed := strings.Replace(text, c.old, c.new, 1)
				if changed == text {
					t.Fatalf("record %d has no %s: %s", edited[c.at].Seq, c.old, text)
				}
				edited[c.at].Data = []byte(changed)
			}
			rep, err := adkbridge.Verify(t.Context(), id, logOf(edited), nil)
			if err != nil {
				t.Fatal(err)
			}
			d := rep.Divergence
			if d == nil || d.Seq != c.seq || d.Field != c.field || !strings.HasPrefix(d.Recorded, c.recorded) || !strings.HasPrefix(d.Replayed, c.replayed) {
				t.Errorf("got %+v", d)
			}
		})
	}
}

// agentdv1Code is the number of OUTPUT_INVALID.
func agentdv1Code(t *testing.T) string {
	t.Helper()
	return strconv.Itoa(int(agentdv1.ErrorCode_ERROR_CODE_OUTPUT_INVALID))
}

// Any beginning of a log is one that a killed server may leave.
func TestVerifyPrefixes(t *testing.T) {
	id, recs := verifiedLog(t)
	for n := range recs {
		rep, err := adkbridge.Verify(t.Context(), id, logOf(recs[:n]), nil)
		if err != nil || rep.Divergence != nil || rep.Records != n {
			t.Errorf("the first %d records: %+v, %v", n, rep, err)
		}
	}
}
