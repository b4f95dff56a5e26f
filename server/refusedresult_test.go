package server_test

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/binary"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/test/testdaemon"
	"github.com/apzuk3/agentd/server"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/record"
)

// rawStream is a Run stream whose frames a test makes itself.
type rawStream struct {
	t    *testing.T
	json bool
	w    *io.PipeWriter
	resp chan *http.Response
	body io.ReadCloser
}

func (f *fixture) rawStream(t *testing.T, json bool) *rawStream {
	t.Helper()
	r, w := io.Pipe()
	s := &rawStream{t: t, json: json, w: w, resp: make(chan *http.Response, 1)}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url+agentdv1connect.AgentdRunProcedure, r)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Connect-Content-Encoding", "gzip")
	req.Header.Set("Content-Type", map[bool]string{false: wireProto, true: "application/connect+json"}[json])
	go func() {
		defer close(s.resp)
		resp, err := f.hc.Do(req)
		if err != nil {
			t.Error(err)
			return
		}
		s.resp <- resp
	}()
	return s
}

func (s *rawStream) encode(m proto.Message) []byte {
	if !s.json {
		return marshal(s.t, m)
	}
	data, err := protojson.Marshal(m)
	if err != nil {
		s.t.Fatal(err)
	}
	return data
}

// write sends a frame. A server that has ended the stream takes no more.
func (s *rawStream) write(flags byte, data []byte) {
	_, _ = s.w.Write(envelope(flags, data))
}

// next receives a message; nil after the last one.
func (s *rawStream) next() *agentdv1.RunResponse {
	s.t.Helper()
	if s.body == nil {
		resp, ok := <-s.resp
		if !ok {
			s.t.Fatal("no response")
		}
		s.body = resp.Body
	}
	var head [5]byte
	if _, err := io.ReadFull(s.body, head[:]); err != nil {
		s.t.Fatalf("the stream has no end: %v", err)
	}
	data := make([]byte, binary.BigEndian.Uint32(head[1:]))
	if _, err := io.ReadFull(s.body, data); err != nil {
		s.t.Fatal(err)
	}
	if head[0]&2 != 0 {
		if string(data) != "{}" {
			s.t.Errorf("the stream must end cleanly, got %s", data)
		}
		return nil
	}
	if head[0]&1 != 0 {
		z, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			s.t.Fatal(err)
		}
		if data, err = io.ReadAll(z); err != nil {
			s.t.Fatal(err)
		}
	}
	m, unmarshal := &agentdv1.RunResponse{}, proto.Unmarshal
	if s.json {
		unmarshal = protojson.Unmarshal
	}
	if err := unmarshal(data, m); err != nil {
		s.t.Fatal(err)
	}
	return m
}

func (s *rawStream) until(fit func(*agentdv1.RunResponse) bool) *agentdv1.RunResponse {
	s.t.Helper()
	for {
		m := s.next()
		if m == nil {
			s.t.Fatal("the stream is over")
		}
		if fit(m) {
			return m
		}
	}
}

func (s *rawStream) close() {
	_ = s.w.Close()
	if s.body != nil {
		_ = s.body.Close()
	}
}

// badResults are results of the call "call" that no server with the limits of badConfig
// accepts.
func badResults() map[string]*agentdv1.RunRequest_ToolCallResponse {
	resultWith := func(edit func(*agentdv1.RunRequest_ToolCallResponse)) *agentdv1.RunRequest_ToolCallResponse {
		m := toolResult("call", "x").GetToolCallResponse()
		edit(m)
		return m
	}
	deep := structpb.NewNullValue()
	for range 200 {
		deep = structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{deep}})
	}
	state := func(v *structpb.Value) func(*agentdv1.RunRequest_ToolCallResponse) {
		return func(m *agentdv1.RunRequest_ToolCallResponse) {
			m.StateDelta = &structpb.Struct{Fields: map[string]*structpb.Value{"k": v}}
		}
	}
	many := &structpb.ListValue{}
	for range 200_001 {
		many.Values = append(many.Values, structpb.NewNullValue())
	}
	return map[string]*agentdv1.RunRequest_ToolCallResponse{
		"1 MiB":                        toolResult("call", strings.Repeat("x", 1<<20)).GetToolCallResponse(),
		"1 MiB as JSON":                toolResult("call", strings.Repeat("\x01", 1<<18)).GetToolCallResponse(),
		"above the message limit":      toolResult("call", strings.Repeat("x", 3<<20)).GetToolCallResponse(),
		"far above it":                 toolResult("call", strings.Repeat("x", 12<<20)).GetToolCallResponse(),
		"state of 1 MiB":               resultWith(state(structpb.NewStringValue(strings.Repeat("x", 1<<20)))),
		"state too deep":               resultWith(state(deep)),
		"too many values":              resultWith(state(structpb.NewListValue(many))),
		"state that is no number":      resultWith(state(structpb.NewNumberValue(math.Inf(1)))),
		"more parts than are allowed":  resultWith(func(m *agentdv1.RunRequest_ToolCallResponse) { m.Parts = make([]*agentdv1.Part, 65) }),
		"a part that is none":          resultWith(func(m *agentdv1.RunRequest_ToolCallResponse) { m.Parts = make([]*agentdv1.Part, 1) }),
		"parts together with an error": {ToolCallId: "call", Result: &agentdv1.RunRequest_ToolCallResponse_Error{Error: "x"}, Parts: []*agentdv1.Part{{Content: &agentdv1.Part_Text{Text: "x"}}}},
		"a tool of no name": resultWith(func(m *agentdv1.RunRequest_ToolCallResponse) {
			m.Parts = []*agentdv1.Part{{Content: &agentdv1.Part_Tool{Tool: &agentdv1.ToolReference{ToolName: "a b"}}}}
		}),
		"a file that is fetched by ftp": resultWith(func(m *agentdv1.RunRequest_ToolCallResponse) {
			m.Parts = []*agentdv1.Part{{Content: &agentdv1.Part_File{File: &agentdv1.FileUri{Uri: "ftp://a/b", MimeType: "text/plain"}}}}
		}),
	}
}

