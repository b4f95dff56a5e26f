package cli_test

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/cli"
)

func retract(message ...string) *agentdv1.RunResponse {
	r := &agentdv1.MessageRetracted{}
	if len(message) > 0 {
		r.MessageId = message[0]
	}
	return &agentdv1.RunResponse{Response: &agentdv1.RunResponse_MessageRetracted{MessageRetracted: r}}
}

// message names the message of a text.
func message(id string, event *agentdv1.RunResponse) *agentdv1.RunResponse {
	event.GetOutputChunk().MessageId = id
	return event
}

var tomorrow = time.Date(2026, 3, 5, 5, 6, 7, 0, time.UTC)

func unservedCall() *agentdv1.RunResponse {
	return &agentdv1.RunResponse{Response: &agentdv1.RunResponse_ToolCallUnserved{ToolCallUnserved: &agentdv1.ToolCallUnserved{
		SessionId: "s1", ToolCallId: "c1", ToolName: "lo\x1bok", AgentPath: []string{"a"}, ExpireTime: timestamppb.New(tomorrow),
	}}}
}

func stateChange() *agentdv1.RunResponse {
	return &agentdv1.RunResponse{Response: &agentdv1.RunResponse_StateUpdate_{StateUpdate: &agentdv1.RunResponse_StateUpdate{
		StateDelta: &structpb.Struct{Fields: map[string]*structpb.Value{"k": structpb.NewNumberValue(1)}},
	}}}
}

