package daemon_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/internal/faces/managed"
	"github.com/apzuk3/agentd/server"
)

// spied is a face, and where its last stream has begun to read.
type spied struct {
	server.Face
	cursor *atomic.Pointer[string]
}

func (s spied) Mount(mux *http.ServeMux, env server.FaceEnv) error {
	env.Sessions = spy{env.Sessions, s.cursor}
	return s.Face.Mount(mux, env)
}

type spy struct {
	agentdv1connect.SessionServiceClient
	cursor *atomic.Pointer[string]
}

func (s spy) WatchSession(
	ctx context.Context, r *connect.Request[agentdv1.WatchSessionRequest],
) (*connect.ServerStreamForClient[agentdv1.WatchSessionResponse], error) {
	s.cursor.Store(&r.Msg.Cursor)
	return s.SessionServiceClient.WatchSession(ctx, r)
}

// A stream that continues reads the log from the beginning of the turn that its client has last seen, and no more of it;
// one that begins now reads nothing of what was.
func TestFaceSeeks(t *testing.T) {
	var cursor atomic.Pointer[string]
	d := start(t, daemon.Config{
		Scripts: map[string]string{"asks": asks},
		Faces:   []server.Face{spied{face{}, &cursor}, spied{managed.Face{}, &cursor}},
	})
	c := agentdv1connect.NewSessionServiceClient(h2c(t), d.URL())
	call(t, c.ApplyAgent, &agentdv1.ApplyAgentRequest{Name: "a", Agent: llm("root", "echo")})
	status, text, _ := send(t, plain(t), http.MethodPost, d.URL()+"/v1/environments", `{"name":"e"}`)
	if status != http.StatusOK {
		t.Fatal(text)
	}
	status, text, _ = send(t, plain(t), http.MethodPost, d.URL()+"/v1/sessions", `{"agent":"a","environment_id":"`+idIn(t, text)+`"}`)
	if status != http.StatusOK {
		t.Fatal(text)
	}
	id := idIn(t, text)
	for _, prompt := range []string{"one", "two", "three", "four", "five"} {
		speak(t, c, id, prompt)
	}
	open := lookRequest("look")
	open.SessionId = &id
	turn := call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: open}).GetTurn()
	until(t, c, turn, agentdv1.TurnStatus_TURN_STATUS_WAITING_FOR_CLIENT)
	all := call(t, c.ListSessionEvents, &agentdv1.ListSessionEventsRequest{SessionId: id}).GetEvents()
	begun := func(of int64) (seq int64) { // of the turn that runs at a seq; the seq itself where none does
		for _, e := range all {
			if at := e.GetEvent(); at.GetSeq() > of {
				break
			} else if at.GetExecute() != nil {
				seq = at.GetSeq() - 1
			} else if at.GetEnd() != nil {
				seq = at.GetSeq()
			}
		}
		return seq
	}
	for _, path := range []string{"/test/" + id, "/v1/sessions/" + id + "/events/stream"} {
		for i, e := range all {
			seq := e.GetEvent().GetSeq()
			for _, last := range []string{strconv.FormatInt(seq, 10), ""} {
				if last == "" && i < len(all)-1 {
					continue // it begins at the end
				}
				openStream(t, plain(t), d.URL()+path, last).close()
				read := call(t, c.ListSessionEvents, &agentdv1.ListSessionEventsRequest{SessionId: id, Cursor: *cursor.Load()}).GetEvents()
				want := 0
				for _, e := range all {
					if e.GetEvent().GetSeq() > begun(seq) {
						want++
					}
				}
				if len(read) != want {
					t.Errorf("%s behind %q of %d reads %d events of %d, want %d", path, last, seq, len(read), len(all), want)
				}
			}
		}
	}
}

// idIn is the id that a JSON object has.
func idIn(t *testing.T, text string) string {
	t.Helper()
	var o struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal([]byte(text), &o); err != nil || o.ID == "" {
		t.Fatal(text, err)
	}
	return o.ID
}
