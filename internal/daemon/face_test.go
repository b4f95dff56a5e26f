package daemon_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/apzuk3/agentd/agentdtest"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/internal/test/testdaemon"
	"github.com/apzuk3/agentd/server"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/principal"
)

// face is a face with a route for each thing that one may do.
type face struct {
	fill int // bytes of each frame besides the event
}

func (face) Name() string { return "test" }

func (f face) Mount(mux *http.ServeMux, env server.FaceEnv) error {
	reply := func(w http.ResponseWriter, text string, err error) {
		if err != nil {
			status, e := env.Error(err)
			http.Error(w, e.GetCode().String()+" "+e.GetMessage(), status)
			return
		}
		_, _ = io.WriteString(w, text)
	}
	mux.HandleFunc("POST /test/{session}", func(w http.ResponseWriter, r *http.Request) {
		resp, err := env.Sessions.CreateSession(r.Context(), connect.NewRequest(&agentdv1.CreateSessionRequest{SessionId: r.PathValue("session")}))
		if err != nil {
			reply(w, "", err)
			return
		}
		reply(w, resp.Msg.GetSession().GetId(), nil)
	})
	mux.HandleFunc("DELETE /test/{session}", func(w http.ResponseWriter, _ *http.Request) {
		_, err := env.Sessions.ListSessions(context.Background(), connect.NewRequest(&agentdv1.ListSessionsRequest{}))
		reply(w, "nobody's sessions", err)
	})
	mux.HandleFunc("PUT /test/{session}", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		reply(w, strconv.Itoa(len(body)), err)
	})
	mux.HandleFunc("GET /test/{session}", func(w http.ResponseWriter, r *http.Request) {
		err := env.Stream(w, r, r.PathValue("session"), func(e *agentdv1.RunResponse, send func(name, data string) error) error {
			if e.GetSeq() == 0 {
				return nil
			}
			if err := send("before", "one\ntwo\r\nthree"+strings.Repeat("x", f.fill)); err != nil {
				return err
			}
			return send("event", strconv.FormatInt(e.GetSeq(), 10))
		})
		if err != nil {
			reply(w, "", err)
		}
	})
	return nil
}

// frame is a frame of server-sent events, or a comment.
type frame struct {
	id, name, data string
	comment        bool
}

// sse is an open stream.
type sse struct {
	t    *testing.T
	resp *http.Response
	in   *bufio.Reader
	stop context.CancelFunc
}

// openStream begins a stream behind an id; "" is from now on.
func openStream(t *testing.T, c *http.Client, url, last string) *sse {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	s := &sse{t, resp, bufio.NewReader(resp.Body), stop}
	t.Cleanup(s.close)
	return s
}

func (s *sse) close() {
	s.stop()
	_ = s.resp.Body.Close()
}

// next returns the next frame, or false at the end.
func (s *sse) next() (f frame, ok bool) {
	s.t.Helper()
	var data []string
	for {
		line, err := s.in.ReadString('\n')
		if err != nil {
			return f, false
		}
		line = strings.TrimSuffix(line, "\n")
		name, value, _ := strings.Cut(line, ": ")
		switch {
		case line == "":
			f.data = strings.Join(data, "\n")
			return f, true
		case strings.HasPrefix(line, ":"):
			f.comment = true
		case name == "id":
			f.id = value
		case name == "event":
			f.name = value
		case name == "data":
			data = append(data, value)
		default:
			s.t.Fatalf("line %q", line)
		}
	}
}

// event returns the next frame that has an id.
func (s *sse) event() frame {
	s.t.Helper()
	for {
		f, ok := s.next()
		if !ok {
			s.t.Fatal("the stream has ended")
		}
		if f.id != "" {
			return f
		}
	}
}

// send makes a request and returns the status, the text and the headers.
func send(t *testing.T, c *http.Client, method, url, body string, headers ...string) (int, string, http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text), resp.Header
}

// plain is a client over HTTP/1.1.
func plain(t *testing.T) *http.Client {
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// speak has an echo say a prompt in a session, and returns the seqs of the session.
func speak(t *testing.T, c agentdv1connect.SessionServiceClient, id, prompt string) (seqs []string) {
	t.Helper()
	ex := execute(llm("root", "echo"), prompt).GetExecute()
	ex.SessionId, ex.Create = &id, true
	until(t, c, call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: ex}).GetTurn(), agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED)
	return seqsOf(t, c, id)
}

