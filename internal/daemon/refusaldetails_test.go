package daemon_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/session/limits"
)

func violations(pairs ...string) []*agentdv1.FieldViolation {
	var out []*agentdv1.FieldViolation
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, &agentdv1.FieldViolation{Field: pairs[i], Rule: pairs[i+1]})
	}
	return out
}

// TestRefusalsSayWhatToDo: a refusal names the fields that were wrong and their rules,
// the limit and what went beyond it, the turn, and how long to wait; Run and
// SessionService say the same.
func TestRefusalsSayWhatToDo(t *testing.T) {
	d := start(t, daemon.Config{
		Scripts: map[string]string{"asks": asks},
		Turns:   limits.Limits{MaxPromptBytes: 1000, MaxQueued: 2},
	})
	service := wires(t, d)["Connect, binary, HTTP/2"]
	running := call(t, service.CreateTurn, &agentdv1.CreateTurnRequest{Execute: lookRequest("look")}).GetTurn()
	// A turn that waits for a client which is not there would give way.
	client, err := service.WatchTurn(t.Context(), connect.NewRequest(&agentdv1.WatchTurnRequest{
		SessionId: running.GetSessionId(), TurnId: running.GetId(), ToolNames: []string{"look"},
	}))
	if err != nil {
		t.Fatal(err)
	}
	for client.Receive() && client.Msg().GetEvent().GetToolCall() == nil {
	}
	busy := lookRequest("again")
	busy.SessionId = new(running.GetSessionId())

	wrong := greet("x", true)
	wrong.OnBusy, wrong.ToolTimeout = 99, durationpb.New(-time.Second)
	noTree, long, taken := greet("new", true), greet("long", true), lookRequest("again")
	noTree.Agent = nil
	long.UserPrompt = strings.Repeat("x", 1001)
	taken.SessionId, taken.TurnId, taken.OnBusy = new(running.GetSessionId()), running.GetId(), agentdv1.OnBusy_ON_BUSY_ENQUEUE
	badTool := greet("tool", true)
	badTool.Tools = []*agentdv1.Tool{tool("look", "{"), tool("look", "{}")}
	for _, tc := range []struct {
		name string
		ex   *agentdv1.RunRequest_ExecuteRequest
		want *agentdv1.RunResponse_ErrorResponse
	}{
		{"two rules", wrong, &agentdv1.RunResponse_ErrorResponse{
			Code:       agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST,
			Violations: violations("execute.on_busy", "enum.defined_only", "execute.tool_timeout", "duration.gt_lte"),
		}},
		{"no tree", noTree, &agentdv1.RunResponse_ErrorResponse{
			Code: agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST, Violations: violations("execute.agent", "required"),
		}},
		{"a tool", badTool, &agentdv1.RunResponse_ErrorResponse{
			Code: agentdv1.ErrorCode_ERROR_CODE_INVALID_AGENT_TREE, Violations: violations("execute.tools[0].input_schema", "format"),
		}},
		{"a long prompt", long, &agentdv1.RunResponse_ErrorResponse{
			Code:       agentdv1.ErrorCode_ERROR_CODE_LIMIT_EXCEEDED,
			Violations: violations("execute.user_prompt", "range"),
			Limit:      &agentdv1.ExceededLimit{Name: "prompt_bytes", Value: 1000, Received: 1001},
		}},
		{"a busy session", busy, &agentdv1.RunResponse_ErrorResponse{
			Code: agentdv1.ErrorCode_ERROR_CODE_SESSION_BUSY, Retryable: true, TurnId: running.GetId(),
		}},
		{"a turn of that name", taken, &agentdv1.RunResponse_ErrorResponse{
			Code:       agentdv1.ErrorCode_ERROR_CODE_CONFLICT,
			Violations: violations("execute.turn_id", "conflict"), TurnId: running.GetId(),
		}},
	} {
		for way, begin := range begins(t, d) {
			_, _, e := begin(t, tc.ex)
			e = proto.CloneOf(e)
			e.Message = ""
			if !proto.Equal(e, tc.want) {
				t.Errorf("%s, %s: %v, want %v", tc.name, way, e, tc.want)
			}
		}
	}
	if err := client.Close(); err != nil {
		t.Error(err)
	}

	if _, err := service.GetTurn(t.Context(), connect.NewRequest(&agentdv1.GetTurnRequest{
		SessionId: running.GetSessionId(), TurnId: "none",
	})); details(t, err).GetTurnId() != "none" {
		t.Errorf("a turn that is not there: %v", err)
	}
}