var badConfig = server.Config{MaxMessageBytes: 2 << 20}

// asks is a turn that asks for one tool and hands out what came of it; it ends when
// that has been taken.
func asks(results chan<- record.ToolResult) engine {
	return engine{run: func(ctx context.Context, run *session.Run) error {
		res, err := ask(ctx, run, "call")
		if err != nil {
			return err
		}
		results <- res[0]
		return nil
	}}
}

// onPipesWith has a turn's results in the bubble of the test.
func onPipesWith(t *testing.T, e func(chan<- record.ToolResult) engine, cfg server.Config, test func(*testing.T, *fixture, <-chan record.ToolResult)) {
	synctest.Test(t, func(t *testing.T) {
		results := make(chan record.ToolResult)
		f := serveOn(t, testdaemon.NewListener(), e(results), cfg)
		test(t, f, results)
		f.stop()
	})
}

// A client that has sent a result sends nothing more for its call. So a refused result
// becomes the call's result at once, as an error with the reason; the stream reports it
// too.
func TestRefusedResultIsTheResult(t *testing.T) {
	type frame struct {
		flags byte
		data  []byte
	}
	frames := func(t *testing.T, s *rawStream) map[string]frame {
		out := map[string]frame{}
		for name, m := range badResults() {
			if s.json && name == "state that is no number" { // JSON has none
				continue
			}
			for i := range m.GetParts() {
				if m.GetParts()[i] == nil {
					m.Parts[i] = &agentdv1.Part{}
				}
			}
			out[name] = frame{0, s.encode(&agentdv1.RunRequest{Request: &agentdv1.RunRequest_ToolCallResponse_{ToolCallResponse: m}})}
		}
		good := s.encode(toolResult("call", "a result"))
		out["no UTF-8"] = frame{0, bytes.Replace(good, []byte("a result"), []byte("a \xffesult"), 1)}
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		if _, err := z.Write(good); err != nil || z.Close() != nil {
			t.Fatal(err)
		}
		out["compressed"] = frame{1, packed.Bytes()}
		return out
	}
	for _, json := range []bool{false, true} {
		for name, bad := range frames(t, &rawStream{t: t, json: json}) {
			t.Run(map[bool]string{false: "binary ", true: "JSON "}[json]+name, func(t *testing.T) {
				onPipesWith(t, asks, badConfig, func(t *testing.T, f *fixture, results <-chan record.ToolResult) {
					s := f.rawStream(t, json)
					defer s.close()
					s.write(0, s.encode(execute()))
					s.until(isCall)
					go s.write(bad.flags, bad.data) // ends with the stream, which may take no more
					var refused *agentdv1.RunResponse_ErrorResponse
					var shown *agentdv1.ToolCallAnswered
					for refused == nil || shown == nil && name != "far above it" {
						m := s.next()
						if m == nil {
							t.Fatal("the stream is over")
						}
						refused, shown = cmp.Or(refused, m.GetError()), cmp.Or(shown, m.GetToolCallAnswered())
					}
					got := <-results
					if got.Outcome != record.Returned || got.Output != nil || !strings.Contains(got.Error, "refused") {
						t.Errorf("the result is %v", got)
					}
					if shown != nil {
						if shown.GetError() != got.Error {
							t.Errorf("the result that is shown is %v", shown)
						}
						if end := s.until(isEnd); !end.GetEnd().GetCompleted() {
							t.Errorf("the end is %v", end)
						}
					}
					if refused.GetCode() != codeLimit && refused.GetCode() != codeInvalid {
						t.Errorf("refused with %v", refused)
					}
					if refused.GetCode() == codeLimit && !strings.ContainsAny(got.Error, "0123456789") {
						t.Errorf("no limit is named: %s", got.Error)
					}
				})
			})
		}
	}
}

