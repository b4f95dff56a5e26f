package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genai"

	"github.com/apzuk3/agentd/agentdtest"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/models/echo"
	"github.com/apzuk3/agentd/internal/test/harness"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
)

type benchStream = connect.BidiStreamForClient[agentdv1.RunRequest, agentdv1.RunResponse]

// onEachStore runs a benchmark on a daemon in memory, and on one that keeps its
// data on disk, both on a loopback port.
func onEachStore(b *testing.B, run func(b *testing.B, d *agentdtest.Daemon), providers ...model.Provider) {
	cfg := agentdtest.Config{
		Providers: providers, Addr: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler),
	}
	b.Run("store=memory", func(b *testing.B) { run(b, agentdtest.Start(b, cfg)) })
	b.Run("store=disk", func(b *testing.B) {
		cfg := cfg
		cfg.DataDir = b.TempDir()
		run(b, agentdtest.Start(b, cfg))
	})
}

// benchRun starts a turn on a stream of its own.
func benchRun(b *testing.B, d *agentdtest.Daemon, req *agentdv1.RunRequest_ExecuteRequest) *benchStream {
	return benchOpen(b, d, &agentdv1.RunRequest{Request: &agentdv1.RunRequest_Execute{Execute: req}})
}

// benchOpen opens a stream with its first message.
func benchOpen(b *testing.B, d *agentdtest.Daemon, first *agentdv1.RunRequest) *benchStream {
	s := agentdv1connect.NewAgentdClient(d.HTTPClient(), d.URL).Run(b.Context())
	if err := s.Send(first); err != nil {
		b.Fatal(err)
	}
	return s
}

// benchEnd reads a stream to its end, and returns its session and how many
// chunks came.
func benchEnd(b *testing.B, s *benchStream) (session string, chunks int) {
	var end *agentdv1.RunResponse_EndResponse
	for {
		m, err := s.Receive()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			b.Fatal(err)
		}
		if m.GetOutputChunk() != nil {
			chunks++
		}
		if end = m.GetEnd(); end != nil {
			_ = s.CloseRequest()
		}
	}
	_ = s.CloseResponse()
	if !end.GetCompleted() {
		b.Fatalf("not completed: %v", end)
	}
	return end.GetSessionId(), chunks
}

// BenchmarkTurn is a whole turn over loopback HTTP/2 with a model that takes no
// time and says so many words, and in the same run the model's adapter alone:
// what is left is agentd. Every word is a delta of the model's; chunks/turn is
// how many messages they became.
func BenchmarkTurn(b *testing.B) {
	adapter, err := echo.New(echo.Config{}).Open("echo", "")
	if err != nil {
		b.Fatal(err)
	}
	onEachStore(b, func(b *testing.B, d *agentdtest.Daemon) {
		for _, words := range []int{1, 100, 1000} {
			b.Run(fmt.Sprintf("words=%d", words), func(b *testing.B) {
				text := strings.TrimSpace(strings.Repeat("word ", words))
				req := &agentdv1.RunRequest_ExecuteRequest{Agent: harness.LLMAgent("root", "echo", ""), UserPrompt: text}
				direct := &model.Request{
					Contents: []*genai.Content{genai.NewContentFromText(text, genai.RoleUser)},
					Config:   &genai.GenerateContentConfig{},
				}
				var turns, alone time.Duration
				n, chunks := 0, 0
				b.ReportAllocs()
				for b.Loop() {
					begin := time.Now()
					_, c := benchEnd(b, benchRun(b, d, req))
					between := time.Now()
					deltas := 0
					if _, err := adapter.Generate(b.Context(), direct, func(model.Delta) { deltas++ }); err != nil || deltas != words {
						b.Fatalf("%d deltas: %v", deltas, err)
					}
					turns, alone = turns+between.Sub(begin), alone+time.Since(between)
					n, chunks = n+1, chunks+c
				}
				micros := func(d time.Duration, of int) float64 { return float64(d.Nanoseconds()) / 1000 / float64(of) }
				b.ReportMetric(micros(turns, n), "µs/turn")
				b.ReportMetric(micros(turns-alone, n*words), "µs/word")
				b.ReportMetric(micros(alone, n), "µs/direct")
				b.ReportMetric(float64(turns)/float64(alone), "x-direct")
				b.ReportMetric(float64(chunks)/float64(n), "chunks/turn")
			})
		}
	})
}

