package session_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/record"
)

const (
	invalid = agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST
	limit   = agentdv1.ErrorCode_ERROR_CODE_LIMIT_EXCEEDED
)

func textPart(s string) *agentdv1.Part {
	return &agentdv1.Part{Content: &agentdv1.Part_Text{Text: s}}
}

func filePart(mimeType string, data []byte) *agentdv1.Part {
	return &agentdv1.Part{Content: &agentdv1.Part_Inline{Inline: &agentdv1.InlineData{MimeType: mimeType, Data: data}}}
}

func uriPart(mimeType, uri string) *agentdv1.Part {
	return &agentdv1.Part{Content: &agentdv1.Part_File{File: &agentdv1.FileUri{MimeType: mimeType, Uri: uri}}}
}

func toolPart(name string) *agentdv1.Part {
	return &agentdv1.Part{Content: &agentdv1.Part_Tool{Tool: &agentdv1.ToolReference{ToolName: name}}}
}

func equalParts(a, b []*agentdv1.Part) bool {
	return proto.Equal(&agentdv1.RunRequest_ExecuteRequest{UserParts: a}, &agentdv1.RunRequest_ExecuteRequest{UserParts: b})
}

// anyParts draws parts as clients may send them.
func anyParts() *rapid.Generator[record.Parts] {
	mimeType := rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,9}/[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,9}`)
	part := rapid.OneOf(
		rapid.Map(rapid.StringN(1, 50, -1), textPart),
		rapid.Custom(func(t *rapid.T) *agentdv1.Part {
			return filePart(mimeType.Draw(t, "type"), rapid.SliceOfN(rapid.Byte(), 1, 200).Draw(t, "data"))
		}),
		rapid.Custom(func(t *rapid.T) *agentdv1.Part {
			return uriPart(mimeType.Draw(t, "type"), rapid.StringN(1, 50, -1).Draw(t, "uri"))
		}),
		rapid.Map(rapid.StringMatching(`[A-Za-z_][A-Za-z0-9_.:-]{0,63}`), toolPart),
	)
	return rapid.Map(rapid.SliceOfN(part, 1, 8), func(p []*agentdv1.Part) record.Parts { return p })
}

// Whatever parts there are, the log gives them back byte for byte, wherever they
// stand in it, and always as the same text.
func TestPartsSurviveTheLog(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := anyParts().Draw(t, "parts")
		facts := []struct {
			fact, again any
			parts       func(any) record.Parts
		}{
			{&record.TurnStarted{Parts: parts}, &record.TurnStarted{}, func(f any) record.Parts { return f.(*record.TurnStarted).Parts }},
			{&record.TurnQueued{TurnStarted: record.TurnStarted{Parts: parts}}, &record.TurnQueued{}, func(f any) record.Parts { return f.(*record.TurnQueued).Parts }},
			{&record.ToolResult{Parts: parts}, &record.ToolResult{}, func(f any) record.Parts { return f.(*record.ToolResult).Parts }},
		}
		for _, f := range facts {
			data, err := json.Marshal(f.fact)
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(data, f.again); err != nil {
				t.Fatal(err)
			}
			if !equalParts(parts, f.parts(f.again)) {
				t.Errorf("%T: %v became %v", f.fact, parts, f.parts(f.again))
			}
			if second, err := json.Marshal(f.again); err != nil || !bytes.Equal(data, second) {
				t.Errorf("%T is written as %s, then as %s, error %v", f.fact, data, second, err)
			}
		}
	})
}

// A prompt may be parts alone, whether its turn runs, waits or becomes a message;
// every watcher receives them.
func TestPartsOfPrompts(t *testing.T) {
	parts := record.Parts{filePart("image/png", []byte{0, 1, 255}), textPart("look"), uriPart("video/mp4", "gs://b/f")}
	store := memory(t)
	f := newFixture(t, store, limits.Limits{})
	var heard []session.Injected
	f.on(func(ctx context.Context, r *session.Run) error {
		if !equalParts(r.Spec().Parts, parts) {
			t.Errorf("the run has the parts %v", r.Spec().Parts)
		}
		if r.Spec().Prompt == "first" {
			if _, err := call(ctx, r, "c1"); err != nil {
				return err
			}
		}
		for _, in := range r.Injected() {
			heard = append(heard, in)
			if err := add(ctx, r, &record.Event{Path: root, Injected: in.ID, Text: in.Text, Parts: in.Parts}); err != nil {
				return err
			}
		}
		return say(ctx, r, "m-"+r.TurnID(), root, "done")
	})
	first := f.start(session.Request{Prompt: "first", Parts: parts})
	asked := first.Watch()
	await(t, asked, isCall)
	waits := f.start(session.Request{SessionID: first.SessionID(), Parts: parts, OnBusy: enqueue})
	injected := f.start(session.Request{SessionID: first.SessionID(), Parts: parts, OnBusy: inject})
	after := []*session.Watcher{asked, attach(t, f, first, nil)}
	if err := first.SubmitResult(t.Context(), session.ClientResult{CallID: "c1", Output: new("ok")}); err != nil {
		t.Fatal(err)
	}
	<-waits.Done()
	if len(heard) != 1 || heard[0].ID != injected.ID() || heard[0].Text != "" || !equalParts(heard[0].Parts, parts) {
		t.Errorf("the running turn is told %v", heard)
	}
	for i, w := range after {
		queued, messages := 0, 0
		for _, m := range follow(t, w) {
			switch {
			case m.GetTurnQueued() != nil:
				queued++
				if q := m.GetTurnQueued(); q.GetUserPrompt() != "" || !equalParts(q.GetUserParts(), parts) {
					t.Errorf("watcher %d: queued %v", i, q)
				}
			case m.GetMessageInjected() != nil:
				messages++
				if u := m.GetMessageInjected(); u.GetUserPrompt() != "" || !equalParts(u.GetUserParts(), parts) {
					t.Errorf("watcher %d: the user says %v", i, u)
				}
			}
		}
		if queued != 2 || messages != 1 {
			t.Errorf("watcher %d is told of %d prompts that wait and %d messages, want 2 and 1", i, queued, messages)
		}
	}
	if info, err := f.m.Turn(t.Context(), first.SessionID(), waits.ID()); err != nil || info.Prompt != "[image/png, 3 bytes]\nlook\n[video/mp4, gs://b/f]" || info.Status != index.Succeeded {
		t.Errorf("the turn that waited is %+v, error %v", info, err)
	}
}

// What lists of turns say of a prompt without text is bounded.
func TestPartsInListsAreBounded(t *testing.T) {
	f := newFixture(t, memory(t), limits.Limits{})
	f.on(func(ctx context.Context, r *session.Run) error { return say(ctx, r, "m", root, "done") })
	turn := f.start(session.Request{Prompt: " ", Parts: record.Parts{textPart("a" + strings.Repeat("é", 4000))}})
	<-turn.Done()
	info, err := f.m.Turn(t.Context(), turn.SessionID(), turn.ID())
	if err != nil {
		t.Fatal(err)
	}
	if n := len(info.Prompt); n > 4096 || n < 4000 || !utf8.ValidString(info.Prompt) || !strings.HasSuffix(info.Prompt, "é…") {
		t.Errorf("the prompt is told with %d bytes, and ends with %q", n, info.Prompt[max(n-8, 0):])
	}
}

// A result has its parts with its first text. An equal repeat is one with the same
// parts.
func TestPartsOfAnswers(t *testing.T) {
	png := record.Parts{filePart("image/png", []byte("png"))}
	f := newFixture(t, memory(t), limits.Limits{MaxPartsBytes: 1000})
	got := make(chan map[string]record.ToolResult, 1)
	f.on(func(ctx context.Context, r *session.Run) error {
		res, err := call(ctx, r, "c1", "c2", "c3", "c4", "c5", "c6", "c7")
		got <- res
		return err
	})
	turn := f.start(session.Request{})
	asked := turn.Watch()
	await(t, asked, isCall)
	for name, tc := range map[string]struct {
		id     string
		answer session.ClientResult
		code   agentdv1.ErrorCode
		says   string
	}{
		"with an error": {"c3", session.ClientResult{Error: new("no"), Parts: png}, invalid, "together with error"},
		"no part":       {"c4", session.ClientResult{Parts: record.Parts{{}}}, invalid, "parts[0]"},
		"a local file":  {"c5", session.ClientResult{Parts: record.Parts{uriPart("image/png", "FILE:///etc/hosts")}}, invalid, `parts[0].file.uri: the schemes are https, http and gs`},
		"too large":     {"c6", session.ClientResult{Parts: record.Parts{filePart("image/png", make([]byte, 1001))}}, limit, "at most 1000"},
		"with its text": {"c7", session.ClientResult{Output: new(strings.Repeat("a", 990)), Parts: png}, limit, "output and parts take 1008 bytes, at most 1000"},
	} {
		tc.answer.CallID = tc.id
		for range 2 { // a repeat is refused like the first
			if e := fault.As(turn.SubmitResult(t.Context(), tc.answer)); e.Code != tc.code || !strings.Contains(e.Message, tc.says) || !strings.Contains(e.Message, tc.id) {
				t.Errorf("%s: %v", name, e)
			}
		}
		if e := fault.As(turn.SubmitResult(t.Context(), session.ClientResult{CallID: tc.id, Parts: png})); !strings.Contains(e.Message, "already settled") {
			t.Errorf("%s: another answer: %v", name, e)
		}
	}
	first := session.ClientResult{CallID: "c1", Parts: png}
	if err := errors.Join(turn.SubmitResult(t.Context(), first), turn.SubmitResult(t.Context(), first)); err != nil {
		t.Errorf("the same answer twice: %v", err)
	}
	other := session.ClientResult{CallID: "c1", Parts: record.Parts{filePart("image/png", []byte("jpg"))}}
	if e := fault.As(turn.SubmitResult(t.Context(), other)); e.Code != invalid || !strings.Contains(e.Message, "too late") {
		t.Errorf("another answer with other parts: %v", e)
	}
	if err := turn.SubmitResult(t.Context(), session.ClientResult{CallID: "c2", Output: new("text"), Parts: png}); err != nil {
		t.Fatal(err)
	}
	res := <-got
	if r := res["c1"]; r.Output == nil || *r.Output != "" || !equalParts(r.Parts, png) {
		t.Errorf("parts alone are the result %+v", r)
	}
	shown := 0
	for _, m := range follow(t, attach(t, f, turn, nil)) {
		if r := m.GetToolCallAnswered(); r != nil {
			shown++
			if id := r.GetToolCallId(); id > "c2" {
				if !strings.Contains(r.GetError(), "refused") || len(r.GetParts()) > 0 || res[id].Error != r.GetError() {
					t.Errorf("who watches is shown %v", r)
				}
				continue
			}
			if !equalParts(r.GetParts(), png) || r.GetOutput() != map[string]string{"c1": "", "c2": "text"}[r.GetToolCallId()] {
				t.Errorf("who watches is shown %v", r)
			}
		}
	}
	if shown != 7 {
		t.Errorf("%d results are shown, want 7", shown)
	}
}

// What a prompt may be: something, and not too much of it.
func TestPartsOfPromptsAreBounded(t *testing.T) {
	f := newFixture(t, memory(t), limits.Limits{MaxPartsBytes: 1000, MaxPromptBytes: 100})
	for name, tc := range map[string]struct {
		prompt string
		parts  record.Parts
		code   agentdv1.ErrorCode
		says   string
	}{
		"blank":          {" ", record.Parts{textPart("\n"), textPart(" ")}, invalid, "user_prompt"},
		"no part":        {"hi", record.Parts{textPart("a"), {}}, invalid, "user_parts[1]"},
		"large files":    {"hi", record.Parts{filePart("a/b", make([]byte, 500)), filePart("a/b", make([]byte, 500))}, limit, "at most 1000"},
		"a local file":   {"hi", record.Parts{textPart("a"), uriPart("text/plain", "file:///etc/hosts")}, invalid, `user_parts[1].file.uri: the schemes are https, http and gs`},
		"a tool":         {"hi", record.Parts{textPart("a"), toolPart("fetch")}, invalid, "user_parts[1].tool: a reference to a tool is for the result of a tool"},
		"a tool alone":   {"", record.Parts{toolPart("fetch")}, invalid, "user_parts[0].tool"},
		"no scheme":      {"hi", record.Parts{uriPart("text/plain", "://x")}, invalid, "user_parts[0].file.uri"},
		"a little more":  {strings.Repeat("a", 90), record.Parts{filePart("a/b", make([]byte, 950))}, limit, "user_prompt and user_parts take"},
		"many words":     {strings.Repeat("a", 50), record.Parts{textPart(strings.Repeat("b", 51))}, limit, "user_prompt and the texts of user_parts have 101 bytes, at most 100"},
		"a long request": {strings.Repeat("a", 101), nil, limit, "user_prompt has 101 bytes"},
	} {
		_, err := f.m.Start(t.Context(), session.Request{Agent: tree(), Prompt: tc.prompt, Parts: tc.parts})
		if e := fault.As(err); e.Code != tc.code || !strings.Contains(e.Message, tc.says) {
			t.Errorf("%s: %v", name, e)
		}
	}
}
