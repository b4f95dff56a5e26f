package remote_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// step is what a backend does after one input.
type step struct {
	say   string
	calls []string // tools of the client that are called, each with {"q":n}
	uses  string   // a tool of the backend's own that has run
	asks  string   // one about which it asks
	stop  string   // another reason to stop
	fails string   // what it says of a failure
	hangs bool
	cut   bool // the connection breaks once, after the text
}

// seenBy is what a backend has seen, and whether it was too much.
type seenBy struct {
	mu       sync.Mutex
	sessions int
	answers  map[string]int // results, by the backend's id of the call
	errors   map[string]bool
	texts    map[string]string
	messages []string
	specs    []string // instructions of agents that were made
	denied   []string
	closed   int
	auth     []string
}

func newSeen() *seenBy {
	return &seenBy{answers: map[string]int{}, errors: map[string]bool{}, texts: map[string]string{}}
}

// managed is a server of Managed Agents: what is read and written is as the real API has it.
type managed struct {
	*seenBy
	steps []step
	http  *httptest.Server

	cond      *sync.Cond // of seenBy.mu
	agents    []map[string]any
	envs      []map[string]any
	sessions_ map[string]*managedSession
	order     []string
	ended     bool
	cuts      map[int]bool
	dropPost  bool // the reply to the next POST of events is lost
}

type managedSession struct {
	object  map[string]any
	events  []map[string]any
	step    int
	pending []string
	asked   []string
	running bool
}

func newManaged(t *testing.T, steps []step) *managed {
	m := &managed{seenBy: newSeen(), steps: steps, sessions_: map[string]*managedSession{}, cuts: map[int]bool{}}
	m.cond = sync.NewCond(&m.mu)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/agents", m.create("agent", &m.agents))
	mux.HandleFunc("GET /v1/agents", m.list(&m.agents))
	mux.HandleFunc("POST /v1/environments", m.create("env", &m.envs))
	mux.HandleFunc("GET /v1/environments", m.list(&m.envs))
	mux.HandleFunc("POST /v1/sessions", m.open)
	mux.HandleFunc("GET /v1/sessions", m.listSessions)
	mux.HandleFunc("GET /v1/sessions/{id}", m.get)
	mux.HandleFunc("POST /v1/sessions/{id}/archive", m.archive)
	mux.HandleFunc("GET /v1/sessions/{id}/events", m.events)
	mux.HandleFunc("POST /v1/sessions/{id}/events", m.post)
	mux.HandleFunc("GET /v1/sessions/{id}/events/stream", m.stream)
	m.http = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.mu.Lock()
		m.auth = append(m.auth, r.Header.Get("X-Api-Key")+" "+r.Header.Get("Anthropic-Version")+" "+r.URL.Query().Get("beta"))
		m.mu.Unlock()
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		m.mu.Lock()
		m.ended = true
		m.cond.Broadcast()
		m.mu.Unlock()
		m.http.CloseClientConnections()
		m.http.Close()
	})
	return m
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

func refuse(w http.ResponseWriter, status int, kind, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"type": "error", "error": map[string]string{"type": kind, "message": message}})
}

func (m *managed) create(kind string, into *[]map[string]any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		_ = json.NewDecoder(r.Body).Decode(&body)
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, o := range *into {
			if o["name"] == body["name"] {
				refuse(w, 409, "conflict_error", "the name is taken")
				return
			}
		}
		if kind == "agent" {
			system, _ := body["system"].(string)
			m.specs = append(m.specs, system)
		}
		body["id"], body["type"], body["archived_at"] = fmt.Sprintf("%s_%d", kind, len(*into)+1), kind, nil
		*into = append(*into, body)
		reply(w, body)
	}
}

func (m *managed) list(of *[]map[string]any) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		m.mu.Lock()
		defer m.mu.Unlock()
		reply(w, map[string]any{"data": slices.Clone(*of), "next_page": nil})
	}
}

