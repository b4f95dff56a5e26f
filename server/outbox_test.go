package server_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/server"
	"github.com/apzuk3/agentd/session"
)

// Large replies share room: one that is not read, or read slowly, keeps others waiting
// for a bounded time and is then cut off; small ones never wait. A client that comes
// for a large reply meanwhile waits on a stream, or is asked to come back.
func TestLargeRepliesShareRoom(t *testing.T) {
	for name, stallAt := range map[string]int{"read slowly": 1 << 30, "never read": 0} {
		for _, proto := range []func(*http.Protocols){
			func(p *http.Protocols) { p.SetHTTP1(true) },
			func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) },
		} {
			t.Run(name, func(t *testing.T) {
				cfg := server.Config{MaxReplyBytes: 4 << 20} // room for one text
				onPipes(t, engine{run: longOrShort}, cfg, func(t *testing.T, f *fixture) {
					crowd(t, f, proto, stallAt)
				})
			})
		}
	}
}

// longOrShort is a long turn, unless its prompt asks for a short one.
func longOrShort(ctx context.Context, run *session.Run) error {
	if run.Spec().Prompt == "short" {
		return talk(ctx, run)
	}
	return longTurn(ctx, run)
}

func crowd(t *testing.T, f *fixture, proto func(*http.Protocols), stallAt int) {
	tr := &http.Transport{
		DialContext: f.pipes.DialContext, Protocols: new(http.Protocols),
		HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10},
	}
	defer tr.CloseIdleConnections()
	proto(tr.Protocols)
	slow := slowReader{Transport: tr, stallAt: stallAt, read: make(chan struct{})}
	c := agentdv1connect.NewSessionServiceClient(f.hc, f.url, uncompressed)
	id := longSession(t, c)
	time.Sleep(2 * longTurnTakes)
	watch := func(hc *http.Client) (int, error) {
		s, err := agentdv1connect.NewSessionServiceClient(hc, f.url, uncompressed).
			WatchTurn(t.Context(), connect.NewRequest(&agentdv1.WatchTurnRequest{SessionId: id}))
		if err != nil {
			return 0, err
		}
		defer func() { _ = s.Close() }()
		n := 0
		for s.Receive() {
			n += len(s.Msg().GetEvent().GetOutputChunk().GetContent())
		}
		return n, s.Err()
	}
	cut := make(chan error, 1)
	go func() { // ends before the test: it is cut off
		_, err := watch(&http.Client{Transport: slow})
		cut <- err
	}()
	synctest.Wait()
	time.Sleep(time.Second)

	_, err := c.GetTurn(t.Context(), connect.NewRequest(&agentdv1.GetTurnRequest{SessionId: id}))
	if e := detailOf(err); e.GetCode() != agentdv1.ErrorCode_ERROR_CODE_UNAVAILABLE || e.GetRetryAfter().AsDuration() <= 0 ||
		!strings.Contains(e.GetMessage(), "too many large replies") {
		t.Errorf("a large reply while there is no room: %v", err)
	}
	ex := execute().GetExecute()
	ex.UserPrompt = "short"
	from := time.Now()
	if _, err := c.CreateTurn(t.Context(), connect.NewRequest(&agentdv1.CreateTurnRequest{Execute: ex})); err != nil {
		t.Errorf("a small reply while there is no room: %v", err)
	}
	s := f.open(t.Context(), t)
	s.send(&agentdv1.RunRequest{Request: &agentdv1.RunRequest_Execute{Execute: ex}})
	s.toEnd()
	if took := time.Since(from); took > time.Second {
		t.Errorf("small turns take %v", took)
	}

	n, err := watch(f.hc)
	took := time.Since(from)
	if err != nil || n != longTextBytes || took < time.Second || took > 20*time.Second {
		t.Errorf("the one who waits has %d bytes of %d after %v, and %v", n, longTextBytes, took, err)
	}
	if _, err := c.GetTurn(t.Context(), connect.NewRequest(&agentdv1.GetTurnRequest{SessionId: id})); err != nil {
		t.Errorf("with room again: %v", err)
	}
	close(slow.read)
	if err := <-cut; err == nil {
		t.Error("the slow client has got all")
	}
}

// detailOf is what an error of SessionService says in its details; nil if it says nothing.
func detailOf(err error) *agentdv1.RunResponse_ErrorResponse {
	e, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return nil
	}
	for _, d := range e.Details() {
		if v, err := d.Value(); err == nil {
			if m, ok := v.(*agentdv1.RunResponse_ErrorResponse); ok {
				return m
			}
		}
	}
	return nil
}