func seqsOf(t *testing.T, c agentdv1connect.SessionServiceClient, id string) (seqs []string) {
	t.Helper()
	for _, e := range call(t, c.ListSessionEvents, &agentdv1.ListSessionEventsRequest{SessionId: id}).GetEvents() {
		seqs = append(seqs, strconv.FormatInt(e.GetEvent().GetSeq(), 10))
	}
	return seqs
}

// A face serves whom the server knows, and them as a client of SessionService.
func TestFaceCallers(t *testing.T) {
	var log buffer
	d := start(t, daemon.Config{Authenticate: byHeader, Faces: []server.Face{face{}}, Logger: daemon.NewLogger(&log, daemon.LogConfig{JSON: true})})
	at := d.URL() + "/test/mine"
	for _, tc := range []struct {
		who, method string
		status      int
		says        string
	}{
		{"", http.MethodPost, 401, `"code":"UNAUTHENTICATED"`},
		{"", http.MethodGet, 401, `"code":"UNAUTHENTICATED"`},
		{"ann@acme/observer", http.MethodPost, 403, "PERMISSION_DENIED"},
		{"ann@acme", http.MethodPost, 200, "mine"},
		{"ann@acme", http.MethodPost, 200, "mine"},
		{"bob@acme", http.MethodPost, 409, "CONFLICT"},
		{"eve@umbrella", http.MethodGet, 404, "SESSION_NOT_FOUND"},
		{"eve@umbrella", http.MethodPost, 200, "mine"}, // of that tenant
		{"ann@acme", http.MethodDelete, 401, "UNAUTHENTICATED"},
		{"ann@acme", http.MethodPatch, 404, "not found"},
	} {
		status, text, _ := send(t, clientOf(t, tc.who), tc.method, at, "")
		if status != tc.status || !strings.Contains(text, tc.says) || strings.Contains(text, "the secret") {
			t.Errorf("%s by %q: %d %s, want %d %s", tc.method, tc.who, status, text, tc.status, tc.says)
		}
	}
	if status, text, _ := send(t, clientOf(t, "ann@acme"), http.MethodGet, d.URL()+"/healthz", ""); status != 200 {
		t.Errorf("health: %d %s", status, text)
	}
	codes := map[string]int{}
	for _, line := range endedCalls(t, &log, 9) {
		codes[fmt.Sprint(line["method"], " ", line["code"])]++
		if line["code"] == "ok" && line["session"] != "mine" {
			t.Errorf("line %v", line)
		}
	}
	want := map[string]int{"face/test unauthenticated": 3, "face/test permission_denied": 1, "face/test ok": 3, "face/test aborted": 1, "face/test not_found": 1}
	if fmt.Sprint(codes) != fmt.Sprint(want) {
		t.Errorf("lines %v, want %v", codes, want)
	}
}

// What a face does is in the audit trail as if its caller had done it, and its calls are counted.
func TestFaceAudit(t *testing.T) {
	dir := t.TempDir()
	d := start(t, daemon.Config{DataDir: dir, AdminAddr: "127.0.0.1:0", Authenticate: byHeader, Faces: []server.Face{face{}}})
	for _, who := range []string{"ann@acme", "ann@acme/observer"} {
		send(t, clientOf(t, who), http.MethodPost, d.URL()+"/test/s", "")
	}
	_, text := ask(t, d, "localhost", "/metrics")
	for _, line := range []string{`agentd_requests_total{code="ok",method="face/test"} 1`, `agentd_requests_total{code="permission_denied",method="face/test"} 1`} {
		if !strings.Contains(text, line) {
			t.Errorf("no %s in the metrics", line)
		}
	}
	stop(t, d)
	l, err := daemon.OpenLedger(t.Context(), dir, false)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var got []string
	for e, err := range l.Entries(t.Context(), daemon.AuditQuery{AllTenants: true}) {
		if err != nil || e.From == "" || e.Tenant != "acme" || e.Principal != "ann" {
			t.Errorf("entry %+v, %v", e, err)
		}
		got = append(got, e.Action+" "+e.Session+" "+e.Outcome)
	}
	slices.Sort(got)
	if want := []string{"SessionService.CreateSession s PERMISSION_DENIED", "SessionService.CreateSession s ok"}; !slices.Equal(got, want) {
		t.Errorf("entries %q, want %q", got, want)
	}
}

