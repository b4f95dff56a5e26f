package turns

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/structpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/test/harness"
)

// mood is how a client treats its turn.
type mood int

const (
	finishes   mood = iota // answers or cancels every call
	cancels                // cancels the turn
	ends                   // ends it with a reason
	executes               // sends a second ExecuteRequest, which is refused
	halfCloses             // closes its side and reads on
	drops                  // resets the stream
	hangsUp                // closes the connection
	breaks                 // leaves the loop over the events
	moods
)

var moodNames = [moods]string{"finishes", "cancels", "ends", "executes", "half-closes", "drops", "hangs up", "breaks"}

func (m mood) String() string { return moodNames[m] }

// stressTurn is one turn under stress: what the client means to do, and what it
// saw. After run has returned it does not change.
type stressTurn struct {
	number  int
	tree    stressTree
	repeat  bool   // runs the session's last tree again
	session string // "" starts a new one
	mood    mood
	moment  int           // how many steps or events come before the mood shows
	delay   time.Duration // if above 0, it shows after so long at the latest
	rng     *rand.Rand    // owned by the goroutine that decides

	first    map[string]sent // what was said first about a call
	refused  int             // messages that must be refused
	beats    int             // heartbeats that must be answered
	certain  bool            // a call was open when the turn was stopped
	busy     bool            // the session still ran a turn
	lost     bool            // the connection was given up without our wish
	texts    map[string]string
	end      *agentdv1.RunResponse_EndResponse
	faults   []string
	started  bool
	handlers map[string]int // how often the handler ran for a call; of clients with handlers
}

// sent is an answer to a call, or its cancellation.
type sent struct {
	cancel bool
	output *string
	err    string
}

func (s *stressTurn) faultf(format string, args ...any) {
	s.faults = append(s.faults, fmt.Sprintf(format, args...))
}

func (s *stressTurn) prompt() string { return "turn " + strconv.Itoa(s.number) }

// reason is what EndResponse must say.
func (s *stressTurn) reason() string { return "enough of " + s.prompt() }

func (s *stressTurn) state() map[string]any {
	return map[string]any{"turn": strconv.Itoa(s.number), "mode": "ask"}
}

// rawStream is a stream without the client library. Its sender owns Send and
// CloseRequest, and what stressTurn says about what was sent.
type rawStream struct {
	*stressTurn
	bidi  *connect.BidiStreamForClient[agentdv1.RunRequest, agentdv1.RunResponse]
	hang  func()                                     // resets the stream, or closes the connection
	asked chan *agentdv1.RunResponse_ToolCallRequest // nil at the turn's end; has room for all

	open    []string // calls nobody has settled
	settled []string
}

// runRaw carries a turn over a stream of its own.
func (s *stressTurn) runRaw(ctx context.Context, base *http.Client, url string, opts ...connect.ClientOption) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := &rawStream{
		stressTurn: s, hang: cancel,
		asked: make(chan *agentdv1.RunResponse_ToolCallRequest, callsOfAnswer*len(s.tree.paths)+1),
	}
	if s.mood == hangsUp {
		var tr *http.Transport
		tr, r.hang = ownConnection()
		defer tr.CloseIdleConnections()
		base = &http.Client{Transport: tr}
	}
	r.bidi = agentdv1connect.NewAgentdClient(base, url, opts...).Run(ctx)
	var sender sync.WaitGroup
	sender.Go(r.send)
	o := harness.NewObserver(callsOfAnswer)
	err := r.receive(o)
	close(r.asked)
	_ = r.bidi.CloseResponse()
	sender.Wait()

	s.started, s.end, s.texts = o.Session != "", o.End, o.Text
	if s.session == "" {
		s.session = o.Session
	}
	s.faults = append(s.faults, o.Faults...)
	s.judge(o, err)
}

// receive reads the stream to its end, which is no error.
func (r *rawStream) receive(o *harness.Observer) error {
	for {
		m, err := r.bidi.Receive()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		o.See(m)
		if m.GetToolCall() != nil {
			r.asked <- m.GetToolCall()
		}
		if m.GetEnd() != nil {
			r.asked <- nil
		}
	}
}

