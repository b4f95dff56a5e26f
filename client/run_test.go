package client_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

func TestRunYieldsWhatTheServerSends(t *testing.T) {
	url := serve(t, func(_ context.Context, s *peer) error {
		return steps(
			s.started,
			func() error { return s.state(t, map[string]any{"n": 1.0}) },
			func() error { return s.text("Hel", false, "root", "leaf") },
			func() error {
				return s.send(&agentdv1.RunResponse{Response: &agentdv1.RunResponse_OutputChunk_{
					OutputChunk: &agentdv1.RunResponse_OutputChunk{Content: "hm", IsThought: true, AgentPath: []string{"root", "leaf"}},
				}})
			},
			func() error { return s.send(&agentdv1.RunResponse{}) }, // a member this client does not know
			func() error { return s.text("lo", true, "root", "leaf") },
			func() error { return s.end(true, "") },
		)
	})
	var got []string
	for event, err := range dial(t, url).Run(t.Context(), llm(), "hi") {
		if err != nil {
			t.Fatal(err)
		}
		switch c := event.Data.(type) {
		case *client.TurnStarted:
			got = append(got, "started "+event.SessionID)
		case *client.StateUpdate:
			if c.Delta["n"] != 1.0 {
				t.Errorf("state: got %v", c.Delta)
			}
			got = append(got, "state")
		case *client.UnknownEvent:
			got = append(got, "unknown")
		case *client.OutputChunk:
			if !slices.Equal(c.AgentPath, []string{"root", "leaf"}) {
				t.Errorf("path: got %v", c.AgentPath)
			}
			if c.IsThought != (c.Content == "hm") || c.Last != (c.Content == "lo") {
				t.Errorf("chunk: got %+v", c)
			}
			got = append(got, c.Content)
		case *client.End:
			if !c.Completed || c.Usage.TotalTokens != 7 || c.Usage.ModelCalls != 1 {
				t.Errorf("end: got %+v", c)
			}
			got = append(got, "end")
		default:
			t.Errorf("unexpected event %+v", event)
		}
	}
	if want := []string{"started s-1", "state", "Hel", "hm", "unknown", "lo", "end"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestRunSendsOptions(t *testing.T) {
	type head struct {
		execute *agentdv1.RunRequest_ExecuteRequest
		gemini  string
		claude  string
		other   string
		openai  []string
	}
	heads := make(chan head, 1)
	url := serve(t, func(_ context.Context, s *peer) error {
		h := s.stream.RequestHeader()
		heads <- head{s.execute, h.Get("X-Agentd-Gemini-Api-Key"), h.Get("X-Agentd-Anthropic-Api-Key"), h.Get("X-Extra"), h.Values("X-Agentd-Openai-Api-Key")}
		return steps(s.started, func() error { return s.end(true, "") })
	})
	c := dial(t, url, client.WithHeader("X-Extra", "default"))
	_, err := c.Do(t.Context(), nil, "go on",
		client.WithSessionID("old"),
		client.WithInitialState(map[string]any{"k": []int{1, 2}}),
		client.WithProviderKey("gemini", "secret"),
		client.WithProviderKey("anthropic", "other secret"),
		client.WithProviderKey("openai", ""),
		client.WithHeader("X-Extra", "mine"))
	if err != nil {
		t.Fatal(err)
	}
	got := <-heads
	if got.gemini != "secret" || got.claude != "other secret" || got.other != "mine" || len(got.openai) != 0 {
		t.Errorf("headers: %+v", got)
	}
	if got.execute.GetSessionId() != "old" || got.execute.GetUserPrompt() != "go on" || got.execute.GetAgent() != nil {
		t.Errorf("execute: %v", got.execute)
	}
	if text := got.execute.GetInitialStateJson(); text != `{"k":[1,2]}` || got.execute.GetInitialState() != nil {
		t.Errorf("state: %s", text)
	}
}

func TestRunFailsWithTheServersError(t *testing.T) {
	for value, name := range agentdv1.ErrorCode_name {
		code := agentdv1.ErrorCode(value)
		if code == agentdv1.ErrorCode_ERROR_CODE_UNSPECIFIED {
			continue
		}
		for _, withEnd := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				url := serve(t, func(_ context.Context, s *peer) error {
					if !withEnd {
						return s.fail(code, "no", true)
					}
					return steps(
						s.started,
						func() error { return s.fail(code, "no", true) },
						func() error { return s.send(&agentdv1.RunResponse{Response: &agentdv1.RunResponse_Heartbeat{}}) },
						func() error { return s.end(false, "failed") },
					)
				})
				res, err := dial(t, url).Do(t.Context(), llm(), "hi")
				failure, ok := errors.AsType[*client.Error](err)
				if !ok {
					t.Fatalf("want a *client.Error, got %T %v", err, err)
				}
				if !errors.Is(err, client.Code(code)) || failure.Code != client.Code(code) {
					t.Errorf("code: got %v", failure.Code)
				}
				if failure.Message != "no" || !failure.Retryable || failure.SessionID != session {
					t.Errorf("got %+v", failure)
				}
				if withEnd != (failure.Usage != nil) || withEnd != (res.Usage != nil) {
					t.Errorf("usage: got %v and %v", failure.Usage, res.Usage)
				}
			})
		}
	}
}

