package daemon_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"
	"pgregory.net/rapid"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/internal/jsondiff"
)

// farNumbers are some that a float64 bends, or does not have.
const farNumbers = `{"big": 9007199254740993, "far": [1e400, -1E+400, 1e-400], "fine": 0.1000000000000000055511151231257827, "spelt": [1.0, -0, 1E2, 12345678901234567890123456789.5]}`

// jsonObjects are JSON texts of objects, with all that JSON has within three levels.
func jsonObjects() *rapid.Generator[string] {
	number := rapid.StringMatching(`-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?`)
	text := rapid.Custom(func(t *rapid.T) string {
		data, _ := json.Marshal(rapid.String().Draw(t, "text"))
		return string(data)
	})
	value := rapid.OneOf(number, text, rapid.SampledFrom([]string{"true", "false", "{}", "[]", `"\ud83d\ude00\/"`}))
	for range 2 {
		inner := value
		value = rapid.OneOf(inner, objects(inner, rapid.OneOf(inner, rapid.Just("null"))), lists(rapid.OneOf(inner, rapid.Just("null"))))
	}
	return objects(value, value)
}

// objects are objects of some values, each of another name, which is no scope of state.
func objects(first, rest *rapid.Generator[string]) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		members := []string{}
		for name := range rapid.MapOfN(rapid.StringMatching(`[^:]{0,8}`), rapid.Bool(), 0, 5).Draw(t, "names") {
			key, _ := json.Marshal(name)
			of := first
			if len(members) > 0 {
				of = rest
			}
			members = append(members, string(key)+" : "+of.Draw(t, "value"))
		}
		return "{" + strings.Join(members, ", ") + "}"
	})
}

func lists(of *rapid.Generator[string]) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		return "[" + strings.Join(rapid.SliceOfN(of, 0, 4).Draw(t, "items"), ",\n") + "]"
	})
}

// sameJSON fails unless two texts are the same value, numbers compared by their digits.
func sameJSON(t *testing.T, what, want, got string) {
	t.Helper()
	w, err := jsondiff.Decode([]byte(want))
	if err != nil {
		t.Fatalf("%s: %v in %s", what, err, want)
	}
	g, err := jsondiff.Decode([]byte(got))
	if err != nil {
		t.Fatalf("%s: %v in %s", what, err, got)
	}
	if d := jsondiff.First(w, g); d != nil {
		t.Errorf("%s: %v", what, d)
	}
}

// stateTexts are the states in the events of a turn.
func stateTexts(t *testing.T, c agentdv1connect.SessionServiceClient, session, turn string) []string {
	t.Helper()
	var texts []string
	for _, e := range call(t, c.ListTurnEvents, &agentdv1.ListTurnEventsRequest{SessionId: session, TurnId: turn}).GetEvents() {
		u := e.GetStateUpdate()
		if u == nil {
			continue
		}
		texts = append(texts, stateText(t, u))
		nearest(t, u.GetStateDelta(), stateText(t, u))
	}
	return texts
}

