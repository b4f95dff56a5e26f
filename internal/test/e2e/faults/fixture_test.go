package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"

	"github.com/apzuk3/agentd/agentdtest"
	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/test/harness"
	"github.com/apzuk3/agentd/internal/test/testdaemon"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/store/sqlite"
)

const (
	// ownKey is the callers' own key in these tests. It may be in no line of the
	// log and in no file.
	ownKey = "canary-own-key-0123456789"
	// payload is in what users and tools say. It may be in no line of the log.
	payload    = "canary payload"
	ownKeyHead = "X-Agentd-Openai-Api-Key"
)

// fixture is a daemon with its data in a file, whose models are fakes and whose log
// is kept. When the test ends, the daemon must hold nothing any more, and no secret
// may be in its log or its files.
type fixture struct {
	t      *testing.T
	d      *agentdtest.Daemon
	hc     *http.Client
	url    string
	models *fakeModels
	store  *harness.RecordedStore
	log    *logLines
}

// newFixture starts a daemon on a loopback port, with the given models.
func newFixture(t *testing.T, scripts map[string][]answer, opts ...testdaemon.Option) *fixture {
	t.Helper()
	return newFixtureOn(t, filepath.Join(t.TempDir(), "agentd.db"), scripts, opts...)
}

// newQuickFixture is newFixture with the data in memory.
func newQuickFixture(t *testing.T, scripts map[string][]answer, opts ...testdaemon.Option) *fixture {
	t.Helper()
	return newFixtureOn(t, sqlite.Memory, scripts, opts...)
}