func (m *managed) open(w http.ResponseWriter, r *http.Request) {
	var body map[string]any
	_ = json.NewDecoder(r.Body).Decode(&body)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sessions++
	id := fmt.Sprintf("sesn_%d", m.sessions)
	body["id"], body["status"], body["archived_at"] = id, "idle", nil
	m.sessions_[id] = &managedSession{object: body}
	m.order = append(m.order, id)
	reply(w, body)
}

// listSessions has one a page.
func (m *managed) listSessions(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := 0
	_, _ = fmt.Sscan(r.URL.Query().Get("page"), &at)
	page := map[string]any{"data": []any{}, "next_page": nil}
	if at < len(m.order) {
		page["data"] = []any{m.sessions_[m.order[at]].object}
	}
	if at+1 < len(m.order) {
		page["next_page"] = fmt.Sprint(at + 1)
	}
	reply(w, page)
}

func (m *managed) session(w http.ResponseWriter, r *http.Request) *managedSession {
	s := m.sessions_[r.PathValue("id")]
	if s == nil {
		refuse(w, 404, "not_found_error", "there is no such session")
	}
	return s
}

func (m *managed) get(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.session(w, r); s != nil {
		reply(w, s.object)
	}
}

func (m *managed) archive(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.session(w, r); s != nil {
		if s.object["archived_at"] == nil {
			m.closed++
		}
		s.object["archived_at"] = time.Now().Format(time.RFC3339)
		reply(w, s.object)
	}
}

// events has three a page.
func (m *managed) events(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.session(w, r)
	if s == nil {
		return
	}
	at := 0
	_, _ = fmt.Sscan(r.URL.Query().Get("page"), &at)
	end := min(at+3, len(s.events))
	page := map[string]any{"data": s.events[min(at, end):end], "next_page": nil}
	if end < len(s.events) {
		page["next_page"] = fmt.Sprint(end)
	}
	reply(w, page)
}

// add appends an event and returns its id.
func (m *managed) add(s *managedSession, event map[string]any) string {
	id := fmt.Sprintf("sevt_%04d", len(s.events)+1)
	event["id"], event["processed_at"] = id, time.Now().Format(time.RFC3339)
	s.events = append(s.events, event)
	m.cond.Broadcast()
	return id
}

func (m *managed) post(w http.ResponseWriter, r *http.Request) {
	var body struct{ Events []map[string]any }
	_ = json.NewDecoder(r.Body).Decode(&body)
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.session(w, r)
	if s == nil {
		return
	}
	if s.object["archived_at"] != nil {
		refuse(w, 400, "invalid_request_error", "the session is archived")
		return
	}
	for _, e := range body.Events { // all or none
		if id, _ := e["custom_tool_use_id"].(string); id != "" && !slices.Contains(s.pending, id) {
			if m.answers[id]++; m.answers[id] > 0 {
				refuse(w, 400, "invalid_request_error", "no call "+id+" waits")
				return
			}
		}
	}
	goes := false
	for _, e := range body.Events {
		m.add(s, e)
		switch e["type"] {
		case "user.message":
			m.messages, goes = append(m.messages, textOf(e)), true
		case "user.custom_tool_result":
			id, _ := e["custom_tool_use_id"].(string)
			m.answers[id]++
			m.texts[id] = textOf(e)
			m.errors[id], _ = e["is_error"].(bool)
			s.pending = slices.DeleteFunc(s.pending, func(p string) bool { return p == id })
			goes = goes || len(s.pending)+len(s.asked) == 0
		case "user.tool_confirmation":
			id, _ := e["tool_use_id"].(string)
			m.denied = append(m.denied, fmt.Sprint(e["result"]))
			s.asked = slices.DeleteFunc(s.asked, func(p string) bool { return p == id })
			goes = goes || len(s.pending)+len(s.asked) == 0
		case "user.interrupt":
			m.closed += 100 // told apart from an archive
			s.running = false
		}
	}
	if goes {
		m.advance(s)
	}
	if m.dropPost {
		m.dropPost = false
		panic(http.ErrAbortHandler)
	}
	reply(w, map[string]any{"data": body.Events})
}