func TestErrorThatDoesNotEndTheTurn(t *testing.T) {
	url := serve(t, func(_ context.Context, s *peer) error {
		return steps(
			s.started,
			func() error { return s.fail(agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST, "late", false) },
			func() error { return s.text("on", true, "root") },
			func() error { return s.fail(agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST, "later", false) },
			func() error { return s.end(true, "") },
		)
	})
	var got []string
	for event, err := range dial(t, url).Run(t.Context(), llm(), "hi") {
		switch {
		case err != nil:
			t.Fatal(err)
		case event.Error != nil:
			got = append(got, event.Error.Message)
		case event.OutputChunk != nil:
			got = append(got, event.OutputChunk.Content)
		case event.End != nil:
			got = append(got, "end")
		}
	}
	if want := []string{"late", "on", "later", "end"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestBrokenStreams(t *testing.T) {
	tests := map[string]struct {
		script script
		code   client.Code
		cause  error
	}{
		"ends without EndResponse": {
			script: func(_ context.Context, s *peer) error {
				return steps(s.started, func() error { return s.text("hal", false, "root") })
			},
			code: client.ErrUnavailable, cause: io.ErrUnexpectedEOF,
		},
		"aborts": {
			script: func(_ context.Context, s *peer) error {
				if err := s.started(); err != nil {
					return err
				}
				panic(errAbort)
			},
			code: client.ErrUnavailable,
		},
		"unauthenticated": {
			script: func(context.Context, *peer) error {
				return connect.NewError(connect.CodeUnauthenticated, errors.New("who are you"))
			},
			code: client.ErrUnauthenticated,
		},
		"not permitted":   {script: refusal(connect.CodePermissionDenied), code: client.ErrPermissionDenied},
		"not found":       {script: refusal(connect.CodeNotFound), code: client.ErrSessionNotFound},
		"late":            {script: refusal(connect.CodeDeadlineExceeded), code: client.ErrTimeout},
		"invalid":         {script: refusal(connect.CodeInvalidArgument), code: client.ErrInvalidRequest},
		"not served":      {script: refusal(connect.CodeUnimplemented), code: client.ErrInvalidRequest},
		"no longer there": {script: refusal(connect.CodeUnavailable), code: client.ErrUnavailable},
		"internal": {
			script: func(context.Context, *peer) error { return connect.NewError(connect.CodeInternal, errors.New("oops")) },
			code:   client.ErrInternal,
		},
		"an error and then a transport error": {
			script: func(_ context.Context, s *peer) error {
				if err := s.fail(agentdv1.ErrorCode_ERROR_CODE_SESSION_BUSY, "busy", true); err != nil {
					return err
				}
				return connect.NewError(connect.CodeInternal, errors.New("oops"))
			},
			code: client.ErrSessionBusy,
		},
		"too large a message": {
			script: func(_ context.Context, s *peer) error { return s.text(strings.Repeat("x", 5000), false, "root") },
			code:   client.ErrLimitExceeded,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := dial(t, serve(t, test.script), client.WithMaxMessageBytes(4096))
			_, err := c.Do(t.Context(), llm(), "hi")
			if !errors.Is(err, test.code) {
				t.Errorf("want %v, got %v", test.code, err)
			}
			if test.cause != nil && !errors.Is(err, test.cause) {
				t.Errorf("want a cause %v, got %v", test.cause, err)
			}
		})
	}
}

func refusal(code connect.Code) script {
	return func(context.Context, *peer) error { return connect.NewError(code, errors.New("no")) }
}

func TestNothingListens(t *testing.T) {
	srv := start(t, nil, false)
	srv.Close()
	_, err := dial(t, srv.URL).Do(t.Context(), llm(), "hi")
	failure, ok := errors.AsType[*client.Error](err)
	if !ok || !errors.Is(err, client.ErrUnavailable) || !failure.Retryable {
		t.Errorf("want a retryable UNAVAILABLE, got %v", err)
	}
	if _, ok := errors.AsType[*connect.Error](err); !ok {
		t.Errorf("the connect error is not wrapped: %v", err)
	}
}

func TestWrongArguments(t *testing.T) {
	loop := llm()
	loop.AgentType = &agentdv1.Agent_Sequential{Sequential: &agentdv1.SequentialAgent{Agents: []*agentdv1.Agent{loop}}}
	tests := map[string]struct {
		url    string
		agent  *agentdv1.Agent
		opts   []client.RunOption
		prompt string
		want   string
	}{
		"no scheme":          {url: "localhost:8080", agent: llm(), want: "http://host:port"},
		"password in url":    {url: "ftp://u:geheim@h", agent: llm(), want: "u:xxxxx@h"},
		"no agent, no id":    {want: "WithSessionID"},
		"unregistered tool":  {agent: nested("a", "b", "nope"), want: `agent a/b names the tool "nope"`},
		"tree holds itself":  {agent: loop, want: "hold itself"},
		"unknown attachment": {agent: attached("x"), want: `"x"`},
		"state is no object": {agent: llm(), opts: []client.RunOption{client.WithInitialState(3)}, want: "got int"},
		"state of nothing":   {agent: llm(), opts: []client.RunOption{client.WithInitialState(map[string]any(nil))}, want: "got map"},
		"broken text":        {agent: llm(), prompt: "\xff", want: "UTF-8"},
		"too large":          {agent: llm(), prompt: strings.Repeat("x", client.DefaultMaxMessageBytes+1), want: "at most 4194304"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if test.url == "" {
				test.url = serve(t, func(context.Context, *peer) error {
					t.Error("something was sent")
					return nil
				})
			}
			_, err := dial(t, test.url).Do(t.Context(), test.agent, test.prompt, test.opts...)
			if _, ok := errors.AsType[*client.Error](err); !ok {
				t.Fatalf("want a *client.Error, got %v", err)
			}
			if !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "geheim") {
				t.Errorf("want %q in %q", test.want, err)
			}
		})
	}
}