// judge holds the stream's end against what the client did.
func (s *stressTurn) judge(o *harness.Observer, err error) {
	if len(o.Errors) == 1 && !s.started {
		s.busy = o.Errors[0].GetCode() == agentdv1.ErrorCode_ERROR_CODE_SESSION_BUSY
		if !s.busy {
			s.faultf("refused: %v", o.Errors[0])
		}
		return
	}
	if s.mood == drops || s.mood == hangsUp {
		return // whether and how it ended is in the log
	}
	if err != nil || o.End == nil {
		s.faultf("the stream broke: %v, end %v", err, o.End)
		return
	}
	stopped := s.mood == cancels || s.mood == ends
	for _, e := range o.Errors {
		if e.GetCode() != agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST {
			s.faultf("failed: %v", e)
		}
	}
	switch {
	case !stopped && !o.End.GetCompleted():
		s.faultf("not completed: %v, errors %v", o.End, o.Errors)
	case stopped && s.certain && o.End.GetCompleted():
		s.faultf("completed although it was stopped with open calls")
	case s.mood == ends && !o.End.GetCompleted() && o.End.GetReason() != s.reason():
		s.faultf("reason %q, want %q", o.End.GetReason(), s.reason())
	}
	refused := len(o.Errors)
	// What follows the stop may be refused as well, and what comes too late is
	// not answered at all.
	if !stopped && (refused != s.refused || o.Heartbeats != s.beats) || o.Heartbeats > s.beats {
		s.faultf("%d refusals of %d, %d heartbeats of %d: %v", refused, s.refused, o.Heartbeats, s.beats, o.Errors)
	}
	if err := s.tree.checkTexts(strconv.Itoa(s.number), o.Text, o.End.GetCompleted()); err != nil {
		s.faultf("%v", err)
	}
	if calls := int32(2 * len(s.tree.paths)); o.End.GetCompleted() &&
		(o.End.GetUsageSummary().GetLlmCalls() != calls || o.End.GetUsageSummary().GetTotalUsage().GetTotalTokens() != 10*calls) {
		s.faultf("usage %v, want %d calls of 10 tokens", o.End.GetUsageSummary(), calls)
	}
}

// send starts the turn and does what its mood says.
func (r *rawStream) send() {
	defer func() { _ = r.bidi.CloseRequest() }()
	if r.start() != nil {
		return
	}
	var late <-chan time.Time
	if r.delay > 0 && r.mood != finishes {
		timer := time.NewTimer(r.delay)
		defer timer.Stop()
		late = timer.C
	}
	now := make(chan struct{})
	close(now)
	shown := false
	for steps := 0; ; steps++ {
		var work <-chan struct{}
		if len(r.open) > 0 {
			work = now
		}
		show := r.mood != finishes && steps >= r.moment && work != nil && !shown
		select {
		case call := <-r.asked: // nil when the turn or the stream is over
			if call == nil {
				return
			}
			r.open = append(r.open, call.GetToolCallId())
		case <-late:
			show = true
		case <-work:
			if !show && r.step() != nil {
				return
			}
		}
		switch {
		case show && r.mood == executes:
			if work == nil || r.executeAgain() != nil { // refused for certain only while a call is open
				continue
			}
			shown = true
		case show:
			r.show()
			return
		}
	}
}

func (r *rawStream) start() error {
	state, err := structpb.NewStruct(r.state())
	if err != nil {
		return err
	}
	req := &agentdv1.RunRequest_ExecuteRequest{UserPrompt: r.prompt(), InitialState: state, OnDisconnect: agentdv1.OnDisconnect_ON_DISCONNECT_CONTINUE}
	if r.session != "" {
		req.SessionId = &r.session
	}
	if !r.repeat {
		req.Agent, req.Tools = r.tree.agent, []*agentdv1.Tool{harness.Tool("work")}
	}
	return r.bidi.Send(&agentdv1.RunRequest{Request: &agentdv1.RunRequest_Execute{Execute: req}})
}

