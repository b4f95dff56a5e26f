package cli_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/cli"
	"github.com/apzuk3/agentd/internal/toolcmd"
)

// pipes is a listener in memory, for fake time.
type pipes struct {
	conns chan net.Conn
	once  sync.Once
	gone  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.gone:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { p.once.Do(func() { close(p.gone) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "memory"} }

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-p.gone:
		return nil, &net.OpError{Op: "dial", Err: net.ErrClosed}
	}
}

// dialInMemory is dial within a bubble of fake time.
func dialInMemory(t *testing.T, f *fake) *cli.Conn {
	t.Helper()
	p := &pipes{conns: make(chan net.Conn), gone: make(chan struct{})}
	s := &http.Server{Handler: f.handler(), ReadHeaderTimeout: time.Minute, Protocols: protocols()}
	served := make(chan struct{})
	go func() { defer close(served); _ = s.Serve(p) }()
	transport := &http.Transport{DialContext: p.dial, Protocols: protocols()}
	c, err := cli.Dial("http://agentd.test", client.WithHTTPClient(&http.Client{Transport: transport}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); _ = s.Close(); <-served })
	return c
}

var errGone = connect.NewError(connect.CodeUnavailable, errors.New("gone"))

// holds sends heartbeats for a while, then the connection is gone.
func holds(d time.Duration) stream {
	return func(_ *agentdv1.AttachRequest, send func(...*agentdv1.RunResponse)) error {
		for begun := time.Now(); time.Since(begun) < d; {
			send(heartbeat())
			<-time.After(min(d, 15*time.Second))
		}
		return errGone
	}
}

// A turn that waits for hours loses its connection now and then. As long as streams
// hold for a while each loss is a first one; tools and questions stay.
func TestFollowQuietTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		for range 30 {
			f.watch = append(f.watch, holds(time.Hour), holds(10*time.Second))
		}
		f.watch = append(f.watch, func(_ *agentdv1.AttachRequest, send func(...*agentdv1.RunResponse)) error {
			send(at(1, ends(true)))
			return nil
		})
		lost := 0
		seqs, err := follow(t.Context(), dialInMemory(t, f), cli.Following{Session: "s1", Patient: true, Lost: func(error) { lost++ }})
		if err != nil || len(seqs) != 1 || lost != 60 {
			t.Errorf("got %v, %v, lost %d times", seqs, err, lost)
		}
	})
}

// A connection that is cut as soon as it is open is tried with growing waits, and
// given up in the end.
func TestFollowGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{watch: []stream{holds(time.Hour), holds(time.Millisecond)}}
		begun := time.Now()
		_, err := follow(t.Context(), dialInMemory(t, f), cli.Following{Session: "s1", Patient: true})
		took := time.Since(begun) - time.Hour
		if err == nil || took < 2*time.Minute || took > 3*time.Minute {
			t.Errorf("given up after %v: %v", took, err)
		}
		if f.streams > 300 {
			t.Errorf("%d streams", f.streams)
		}
	})
}

// A start whose answer is lost is made again under its key: the turn starts once,
// and is known.
func TestStartReplyIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := map[string]int{}
		f := &fake{watch: []stream{func(_ *agentdv1.AttachRequest, send func(...*agentdv1.RunResponse)) error {
			send(at(1, ends(true)))
			return nil
		}}}
		f.create = func(_ context.Context, r *agentdv1.CreateTurnRequest) error {
			key := r.GetExecute().GetIdempotencyKey()
			keys[key]++
			if keys[key] < 4 {
				panic(http.ErrAbortHandler)
			}
			return nil
		}
		n := &notes{}
		turn := &cli.Turn{Conn: dialInMemory(t, f), Screen: cli.JSON{Out: &strings.Builder{}}, Note: n.notef}
		if _, err := turn.Start(t.Context(), cli.Prompt{Agent: tree, Text: "go"}); err != nil {
			t.Fatal(err)
		}
		if len(keys) != 1 || strings.Count(n.String(), "trying again") != 1 {
			t.Errorf("keys %v, told %s", keys, n)
		}
		// One that nobody answers is given up, and what that means is told.
		f.create = func(context.Context, *agentdv1.CreateTurnRequest) error { panic(http.ErrAbortHandler) }
		turn = &cli.Turn{Conn: turn.Conn, Screen: turn.Screen, Note: n.notef}
		_, err := turn.Start(t.Context(), cli.Prompt{Agent: tree, Text: "go"})
		if err == nil || !strings.Contains(err.Error(), "whether the turn was started is not known") {
			t.Errorf("got %v", err)
		}
	})
}

