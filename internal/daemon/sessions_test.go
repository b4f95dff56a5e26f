package daemon_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/session/limits"
)

// asks is a script of a model that asks for a tool and then says what it got.
const asks = `answers:
  - {when: {step: 1}, text: "Let me look. ", calls: [{name: look, args: {where: north}}]}
  - {when: {}, text: '{{tool_result "look"}}'}`

// wires are the ways to call SessionService.
func wires(t *testing.T, d *daemon.Daemon) map[string]agentdv1connect.SessionServiceClient {
	t.Helper()
	h1, h2 := &http.Transport{}, &http.Transport{Protocols: new(http.Protocols)}
	h2.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(func() { h1.CloseIdleConnections(); h2.CloseIdleConnections() })
	dial := func(tr *http.Transport, opts ...connect.ClientOption) agentdv1connect.SessionServiceClient {
		return agentdv1connect.NewSessionServiceClient(&http.Client{Transport: tr}, d.URL(), opts...)
	}
	return map[string]agentdv1connect.SessionServiceClient{
		"Connect, JSON, HTTP/1.1":   dial(h1, connect.WithProtoJSON(), connect.WithHTTPGet()),
		"Connect, binary, HTTP/1.1": dial(h1),
		"Connect, binary, HTTP/2":   dial(h2, connect.WithHTTPGet()),
		"gRPC":                      dial(h2, connect.WithGRPC()),
		"gRPC-Web, HTTP/1.1":        dial(h1, connect.WithGRPCWeb()),
	}
}

func lookRequest(prompt string) *agentdv1.RunRequest_ExecuteRequest {
	return &agentdv1.RunRequest_ExecuteRequest{
		UserPrompt: prompt,
		Tools:      []*agentdv1.Tool{{Name: "look", Description: "looks"}},
		Agent: &agentdv1.Agent{Name: "root", AgentType: &agentdv1.Agent_Llm{Llm: &agentdv1.LlmAgent{
			Model: "scripted/asks", ToolNames: []string{"look"},
		}}},
	}
}

// call makes a unary call of a test that must succeed.
func call[Req, Resp any](t *testing.T, f func(context.Context, *connect.Request[Req]) (*connect.Response[Resp], error), req *Req) *Resp {
	t.Helper()
	resp, err := f(t.Context(), connect.NewRequest(req))
	if err != nil {
		t.Fatalf("%T: %v", req, err)
	}
	return resp.Msg
}

// until polls a turn until it has a status.
func until(t *testing.T, c agentdv1connect.SessionServiceClient, turn *agentdv1.Turn, want agentdv1.TurnStatus) *agentdv1.Turn {
	t.Helper()
	for wait := time.Millisecond; wait < 10*time.Second; wait *= 2 {
		turn = call(t, c.GetTurn, &agentdv1.GetTurnRequest{SessionId: turn.GetSessionId(), TurnId: turn.GetId()}).GetTurn()
		if turn.GetStatus() == want {
			return turn
		}
		time.Sleep(wait)
	}
	t.Fatalf("the turn is %v, want %v", turn, want)
	return nil
}

// followTurn reads WatchTurn to its end.
func followTurn(t *testing.T, c agentdv1connect.SessionServiceClient, req *agentdv1.WatchTurnRequest) []*agentdv1.RunResponse {
	t.Helper()
	stream, err := c.WatchTurn(t.Context(), connect.NewRequest(req))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stream.Close() }()
	var out []*agentdv1.RunResponse
	for stream.Receive() {
		out = append(out, proto.CloneOf(stream.Msg().GetEvent()))
	}
	if err := stream.Err(); err != nil {
		t.Fatalf("watch: %v", err)
	}
	return out
}

func joined(events []*agentdv1.RunResponse) string {
	text := ""
	for _, e := range events {
		text += e.GetOutputChunk().GetContent()
	}
	return text
}