// ownForm is a face with its own form of what the server refuses.
type ownForm struct{ face }

func (ownForm) Refuse(w http.ResponseWriter, _ *http.Request, status int, e *agentdv1.RunResponse_ErrorResponse) {
	http.Error(w, "my own: "+e.GetCode().String(), status)
}

// A body above the limit is refused before the face sees it, whether its length was said or not, and the next request is served.
func TestFaceBody(t *testing.T) {
	const most = 1000
	d := start(t, daemon.Config{MaxMessageBytes: most, Faces: []server.Face{ownForm{}}})
	for name, c := range map[string]*http.Client{"HTTP/1.1": plain(t), "HTTP/2": h2c(t)} {
		for _, n := range []int{0, most, most + 1, 100 * most} {
			for _, chunked := range []bool{false, true} {
				var body io.Reader = strings.NewReader(strings.Repeat("x", n))
				if chunked {
					body = io.MultiReader(body)
				}
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, d.URL()+"/test/s", body)
				if err != nil {
					t.Fatal(err)
				}
				resp, err := c.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				text, _ := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				status, says := 200, strconv.Itoa(n)
				if n > most {
					status, says = 413, "my own: ERROR_CODE_LIMIT_EXCEEDED"
				}
				if resp.StatusCode != status || strings.TrimSpace(string(text)) != says {
					t.Errorf("%s, %d bytes: %d %s, want %d %s", name, n, resp.StatusCode, text, status, says)
				}
			}
		}
	}
}

// The streams of faces and those of the protocol have one limit.
func TestFaceStreams(t *testing.T) {
	d := start(t, daemon.Config{MaxStreams: 2, Faces: []server.Face{face{}}})
	c := agentdv1connect.NewSessionServiceClient(h2c(t), d.URL())
	speak(t, c, "s", "hi")
	watch, err := c.WatchSession(t.Context(), connect.NewRequest(&agentdv1.WatchSessionRequest{SessionId: "s"}))
	if err != nil || !watch.Receive() {
		t.Fatal(err, watch.Err())
	}
	defer watch.Close()
	first := openStream(t, plain(t), d.URL()+"/test/s", "0")
	if first.resp.StatusCode != http.StatusOK || first.resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("the first stream: %d %v", first.resp.StatusCode, first.resp.Header)
	}
	if status, text, _ := send(t, plain(t), http.MethodGet, d.URL()+"/test/s", ""); status != 429 || !strings.Contains(text, "2 open streams") {
		t.Errorf("one too many: %d %s", status, text)
	}
	first.close()
	for { // until the server knows
		s := openStream(t, plain(t), d.URL()+"/test/s", "0")
		if s.resp.StatusCode == http.StatusOK {
			break
		}
		s.close()
	}
}

// Web pages of the origins that are allowed may call a face, with its own methods and headers.
func TestFaceCORS(t *testing.T) {
	const app = "https://app.example.com"
	d := start(t, daemon.Config{CORSOrigins: []string{app}, Authenticate: byHeader, Faces: []server.Face{face{}}})
	for origin, allowed := range map[string]string{app: app, "https://evil.example.com": ""} {
		_, _, h := send(t, plain(t), http.MethodOptions, d.URL()+"/test/s", "",
			"Origin", origin, "Access-Control-Request-Method", "DELETE", "Access-Control-Request-Headers", "last-event-id,x-beta")
		if got := h.Get("Access-Control-Allow-Origin"); got != allowed {
			t.Errorf("preflight from %s: %q", origin, h)
		}
		if allowed != "" && (h.Get("Access-Control-Allow-Methods") != "DELETE" || !strings.Contains(h.Get("Access-Control-Allow-Headers"), "last-event-id")) {
			t.Errorf("preflight: %v", h)
		}
	}
	status, _, h := send(t, clientOf(t, "ann"), http.MethodPost, d.URL()+"/test/s", "", "Origin", app)
	if status != 200 || h.Get("Access-Control-Allow-Origin") != app {
		t.Errorf("from the page: %d %v", status, h)
	}
}