// show does what the client's mood is, and waits for the stream's end.
func (r *rawStream) show() {
	var m *agentdv1.RunRequest
	switch r.mood {
	case cancels:
		m = &agentdv1.RunRequest{Request: &agentdv1.RunRequest_Cancel{Cancel: &agentdv1.RunRequest_CancelRequest{}}}
	case ends:
		reason := r.reason()
		m = &agentdv1.RunRequest{Request: &agentdv1.RunRequest_End{End: &agentdv1.RunRequest_EndRequest{Reason: &reason}}}
	case drops, hangsUp:
		r.hang()
		return
	default: // half-closes: the caller does
		return
	}
	err := r.bidi.Send(m)
	r.certain = err == nil && len(r.open) > 0
	for r.rng.IntN(3) > 0 && len(r.open) > 0 && r.step() == nil { // too late, or just in time
		continue
	}
	for call := range r.asked {
		if call == nil {
			return
		}
	}
}

// executeAgain asks for another turn on the stream of this one, which goes on.
func (r *rawStream) executeAgain() error {
	r.refused++
	return r.bidi.Send(&agentdv1.RunRequest{Request: &agentdv1.RunRequest_Execute{Execute: &agentdv1.RunRequest_ExecuteRequest{UserPrompt: "again", Agent: r.tree.agent}}})
}

// step says something about the calls that are open: mostly it settles one of
// them, in no order.
func (r *rawStream) step() error {
	switch r.rng.IntN(12) {
	case 0:
		r.beats++
		return r.bidi.Send(&agentdv1.RunRequest{Request: &agentdv1.RunRequest_Heartbeat{Heartbeat: &agentdv1.RunRequest_HeartbeatRequest{}}})
	case 1: // an unknown call
		r.refused++
		return r.answer("call_of_nobody", sent{err: "x"}, "")
	case 2: // another session
		r.refused++
		return r.answer(r.open[0], sent{err: "x"}, "another")
	case 3: // a call that is settled, in another way or, silently, in the same
		if len(r.settled) == 0 {
			return nil
		}
		id := r.settled[r.rng.IntN(len(r.settled))]
		if r.rng.IntN(2) == 0 {
			return r.say(id, r.first[id])
		}
		r.refused++
		return r.answer(id, sent{err: "too late"}, "")
	}
	i := r.rng.IntN(len(r.open))
	id := r.open[i]
	r.open[i] = r.open[len(r.open)-1]
	r.open = r.open[:len(r.open)-1]
	r.settled = append(r.settled, id)
	what := sent{}
	switch r.rng.IntN(6) {
	case 0:
		what.cancel = true
	case 1:
		what.err = "no " + id
	case 2: // neither output nor error
	default:
		what.output = new(fmt.Sprintf(`{"told":%q}`, id))
	}
	r.first[id] = what
	return r.say(id, what)
}

func (r *rawStream) say(id string, what sent) error {
	if what.cancel {
		return r.bidi.Send(&agentdv1.RunRequest{Request: &agentdv1.RunRequest_Cancel{
			Cancel: &agentdv1.RunRequest_CancelRequest{ToolCallId: &id},
		}})
	}
	return r.answer(id, what, "")
}

func (r *rawStream) answer(id string, what sent, session string) error {
	a := &agentdv1.RunRequest_ToolCallResponse{SessionId: session, ToolCallId: id, ToolName: "work"}
	switch {
	case what.output != nil:
		a.Result = &agentdv1.RunRequest_ToolCallResponse_Output{Output: *what.output}
	case what.err != "":
		a.Result = &agentdv1.RunRequest_ToolCallResponse_Error{Error: what.err}
	}
	return r.bidi.Send(&agentdv1.RunRequest{Request: &agentdv1.RunRequest_ToolCallResponse_{ToolCallResponse: a}})
}

// ownConnection returns a transport with connections of its own, and a function
// that closes them without a word.
func ownConnection() (*http.Transport, func()) {
	var mu sync.Mutex
	var conns []net.Conn
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: protocols, DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		var d net.Dialer
		c, err := d.DialContext(ctx, network, addr)
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			conns = append(conns, c)
		}
		return c, err
	}}
	return tr, func() {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range conns {
			_ = c.Close()
		}
	}
}