// A whole turn with a tool call, by unary calls and a server stream, on each wire.
func TestTurnInTheBackground(t *testing.T) {
	d := start(t, daemon.Config{Scripts: map[string]string{"asks": asks}})
	for name, c := range wires(t, d) {
		t.Run(name, func(t *testing.T) {
			turn := call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: lookRequest("go")}).GetTurn()
			if turn.GetId() == "" || turn.GetSessionId() == "" || turn.GetUserPrompt() != "go" || turn.GetStartTime() == nil {
				t.Fatalf("created %v", turn)
			}
			turn = until(t, c, turn, agentdv1.TurnStatus_TURN_STATUS_WAITING_FOR_CLIENT)
			open := turn.GetPendingToolCalls()
			if len(open) != 1 || open[0].GetToolName() != "look" || open[0].GetToolInput() != `{"where":"north"}` {
				t.Fatalf("pending: %v", open)
			}
			seen := call(t, c.ListTurnEvents, &agentdv1.ListTurnEventsRequest{SessionId: turn.GetSessionId()})
			if seen.GetMore() || joined(seen.GetEvents()) != "Let me look. " {
				t.Errorf("so far: %v", seen)
			}
			last := seen.GetEvents()[len(seen.GetEvents())-1].GetSeq()
			result := &agentdv1.RunRequest_ToolCallResponse{ToolCallId: open[0].GetToolCallId(), Result: &agentdv1.RunRequest_ToolCallResponse_Output{Output: "all white"}}
			wrong := &agentdv1.RunRequest_ToolCallResponse{ToolCallId: "call_nobody_made", Result: &agentdv1.RunRequest_ToolCallResponse_Output{Output: "x"}}
			submitted := call(t, c.SubmitToolResults, &agentdv1.SubmitToolResultsRequest{
				SessionId: turn.GetSessionId(), TurnId: turn.GetId(), Results: []*agentdv1.RunRequest_ToolCallResponse{wrong, result, result},
			})
			if r := submitted.GetRefused(); len(r) != 1 || r[0].GetToolCallId() != "call_nobody_made" || r[0].GetError().GetCode() != agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST {
				t.Errorf("refused: %v", r)
			}
			rest := followTurn(t, c, &agentdv1.WatchTurnRequest{SessionId: turn.GetSessionId(), TurnId: turn.GetId(), AfterSeq: &last})
			if !strings.HasSuffix(joined(rest), "all white") || !rest[len(rest)-1].GetEnd().GetCompleted() {
				t.Errorf("then: %v", rest)
			}
			turn = until(t, c, turn, agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED)
			if turn.GetOutputText() != joined(rest) || turn.GetUsage().GetModelCalls() != 2 || turn.GetEndTime() == nil || turn.GetDuration().AsDuration() <= 0 {
				t.Errorf("the turn is %v", turn)
			}
			// What was listed in pieces is what is watched at once.
			all := followTurn(t, c, &agentdv1.WatchTurnRequest{SessionId: turn.GetSessionId()})
			var pieces []*agentdv1.RunResponse
			req := &agentdv1.ListTurnEventsRequest{SessionId: turn.GetSessionId(), TurnId: turn.GetId(), PageSize: 2}
			for more := true; more; {
				page := call(t, c.ListTurnEvents, req)
				pieces, more = append(pieces, page.GetEvents()...), page.GetMore()
				req.AfterSeq = new(page.GetNextAfterSeq())
			}
			if !slices.EqualFunc(all, pieces, func(a, b *agentdv1.RunResponse) bool { return proto.Equal(a, b) }) {
				t.Errorf("watched %v\nlisted %v", all, pieces)
			}
		})
	}
}