// stateText is what an update says, as text.
func stateText(t *testing.T, u *agentdv1.RunResponse_StateUpdate) string {
	t.Helper()
	if text := u.GetStateDeltaJson(); text != "" {
		return text
	}
	data, err := json.Marshal(u.GetStateDelta().AsMap())
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// nearest checks a Struct against the text: float64 as near as there are.
func nearest(t *testing.T, s *structpb.Struct, text string) {
	t.Helper()
	if data, err := s.MarshalJSON(); err != nil {
		t.Errorf("the struct %v is no JSON: %v, %s", s, err, data)
	}
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var keys map[string]any
	if err := dec.Decode(&keys); err != nil {
		t.Fatal(err)
	}
	for key := range maps.Keys(keys) {
		n, ok := keys[key].(json.Number)
		if !ok {
			continue
		}
		want, _ := n.Float64()
		want = min(max(want, -math.MaxFloat64), math.MaxFloat64)
		if got := s.GetFields()[key].GetNumberValue(); got != want {
			t.Errorf("%q: %v, want %v of %s", key, got, want, n)
		}
	}
	if len(keys) != len(s.GetFields()) {
		t.Errorf("%v and %s have other keys", s, text)
	}
}

// TestStateJSON: whatever a JSON object holds comes back as it was written, from the
// beginning of a turn, in instructions, from a tool, in forks and after a restart, and a
// replay finds the same.
func TestStateJSON(t *testing.T) {
	dir := t.TempDir()
	cfg := daemon.Config{Addr: "127.0.0.1:0", DataDir: dir, Scripts: map[string]string{"asks": asks}}
	d, err := daemon.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	objects := []string{farNumbers, `{"user:id": 9007199254740993}`}
	for seed := range 12 {
		objects = append(objects, jsonObjects().Example(seed))
	}
	type stored struct{ session, own string }
	var all []stored
	wires := wires(t, d)
	c := wires["Connect, JSON, HTTP/1.1"]
	for i, object := range objects {
		if i%2 == 1 {
			c = wires["gRPC"]
		}
		begin, delta := `{"of": `+object+`, "n": 1e999}`, object
		ex := lookRequest("look")
		ex.InitialStateJson = begin
		ex.Agent.GetLlm().Instruction = "Of {of}."
		turn := until(t, c, call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: ex}).GetTurn(), agentdv1.TurnStatus_TURN_STATUS_WAITING_FOR_CLIENT)
		id := turn.GetSessionId()
		for _, text := range []string{delta, compact(t, delta)} { // the second one repeats the first
			refused := call(t, c.SubmitToolResults, &agentdv1.SubmitToolResultsRequest{SessionId: id, TurnId: turn.GetId(), Results: []*agentdv1.RunRequest_ToolCallResponse{{
				ToolCallId: turn.GetPendingToolCalls()[0].GetToolCallId(), StateDeltaJson: text, Result: &agentdv1.RunRequest_ToolCallResponse_Output{Output: "seen"},
			}}}).GetRefused()
			if len(refused) > 0 {
				t.Errorf("%s is refused: %v", text, refused)
			}
		}
		until(t, c, turn, agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED)
		texts := stateTexts(t, c, id, turn.GetId())
		if delta == "{}" { // sets nothing
			texts = append(texts, "{}")
		}
		if len(texts) != 2 {
			t.Fatalf("told of the state %q", texts)
		}
		sameJSON(t, "the beginning", begin, withoutUser(t, texts[0]))
		sameJSON(t, "the tool's", delta, texts[1])
		instruction := call(t, c.ListModelCalls, &agentdv1.ListModelCallsRequest{SessionId: id}).GetCalls()[0].GetInstruction()
		filled, _ := strings.CutPrefix(instruction, "Of ")
		filled, _, _ = strings.Cut(filled, ".\n")
		sameJSON(t, "the instruction", object, strings.TrimSuffix(filled, "."))

		whole := merged(t, begin, delta)
		fork := call(t, c.ForkSession, &agentdv1.ForkSessionRequest{SessionId: id}).GetSession().GetId()
		sameJSON(t, "the fork", whole, stateOf(t, c, fork))
		all = append(all, stored{id, whole})
	}
	stop(t, d)
	for _, s := range all {
		if rep, err := daemon.Replay(t.Context(), daemon.Config{DataDir: dir}, s.session); err != nil || rep.Divergence != nil || rep.Turns != 1 {
			t.Errorf("replay: %+v, %v", rep, err)
		}
	}
	restarted := start(t, cfg)
	c = h1(t, restarted)
	for _, s := range all {
		sameJSON(t, "after a restart", s.own, stateOf(t, c, s.session))
	}
}

