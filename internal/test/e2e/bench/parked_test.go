package bench

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/agentdtest"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/test/harness"
	"github.com/apzuk3/agentd/internal/test/testdaemon"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
	"github.com/apzuk3/agentd/session/limits"
)

// parked is how many turns wait at the same time in BenchmarkParked.
var parked = flag.Int("parked", 10000, "turns that wait at once in BenchmarkParked")

// asker is a provider that asks for a tool, and then has done.
func asker() harness.Provider {
	return harness.Provider{Name: "asker", Model: func(string) harness.Generate {
		return func(_ context.Context, req *model.Request, emit func(model.Delta)) (*model.Response, error) {
			out := &adapter.Builder{Provider: "asker", Emit: emit}
			out.Text("One moment. ")
			if len(req.Contents) == 1 {
				out.Part(adapter.NewCall("", "look", `{"q":"dolor sit amet"}`))
			}
			return &model.Response{Content: out.Content(), FinishReason: genai.FinishReasonStop, Usage: model.Usage{Total: 1}, Model: "m"}, nil
		}
	}}
}

// usage is what a process holds on to.
type usage struct {
	heap, stack uint64
	goroutines  int
}

func held() usage {
	var m runtime.MemStats
	for range 3 { // what a first collection finalizes a later one frees
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return usage{m.HeapAlloc, m.StackInuse, runtime.NumGoroutine()}
}

// per reports what n of something take.
func (u usage) per(b *testing.B, since usage, n int, what string) {
	bytes := float64(u.heap) + float64(u.stack) - float64(since.heap) - float64(since.stack)
	b.ReportMetric(bytes/float64(n), "B/"+what)
	b.ReportMetric(float64(u.goroutines-since.goroutines)/float64(n), "goroutines/"+what)
}

// place is where a client of a turn has got to.
type place struct {
	session string
	seq     int64
}

// until starts a stream, has it read to the first tool call, and leaves it there.
// It returns how long that took.
func until(b *testing.B, d *agentdtest.Daemon, req *agentdv1.RunRequest) (place, time.Duration, func()) {
	ctx, cancel := context.WithCancel(b.Context())
	begin := time.Now()
	s := agentdv1connect.NewAgentdClient(d.HTTPClient(), d.URL).Run(ctx)
	leave := func() {
		cancel()
		_ = s.CloseRequest()
		_ = s.CloseResponse()
	}
	if err := s.Send(req); err != nil {
		b.Error(err)
	}
	for {
		m, err := s.Receive()
		if err != nil || m.GetEnd() != nil {
			b.Errorf("no tool call came: %v, %v", m, err)
			return place{}, 0, leave
		}
		if c := m.GetToolCall(); c != nil {
			return place{c.GetSessionId(), m.GetSeq()}, time.Since(begin), leave
		}
	}
}

// each runs f for 0 to n-1, 16 at a time.
func each(n int, f func(i int)) {
	var wg sync.WaitGroup
	next := make(chan int)
	for range 16 {
		wg.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
}

// BenchmarkParked is what turns cost that wait for a client which is not there:
// in memory (waiting), after they have left it (parked: their log is on disk, and
// nothing else), and how long one takes to be where its client was when that one
// comes back. attached is what a stream to such a turn costs, both ends of it, many
// to a connection. x-rtt compares with a heartbeat's round trip on the same daemon.
// boot is the start of a daemon that finds them all.
func BenchmarkParked(b *testing.B) {
	n := *parked
	dir := b.TempDir()
	start := func(idle time.Duration) *agentdtest.Daemon {
		d, err := agentdtest.New(agentdtest.Config{
			DataDir:   dir,
			Addr:      "127.0.0.1:0",
			Logger:    slog.New(slog.DiscardHandler),
			Providers: []model.Provider{asker()},
		}, testdaemon.WithTurnLimits(limits.Limits{MaxTurns: 2 * n, IdleTurn: idle}))
		if err != nil {
			b.Fatal(err)
		}
		return d
	}
	stop := func(d *agentdtest.Daemon) {
		if err := d.Close(); err != nil {
			b.Fatal(err)
		}
	}
	var caughtUp, woken, rtt []time.Duration
	for b.Loop() {
		d := start(time.Hour)
		before := held()
		places := make([]place, n)
		tools := []*agentdv1.Tool{harness.Tool("look")}
		each(n, func(i int) {
			req := &agentdv1.RunRequest_ExecuteRequest{
				Agent: harness.LLMAgent("root", "asker/m", "", "look"), UserPrompt: "go", Tools: tools, OnDisconnect: agentdv1.OnDisconnect_ON_DISCONNECT_CONTINUE,
			}
			p, _, leave := until(b, d, &agentdv1.RunRequest{Request: &agentdv1.RunRequest_Execute{Execute: req}})
			leave()
			places[i] = p
		})
		if b.Failed() {
			return
		}
		quiet(b, d)
		held().per(b, before, n, "waiting")
		back := func(d *agentdtest.Daemon, i int) time.Duration {
			_, took, leave := until(b, d, harness.Attach(places[i].session, "", &places[i].seq, tools...))
			leave()
			return took
		}
		for i := range min(n, 1000) {
			caughtUp = append(caughtUp, back(d, i))
			rtt = append(rtt, heartbeat(b, d))
		}
		m := min(n, 4000)
		before, leave := held(), make([]func(), m)
		each(m, func(i int) {
			_, _, leave[i] = until(b, d, harness.Attach(places[i].session, "", &places[i].seq, tools...))
		})
		held().per(b, before, m, "attached")
		for _, l := range leave {
			l()
		}
		stop(d)

		begin := time.Now()
		d = start(time.Millisecond)
		b.ReportMetric(float64(time.Since(begin).Milliseconds()), "ms/boot")
		empty := held()
		for i := range min(n, 1000) {
			woken = append(woken, back(d, i))
		}
		each(n, func(i int) { back(d, i) }) // all of them have been in memory
		quiet(b, d)
		for wait := time.Millisecond; runtime.NumGoroutine() > empty.goroutines+20 && wait < 20*time.Second; wait *= 2 {
			time.Sleep(wait) // until the last ones have left memory
		}
		time.Sleep(3 * time.Second) // and what lingers of their streams
		held().per(b, empty, n, "parked")
		stop(d)
	}
	report(b, "reconnect-waiting", caughtUp, rtt)
	report(b, "reconnect-parked", woken, rtt)
	b.ReportMetric(float64(median(rtt).Nanoseconds())/1000, "µs-rtt")
}

// quiet closes the client's connections.
func quiet(b *testing.B, d *agentdtest.Daemon) {
	b.Helper()
	d.HTTPClient().CloseIdleConnections()
	time.Sleep(100 * time.Millisecond) // the daemon sees them closed
}

// heartbeat is how long a heartbeat takes on a stream that is open.
func heartbeat(b *testing.B, d *agentdtest.Daemon) time.Duration {
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	s := agentdv1connect.NewAgentdClient(d.HTTPClient(), d.URL).Run(ctx)
	req := &agentdv1.RunRequest_ExecuteRequest{Agent: harness.LLMAgent("root", "asker/m", "", "look"), UserPrompt: "go", Tools: []*agentdv1.Tool{harness.Tool("look")}}
	if err := s.Send(&agentdv1.RunRequest{Request: &agentdv1.RunRequest_Execute{Execute: req}}); err != nil {
		b.Fatal(err)
	}
	for {
		m, err := s.Receive()
		if err != nil {
			b.Fatal(err)
		}
		if m.GetToolCall() != nil {
			break
		}
	}
	begin := time.Now()
	if err := s.Send(&agentdv1.RunRequest{Request: &agentdv1.RunRequest_Heartbeat{Heartbeat: &agentdv1.RunRequest_HeartbeatRequest{}}}); err != nil {
		b.Fatal(err)
	}
	if m, err := s.Receive(); err != nil || m.GetHeartbeat() == nil {
		b.Fatalf("%v: %v", m, err)
	}
	took := time.Since(begin)
	if err := s.Send(&agentdv1.RunRequest{Request: &agentdv1.RunRequest_End{End: &agentdv1.RunRequest_EndRequest{}}}); err != nil {
		b.Fatal(err)
	}
	benchStop(s)
	return took
}

func report(b *testing.B, what string, took, rtt []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(median(took).Nanoseconds())/1000, "µs-p50-"+what)
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1000, "µs-p99-"+what)
	b.ReportMetric(float64(median(took))/float64(median(rtt)), "x-rtt-"+what)
}