// A turn of Run and one of SessionService are the same: either is finished by the
// other, and their events are equal.
func TestTurnsAreTheSameOnBothServices(t *testing.T) {
	d := start(t, daemon.Config{Scripts: map[string]string{"asks": asks}})
	c := wires(t, d)["Connect, JSON, HTTP/1.1"]
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(tr.CloseIdleConnections)
	runs := agentdv1connect.NewAgentdClient(&http.Client{Transport: tr}, d.URL())
	send := func(s *connect.BidiStreamForClient[agentdv1.RunRequest, agentdv1.RunResponse], m *agentdv1.RunRequest) {
		if err := s.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	resultFor := func(id string) *agentdv1.RunRequest_ToolCallResponse {
		return &agentdv1.RunRequest_ToolCallResponse{ToolCallId: id, Result: &agentdv1.RunRequest_ToolCallResponse_Output{Output: "fog"}}
	}

	// Started on Run, given results and watched by SessionService.
	s := runs.Run(t.Context())
	send(s, &agentdv1.RunRequest{Request: &agentdv1.RunRequest_Execute{Execute: lookRequest("go")}})
	var onRun []*agentdv1.RunResponse
	for {
		m, err := s.Receive()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		onRun = append(onRun, m)
		if tc := m.GetToolCall(); tc != nil {
			call(t, c.SubmitToolResults, &agentdv1.SubmitToolResultsRequest{SessionId: tc.GetSessionId(), TurnId: m.GetTurnId(), Results: []*agentdv1.RunRequest_ToolCallResponse{resultFor(tc.GetToolCallId())}})
		}
		if m.GetEnd() != nil {
			_ = s.CloseRequest()
		}
	}
	_ = s.CloseResponse()

	// Started by SessionService, given results on Run.
	turn := call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: lookRequest("go")}).GetTurn()
	s = runs.Run(t.Context())
	send(s, attach(turn.GetSessionId(), -1, lookRequest("").GetTools()...))
	for {
		m, err := s.Receive()
		if err != nil {
			break
		}
		if tc := m.GetToolCall(); tc != nil {
			send(s, &agentdv1.RunRequest{Request: &agentdv1.RunRequest_ToolCallResponse_{ToolCallResponse: resultFor(tc.GetToolCallId())}})
		}
		if m.GetEnd() != nil {
			_ = s.CloseRequest()
		}
	}
	_ = s.CloseResponse()
	inBackground := followTurn(t, c, &agentdv1.WatchTurnRequest{SessionId: turn.GetSessionId()})

	plain := func(events []*agentdv1.RunResponse) (out []string) {
		text := false // the last message was text: neighbours may be joined in any way
		for _, e := range events {
			if c := e.GetOutputChunk(); c.GetContent() != "" {
				if text {
					out[len(out)-1] += c.GetContent()
				} else {
					out = append(out, c.GetContent())
				}
				text = true
				continue
			}
			text = false
			e = proto.CloneOf(e)
			e.Time, e.TurnId, e.Replayed, e.Seq = nil, "", false, 0
			if r := e.GetToolCallAnswered(); r != nil {
				r.ToolCallId = "" // another one
			}
			if m := e.GetModelCallEnded(); m != nil {
				m.MessageId, m.Duration, m.TimeToFirstText = "", nil, nil
			}
			if m := e.GetMessageCompleted(); m != nil {
				m.MessageId = ""
			}
			said := "call" // another id, and as a notice to who did not take part
			if e.GetToolCall() == nil && e.GetToolCallAnnounced() == nil {
				said = protojson.MarshalOptions{}.Format(e)
				said = strings.NewReplacer(onRun[0].GetExecute().GetSessionId(), "", turn.GetSessionId(), "", " ", "").Replace(said)
			}
			out = append(out, said)
		}
		return out
	}
	if a, b := plain(onRun), plain(inBackground); !slices.Equal(a, b) {
		t.Errorf("on Run %q\nin the background %q", a, b)
	}
}

// A result of the largest size passes whole, as JSON and as protobuf, and comes
// back to who watches and to who lists.
func TestLargeToolResult(t *testing.T) {
	d := start(t, daemon.Config{Scripts: map[string]string{"asks": `answers:
  - {when: {step: 1}, calls: [{name: look, args: {}}]}
  - {when: {}, text: "thanks"}`}})
	large := strings.Repeat("ü\"", (1<<20-200)/4) // the result's record is JSON: a quote takes two bytes
	all := wires(t, d)
	for _, name := range []string{"Connect, JSON, HTTP/1.1", "gRPC"} {
		c := all[name]
		t.Run(name, func(t *testing.T) {
			turn := call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: lookRequest("go")}).GetTurn()
			turn = until(t, c, turn, agentdv1.TurnStatus_TURN_STATUS_WAITING_FOR_CLIENT)
			result := &agentdv1.RunRequest_ToolCallResponse{ToolCallId: turn.GetPendingToolCalls()[0].GetToolCallId(), Result: &agentdv1.RunRequest_ToolCallResponse_Output{Output: large}}
			submitted := call(t, c.SubmitToolResults, &agentdv1.SubmitToolResultsRequest{SessionId: turn.GetSessionId(), TurnId: turn.GetId(), Results: []*agentdv1.RunRequest_ToolCallResponse{result}})
			if len(submitted.GetRefused()) > 0 {
				t.Fatal(submitted.GetRefused())
			}
			watched := followTurn(t, c, &agentdv1.WatchTurnRequest{SessionId: turn.GetSessionId()})
			for how, events := range map[string][]*agentdv1.RunResponse{
				"watched": watched,
				"listed":  call(t, c.ListTurnEvents, &agentdv1.ListTurnEventsRequest{SessionId: turn.GetSessionId()}).GetEvents(),
			} {
				i := slices.IndexFunc(events, func(e *agentdv1.RunResponse) bool { return e.GetToolCallAnswered() != nil })
				if i < 0 || events[i].GetToolCallAnswered().GetOutput() != large || events[i].GetToolCallAnswered().GetToolName() != "look" {
					t.Errorf("%s: result %d of %d events", how, i, len(events))
				}
			}
		})
	}
}