// TestStateJSONOverRestart: a turn that waits for a tool continues with its numbers when the
// daemon has restarted.
func TestStateJSONOverRestart(t *testing.T) {
	cfg := daemon.Config{Addr: "127.0.0.1:0", DataDir: t.TempDir(), Scripts: map[string]string{"asks": asks}}
	d, err := daemon.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := h1(t, d)
	ex := lookRequest("look")
	ex.InitialStateJson = `{"of": ` + farNumbers + `, "temp:id": 9007199254740995}`
	ex.Agent.GetLlm().Instruction = "Of {of} for {temp:id} and {answer?}."
	turn := until(t, c, call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: ex}).GetTurn(), agentdv1.TurnStatus_TURN_STATUS_WAITING_FOR_CLIENT)
	stop(t, d)
	c = h1(t, start(t, cfg))
	call(t, c.SubmitToolResults, &agentdv1.SubmitToolResultsRequest{SessionId: turn.GetSessionId(), TurnId: turn.GetId(), Results: []*agentdv1.RunRequest_ToolCallResponse{{
		ToolCallId: turn.GetPendingToolCalls()[0].GetToolCallId(), StateDeltaJson: `{"answer": -1e400}`, Result: &agentdv1.RunRequest_ToolCallResponse_Output{Output: "seen"},
	}}})
	until(t, c, turn, agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED)
	calls := call(t, c.ListModelCalls, &agentdv1.ListModelCallsRequest{SessionId: turn.GetSessionId()}).GetCalls()
	if len(calls) != 2 {
		t.Fatalf("calls %v", calls)
	}
	for i, rest := range []string{" for 9007199254740995 and .", " for 9007199254740995 and -1e400."} {
		filled, _ := strings.CutPrefix(calls[i].GetInstruction(), "Of ")
		filled, said, ok := strings.Cut(filled, " for ")
		if sameJSON(t, "the instruction", farNumbers, filled); !ok || !strings.HasPrefix(" for "+said, rest) {
			t.Errorf("call %d was told %s", i, calls[i].GetInstruction())
		}
	}
}

func h1(t *testing.T, d *daemon.Daemon) agentdv1connect.SessionServiceClient {
	t.Helper()
	return wires(t, d)["Connect, JSON, HTTP/1.1"]
}

// stateOf is the state that a session's next turn begins with.
func stateOf(t *testing.T, c agentdv1connect.SessionServiceClient, session string) string {
	t.Helper()
	ex := execute(llm("root", "echo"), "hi").GetExecute()
	ex.SessionId = &session
	turn := until(t, c, call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: ex}).GetTurn(), agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED)
	return withoutUser(t, stateTexts(t, c, session, turn.GetId())[0])
}

// withoutUser takes the keys away that the sessions of the test share.
func withoutUser(t *testing.T, text string) string {
	t.Helper()
	return merged(t, text, "{}")
}