func TestText(t *testing.T) {
	a, b, c := []string{"root", "a"}, []string{"root", "b"}, []string{"root", "c"}
	toolResult := func(err string) *agentdv1.RunResponse {
		r := &agentdv1.ToolCallAnswered{ToolName: "look", Result: &agentdv1.ToolCallAnswered_Output{Output: "fine"}}
		if err != "" {
			r.Result = &agentdv1.ToolCallAnswered_Error{Error: err}
		}
		return &agentdv1.RunResponse{Response: &agentdv1.RunResponse_ToolCallAnswered{ToolCallAnswered: r}}
	}
	for name, tc := range map[string]struct {
		screen cli.Text
		events []*agentdv1.RunResponse
		want   string
	}{
		"one agent":     {cli.Text{}, []*agentdv1.RunResponse{says(a, "Hello "), says(a, "you.", "last"), ends(true)}, "a: Hello you.\n"},
		"two agents":    {cli.Text{}, []*agentdv1.RunResponse{says(a, "one\n", "last"), says(b, "two", "last"), says(a, "three", "last"), ends(true)}, "a: one\nb: two\na: three\n"},
		"no text":       {cli.Text{}, []*agentdv1.RunResponse{ends(false)}, ""},
		"leading lines": {cli.Text{}, []*agentdv1.RunResponse{says(a, "\n\n"), says(a, "x"), ends(true)}, "a: x\n"},
		"at the same time": {cli.Text{}, []*agentdv1.RunResponse{
			says(a, "a1 "), says(b, "b1 "), says(c, "c1 "), says(a, "a2 "), says(b, "b2 "), says(a, "a3", "last"), says(c, "c2", "last"), says(b, "b3", "last"), ends(true),
		}, "a: a1 a2 a3\nb: b1 b2 \nc: c1 c2\nb: b3\n"},
		"at the same time, to the end": {cli.Text{}, []*agentdv1.RunResponse{says(a, "a1"), says(b, "b1"), ends(false)}, "a: a1\nb: b1\n"},
		"much at the same time":        {cli.Text{}, []*agentdv1.RunResponse{says(a, "a1"), says(b, strings.Repeat("b", 70<<10)), says(a, "a2"), ends(false)}, "a: a1\nb: " + strings.Repeat("b", 70<<10) + "\na: a2\n"},
		"a message that is over":       {cli.Text{}, []*agentdv1.RunResponse{says(a, "one"), callEnded(a), says(a, "two"), says(b, "three"), callEnded(a), callEnded(b)}, "a: one\ntwo\nb: three\n"},
		"thoughts":                     {cli.Text{}, []*agentdv1.RunResponse{says(a, "hm", "thought"), says(a, "yes", "last"), ends(true)}, "a: yes\n"},
		"thoughts shown":               {cli.Text{Thoughts: true, Colors: true}, []*agentdv1.RunResponse{says(a, "hm", "thought"), says(a, "yes", "last"), ends(true)}, "\x1b[1ma:\x1b[0m \x1b[2mhm\x1b[0m\nyes\n"},
		"colors":                       {cli.Text{Colors: true}, []*agentdv1.RunResponse{calls("1", "look", "{}")}, "\x1b[2m→ look {}\x1b[0m\n"},
		"tools": {cli.Text{}, []*agentdv1.RunResponse{
			says(a, "I will look."), calls("1", "look", "{\"a\":\n  \"b\"}"), toolResult(""), toolResult("broken\nleg"),
			{Response: &agentdv1.RunResponse_ToolCallAnnounced{ToolCallAnnounced: &agentdv1.ToolCallAnnounced{ToolName: "look", ToolInput: "{}"}}},
			{Response: &agentdv1.RunResponse_ToolCallCanceled{ToolCallCanceled: &agentdv1.ToolCallCanceled{ToolCallId: "1", Reason: "timed out"}}},
			says(a, "Done."), ends(true),
		}, "a: I will look.\n→ look {\"a\": \"b\"}\n✗ look: broken leg\n→ look {} (not run here)\n✗ tool call canceled: timed out\nDone.\n"},
		"long arguments": {cli.Text{}, []*agentdv1.RunResponse{calls("1", "look", strings.Repeat("ä", 500))}, "→ look " + strings.Repeat("ä", 159) + "…\n"},
		"a call of one that speaks": {cli.Text{}, []*agentdv1.RunResponse{says(a, "mine"), says(b, "waits"), calls("1", "look", "{}"), ends(true)},
			"a: mine\nb: waits\n→ look {}\n"},
		"starts over": {cli.Text{}, []*agentdv1.RunResponse{says(a, "Once up"), says(b, "lost"), retract(), says(a, "Once upon"), ends(true)}, "a: Once up\n↻ the model is asked again; its text starts over\na: Once upon\n"},
		"others start over": {cli.Text{}, []*agentdv1.RunResponse{
			says(a, "mine "), message("1", says(b, "first ")), message("2", says(b, "lost")), says(c, "calls"), calls("1", "look", "{}", c...), retract(), message("2", says(b, "again", "last")), ends(true),
		}, "a: mine \n→ look {}\n↻ the model is asked again; its text starts over\nb: first \nc: calls\nb: again\n"},
		"another starts over": {cli.Text{}, []*agentdv1.RunResponse{says(a, "mine "), message("m2", says(b, "lost")), retract("m2"), says(a, "stays", "last"), retract(), says(b, "anew", "last"), ends(true)}, "a: mine stays\nb: anew\n"},
		"waits": {cli.Text{}, []*agentdv1.RunResponse{
			{Response: &agentdv1.RunResponse_TurnQueued{TurnQueued: &agentdv1.TurnQueued{Ahead: 2}}},
			{Response: &agentdv1.RunResponse_MessageInjected{MessageInjected: &agentdv1.MessageInjected{UserPrompt: "and\nquick"}}},
			{Response: &agentdv1.RunResponse_ModelCallRetried{ModelCallRetried: &agentdv1.ModelCallRetried{AgentPath: a, Code: agentdv1.ErrorCode_ERROR_CODE_RATE_LIMITED, Wait: durationpb.New(1500 * time.Millisecond)}}},
		}, "… waiting for the session's running turn, 2 more before\n> and quick\n↻ a: the model call failed (RATE_LIMITED), trying again in 1.5s\n"},
		"people": {cli.Text{}, []*agentdv1.RunResponse{
			requested(approval), resolved(&agentdv1.Interaction{ToolName: "refund", Resolution: approve("")}), resolved(&agentdv1.Interaction{ToolName: "refund", Resolution: approve("{}")}),
			requested(question), resolved(&agentdv1.Interaction{Resolution: answer("red")}), resolved(&agentdv1.Interaction{Resolution: deny("")}), resolved(&agentdv1.Interaction{}),
		}, "? clerk asks to call refund {\"amount\":30}\n! the call of refund was approved\n! the call of refund was approved with other arguments: {}\n" +
			"? clerk asks: Which one?\n! the question was answered: red\n! the question was denied\n! the question is no longer asked\n"},
		"nobody has the tool": {cli.Text{}, []*agentdv1.RunResponse{says(a, "x"), unservedCall(), ends(true)},
			"a: x\n… no attached client has the tool look; attach one with: agentd run --attach s1 FILE; waiting until " + tomorrow.Local().Format("2006-01-02 15:04:05 MST") + "\n"},
		"state is not shown": {cli.Text{}, []*agentdv1.RunResponse{says(a, "x"), says(b, "y"), stateChange(), says(a, "z"), ends(true)}, "a: x\nb: y\na: z\n"},
		"control characters": {cli.Text{}, []*agentdv1.RunResponse{says([]string{"\x1b[31ma"}, "x\x1b]0;title\x07\ry\u202ez\n", "last"), calls("1", "lo\u009bok", "\x1b[2J"), ends(true)}, "[31ma: x]0;titleyz\n→ look [2J\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			tc.screen.Out = &out
			for _, event := range tc.events {
				if err := tc.screen.Event(event); err != nil {
					t.Fatal(err)
				}
			}
			if out.String() != tc.want {
				t.Errorf("shown\n%.2000q\nwant\n%.2000q", out.String(), tc.want)
			}
		})
	}
}