func TestListTurns(t *testing.T) {
	d := start(t, daemon.Config{})
	c := wires(t, d)["Connect, JSON, HTTP/1.1"]
	ex := &agentdv1.RunRequest_ExecuteRequest{UserPrompt: "0", Agent: llm("root", "echo")}
	turn := until(t, c, call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: ex}).GetTurn(), agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED)
	for _, prompt := range []string{"1", "2", "3", "4"} {
		ex := &agentdv1.RunRequest_ExecuteRequest{UserPrompt: prompt, SessionId: &turn.SessionId}
		until(t, c, call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: ex}).GetTurn(), agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED)
	}
	req := &agentdv1.ListTurnsRequest{SessionId: turn.GetSessionId(), PageSize: 2}
	var prompts []string
	for pages := 1; ; pages++ {
		page := call(t, c.ListTurns, req)
		for _, turn := range page.GetTurns() {
			prompts = append(prompts, turn.GetUserPrompt())
		}
		if req.PageToken = page.GetNextPageToken(); req.GetPageToken() == "" {
			if pages != 3 {
				t.Errorf("%d pages", pages)
			}
			break
		}
	}
	if got := strings.Join(prompts, ""); got != "43210" {
		t.Errorf("turns %s", got)
	}
	none := call(t, c.ListTurns, &agentdv1.ListTurnsRequest{SessionId: turn.GetSessionId(), Statuses: []agentdv1.TurnStatus{agentdv1.TurnStatus_TURN_STATUS_FAILED}})
	if len(none.GetTurns()) != 0 {
		t.Errorf("failed turns: %v", none)
	}
}

