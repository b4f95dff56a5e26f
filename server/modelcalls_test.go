package server_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/server"
	"github.com/apzuk3/agentd/session"
)

// One turn is replayed at a time; a request that waits may be canceled.
func TestModelCallsOneAtATime(t *testing.T) {
	begun, proceed := make(chan struct{}), make(chan struct{})
	var mu sync.Mutex
	running := 0 // protected by mu
	f := serve(t, engine{run: talk}, server.Config{ModelCalls: func(ctx context.Context, log session.TurnLog, _ int) ([]session.ReportedCall, bool, error) {
		mu.Lock()
		running++
		if running > 1 {
			t.Error("two turns are run again at a time")
		}
		mu.Unlock()
		defer func() { mu.Lock(); running--; mu.Unlock() }()
		begun <- struct{}{}
		select {
		case <-proceed:
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
		records := int32(0)
		for _, err := range log.Records {
			if err != nil {
				return nil, false, err
			}
			records++
		}
		return []session.ReportedCall{{Seq: 1, Details: &agentdv1.ModelCallDetails{Instruction: "of " + log.TurnID + "\xff", Contents: records}}}, false, nil
	}})
	c := agentdv1connect.NewSessionServiceClient(f.hc, f.url)
	created, err := c.CreateTurn(t.Context(), connect.NewRequest(&agentdv1.CreateTurnRequest{Execute: execute().GetExecute()}))
	if err != nil {
		t.Fatal(err)
	}
	turn := created.Msg.GetTurn()
	req := &agentdv1.ListModelCallsRequest{SessionId: turn.GetSessionId()}
	first := make(chan error, 1)
	var got *agentdv1.ListModelCallsResponse
	go func() { // ends with its call
		resp, err := c.ListModelCalls(t.Context(), connect.NewRequest(req))
		if err == nil {
			got = resp.Msg
		}
		first <- err
	}()
	<-begun
	gone, leave := context.WithCancel(t.Context())
	leave()
	if _, err := c.ListModelCalls(gone, connect.NewRequest(req)); connect.CodeOf(err) != connect.CodeCanceled {
		t.Errorf("who has gone: %v", err)
	}
	second := make(chan error, 1)
	go func() { // ends with its call
		_, err := c.ListModelCalls(t.Context(), connect.NewRequest(req))
		second <- err
	}()
	proceed <- struct{}{}
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	<-begun
	proceed <- struct{}{}
	if err := <-second; err != nil {
		t.Error(err)
	}
	call := got.GetCalls()[0]
	if !strings.HasPrefix(call.GetInstruction(), "of "+turn.GetId()) || call.GetContents() == 0 {
		t.Errorf("got %v", call)
	}
}

// A server without Config.ModelCalls does not serve ListModelCalls.
func TestModelCallsNotServed(t *testing.T) {
	f := serve(t, engine{run: talk}, server.Config{})
	c := agentdv1connect.NewSessionServiceClient(f.hc, f.url)
	created, err := c.CreateTurn(t.Context(), connect.NewRequest(&agentdv1.CreateTurnRequest{Execute: execute().GetExecute()}))
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.ListModelCalls(t.Context(), connect.NewRequest(&agentdv1.ListModelCallsRequest{SessionId: created.Msg.GetTurn().GetSessionId()}))
	if connect.CodeOf(err) != connect.CodeUnimplemented {
		t.Errorf("got %v", err)
	}
}
