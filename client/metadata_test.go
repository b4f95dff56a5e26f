package client_test

import (
	"errors"
	"reflect"
	"testing"

	"github.com/apzuk3/agentd/agentdtest"
	"github.com/apzuk3/agentd/client"
)

// A program chooses the id of a session, and keeps an object of its own with it.
func TestNamedSession(t *testing.T) {
	c := agentdtest.Start(t, agentdtest.Config{}).Client()
	ctx := t.Context()
	named := client.NewSessionInfo{ID: "ticket-17", Metadata: map[string]any{"n": 1, "deep": []any{map[string]any{"a": nil}}}}
	want := map[string]any{"n": 1.0, "deep": []any{map[string]any{"a": nil}}}
	for range 2 { // made, and found
		info, err := c.CreateSession(ctx, named)
		if err != nil || info.ID != "ticket-17" || !reflect.DeepEqual(info.Metadata, want) {
			t.Fatalf("%+v, %v", info, err)
		}
	}
	if _, err := c.CreateSession(ctx, client.NewSessionInfo{ID: "ticket-17"}); !errors.Is(err, client.ErrConflict) {
		t.Errorf("another one of this id: %v", err)
	}
	s := c.Session("ticket-17")
	if info, err := s.Update(ctx, client.SessionUpdate{ClientRef: new("r")}); err != nil || !reflect.DeepEqual(info.Metadata, want) {
		t.Errorf("left as they are: %+v, %v", info, err)
	}
	if info, err := s.Update(ctx, client.SessionUpdate{Metadata: map[string]any{}}); err != nil || info.Metadata != nil {
		t.Errorf("taken away: %+v, %v", info, err)
	}
	if _, err := s.Update(ctx, client.SessionUpdate{Metadata: map[string]any{"f": func() {}}}); !errors.Is(err, client.ErrInvalidRequest) {
		t.Errorf("no JSON: %v", err)
	}
}
