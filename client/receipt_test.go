package client_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apzuk3/agentd/client"
)

// TestReceiptOfToolCalls: of three calls of one response one has a result when the
// turn is canceled, or ended.
func TestReceiptOfToolCalls(t *testing.T) {
	for name, stop := range map[string]func(*client.Control) error{
		"cancel": (*client.Control).Cancel,
		"end":    func(c *client.Control) error { return c.End("cancelled by the client") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { receiptOfToolCalls(t, stop) })
		})
	}
}

func receiptOfToolCalls(t *testing.T, stop func(*client.Control) error) {
	t.Helper()
	s := newDaemon(t)
	c, _ := s.client(t)
	quickly, one, two := newDoor(t, c, "quick"), newDoor(t, c, "one"), newDoor(t, c, "two")
	var control client.Control
	r := follow(c.Run(t.Context(), actor("quick", "one", "two"), "go", client.WithControl(&control)))
	s.next(t).gets(t, reply{text: "Three.", calls: []string{"one", "quick", "two"}})
	ids := map[string]string{}
	for len(ids) < 3 {
		call := r.until(t, func(e *client.Event) bool { return e.ToolCall != nil }).ToolCall
		ids[call.Name] = call.ID
	}
	quickly.let(t, "done")
	synctest.Wait() // the server has the result
	if err := stop(&control); err != nil {
		t.Fatal(err)
	}
	end := lastEnd(t, r.rest(t))
	if end.Completed || end.Reason != "cancelled by the client" || end.Usage.ModelCalls != 1 || end.Receipt == nil {
		t.Fatalf("ended %+v", end)
	}
	want := []client.ToolCallRef{{ID: ids["one"], Name: "one"}, {ID: ids["two"], Name: "two"}}
	if got := end.Receipt.CanceledToolCalls; !slices.Equal(got, want) {
		t.Errorf("cancelled %v, want %v", got, want)
	}
	if got, want := end.Receipt.AnsweredToolCalls, []client.ToolCallRef{{ID: ids["quick"], Name: "quick"}}; !slices.Equal(got, want) {
		t.Errorf("answered %v, want %v", got, want)
	}
	if len(end.Receipt.AbortedModelCalls) != 0 || end.Receipt.Took < 0 {
		t.Errorf("got %+v", end.Receipt)
	}
	one.stops(t)
	two.stops(t)
}

// TestReceiptOfAModelCall: the call is aborted while it streams.
func TestReceiptOfAModelCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newDaemon(t)
		c, _ := s.client(t)
		var control client.Control
		r := follow(c.Run(t.Context(), actor(), "go", client.WithControl(&control)))
		call := s.next(t)
		r.until(t, isStarted)
		time.Sleep(3 * time.Second) // of fake time
		if err := control.Cancel(); err != nil {
			t.Fatal(err)
		}
		end := lastEnd(t, r.rest(t))
		<-call.over
		if end.Completed || end.Receipt == nil || len(end.Receipt.AbortedModelCalls) != 1 {
			t.Fatalf("ended %+v", end)
		}
		got := end.Receipt.AbortedModelCalls[0]
		if !slices.Equal(got.AgentPath, []string{"root"}) || got.Model != "puppet/any" || got.MessageID == "" || got.Ran != 3*time.Second {
			t.Errorf("aborted %+v", got)
		}
		if r := end.Receipt; len(r.AnsweredToolCalls)+len(r.CanceledToolCalls) != 0 || r.Took < 0 {
			t.Errorf("got %+v", r)
		}
	})
}

// TestResultHasTheReceipt, and a turn that ends by itself has none.
func TestResultHasTheReceipt(t *testing.T) {
	b := newBusy(t)
	c, _ := b.client(t)
	done := make(chan *client.Result, 1)
	go func() {
		res, err := b.owner.Do(t.Context(), nil, "second", b.session(), client.WithOnBusy(client.OnBusyInterrupt))
		if err != nil {
			t.Error(err)
		}
		done <- res
	}()
	call := b.next(t)
	r, _ := b.joins(t, c, "third", client.OnBusyInterrupt)
	<-call.over
	res := await(t, done, "result")
	if res.Completed || res.Receipt == nil || len(res.Receipt.AbortedModelCalls) != 1 || res.SessionID != b.started.SessionID {
		t.Errorf("got %+v", res)
	}
	b.says(t, "fine")
	completes(t, r, "fine")
}