func newFixtureOn(t *testing.T, path string, scripts map[string][]answer, opts ...testdaemon.Option) *fixture {
	t.Helper()
	b := &fixture{t: t, log: &logLines{}}
	b.leaks()
	disk, err := harness.OpenStore(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	b.store = &harness.RecordedStore{Store: disk, Keep: true}
	t.Cleanup(func() { // the daemon has ended then
		b.secrets(path) // also in what has not left the WAL yet
		if err := disk.Close(); err != nil {
			t.Error(err)
		}
		b.secrets(path)
	})
	b.models = newFakeModels(t, ownKey, scripts)
	b.d = harness.StartDaemon(t, agentdtest.Config{
		Addr:   "127.0.0.1:0",
		Getenv: harness.VendorsAt(b.models.url, ""),
		Logger: slog.New(slog.NewJSONHandler(b.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}, append([]testdaemon.Option{
		testdaemon.WithStore(b.store),
		testdaemon.WithTurnLimits(limits.Limits{HandoverGrace: 20 * time.Millisecond}),
	}, opts...)...)
	b.hc, b.url = b.d.HTTPClient(), b.d.URL
	return b
}

// awaitEnd comes for a session's turn, if it waits for a client, and sees it to
// its end.
func (b *fixture) awaitEnd(id string) {
	b.t.Helper()
	c := b.chain(allTools)
	c.session = id
	c.attach()
	c.rest()
	if !c.whole {
		b.t.Errorf("session %s: %v has no end", id, c.got)
	}
}

// atATime is how many clients each has at a time.
const atATime = 6

// each runs a test for each number up to n, several at a time, for they mostly
// wait.
func (b *fixture) each(n int, test func(b *fixture, i int)) {
	b.t.Helper()
	numbers := make(chan int)
	var workers sync.WaitGroup
	for range atATime {
		workers.Go(func() {
			for i := range numbers {
				b.t.Run(fmt.Sprint(i), func(t *testing.T) {
					mine := *b
					mine.t = t
					test(&mine, i)
				})
			}
		})
	}
	for i := range n + 1 {
		numbers <- i
	}
	close(numbers)
	workers.Wait()
}

// leaks has the test fail when goroutines or file descriptors are left (I9).
func (b *fixture) leaks() {
	// The runtime keeps what the first use of the network takes.
	if l, err := net.Listen("tcp", "127.0.0.1:0"); err == nil {
		_ = l.Close()
	}
	before, open := goleak.IgnoreCurrent(), descriptors()
	b.t.Cleanup(func() {
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		goleak.VerifyNone(b.t, before)
		for range 200 { // what a goroutine that has ended has closed
			if descriptors() <= open {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		b.t.Errorf("%d file descriptors are open, %d were", descriptors(), open)
	})
}

// descriptors is how many file descriptors the process has open; 0 where that
// cannot be told.
func descriptors() int {
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(files)
}

// secrets checks that nothing tells what it must not (I8).
func (b *fixture) secrets(path string) {
	log := b.log.String()
	for _, canary := range []string{ownKey, payload} {
		if strings.Contains(log, canary) {
			b.t.Errorf("the log holds %q", canary)
		}
	}
	if path == sqlite.Memory {
		return
	}
	files, err := filepath.Glob(path + "*")
	if err != nil || len(files) == 0 {
		b.t.Errorf("the data is in %v (%v)", files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			b.t.Error(err)
		}
		if bytes.Contains(data, []byte(ownKey)) {
			b.t.Errorf("%s holds the key", file)
		}
	}
}

// logLines is a log that several goroutines write.
type logLines struct {
	mu sync.Mutex
	b  bytes.Buffer // protected by mu
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// client returns a client of the daemon, over the given address or its own, that
// comes back at once and brings its own key.
func (b *fixture) client(url string, opts ...client.Option) *client.Client {
	b.t.Helper()
	c := client.New(url, append([]client.Option{
		client.WithReconnect(client.ReconnectPolicy{Base: time.Microsecond, Cap: time.Millisecond}),
		client.WithProviderKey("openai", ownKey),
	}, opts...)...)
	b.t.Cleanup(c.CloseIdleConnections)
	return c
}

// chain is what one client has seen of a session, over one raw stream after the
// other. One goroutine uses it.
type chain struct {
	b     *fixture
	opts  []connect.ClientOption
	tools []*agentdv1.Tool
	bidi  *connect.BidiStreamForClient[agentdv1.RunRequest, agentdv1.RunResponse]
	drop  func() // lets go of the stream as a client does that dies

	session string
	from    int64 // the position that the first stream has begun after
	cursor  int64
	got     []*agentdv1.RunResponse
	first   map[string]string // what was said first about a call
	whole   bool              // the turn's end has come
	mute    bool              // rest answers no calls
}

// chain returns a client that offers tools.
func (b *fixture) chain(tools []string, opts ...connect.ClientOption) *chain {
	c := &chain{b: b, opts: opts, first: map[string]string{}}
	for _, name := range tools {
		c.tools = append(c.tools, harness.Tool(name))
	}
	return c
}

// send opens a stream, or sends on the one that is open.
func (c *chain) send(m *agentdv1.RunRequest) {
	c.b.t.Helper()
	if c.bidi == nil {
		ctx, cancel := context.WithCancel(c.b.t.Context())
		bidi := agentdv1connect.NewAgentdClient(c.b.hc, c.b.url, c.opts...).Run(ctx)
		bidi.RequestHeader().Set(ownKeyHead, ownKey)
		c.bidi = bidi
		c.drop = sync.OnceFunc(func() {
			cancel()
			_ = bidi.CloseRequest()
			_ = bidi.CloseResponse()
			c.bidi = nil
		})
		c.b.t.Cleanup(c.drop)
	}
	if err := c.bidi.Send(m); err != nil && !errors.Is(err, io.EOF) {
		c.b.t.Fatalf("send: %v", err)
	}
}

// start starts a turn.
func (c *chain) start(agent *agentdv1.Agent, prompt string) {
	c.b.t.Helper()
	ex := &agentdv1.RunRequest_ExecuteRequest{Agent: agent, UserPrompt: prompt, Tools: c.tools, OnDisconnect: agentdv1.OnDisconnect_ON_DISCONNECT_CONTINUE}
	if c.session != "" {
		ex.SessionId = &c.session
		c.whole = false
	}
	c.send(&agentdv1.RunRequest{Request: &agentdv1.RunRequest_Execute{Execute: ex}})
}

// attach comes back to the session, after what the client has.
func (c *chain) attach() {
	c.b.t.Helper()
	c.send(harness.Attach(c.session, "", &c.cursor, c.tools...))
}

// next receives a message, nil at the end of the stream.
func (c *chain) next() *agentdv1.RunResponse {
	c.b.t.Helper()
	m, err := c.bidi.Receive()
	switch {
	case errors.Is(err, io.EOF):
		c.drop()
		return nil
	case err != nil:
		c.b.t.Fatalf("receive: %v after %v", err, c.got)
	}
	if m.GetExecute() != nil {
		c.session = m.GetExecute().GetSessionId()
	}
	c.cursor = max(c.cursor, m.GetSeq())
	c.got = append(c.got, m)
	c.whole = m.GetEnd() != nil
	return m
}

// until receives up to a message that is fit, and returns it.
func (c *chain) until(fit func(*agentdv1.RunResponse) bool) *agentdv1.RunResponse {
	c.b.t.Helper()
	for {
		m := c.next()
		if m == nil {
			c.b.t.Fatalf("the stream has ended: %v", c.got)
		}
		if fit(m) {
			return m
		}
	}
}

// answer answers a call.
func (c *chain) answer(call *agentdv1.RunResponse_ToolCallRequest) {
	c.b.t.Helper()
	out := "result of " + call.GetToolName() + ", " + payload
	if _, known := c.first[call.GetToolCallId()]; !known {
		c.first[call.GetToolCallId()] = out
	}
	c.send(harness.ToolResult(call.GetToolCallId(), out))
}

// settled waits until the daemon has taken what was sent.
func (c *chain) settled() {
	c.b.t.Helper()
	c.send(&agentdv1.RunRequest{Request: &agentdv1.RunRequest_Heartbeat{Heartbeat: &agentdv1.RunRequest_HeartbeatRequest{}}})
	c.until(func(m *agentdv1.RunResponse) bool { return m.GetHeartbeat() != nil })
}

// rest receives to the end of the stream, answers what it is asked for, and
// returns the end of the turn.
func (c *chain) rest() *agentdv1.RunResponse_EndResponse {
	c.b.t.Helper()
	var end *agentdv1.RunResponse_EndResponse
	for m := c.next(); m != nil; m = c.next() {
		switch {
		case m.GetToolCall() != nil && !c.mute:
			c.answer(m.GetToolCall())
		case m.GetEnd() != nil:
			end = m.GetEnd()
			if err := c.bidi.CloseRequest(); err != nil {
				c.b.t.Fatal(err)
			}
		}
	}
	return end
}

func isCall(m *agentdv1.RunResponse) bool { return m.GetToolCall() != nil }

func isText(m *agentdv1.RunResponse) bool { return m.GetOutputChunk().GetContent() != "" }

func isError(m *agentdv1.RunResponse) bool { return m.GetError() != nil }

func fakeAgent(name string, tools ...string) *agentdv1.Agent {
	a := harness.LLMAgent(name, "openai/"+name, "", tools...)
	a.GetLlm().OutputKey = name + "_text"
	return a
}

// allTools are the tools of everything.
var allTools = []string{"one", "two", "three", "look"}

// everything is a turn in which everything happens: thoughts, text of many
// scripts in pieces, calls at the same time, agents after and beside each other,
// state.
func everything() *agentdv1.Agent {
	return harness.SequentialAgent("root",
		fakeAgent("talker", "one", "two", "three"),
		harness.ParallelAgent("both", fakeAgent("left", "look"), fakeAgent("right")),
		fakeAgent("closer"),
	)
}

var everythingScripts = map[string][]answer{
	"talker": {
		{thoughts: []string{"I might ", "ask."}, text: []string{"Grüezi, ", "日本 ", "🙂 ", "let me see. "}, calls: []string{"one", "two", "three"}},
		{text: []string{"One more. "}, calls: []string{"one"}},
		{text: []string{"I have ", "all."}},
	},
	"left":   {{text: []string{"l1 ", "l2 "}, calls: []string{"look"}}, {text: []string{"l3 ", "l4"}}},
	"right":  {{thoughts: []string{"hm ", "hm"}, text: []string{"r1 ", "r2 ", "r3"}}},
	"closer": {{text: []string{"That ", "was ", "it."}}},
}

// modelCalls is how many model calls everything takes.
const modelCalls = 7