// However agents speak at the same time, each piece is shown once, and those of one
// agent in their order.
func TestTextKeepsAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var out strings.Builder
		s := &cli.Text{Out: &out}
		said := map[string]string{}
		for i := range rapid.IntRange(0, 60).Draw(t, "pieces") {
			name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "agent")
			var event *agentdv1.RunResponse
			switch rapid.IntRange(0, 9).Draw(t, "event") {
			case 0:
				event = calls("x", "tool", "{}", "root", name)
			case 1:
				event = stateChange()
			case 2:
				event = says([]string{"root", name}, "", "last")
			default:
				text := fmt.Sprintf("%s%d;", name, i)
				said[name] += text
				event = message(fmt.Sprint(i/5), says([]string{"root", name}, text))
			}
			if err := s.Event(event); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Event(ends(true)); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"a", "b", "c"} {
			if got := strings.Join(regexp.MustCompile(name+`\d+;`).FindAllString(out.String(), -1), ""); got != said[name] {
				t.Fatalf("%s said %q, shown is %q in\n%s", name, said[name], got, &out)
			}
		}
	})
}

// What comes while a person is asked is kept, within bounds.
func TestHold(t *testing.T) {
	var out strings.Builder
	s := &cli.Text{Out: &out}
	for range 2 {
		if err := errors.Join(s.Event(says([]string{"a"}, "x")), s.Hold(true), s.Event(says([]string{"a"}, "y")), s.Event(says([]string{"a"}, "z"))); err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(out.String(), "x\n") {
			t.Errorf("shown %q", out.String())
		}
		if err := s.Hold(false); err != nil {
			t.Fatal(err)
		}
	}
	if want := "a: x\na: yzx\na: yz"; out.String() != want {
		t.Errorf("shown %q, want %q", out.String(), want)
	}
}

// What is too much to be kept behind a question is shown below it, in the order in
// which it came, and the question is told again.
func TestHoldIsBounded(t *testing.T) {
	var out, want strings.Builder
	s := &cli.Text{Out: &out}
	if err := s.Hold(true); err != nil {
		t.Fatal(err)
	}
	for i := range 2*cli.MaxHeld + 100 {
		text := fmt.Sprintf("%d;", i)
		want.WriteString(text)
		if err := s.Event(says([]string{"a"}, text)); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(out.String(), "the question above still waits"); n != 2 {
		t.Errorf("the question was told again %d times", n)
	}
	if err := s.Hold(false); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(regexp.MustCompile(`\d+;`).FindAllString(out.String(), -1), ""); got != want.String() {
		t.Errorf("shown %.200q, want %.200q", got, want.String())
	}
}

func TestEventLines(t *testing.T) {
	when := timestamppb.New(time.Date(2026, 3, 4, 5, 6, 7, 890e6, time.UTC))
	clock := when.AsTime().Local().Format("15:04:05.000")
	end := at(20, ends(true))
	end.Time = when
	result := &agentdv1.ToolCallAnswered{ToolName: "look", Result: &agentdv1.ToolCallAnswered_Output{Output: "fine"}}
	for name, tc := range map[string]struct {
		event *agentdv1.RunResponse
		want  string
	}{
		"text":    {at(7, says([]string{"root", "a"}, "x\ny")), `           7                output_chunk           root/a "x\ny"`},
		"thought": {at(7, says([]string{"a"}, "hm", "thought")), `           7                thought                a "hm"`},
		"closing": {at(7, says([]string{"a"}, "", "last")), `           7                output_chunk           a (last)`},
		"call":    {at(7, calls("1", "look", `{"a": 1}`)), `           7                tool_call              root/a look {"a": 1}`},
		"unserved": {unservedCall(), `           0                tool_call_unserved     a no attached client has the tool look; attach one with: agentd run --attach s1 FILE; waiting until ` +
			tomorrow.Local().Format("2006-01-02 15:04:05 MST")},
		"result":   {at(7, &agentdv1.RunResponse{Response: &agentdv1.RunResponse_ToolCallAnswered{ToolCallAnswered: result}}), `           7                tool_call_answered     look = fine`},
		"end":      {end, `          20  ` + clock + `  end                    completed; 2 model calls, 1,234 tokens, $0.0123`},
		"error":    {fails(agentdv1.ErrorCode_ERROR_CODE_TIMEOUT, "too\nslow"), `           0                error                  TIMEOUT: too slow`},
		"state":    {at(7, stateChange()), `           7                state_update           {"k":1}`},
		"asked":    {at(7, requested(question)), `           7                interaction_requested  clerk Which one? [red | blue]`},
		"answered": {at(7, resolved(&agentdv1.Interaction{Resolution: answer("red")})), `           7                interaction_resolved   the question was answered: red`},
		"other":    {at(7, retract("a")), `           7                message_retracted      {"messageId":"a"}`},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			if err := cli.EventLine(&out, tc.event); err != nil {
				t.Fatal(err)
			}
			if got := strings.TrimSuffix(out.String(), "\n"); got != tc.want {
				t.Errorf("got\n%q, want\n%q", got, tc.want)
			}
		})
	}
}