// The turn may wait only for the refused result: the refusal comes before the end that
// it leads to.
func TestRefusalBeforeEnd(t *testing.T) {
	bad := toolResult("call", "x")
	bad.GetToolCallResponse().Parts = slices.Repeat([]*agentdv1.Part{{}}, 65)
	for name, failure := range map[string]error{"completed": nil, "failed": fault.Errorf(agentdv1.ErrorCode_ERROR_CODE_RATE_LIMITED, "enough for today")} {
		t.Run(name, func(t *testing.T) {
			f := serve(t, engine{run: func(ctx context.Context, run *session.Run) error {
				if _, err := ask(ctx, run, "call"); err != nil {
					return err
				}
				return failure
			}}, server.Config{})
			for i := range 50 {
				c := f.run(t)
				c.until(isCall)
				c.send(bad)
				msgs := c.toEnd()
				if !slices.ContainsFunc(msgs, func(m *agentdv1.RunResponse) bool { return m.GetError().GetToolCallId() == "call" }) {
					t.Fatalf("turn %d: the refusal is not told: %v", i, msgs)
				}
				if last := msgs[len(msgs)-2].GetError(); failure != nil && last.GetCode() != agentdv1.ErrorCode_ERROR_CODE_RATE_LIMITED {
					t.Fatalf("turn %d: EndResponse follows %v", i, last)
				}
			}
		})
	}
}

// A refused message without a call ends no call: a message of another session, one that
// is no result, one that is cut off.
func TestRefusedMessageThatIsNoResult(t *testing.T) {
	large := strings.Repeat("x", 3<<20)
	other := toolResult("call", large)
	other.GetToolCallResponse().SessionId = "another"
	bad := other.GetToolCallResponse()
	bad = proto.CloneOf(bad)
	bad.Parts = slices.Repeat([]*agentdv1.Part{{}}, 65)
	bad.Result = nil
	for name, m := range map[string]*agentdv1.RunRequest{
		"another session, too large":   other,
		"another session, not valid":   {Request: &agentdv1.RunRequest_ToolCallResponse_{ToolCallResponse: bad}},
		"another call":                 toolResult("none", large),
		"no answer":                    end(large),
		"a call that is not named yet": {Request: &agentdv1.RunRequest_ToolCallResponse_{ToolCallResponse: &agentdv1.RunRequest_ToolCallResponse{ToolName: large, ToolCallId: "call"}}},
	} {
		t.Run(name, func(t *testing.T) {
			onPipesWith(t, asks, badConfig, func(t *testing.T, f *fixture, results <-chan record.ToolResult) {
				s := f.rawStream(t, false)
				defer s.close()
				s.write(0, s.encode(execute()))
				s.until(isCall)
				s.write(0, s.encode(m))
				s.until(isError)
				if name == "a call that is not named yet" {
					// The id stands in front of the name, so it is known all the same.
					if got := <-results; got.Error == "" {
						t.Errorf("got %v", got)
					}
					return
				}
				s.write(0, s.encode(toolResult("call", "good")))
				if got := <-results; got.Output == nil || *got.Output != "good" {
					t.Errorf("the result is %v", got)
				}
				s.until(isEnd)
			})
		})
	}
}

// SubmitToolResults takes each result for itself, names those that it refuses and
// records them as errors.
func TestSubmitRefusesEachResult(t *testing.T) {
	for name, m := range badResults() {
		if strings.Contains(name, "message limit") || strings.Contains(name, "far above") || strings.Contains(name, "deep") || strings.Contains(name, "values") {
			continue // of the request as a whole
		}
		t.Run(name, func(t *testing.T) {
			results := make(chan []record.ToolResult, 1)
			onPipes(t, engine{run: func(ctx context.Context, run *session.Run) error {
				res, err := ask(ctx, run, "call", "other")
				results <- res
				return err
			}}, badConfig, func(t *testing.T, f *fixture) {
				c := f.run(t)
				started := c.next()
				for range 2 {
					c.until(isCall)
				}
				for i := range m.GetParts() {
					if m.GetParts()[i] == nil {
						m.Parts[i] = &agentdv1.Part{}
					}
				}
				unary := agentdv1connect.NewSessionServiceClient(f.hc, f.url)
				resp, err := unary.SubmitToolResults(t.Context(), connect.NewRequest(&agentdv1.SubmitToolResultsRequest{
					SessionId: started.GetExecute().GetSessionId(), TurnId: started.GetTurnId(),
					Results: []*agentdv1.RunRequest_ToolCallResponse{m, toolResult("other", "good").GetToolCallResponse()},
				}))
				if err != nil {
					t.Fatal(err)
				}
				refused := resp.Msg.GetRefused()
				if len(refused) != 1 || refused[0].GetToolCallId() != "call" || refused[0].GetError().GetMessage() == "" {
					t.Errorf("refused are %v", refused)
				}
				got := <-results
				if got[0].Output != nil || !strings.Contains(got[0].Error, "refused") || got[1].Output == nil || *got[1].Output != "good" {
					t.Errorf("the results are %v", got)
				}
				c.toEnd()
			})
		})
	}
}