// A stream gives each event once, wherever it is cut, and then what happens; without an id what happens from now on.
func TestFaceReplay(t *testing.T) {
	d := start(t, daemon.Config{Faces: []server.Face{face{}}})
	c := agentdv1connect.NewSessionServiceClient(h2c(t), d.URL())
	url := d.URL() + "/test/s"
	speak(t, c, "s", "one")
	seqs := speak(t, c, "s", "two")
	if len(seqs) < 6 {
		t.Fatalf("only %q", seqs)
	}
	for name, hc := range map[string]*http.Client{"HTTP/1.1": plain(t), "HTTP/2": h2c(t)} {
		for cut := range seqs {
			var got []string
			first := openStream(t, hc, url, "0")
			for range cut {
				got = append(got, first.event().id)
			}
			first.close()
			last := "0"
			if cut > 0 {
				last = got[cut-1]
			}
			second := openStream(t, hc, url, last)
			for range len(seqs) - cut {
				f := second.event()
				if got = append(got, f.id); f.data != f.id || f.name != "event" {
					t.Errorf("frame %+v", f)
				}
			}
			if !slices.Equal(got, seqs) {
				t.Errorf("%s, cut after %d: %q, want %q", name, cut, got, seqs)
			}
			second.close()
		}
		tail, now := openStream(t, hc, url, seqs[len(seqs)-1]), openStream(t, hc, url, "")
		if f, _ := now.next(); !f.comment {
			t.Errorf("the first frame is %+v", f)
		}
		before := len(seqs)
		seqs = speak(t, c, "s", "more")
		for _, s := range []*sse{tail, now} {
			for _, want := range seqs[before:] {
				if f := s.event(); f.id != want {
					t.Errorf("%s: tailed %s, want %s", name, f.id, want)
				}
			}
			s.close()
		}
	}
	whole := openStream(t, plain(t), url, "0")
	if f, _ := whole.next(); !f.comment {
		t.Errorf("the first frame is %+v", f)
	}
	if f, _ := whole.next(); f.id != "" || f.name != "before" || f.data != "one\ntwo\nthree" {
		t.Errorf("the first of two frames is %+v", f)
	}
	for _, bad := range []string{"x", "-1", "1.5", "99999999999999999999"} {
		if status, text, _ := send(t, plain(t), http.MethodGet, url, "", "Last-Event-ID", bad); status != 400 || !strings.Contains(text, "Last-Event-ID") {
			t.Errorf("Last-Event-ID %s: %d %s", bad, status, text)
		}
	}
	if status, text, _ := send(t, plain(t), http.MethodGet, d.URL()+"/test/none", ""); status != 404 {
		t.Errorf("no session: %d %s", status, text)
	}
}

// A turn does not depend on who watches it by a face.
func TestFaceLeaver(t *testing.T) {
	d := start(t, daemon.Config{OnDisconnect: "cancel", Scripts: map[string]string{"asks": asks}, Faces: []server.Face{face{}}})
	c := agentdv1connect.NewSessionServiceClient(h2c(t), d.URL())
	turn := call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: lookRequest("look")}).GetTurn()
	s := openStream(t, plain(t), d.URL()+"/test/"+turn.GetSessionId(), "0")
	s.event()
	turn = until(t, c, turn, agentdv1.TurnStatus_TURN_STATUS_WAITING_FOR_CLIENT)
	s.close()
	call(t, c.SubmitToolResults, &agentdv1.SubmitToolResultsRequest{SessionId: turn.GetSessionId(), TurnId: turn.GetId(), Results: []*agentdv1.RunRequest_ToolCallResponse{
		{ToolCallId: turn.GetPendingToolCalls()[0].GetToolCallId(), Result: &agentdv1.RunRequest_ToolCallResponse_Output{Output: "white"}},
	}})
	until(t, c, turn, agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED)
}