// A refusal that passes says when to retry, also in the header that proxies and
// clients of HTTP know.
func TestRetryAfter(t *testing.T) {
	d := start(t, daemon.Config{Scripts: map[string]string{"asks": asks}, Turns: limits.Limits{MaxTurns: 1}})
	all := wires(t, d)
	call(t, all["gRPC"].CreateTurn, &agentdv1.CreateTurnRequest{Execute: lookRequest("look")})
	want := &agentdv1.RunResponse_ErrorResponse{
		Code: agentdv1.ErrorCode_ERROR_CODE_UNAVAILABLE, Retryable: true, RetryAfter: durationpb.New(time.Second),
		Limit: &agentdv1.ExceededLimit{Name: "turns", Value: 1, Received: 2},
	}
	for way, begin := range begins(t, d) {
		_, _, e := begin(t, greet("more", true))
		e = proto.CloneOf(e)
		e.Message = ""
		if !proto.Equal(e, want) {
			t.Errorf("%s: %v, want %v", way, e, want)
		}
	}
	for wire, c := range all {
		_, err := c.CreateTurn(t.Context(), connect.NewRequest(&agentdv1.CreateTurnRequest{Execute: greet("more", true)}))
		ce, ok := errors.AsType[*connect.Error](err)
		if !ok || ce.Meta().Get("Retry-After") != "1" {
			t.Errorf("%s: no Retry-After of 1 s: %v", wire, err)
		}
	}
}

// What is refused before its message is read, or because it cannot be, says it in the
// same way.
func TestUnreadableRefusalsSayWhatToDo(t *testing.T) {
	d := start(t, daemon.Config{MaxMessageBytes: 2000})
	hc := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(hc.CloseIdleConnections)
	for name, tc := range map[string]struct {
		body string
		want *agentdv1.RunResponse_ErrorResponse
	}{
		"unknown": {`{"sessionId": "s", "execute": {"followChildren": true}}`, &agentdv1.RunResponse_ErrorResponse{
			Code: agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST, Violations: violations("sessionId", "unknown"),
		}},
		"unknown within": {`{"execute": {"followChildren": true}}`, &agentdv1.RunResponse_ErrorResponse{
			Code: agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST, Violations: violations("execute.followChildren", "unknown"),
		}},
		"large": {`{"execute": {"userPrompt": "` + strings.Repeat("x", 3000) + `"}}`, &agentdv1.RunResponse_ErrorResponse{
			Code: agentdv1.ErrorCode_ERROR_CODE_LIMIT_EXCEEDED, Limit: &agentdv1.ExceededLimit{Name: "message_bytes", Value: 2000},
		}},
		"deep": {`{"execute": {"initialState": {"a": ` + strings.Repeat("[", 400) + strings.Repeat("]", 400) + `}}}`, &agentdv1.RunResponse_ErrorResponse{
			Code: agentdv1.ErrorCode_ERROR_CODE_LIMIT_EXCEEDED, Limit: &agentdv1.ExceededLimit{Name: "message_depth", Value: 100},
		}},
	} {
		ctx := t.Context()
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.URL()+agentdv1connect.SessionServiceCreateTurnProcedure, strings.NewReader(tc.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := hc.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		var refusal struct {
			Details []struct {
				Value string
			}
		}
		err = json.NewDecoder(resp.Body).Decode(&refusal)
		if err := resp.Body.Close(); err != nil {
			t.Error(err)
		}
		if err != nil || len(refusal.Details) != 1 {
			t.Fatalf("%s: %v, %v", name, refusal, err)
		}
		data, err := base64.RawStdEncoding.DecodeString(refusal.Details[0].Value)
		if err != nil {
			t.Fatal(err)
		}
		e := &agentdv1.RunResponse_ErrorResponse{}
		if err := proto.Unmarshal(data, e); err != nil {
			t.Fatal(err)
		}
		e.Message = ""
		if !proto.Equal(e, tc.want) {
			t.Errorf("%s: %v, want %v", name, e, tc.want)
		}
	}
}