// BenchmarkHistory is what lies between two model calls of a turn, after so many
// contents of history: the answer is stored, its call is answered by an error at
// once, that is stored, and the next prompt is built. x10 is the time compared
// with that after 10 contents: it should stay near 1. start/N is the time from a
// request to the first model call of its turn.
func BenchmarkHistory(b *testing.B) {
	const callsPerTurn = 480 // a turn may make 500
	sizes := []int{10, 100, 1000, 5000}
	var mu sync.Mutex // protects the fields below
	var left int      // calls of this turn still to be made
	var returned time.Time
	var first time.Duration
	gaps := map[int][]time.Duration{} // by size
	p := harness.Provider{Name: "bench", Model: func(string) harness.Generate {
		return func(_ context.Context, req *model.Request, emit func(model.Delta)) (*model.Response, error) {
			entered := time.Now()
			mu.Lock()
			defer mu.Unlock()
			gap, n := entered.Sub(returned), len(req.Contents)
			if left == callsPerTurn {
				first = gap
			} else {
				for _, size := range sizes {
					if n >= size-size/10 && n <= size+size/10+5 {
						gaps[size] = append(gaps[size], gap)
					}
				}
			}
			out := &adapter.Builder{Provider: "bench", Emit: emit}
			out.Text(strings.Repeat("lorem ipsum ", 20))
			if left--; left > 0 {
				out.Part(adapter.NewCall("", "nothing", `{"q":"dolor sit amet"}`)) // refused by the daemon itself
			}
			returned = time.Now()
			return &model.Response{Content: out.Content(), FinishReason: genai.FinishReasonStop, Usage: model.Usage{Total: 1}, Model: "bench"}, nil
		}
	}}
	onEachStore(b, func(b *testing.B, d *agentdtest.Daemon) {
		clear(gaps)
		starts := map[int][]time.Duration{}
		for b.Loop() {
			session := ""
			for at := 0; at <= 5200; at += 2 * callsPerTurn {
				req := &agentdv1.RunRequest_ExecuteRequest{Agent: harness.LLMAgent("root", "bench/m", ""), UserPrompt: "go"}
				if session != "" {
					req.SessionId = &session
				}
				mu.Lock()
				left, returned = callsPerTurn, time.Now()
				mu.Unlock()
				session, _ = benchEnd(b, benchRun(b, d, req))
				mu.Lock()
				starts[at] = append(starts[at], first)
				mu.Unlock()
			}
		}
		base := median(gaps[sizes[0]])
		for _, size := range sizes {
			got := median(gaps[size])
			b.ReportMetric(float64(got.Nanoseconds())/1000, fmt.Sprintf("µs/call@%d", size))
			b.ReportMetric(float64(got)/float64(base), fmt.Sprintf("x10@%d", size))
		}
		for _, at := range []int{0, 4 * callsPerTurn, 10 * callsPerTurn} {
			b.ReportMetric(float64(median(starts[at]).Nanoseconds())/1000, fmt.Sprintf("µs/start@%d", at))
		}
	}, p)
}

// BenchmarkAnswer is the time from when a client sends the answer to a tool call
// until the next model call begins: the answer is received, stored twice, as
// result and as part of the history, and the prompt is built.
func BenchmarkAnswer(b *testing.B) {
	const callsPerTurn = 300 // a stream takes 400 messages before it is slowed down
	entered := make(chan time.Time, 1)
	p := harness.Provider{Name: "bench", Model: func(string) harness.Generate {
		return func(_ context.Context, req *model.Request, emit func(model.Delta)) (*model.Response, error) {
			entered <- time.Now()
			out := &adapter.Builder{Provider: "bench", Emit: emit}
			if len(req.Contents) < 2*callsPerTurn {
				out.Part(adapter.NewCall("", "look", `{"q":"dolor sit amet"}`))
			} else {
				out.Text("Enough.")
			}
			return &model.Response{Content: out.Content(), FinishReason: genai.FinishReasonStop, Usage: model.Usage{Total: 1}, Model: "bench"}, nil
		}
	}}
	onEachStore(b, func(b *testing.B, d *agentdtest.Daemon) {
		var s *benchStream
		var took []time.Duration
		for b.Loop() {
			if s == nil {
				s = benchRun(b, d, &agentdv1.RunRequest_ExecuteRequest{
					Agent: harness.LLMAgent("root", "bench/m", "", "look"), UserPrompt: "go", Tools: []*agentdv1.Tool{harness.Tool("look")},
				})
				<-entered
			}
			var call *agentdv1.RunResponse_ToolCallRequest
			for call == nil {
				m, err := s.Receive()
				if err != nil || m.GetEnd() != nil {
					b.Fatalf("%v: %v", m, err)
				}
				call = m.GetToolCall()
			}
			begin := time.Now()
			err := s.Send(&agentdv1.RunRequest{Request: &agentdv1.RunRequest_ToolCallResponse_{ToolCallResponse: &agentdv1.RunRequest_ToolCallResponse{
				ToolCallId: call.GetToolCallId(), Result: &agentdv1.RunRequest_ToolCallResponse_Output{Output: `{"found":"consectetur"}`},
			}}})
			if err != nil {
				b.Fatal(err)
			}
			took = append(took, (<-entered).Sub(begin))
			if len(took)%(callsPerTurn-1) == 0 {
				_ = s.Send(&agentdv1.RunRequest{Request: &agentdv1.RunRequest_End{End: &agentdv1.RunRequest_EndRequest{}}})
				benchStop(s)
				s = nil
			}
		}
		if s != nil {
			_ = s.Send(&agentdv1.RunRequest{Request: &agentdv1.RunRequest_End{End: &agentdv1.RunRequest_EndRequest{}}})
			benchStop(s)
		}
		slices.Sort(took)
		b.ReportMetric(float64(median(took).Nanoseconds())/1000, "µs-p50")
		b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1000, "µs-p99")
	}, p)
}

// benchStop reads what is left of a stream whose turn was ended.
func benchStop(s *benchStream) {
	_ = s.CloseRequest()
	for {
		if _, err := s.Receive(); err != nil {
			break
		}
	}
	_ = s.CloseResponse()
}

func median(d []time.Duration) time.Duration {
	if len(d) == 0 {
		return 0
	}
	d = slices.Sorted(slices.Values(d))
	return d[len(d)/2]
}