// Who does not read is cut off, and its stream counts no more.
func TestFaceSlowReader(t *testing.T) {
	t.Parallel() // it waits
	var log buffer
	d := start(t, daemon.Config{Logger: daemon.NewLogger(&log, daemon.LogConfig{JSON: true}), MaxStreams: 1, WriteTimeout: 500 * time.Millisecond, Faces: []server.Face{face{fill: 8 << 20}}})
	c := agentdv1connect.NewSessionServiceClient(h2c(t), d.URL())
	speak(t, c, "s", "hi")
	conn, err := net.Dial("tcp", d.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET /test/s HTTP/1.1\r\nHost: localhost\r\nLast-Event-ID: 0\r\n\r\n")
	if line, err := bufio.NewReaderSize(conn, 16).ReadString('\n'); err != nil || !strings.Contains(line, "200") {
		t.Fatal(line, err)
	}
	const line = `"method":"face/test"`
	for range 1000 { // until the request has ended, while nobody reads
		if strings.Contains(log.String(), line) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if !strings.Contains(log.String(), line) {
		t.Error("the request of who does not read goes on")
	}
	for { // and its stream counts no more
		s := openStream(t, plain(t), d.URL()+"/test/s", "")
		if s.resp.StatusCode == http.StatusOK {
			break
		}
		s.close()
	}
}

// In silence there is a comment every 15 seconds; a session whose log is gone says so.
func TestFaceSilenceAndPurge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := agentdtest.Start(t, agentdtest.Config{}, testdaemon.WithTurnLimits(limits.Limits{PurgeAfter: time.Hour}),
			func(c *testdaemon.Config) { c.Daemon.Faces = []server.Face{face{}} })
		c := agentdv1connect.NewSessionServiceClient(d.HTTPClient(), d.URL)
		speak(t, c, "s", "hi")
		s := openStream(t, d.HTTPClient(), d.URL+"/test/s", "")
		began := time.Now()
		for n := range 4 {
			f, ok := s.next()
			if silent := time.Since(began); !ok || !f.comment || silent != time.Duration(n)*15*time.Second {
				t.Errorf("frame %d: %+v, %v after %v", n, f, ok, silent)
			}
		}
		s.close()
		time.Sleep(24 * time.Hour)
		for _, last := range []string{"0", ""} {
			s := openStream(t, d.HTTPClient(), d.URL+"/test/s", last)
			text, _ := io.ReadAll(s.resp.Body)
			if s.resp.StatusCode != http.StatusGone || !strings.Contains(string(text), "HISTORY_PURGED") {
				t.Errorf("a purged session: %d %s", s.resp.StatusCode, text)
			}
		}
	})
}

// A stream ends when its credential does.
func TestFaceCredentialEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var revoked atomic.Bool
		d := agentdtest.Start(t, agentdtest.Config{}, testdaemon.WithAuthentication(func(*http.Request) (principal.Principal, error) {
			if revoked.Load() {
				return principal.Principal{}, errors.New("revoked")
			}
			return principal.Principal{ID: "ann"}, nil
		}), func(c *testdaemon.Config) { c.Daemon.Faces = []server.Face{face{}} })
		c := agentdv1connect.NewSessionServiceClient(d.HTTPClient(), d.URL)
		speak(t, c, "s", "hi")
		s := openStream(t, d.HTTPClient(), d.URL+"/test/s", "")
		for range 10 { // while it holds: two minutes of comments
			if f, ok := s.next(); !ok || !f.comment {
				t.Fatalf("the stream of a credential that holds: %+v, %v", f, ok)
			}
		}
		revoked.Store(true)
		for range 5 { // a minute of comments at most
			if _, ok := s.next(); !ok {
				return
			}
		}
		t.Error("the stream goes on")
	})
}

// broken is a face that cannot be mounted, or has a name that is none.
type broken struct {
	name string
	err  error
}

func (b broken) Name() string                               { return b.name }
func (b broken) Mount(*http.ServeMux, server.FaceEnv) error { return b.err }

// A daemon does not start with a face that it cannot serve.
func TestFaceRefused(t *testing.T) {
	for says, faces := range map[string][]server.Face{
		`face x: no good`:                    {broken{"x", fmt.Errorf("no good")}},
		`called "A b", want 1 to 64`:         {broken{"A b", nil}},
		`two faces are called "test", leave`: {face{}, face{}},
	} {
		d, err := daemon.New(daemon.Config{Addr: "127.0.0.1:0", Faces: faces})
		if err == nil {
			stop(t, d)
		}
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %s", err, says)
		}
	}
}
