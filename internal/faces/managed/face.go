// Package managed is a part of agentd, not an API: the face that speaks the protocol of Managed Agents.
//
// A client of that protocol registers agents, makes sessions of them, posts events and reads events; it runs the tools
// of its agents by a loop that looks for calls without a result. Each of these is a method of SessionService: an agent
// is a registered agent, a session is a session with a label, an event is what becomes of an event of agentd. What
// agentd has no word for (environments) is kept among the objects of the face. docs/managed-agents.md says what of the
// protocol there is.
//
// Its handlers keep nothing between requests.
package managed

import (
	"net/http"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/server"
)

// Face is the face. Its zero value is ready.
type Face struct{}

// Name is the name of the face.
func (Face) Name() string { return "managed-agents" }

// Mount adds the routes.
func (Face) Mount(mux *http.ServeMux, env server.FaceEnv) error {
	f := &face{env: env}
	for pattern, handle := range map[string]handler{
		"POST /v1/agents":                f.createAgent,
		"GET /v1/agents":                 f.listAgents,
		"GET /v1/agents/{id}":            f.getAgent,
		"POST /v1/agents/{id}":           f.updateAgent,
		"GET /v1/agents/{id}/versions":   f.listVersions,
		"POST /v1/agents/{id}/archive":   f.archiveAgent,
		"POST /v1/environments":          f.createEnvironment,
		"GET /v1/environments":           f.listEnvironments,
		"GET /v1/environments/{id}":      f.getEnvironment,
		"POST /v1/environments/{id}":     f.updateEnvironment,
		"DELETE /v1/environments/{id}":   f.deleteEnvironment,
		"POST /v1/sessions":              f.createSession,
		"GET /v1/sessions":               f.listSessions,
		"GET /v1/sessions/{id}":          f.getSession,
		"POST /v1/sessions/{id}":         f.updateSession,
		"DELETE /v1/sessions/{id}":       f.deleteSession,
		"POST /v1/sessions/{id}/archive": f.archiveSession,
		"GET /v1/sessions/{id}/events":   f.listEvents,
		"POST /v1/sessions/{id}/events":  f.postEvents,
		"GET /v1/sessions/{id}/threads":  f.listThreads,

		"POST /v1/environments/{id}/archive":            f.archiveEnvironment,
		"GET /v1/sessions/{id}/threads/{thread}":        f.getThread,
		"GET /v1/sessions/{id}/threads/{thread}/events": f.listEvents,
	} {
		mux.HandleFunc(pattern, f.serve(handle))
	}
	for _, pattern := range []string{
		"GET /v1/sessions/{id}/events/stream", "GET /v1/sessions/{id}/threads/{thread}/stream",
	} {
		mux.HandleFunc(pattern, f.stream)
	}
	for _, path := range []string{"agents", "environments", "sessions"} {
		mux.HandleFunc("/v1/"+path, unknownRoute)
		mux.HandleFunc("/v1/"+path+"/", unknownRoute)
	}
	return nil
}

// Refuse writes what the server refuses before the face sees it.
func (Face) Refuse(w http.ResponseWriter, _ *http.Request, status int, e *agentdv1.RunResponse_ErrorResponse) {
	refuse(w, &failure{status: statusOf(status, e), message: e.GetMessage(), retry: e.GetRetryAfter().AsDuration()})
}

// face serves the requests. Its methods may be called from any goroutine.
type face struct{ env server.FaceEnv }

// handler serves a request: its result is written as JSON.
type handler func(r *http.Request) (any, error)

// serve writes what a handler returns.
func (f *face) serve(handle handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(requestID, newRequestID())
		out, err := handle(r)
		if err != nil {
			refuse(w, f.failureOf(err))
			return
		}
		write(w, http.StatusOK, marshal(out))
	}
}

func unknownRoute(w http.ResponseWriter, r *http.Request) {
	refuse(w, &failure{status: http.StatusNotFound, message: "there is no route " + r.Method + " " + r.URL.Path})
}