// A turn is canceled wherever it is: while it runs, waits for its start, or was
// suspended; one that is over stays as it is.
func TestCancelTurn(t *testing.T) {
	dir := t.TempDir()
	cfg := daemon.Config{DataDir: filepath.Join(dir, "data"), Scripts: map[string]string{"asks": asks}, Turns: limits.Limits{IdleTurn: time.Hour}}
	d := start(t, cfg)
	c := wires(t, d)["Connect, binary, HTTP/1.1"]
	running := until(t, c, call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: lookRequest("1")}).GetTurn(), agentdv1.TurnStatus_TURN_STATUS_WAITING_FOR_CLIENT)
	stream, err := c.WatchTurn(t.Context(), connect.NewRequest(&agentdv1.WatchTurnRequest{SessionId: running.GetSessionId(), ToolNames: []string{"look"}}))
	if err != nil {
		t.Fatal(err)
	}
	for stream.Receive() && stream.Msg().GetEvent().GetToolCall() == nil {
	}
	until(t, c, running, agentdv1.TurnStatus_TURN_STATUS_RUNNING) // somebody is asked
	next := lookRequest("2")
	next.SessionId, next.OnBusy = &running.SessionId, agentdv1.OnBusy_ON_BUSY_ENQUEUE
	queued := call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: next}).GetTurn()
	if queued.GetStatus() != agentdv1.TurnStatus_TURN_STATUS_PENDING || queued.GetStartTime() != nil {
		t.Errorf("queued: %v", queued)
	}
	cancel := func(turn *agentdv1.Turn, reason string) *agentdv1.Turn {
		return call(t, c.CancelTurn, &agentdv1.CancelTurnRequest{SessionId: turn.GetSessionId(), TurnId: turn.GetId(), Reason: reason}).GetTurn()
	}
	if got := cancel(queued, "not needed"); got.GetStatus() != agentdv1.TurnStatus_TURN_STATUS_CANCELED || got.GetStatusMessage() != "not needed" {
		t.Errorf("the queued turn is %v", got)
	}
	for range 2 {
		got := cancel(running, "")
		if got.GetStatus() != agentdv1.TurnStatus_TURN_STATUS_CANCELED || len(got.GetReceipt().GetCanceledToolCalls()) != 1 || len(got.GetPendingToolCalls()) != 0 {
			t.Errorf("the running turn is %v", got)
		}
	}
	for stream.Receive() {
	}
	if err := stream.Err(); err != nil {
		t.Error(err)
	}
	_ = stream.Close()

	aside := until(t, c, call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: lookRequest("3")}).GetTurn(), agentdv1.TurnStatus_TURN_STATUS_WAITING_FOR_CLIENT)
	stop(t, d)
	d = start(t, cfg)
	c = wires(t, d)["Connect, binary, HTTP/1.1"]
	if got := cancel(aside, "too late"); got.GetStatus() != agentdv1.TurnStatus_TURN_STATUS_CANCELED || got.GetStatusMessage() != "too late" || len(got.GetReceipt().GetCanceledToolCalls()) != 1 {
		t.Errorf("the suspended turn is %v", got)
	}
	ex := &agentdv1.RunRequest_ExecuteRequest{UserPrompt: "hi", SessionId: &aside.SessionId, Agent: llm("root", "echo")}
	until(t, c, call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: ex}).GetTurn(), agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED)
}

func TestSessionServiceRefusals(t *testing.T) {
	d := start(t, daemon.Config{})
	c := wires(t, d)["Connect, JSON, HTTP/1.1"]
	turn := until(t, c, call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: &agentdv1.RunRequest_ExecuteRequest{UserPrompt: "hi", Agent: llm("root", "echo")}}).GetTurn(), agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED)
	id := turn.GetSessionId()
	for name, tc := range map[string]struct {
		err  error
		code connect.Code
		kind agentdv1.ErrorCode
		says string
	}{
		"no session": {try(t, c.GetTurn, &agentdv1.GetTurnRequest{SessionId: "nobody"}), connect.CodeNotFound, agentdv1.ErrorCode_ERROR_CODE_SESSION_NOT_FOUND, `"nobody"`},
		"no turn":    {try(t, c.GetTurn, &agentdv1.GetTurnRequest{SessionId: id, TurnId: "e-x"}), connect.CodeNotFound, agentdv1.ErrorCode_ERROR_CODE_NOT_FOUND, `"e-x"`},
		"no id":      {try(t, c.GetTurn, &agentdv1.GetTurnRequest{}), connect.CodeInvalidArgument, agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST, "session_id"},
		"page":       {try(t, c.ListTurns, &agentdv1.ListTurnsRequest{SessionId: id, PageToken: "7"}), connect.CodeInvalidArgument, agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST, "page_token"},
		"cursor":     {try(t, c.ListTurnEvents, &agentdv1.ListTurnEventsRequest{SessionId: id, AfterSeq: new(int64(1 << 40))}), connect.CodeInvalidArgument, agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST, "after_seq"},
		"no request": {try(t, c.CreateTurn, &agentdv1.CreateTurnRequest{}), connect.CodeInvalidArgument, agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST, "execute"},
		"no prompt":  {try(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: &agentdv1.RunRequest_ExecuteRequest{SessionId: &id}}), connect.CodeInvalidArgument, agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST, "user_prompt"},
		"no model":   {try(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: &agentdv1.RunRequest_ExecuteRequest{UserPrompt: "hi", Agent: llm("root", "claude-x")}}), connect.CodeFailedPrecondition, agentdv1.ErrorCode_ERROR_CODE_AUTH_FAILED, "ANTHROPIC_API_KEY"},
		"nameless":   {try(t, c.SubmitToolResults, &agentdv1.SubmitToolResultsRequest{SessionId: id, Results: []*agentdv1.RunRequest_ToolCallResponse{{ToolCallId: "x"}}}), connect.CodeInvalidArgument, agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST, "turn_id"},
		"no cancel":  {try(t, c.CancelTurn, &agentdv1.CancelTurnRequest{SessionId: id}), connect.CodeInvalidArgument, agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST, "turn_id"},
		"which call": {try(t, c.CancelToolCall, &agentdv1.CancelToolCallRequest{SessionId: id, ToolCallId: "x"}), connect.CodeInvalidArgument, agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST, "turn_id"},
		"other turn": {try(t, c.SubmitToolResults, &agentdv1.SubmitToolResultsRequest{SessionId: id, TurnId: "e-x", Results: []*agentdv1.RunRequest_ToolCallResponse{{ToolCallId: "x"}}}), connect.CodeNotFound, agentdv1.ErrorCode_ERROR_CODE_NOT_FOUND, `"e-x"`},
		"foreign":    {try(t, c.SubmitToolResults, &agentdv1.SubmitToolResultsRequest{SessionId: id, TurnId: turn.GetId(), Results: []*agentdv1.RunRequest_ToolCallResponse{{ToolCallId: "x", SessionId: "other"}}}), connect.CodeInvalidArgument, agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST, "results[0]"},
	} {
		var ce *connect.Error
		if !errors.As(tc.err, &ce) || ce.Code() != tc.code || !strings.Contains(ce.Message(), tc.says) || len(ce.Details()) != 1 {
			t.Errorf("%s: %v", name, tc.err)
			continue
		}
		detail, err := ce.Details()[0].Value()
		if e, ok := detail.(*agentdv1.RunResponse_ErrorResponse); err != nil || !ok || e.GetCode() != tc.kind {
			t.Errorf("%s: the detail is %v, %v", name, detail, err)
		}
	}
}

