package main

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/apzuk3/agentd/bench/internal/fake"
	"github.com/apzuk3/agentd/bench/internal/peer"
	"github.com/apzuk3/agentd/bench/internal/script"
)

// ADK reads the model, runs the tool, and its client hears all of it.
func TestConversation(t *testing.T) {
	model := httptest.NewServer(&fake.Model{})
	defer model.Close()
	handler, err := newServer(t.Context(), model.URL)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	defer server.Close()
	c := peer.NewADK(server.URL).Begin()
	for _, s := range []script.Script{
		{Chunks: 200, Turn: 1},
		{Chunks: 1, Rounds: 2, Calls: 8, Wait: time.Millisecond, Turn: 2},
		{Chunks: 3, Every: time.Millisecond, Turn: 3, Past: 16},
	} {
		turn := peer.Turn{Script: s}
		heard, err := c.Turn(t.Context(), turn)
		if err != nil {
			t.Fatalf("%s %v", s.Prompt(), err)
		}
		if _, err := turn.Check(heard); err != nil {
			t.Errorf("%s %v", s.Prompt(), err)
		}
	}
}