// A cancel while the turn is being started waits until it is known which one that
// is.
func TestCancelWhileStarting(t *testing.T) {
	creating, release := make(chan struct{}), make(chan struct{})
	f := &fake{}
	f.create = func(context.Context, *agentdv1.CreateTurnRequest) error {
		close(creating)
		<-release
		return nil
	}
	f.watch = []stream{func(_ *agentdv1.AttachRequest, send func(...*agentdv1.RunResponse)) error {
		<-f.cancel
		send(at(1, ends(false)))
		return nil
	}}
	turn := &cli.Turn{Conn: dial(t, f), Screen: cli.JSON{Out: &strings.Builder{}}, Note: t.Errorf}
	ended := make(chan error, 1)
	go func() {
		<-creating
		go func() { ended <- turn.Cancel(t.Context(), "enough") }()
		close(release)
	}()
	ending, err := turn.Start(t.Context(), cli.Prompt{Agent: tree, Text: "go"})
	if err != nil || !strings.HasPrefix(ending.Summary(), "stopped: ") {
		t.Errorf("got %v, %v", ending, err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A result that is too large would keep the turn waiting: the model is told instead, and
// the person, once.
func TestResultTooLarge(t *testing.T) {
	f := &fake{refuse: &agentdv1.RunResponse_ErrorResponse{Code: agentdv1.ErrorCode_ERROR_CODE_LIMIT_EXCEEDED, Message: "at most 5 bytes"}}
	f.watch = []stream{func(_ *agentdv1.AttachRequest, send func(...*agentdv1.RunResponse)) error {
		send(at(1, calls("c1", "echo", `{"a":1}`)))
		if a := <-f.results; a.GetOutput() != `{"a":1}` {
			t.Errorf("answered %v", a)
		}
		if a := <-f.results; a.GetToolCallId() != "c1" || !strings.Contains(a.GetError(), "result was refused: ") || !strings.HasSuffix(a.GetError(), "at most 5 bytes") {
			t.Errorf("answered %v", a)
		}
		send(at(2, ends(true)))
		return nil
	}}
	n := &notes{}
	turn := &cli.Turn{Conn: dial(t, f), Screen: cli.JSON{Out: &strings.Builder{}}, Note: n.notef, Tools: tools(t, map[string]toolcmd.Command{"echo": {Args: []string{"cat"}}})}
	if _, err := turn.Start(t.Context(), cli.Prompt{Agent: tree, Text: "go"}); err != nil {
		t.Fatal(err)
	}
	if n.String() != "the result of tool echo was refused: at most 5 bytes (LIMIT_EXCEEDED)" {
		t.Errorf("noted %q", n)
	}
}

// What the daemon has left out of a request is told to who sees nothing else of the turn,
// and to who sees it all.
func TestWarningsAreShown(t *testing.T) {
	warning := []*agentdv1.Warning{{Code: "app_state_ignored", Field: "x", Message: "app:plan\x1b[2J was ignored"}}
	for want, event := range map[string]*agentdv1.RunResponse{
		"app:plan[2J was ignored": {Response: &agentdv1.RunResponse_Execute{Execute: &agentdv1.RunResponse_ExecuteResponse{Warnings: warning}}},
		"":                        {Response: &agentdv1.RunResponse_Execute{Execute: &agentdv1.RunResponse_ExecuteResponse{}}},
		"app:plan[2J was ignored, by a tool": {Response: &agentdv1.RunResponse_ToolCallAnswered{ToolCallAnswered: &agentdv1.ToolCallAnswered{
			Warnings: []*agentdv1.Warning{{Message: "app:plan\x1b[2J was ignored, by a tool"}},
		}}},
	} {
		var notes []string
		quiet := cli.Quiet{Note: func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }}
		if err := quiet.Event(event); err != nil || strings.Join(notes, "|") != want {
			t.Errorf("told %q, %v, want %q", notes, err, want)
		}
		var shown strings.Builder
		text := cli.Text{Out: &shown}
		if err := text.Event(event); err != nil || shown.String() != map[bool]string{true: "⚠ " + want + "\n"}[want != ""] {
			t.Errorf("shown %q, %v, want %q", shown.String(), err, want)
		}
	}
}