// compact is JSON without the spaces.
func compact(t *testing.T, text string) string {
	t.Helper()
	var out bytes.Buffer
	if err := json.Compact(&out, []byte(text)); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// merged is a state with the keys of another one, and without those that sessions share.
func merged(t *testing.T, texts ...string) string {
	t.Helper()
	all := map[string]json.RawMessage{}
	for _, text := range texts {
		if err := json.Unmarshal([]byte(text), &all); err != nil {
			t.Fatal(err)
		}
	}
	maps.DeleteFunc(all, func(key string, value json.RawMessage) bool {
		return strings.HasPrefix(key, "user:") || bytes.Equal(value, []byte("null"))
	})
	data, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestStateJSONIsRefused: the field is named, of a turn's beginning, of a result, and of
// what sessions share.
func TestStateJSONIsRefused(t *testing.T) {
	c := h1(t, start(t, daemon.Config{Scripts: map[string]string{"asks": asks}}))
	some, err := structpb.NewStruct(map[string]any{"a": 1})
	if err != nil {
		t.Fatal(err)
	}
	nested := func(levels int) string {
		return strings.Repeat(`{"a":`, levels) + "1" + strings.Repeat("}", levels)
	}
	turn := until(t, c, call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: lookRequest("look")}).GetTurn(), agentdv1.TurnStatus_TURN_STATUS_WAITING_FOR_CLIENT)
	for name, wrong := range map[string]struct {
		state *structpb.Struct
		text  string
		want  string
	}{
		"both":                {state: some, text: `{"a":1}`, want: "send one of them"},
		"both, none of which": {state: &structpb.Struct{}, text: `{}`, want: "send one of them"},
		"a list":              {text: `[1]`, want: `is no JSON object: "[1]"`},
		"null":                {text: `null`, want: "is no JSON object"},
		"no JSON":             {text: `{"a":1,}`, want: "it is not JSON: invalid character '}'"},
		"a number with zeros": {text: `{"a":01}`, want: "it is not JSON"},
		"a number of none":    {text: `{"a":NaN}`, want: "it is not JSON"},
		"half of one":         {text: `{"a":[1`, want: "ends too early, after 7 bytes"},
		"one name twice":      {text: `{"a":1,"\u0061":2}`, want: `["a"] is there twice`},
		"deep down":           {text: `{"a":[0,{"b":{"c":1,"c":1}}]}`, want: `["a"][1]["b"]["c"] is there twice`},
		"something behind":    {text: `{"a":1} {}`, want: "something follows"},
		"half of a pair":      {text: `{"a":"\\ud800 \ud800"}`, want: "half of a surrogate pair"},
		"the other half":      {text: `{"\udc00":1}`, want: "half of a surrogate pair"},
		"too deep":            {text: nested(33), want: "at most 32 levels"},
		"too many":            {text: `{"a":[` + strings.Repeat("1,", 200_000) + `1]}`, want: "more than 200000 values"},
	} {
		ex := lookRequest("look")
		ex.InitialState, ex.InitialStateJson = wrong.state, wrong.text
		e := details(t, try(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: ex}))
		checkRefusal(t, name, e, "execute.initial_state", wrong.want, wrong.state != nil)

		refused := call(t, c.SubmitToolResults, &agentdv1.SubmitToolResultsRequest{SessionId: turn.GetSessionId(), TurnId: turn.GetId(), Results: []*agentdv1.RunRequest_ToolCallResponse{{
			ToolCallId: "none", StateDelta: wrong.state, StateDeltaJson: wrong.text,
		}}}).GetRefused()
		if len(refused) != 1 {
			t.Fatalf("%s: refused %v", name, refused)
		}
		if !strings.Contains(name, "both") && name != "a list" && name != "null" {
			e := details(t, try(t, c.SetSharedState, &agentdv1.SetSharedStateRequest{Values: []*agentdv1.SharedStateValue{{Key: "app:a", Value: wrong.text}}}))
			checkRefusal(t, name, e, "values[0].value", wrong.want, false)
		}
	}
	for name, fine := range map[string]string{"deep": nested(32), "a pair": `{"a":"\ud83d\ude00"}`, "none": "{}"} {
		ex := execute(llm("root", "echo"), "hi").GetExecute()
		ex.InitialStateJson = fine
		until(t, c, call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: ex}).GetTurn(), agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED)
		_ = name
	}
	// A result that is refused settles its call, and says which field it was.
	open := turn.GetPendingToolCalls()[0].GetToolCallId()
	refused := call(t, c.SubmitToolResults, &agentdv1.SubmitToolResultsRequest{SessionId: turn.GetSessionId(), TurnId: turn.GetId(), Results: []*agentdv1.RunRequest_ToolCallResponse{{
		ToolCallId: open, StateDelta: some, StateDeltaJson: "{}", Result: &agentdv1.RunRequest_ToolCallResponse_Output{Output: "seen"},
	}}}).GetRefused()
	if len(refused) != 1 {
		t.Fatalf("refused %v", refused)
	}
	fields := ""
	for _, v := range refused[0].GetError().GetViolations() {
		fields += v.GetField() + " "
	}
	if !strings.Contains(fields, "state_delta ") || !strings.Contains(fields, "state_delta_json ") {
		t.Errorf("refused because of %s", fields)
	}
}

// checkRefusal checks what is said of a field of state.
func checkRefusal(t *testing.T, name string, e *agentdv1.RunResponse_ErrorResponse, field, want string, both bool) {
	t.Helper()
	fields := fmt.Sprint(e.GetViolations())
	twin := field
	if strings.HasPrefix(field, "execute.") {
		twin += "_json"
	}
	if !strings.Contains(e.GetMessage(), want) || !strings.HasPrefix(e.GetMessage(), field) || !strings.Contains(fields, `"`+twin+`"`) || both != (len(e.GetViolations()) == 2) {
		t.Errorf("%s: %v", name, e)
	}
}