func textOf(e map[string]any) string {
	list, _ := e["content"].([]any)
	if len(list) == 0 {
		return ""
	}
	block, _ := list[0].(map[string]any)
	text, _ := block["text"].(string)
	return text
}

// advance does the next step.
func (m *managed) advance(s *managedSession) {
	st := step{say: "the script has ended"}
	if s.step < len(m.steps) {
		st = m.steps[s.step]
	}
	at := s.step
	s.step++
	m.add(s, map[string]any{"type": "session.status_running"})
	start := m.add(s, map[string]any{"type": "span.model_request_start"})
	if st.uses != "" {
		id := m.add(s, map[string]any{"type": "agent.tool_use", "name": st.uses, "input": map[string]any{"x": 1}, "evaluated_permission": "allow"})
		m.add(s, map[string]any{"type": "agent.tool_result", "tool_use_id": id, "content": []any{map[string]any{"type": "text", "text": "found"}}})
	}
	if st.say != "" {
		e := map[string]any{"type": "agent.message", "content": []any{map[string]any{"type": "text", "text": st.say}}}
		if st.cut {
			e["cut"] = at
		}
		m.add(s, e)
	}
	if st.hangs {
		return
	}
	if st.fails != "" {
		m.add(s, map[string]any{"type": "session.error", "error": map[string]any{"type": "model_error", "message": st.fails, "retry_status": map[string]string{"type": "terminal"}}})
		m.add(s, map[string]any{"type": "session.status_idle", "stop_reason": map[string]any{"type": "retries_exhausted"}})
		return
	}
	var ids []string
	if st.asks != "" {
		id := m.add(s, map[string]any{"type": "agent.tool_use", "name": st.asks, "input": map[string]any{}, "evaluated_permission": "ask"})
		ids, s.asked = append(ids, id), append(s.asked, id)
	}
	for i, name := range st.calls {
		id := m.add(s, map[string]any{"type": "agent.custom_tool_use", "name": name, "input": map[string]any{"q": i + 1}, "session_thread_id": nil})
		ids, s.pending = append(ids, id), append(s.pending, id)
	}
	m.add(s, map[string]any{"type": "span.model_request_end", "model_request_start_id": start, "is_error": false,
		"model_usage": map[string]int{"input_tokens": 7, "output_tokens": 3}})
	reason := map[string]any{"type": "end_turn"}
	switch {
	case st.stop != "":
		reason["type"] = st.stop
	case len(ids) > 0:
		reason = map[string]any{"type": "requires_action", "event_ids": ids}
	}
	m.add(s, map[string]any{"type": "session.status_idle", "stop_reason": reason, "stop_details": nil})
}

func (m *managed) stream(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.session(w, r)
	if s == nil {
		return
	}
	at := len(s.events) // it starts now
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-r.Context().Done():
			m.mu.Lock()
			m.cond.Broadcast()
			m.mu.Unlock()
		case <-stop:
		}
	}()
	for {
		for at == len(s.events) && !m.ended && r.Context().Err() == nil {
			m.cond.Wait()
		}
		if m.ended || r.Context().Err() != nil {
			return
		}
		e := s.events[at]
		at++
		data, _ := json.Marshal(e)
		_, _ = fmt.Fprintf(w, ": a comment\nid: %d\nevent: %s\ndata: %s\n\n", at, e["type"], data)
		_ = http.NewResponseController(w).Flush()
		if cut, ok := e["cut"].(int); ok && !m.cuts[cut] {
			m.cuts[cut] = true
			panic(http.ErrAbortHandler)
		}
	}
}

// interrupted reports whether the session was stopped, and archived whether it was archived.
func (m *managed) interrupted() bool { m.mu.Lock(); defer m.mu.Unlock(); return m.closed >= 100 }
func (m *managed) archived() bool    { m.mu.Lock(); defer m.mu.Unlock(); return m.closed%100 > 0 }

func (m *managed) file() string {
	return fmt.Sprintf("desk: {kind: managed-agents, url: %q, key_env: DESK_KEY}\n", m.http.URL)
}

var _ = strings.TrimSpace
