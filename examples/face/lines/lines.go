// Package lines is a face: what happens in a session as lines of plain text, as server-sent events.
//
//	POST /lines/SESSION    makes the session, or finds it
//	GET  /lines/SESSION    what happens in it, behind Last-Event-ID
//
// It imports what a client of SessionService has, and package server, which says what a face is.
package lines

import (
	"encoding/json"
	"fmt"
	"net/http"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/server"
)

// Face is the face. Its zero value is ready.
type Face struct{}

// Name is the name of the face.
func (Face) Name() string { return "lines" }

// Mount adds the routes.
func (Face) Mount(mux *http.ServeMux, env server.FaceEnv) error {
	mux.HandleFunc("POST /lines/{session}", func(w http.ResponseWriter, r *http.Request) {
		req := &agentdv1.CreateSessionRequest{SessionId: r.PathValue("session")}
		resp, err := env.Sessions.CreateSession(r.Context(), connect.NewRequest(req))
		if err != nil {
			fail(w, env, err)
			return
		}
		fmt.Fprintln(w, resp.Msg.GetSession().GetId())
	})
	mux.HandleFunc("GET /lines/{session}", func(w http.ResponseWriter, r *http.Request) {
		err := env.Stream(w, r, r.PathValue("session"),
			func(e *agentdv1.RunResponse, send func(name, data string) error) error {
				if line := lineOf(e); line != "" {
					return send("", line)
				}
				return nil
			})
		if err != nil {
			fail(w, env, err)
		}
	})
	return nil
}

// lineOf is an event as a line; "" for one that is not shown.
func lineOf(e *agentdv1.RunResponse) string {
	switch {
	case e.GetSeq() == 0: // a piece of a text that comes as a whole too, and what is of the stream alone
		return ""
	case e.GetExecute() != nil:
		return "turn " + e.GetTurnId()
	case e.GetOutputChunk().GetContent() != "":
		return "says: " + e.GetOutputChunk().GetContent()
	case e.GetToolCallAnnounced() != nil:
		return "calls: " + e.GetToolCallAnnounced().GetToolName()
	case e.GetError() != nil:
		return "error: " + e.GetError().GetMessage()
	case e.GetEnd() != nil:
		return "end"
	}
	return ""
}

func fail(w http.ResponseWriter, env server.FaceEnv, err error) {
	status, e := env.Error(err)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": e.GetMessage()}) // a client that is gone reads nothing
}