func try[Req, Resp any](t *testing.T, f func(context.Context, *connect.Request[Req]) (*connect.Response[Resp], error), req *Req) error {
	t.Helper()
	_, err := f(t.Context(), connect.NewRequest(req))
	return err
}

// Web pages of an origin that is allowed may call, by GET too; others may not.
func TestCORS(t *testing.T) {
	d := start(t, daemon.Config{CORSOrigins: []string{"https://app.example.com"}})
	c := wires(t, d)["Connect, JSON, HTTP/1.1"]
	turn := call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: &agentdv1.RunRequest_ExecuteRequest{UserPrompt: "hi", Agent: llm("root", "echo")}}).GetTurn()
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	do := func(method, url, origin string, header http.Header) *http.Response {
		req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header = header
		req.Header.Set("Origin", origin)
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		return resp
	}
	ask := http.Header{"Access-Control-Request-Method": {"POST"}, "Access-Control-Request-Headers": {"authorization,connect-protocol-version,content-type,x-agentd-openai-api-key"}}
	get := d.URL() + agentdv1connect.SessionServiceGetTurnProcedure + "?connect=v1&encoding=json&message=" + url.QueryEscape(`{"sessionId":"`+turn.GetSessionId()+`"}`)
	for origin, allowed := range map[string]string{"https://app.example.com": "https://app.example.com", "https://evil.example.com": ""} {
		resp := do(http.MethodOptions, d.URL()+agentdv1connect.SessionServiceCreateTurnProcedure, origin, ask.Clone())
		if got := resp.Header.Get("Access-Control-Allow-Origin"); got != allowed {
			t.Errorf("preflight from %s: %d, allowed %q", origin, resp.StatusCode, got)
		}
		resp = do(http.MethodGet, get, origin, http.Header{})
		if allowed == "" {
			if resp.StatusCode != http.StatusForbidden {
				t.Errorf("GET from %s: %d", origin, resp.StatusCode)
			}
			continue
		}
		if got := resp.Header.Get("Access-Control-Allow-Origin"); got != allowed {
			t.Errorf("GET from %s: %d, allowed %q", origin, resp.StatusCode, got)
		}
		if got := resp.Header.Get("Cache-Control"); got != "no-store" {
			t.Errorf("GET from %s: Cache-Control %q", origin, got)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(body), turn.GetId()) {
			t.Errorf("GET: %d %s, %v", resp.StatusCode, body, err)
		}
	}
}