// BenchmarkCancel is the time from when a client cancels a turn, which streams an
// answer and waits for two tools, until its model call has been aborted (quiet)
// and until the client has the end. x-rtt compares with a heartbeat's round trip
// on the same stream.
func BenchmarkCancel(b *testing.B) {
	aborted := make(chan time.Time, 1)
	p := harness.Provider{Name: "bench", Model: func(name string) harness.Generate {
		return func(ctx context.Context, _ *model.Request, emit func(model.Delta)) (*model.Response, error) {
			out := &adapter.Builder{Provider: "bench", Emit: emit}
			if name == "tools" {
				out.Part(adapter.NewCall("", "look", `{"q":1}`))
				out.Part(adapter.NewCall("", "look", `{"q":2}`))
				return &model.Response{Content: out.Content(), FinishReason: genai.FinishReasonStop, Usage: model.Usage{Total: 1}, Model: "m"}, nil
			}
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
					out.Text("and on ")
				case <-ctx.Done():
					aborted <- time.Now()
					return nil, context.Cause(ctx)
				}
			}
		}
	}}
	tree := &agentdv1.Agent{Name: "root", AgentType: &agentdv1.Agent_Parallel{Parallel: &agentdv1.ParallelAgent{Agents: []*agentdv1.Agent{
		harness.LLMAgent("talks", "bench/text", ""), harness.LLMAgent("asks", "bench/tools", "", "look"),
	}}}}
	onEachStore(b, func(b *testing.B, d *agentdtest.Daemon) {
		var quiet, ended, rtt []time.Duration
		for b.Loop() {
			s := benchRun(b, d, &agentdv1.RunRequest_ExecuteRequest{Agent: tree, UserPrompt: "go", Tools: []*agentdv1.Tool{harness.Tool("look")}})
			calls, chunks, sent := 0, 0, time.Time{}
			phase := 0 // 0 until all is under way, 1 until the heartbeat's answer, 2 until the end
			for {
				m, err := s.Receive()
				if err != nil {
					b.Fatal(err)
				}
				switch {
				case m.GetToolCall() != nil:
					calls++
				case m.GetOutputChunk() != nil:
					chunks++
				case m.GetHeartbeat() != nil:
					rtt = append(rtt, time.Since(sent))
					phase, sent = 2, time.Now()
					err = s.Send(&agentdv1.RunRequest{Request: &agentdv1.RunRequest_Cancel{Cancel: &agentdv1.RunRequest_CancelRequest{}}})
				case m.GetEnd() != nil:
					ended = append(ended, time.Since(sent))
					quiet = append(quiet, (<-aborted).Sub(sent))
					r := m.GetEnd().GetReceipt()
					if len(r.GetAbortedModelCalls()) != 1 || len(r.GetCanceledToolCalls()) != 2 || r.GetTook().AsDuration() <= 0 {
						err = fmt.Errorf("receipt %v", r)
					} else {
						err = errDone
					}
				}
				if phase == 0 && calls == 2 && chunks > 3 {
					phase, sent = 1, time.Now()
					err = s.Send(&agentdv1.RunRequest{Request: &agentdv1.RunRequest_Heartbeat{Heartbeat: &agentdv1.RunRequest_HeartbeatRequest{}}})
				}
				if errors.Is(err, errDone) {
					break
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			benchStop(s)
		}
		report(b, "quiet", quiet, rtt)
		report(b, "end", ended, rtt)
		b.ReportMetric(float64(median(rtt).Nanoseconds())/1000, "µs-rtt")
	}, p)
}

var errDone = errors.New("done")