// nested returns agents of these names, each inside the other; the last name
// is that of the innermost one's tool.
func nested(names ...string) *agentdv1.Agent {
	agent := llm(names[len(names)-1])
	agent.Name = names[len(names)-2]
	for _, name := range slices.Backward(names[:len(names)-2]) {
		agent = &agentdv1.Agent{Name: name, AgentType: &agentdv1.Agent_Loop{Loop: &agentdv1.LoopAgent{Agents: []*agentdv1.Agent{agent}}}}
	}
	return agent
}

func attached(name string, include ...string) *agentdv1.Agent {
	agent := llm()
	agent.GetLlm().McpAttachments = []*agentdv1.McpAttachment{{McpName: name, IncludeToolNames: include}}
	return agent
}

func TestDoCollects(t *testing.T) {
	url := serve(t, func(_ context.Context, s *peer) error {
		return steps(
			s.started,
			func() error { return s.state(t, map[string]any{"a": "old", "b": "b"}) },
			func() error { return s.text("one ", false, "root", "x") },
			func() error { return s.text("TWO", true, "root", "y") },
			func() error { return s.text("three", true, "root", "x") },
			func() error { return s.state(t, map[string]any{"a": "new"}) },
			func() error { return s.end(false, "enough") },
		)
	})
	res, err := dial(t, url).Do(t.Context(), llm(), "hi")
	if err != nil {
		t.Fatal(err)
	}
	if res.Text != "one three\n\nTWO" || len(res.Agents) != 2 || res.Agents[1].Text != "TWO" {
		t.Errorf("texts: %+v", res)
	}
	if res.SessionID != session || res.Completed || res.Reason != "enough" || res.Usage.ModelCalls != 1 {
		t.Errorf("got %+v", res)
	}
	if res.State["a"] != "new" || res.State["b"] != "b" {
		t.Errorf("state: %v", res.State)
	}
}

func TestRunTwiceIsTwoTurns(t *testing.T) {
	turns := make(chan struct{}, 8)
	url := serve(t, func(_ context.Context, s *peer) error {
		turns <- struct{}{}
		return steps(s.started, func() error { return s.end(true, "") })
	})
	seq := dial(t, url).Run(t.Context(), llm(), "hi", client.WithTimeout(time.Hour))
	if len(turns) != 0 {
		t.Error("the turn began before the sequence was ranged over")
	}
	for range 2 {
		for _, err := range seq {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(turns) != 2 {
		t.Errorf("want 2 turns, got %d", len(turns))
	}
}

func TestRunTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cancelled := make(chan bool, 1)
		c := newMemNet(t, func(_ context.Context, s *peer) error {
			if err := s.started(); err != nil {
				return err
			}
			m, err := s.receive()
			cancelled <- err == nil && m.GetCancel() != nil
			return s.end(false, "cancelled")
		}).client()
		_, err := c.Do(t.Context(), llm(), "hi", client.WithTimeout(20*time.Millisecond))
		if !errors.Is(err, client.ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("want TIMEOUT and a deadline, got %v", err)
		}
		if !<-cancelled {
			t.Error("the server was not told")
		}
	})
}