func TestViews(t *testing.T) {
	now := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	before := func(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(now.Add(-d)) }
	used := &agentdv1.Usage{ModelCalls: 1, CostUsd: new(1.5), TotalTokens: 1234567}
	sessions := []*agentdv1.Session{
		{Id: "s1", State: agentdv1.SessionState_SESSION_STATE_ACTIVE, LastTurnId: "t1", LastTurnStatus: agentdv1.TurnStatus_TURN_STATUS_WAITING_FOR_INPUT, CreateTime: before(time.Hour), UpdateTime: before(90 * time.Second),
			Usage: used, ClientRef: "my\x1b[31m ref", Labels: map[string]string{"team": "a", "env": "prod"}, Version: 3, LastSeq: 42, ForkedFrom: "s0", ForkedThroughSeq: 7, CreatedBy: "local",
			Budget: &agentdv1.Budget{ModelCalls: 100, Tokens: 2000000, CostUsd: 2.5, WallTime: durationpb.New(30 * time.Minute)}},
		{Id: "session-2", State: agentdv1.SessionState_SESSION_STATE_ARCHIVED, UpdateTime: before(50 * time.Hour), Purged: true},
		{Id: "s3", State: agentdv1.SessionState_SESSION_STATE_ACTIVE, UpdateTime: before(time.Minute), Usage: &agentdv1.Usage{ModelCalls: 2, UnpricedCalls: 2}},
	}
	turn := &agentdv1.Turn{
		Id: "t1", SessionId: "s1", Status: agentdv1.TurnStatus_TURN_STATUS_FAILED, StatusMessage: "too slow", ErrorCode: agentdv1.ErrorCode_ERROR_CODE_TIMEOUT,
		CreateTime: before(3 * time.Hour), StartTime: before(3 * time.Hour), Duration: durationpb.New(61500 * time.Millisecond), Usage: used, UserPrompt: "Write\na poem about the bridges of the whole wide world",
		OutputText: "one\ntwo", PendingToolCalls: []*agentdv1.RunResponse_ToolCallRequest{{ToolCallId: "c1", ToolName: "look", ToolInput: "{}"}}, PendingInteractions: []*agentdv1.Interaction{approval},
		UserParts: []*agentdv1.Part{
			{Content: &agentdv1.Part_Inline{Inline: &agentdv1.InlineData{MimeType: "image/png", Data: make([]byte, 1068)}}},
			{Content: &agentdv1.Part_Text{Text: "This one."}},
			{Content: &agentdv1.Part_File{File: &agentdv1.FileUri{MimeType: "image/jpeg", Uri: "https://example.com/\x1bcat.jpg"}}},
		},
		StructuredOutput: `{"a":1}`,
	}
	partly := &agentdv1.Turn{
		Id: "t2", SessionId: "s1", Status: agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED, CreateTime: before(time.Hour), UserPrompt: "Go",
		Usage: &agentdv1.Usage{ModelCalls: 3, CostUsd: new(0.0123), UnpricedCalls: 2},
	}
	models := []*agentdv1.Model{
		{Name: "gpt-x", Provider: "openai", Price: &agentdv1.ModelPrice{Tiers: []*agentdv1.PriceTier{{Input: 1.25, Cached: 0.125, Output: 10}}, Date: "2026-01-02"}},
		{
			Name: "gem-l", Provider: "gemini", Capabilities: &agentdv1.ModelCapabilities{ContextTokens: 1_048_576, Inputs: []string{"image", "audio"}},
			Price: &agentdv1.ModelPrice{Tiers: []*agentdv1.PriceTier{
				{Input: 2, Cached: 0.2, Output: 12}, {AbovePromptTokens: 200_000, Input: 4, Cached: 0.4, Output: 18},
			}},
		},
		{Name: "claude-h", Provider: "anthropic", Price: &agentdv1.ModelPrice{Tiers: []*agentdv1.PriceTier{{
			Input: 3, Cached: 0.3, Output: 15, CacheWrites: []*agentdv1.CacheWritePrice{{Price: 3.75}, {Ttl: durationpb.New(time.Hour), Price: 6}},
		}}}},
		{Name: "claude-l", Provider: "anthropic", Price: &agentdv1.ModelPrice{Tiers: []*agentdv1.PriceTier{
			{Input: 1, Cached: 0.1, Output: 5, CacheWrites: []*agentdv1.CacheWritePrice{{Ttl: durationpb.New(time.Hour), Price: 2}}},
			{AbovePromptTokens: 100_000, Input: 5, Cached: 0.5, Output: 25, CacheWrites: []*agentdv1.CacheWritePrice{{Price: 6.25}}},
		}}},
		{Name: "echo", Provider: "echo", Available: true, Price: &agentdv1.ModelPrice{Tiers: []*agentdv1.PriceTier{{}}}},
		{Name: "other", Provider: "acme"},
	}
	details := []*agentdv1.ModelCallDetails{
		{
			Call: &agentdv1.ModelCallEnded{
				AgentPath: []string{"root", "a"}, MessageId: "m1", Model: "gpt-x", Duration: durationpb.New(1500 * time.Millisecond),
				Usage: &agentdv1.Usage{PromptTokens: 12, CompletionTokens: 3, CostUsd: new(0.0123)},
			},
			Instruction: "Be\nbrief.", ToolNames: []string{"look", "google_search"}, Contents: 1204, Summary: "It rained.",
			Generation: &agentdv1.GenerationSettings{Seed: new(int32(7))},
		},
		{Call: &agentdv1.ModelCallEnded{AgentPath: []string{"root", "b"}, Model: "echo", MessageId: "m2"}},
		{Call: &agentdv1.ModelCallEnded{AgentPath: []string{"root", "b"}, Model: "echo"}},
		{Call: &agentdv1.ModelCallEnded{AgentPath: []string{"root", "b"}, Model: "echo", Outcome: agentdv1.ModelCallEnded_OUTCOME_SUMMARIZED}},
		{Call: &agentdv1.ModelCallEnded{AgentPath: []string{"root", "b"}, Model: "echo", Outcome: agentdv1.ModelCallEnded_OUTCOME_FAILED}, Contents: 3},
	}
	for name, tc := range map[string]struct {
		show       func(*cli.Printer) error
		text, json string
	}{
		"sessions": {func(p *cli.Printer) error { return p.Sessions(sessions) }, `SESSION    STATE             LAST TURN          UPDATED           TOKENS     COST           REF         LABELS
s1         active            waiting for input  1m ago            1,234,567  $1.50          my[31m ref  env=prod team=a
session-2  archived, purged  -                  2026-03-02 10:00  0          -              -           -
s3         active            -                  1m ago            0          price unknown  -           -
`, `{"id":"s1","state":"SESSION_STATE_ACTIVE",`},
		"no sessions": {func(p *cli.Printer) error { return p.Sessions(nil) }, "nothing\n", ""},
		"session": {func(p *cli.Printer) error { return p.Session(sessions[0]) }, `session      s1
state        active
ref          my[31m ref
labels       env=prod team=a
created by   local
created      2026-03-04 11:00:00 UTC (1h ago)
updated      2026-03-04 11:58:30 UTC (1m ago)
used         1 model call, 1,234,567 tokens, $1.50
budget       100 model calls, 2,000,000 tokens, $2.50, 30m0s
version      3
last seq     42
forked from  s0 at 7
last turn    t1, waiting for input
`, `{"id":"s1",`},
		"turns": {func(p *cli.Printer) error { return p.Turns([]*agentdv1.Turn{turn, partly}) }, `TURN  SESSION  STATUS     CREATED  TOOK  TOKENS     COST                          PROMPT
t1    s1       failed     3h ago   1m2s  1,234,567  $1.50                         Write a poem about the bridges of the w…
t2    s1       succeeded  1h ago   -     0          ≥ $0.0123 (2 calls unpriced)  Go
`, `{"id":"t1",`},
		"turn": {func(p *cli.Printer) error { return p.Turn(turn) }, `turn       t1
session    s1
status     failed
why        too slow (TIMEOUT)
created    2026-03-04 09:00:00 UTC (3h ago)
started    2026-03-04 09:00:00 UTC (3h ago)
took       1m2s
used       1 model call, 1,234,567 tokens, $1.50
prompt     Write
           a poem about the bridges of the whole wide world
with       image/png, 1,068 bytes
with       This one.
with       image/jpeg, https://example.com/cat.jpg
waits for  tool look {} (call c1)
asks       refund {"amount":30} (interaction i1)
value      {"a":1}
output     one
           two
`, `{"id":"t1",`},
		"interactions": {func(p *cli.Printer) error { return p.Interactions([]*agentdv1.Interaction{approval, question}) }, `INTERACTION  SESSION  KIND           STATUS  CREATED  AGENT  ASKS
i1           s1       approval       -       -        clerk  refund {"amount":30}
i1           s1       clarification  -       -        clerk  Which one? [red | blue]
`, `{"id":"i1",`},
		"models": {func(p *cli.Printer) error { return p.Models(models, "2026-03-01") }, `MODEL     PROVIDER   KEY             CONTEXT    READS        IN $/M   CACHED       WRITTEN                    OUT
gpt-x     openai     bring your own  -          -            $1.25    $0.125       -                          $10
gem-l     gemini     bring your own  1,048,576  image audio  $2 ($4)  $0.2 ($0.4)  -                          $12 ($18)
claude-h  anthropic  bring your own  -          -            $3       $0.3         $3.75, 1h $6               $15
claude-l  anthropic  bring your own  -          -            $1 ($5)  $0.1 ($0.5)  $1 ($6.25), 1h $2 ($6.25)  $5 ($25)
echo      echo       not needed      -          -            $0       $0           -                          $0
other     acme       bring your own  -          -            -        -            -                          -

Context in tokens. List prices of 2026-01-02 to 2026-03-01, in dollars per million tokens, in brackets those of long prompts. Providers serve models of other names, too.
`, `{"name":"gpt-x",`},
		"calls": {func(p *cli.Printer) error { return p.ModelCalls(details) }, `agent        root/a
model        gpt-x
message      m1
took         1.5s
tokens       12 in, 3 out
cost         $0.0123
generation   {"seed":7}
tools        look, google_search
contents     1,204
summary      It rained.
instruction  Be
             brief.

agent    root/b
model    echo
message  m2
tokens   0 in, 0 out
cost     price unknown
told     cannot be made again from the log

agent   root/b
model   echo
tokens  0 in, 0 out
cost    price unknown
told    nothing that can be made again: the call wrote a summary, or failed

agent    root/b
model    echo
outcome  wrote a summary
tokens   0 in, 0 out
cost     price unknown
told     nothing that can be made again

agent     root/b
model     echo
outcome   failed
tokens    0 in, 0 out
cost      price unknown
contents  3
`, `{"call":{`},
		"no calls": {func(p *cli.Printer) error { return p.ModelCalls(nil) }, "nothing\n", ""},
		"done":     {func(p *cli.Printer) error { return p.Done("deleted %s", "s1") }, "deleted s1\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var text, json strings.Builder
			if err := errors.Join(tc.show(&cli.Printer{Out: &text, Now: now}), tc.show(&cli.Printer{Out: &json, Now: now, JSON: true})); err != nil {
				t.Fatal(err)
			}
			if text.String() != tc.text {
				t.Errorf("shown\n%s\nwant\n%s", text.String(), tc.text)
			}
			if !strings.HasPrefix(json.String(), tc.json) || (tc.json == "") != (json.String() == "") || strings.Contains(json.String(), "\x1b") {
				t.Errorf("as JSON %s", json.String())
			}
		})
	}
}
