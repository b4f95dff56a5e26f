package daemon_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/server"
)

// mirror is a face that makes the call of SessionService that a request asks for, whichever there is. Of a stream it
// reads the first message.
type mirror struct{}

func (mirror) Name() string { return "mirror" }

func (mirror) Mount(mux *http.ServeMux, env server.FaceEnv) error {
	mux.HandleFunc("POST /mirror/{method}", func(w http.ResponseWriter, r *http.Request) {
		f := reflect.ValueOf(env.Sessions).MethodByName(r.PathValue("method"))
		body, err := io.ReadAll(r.Body)
		req := reflect.New(f.Type().In(1).Elem()) // *connect.Request
		msg := reflect.New(req.Elem().FieldByName("Msg").Type().Elem())
		if err == nil {
			err = proto.Unmarshal(body, msg.Interface().(proto.Message))
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusTeapot)
			return
		}
		req.Elem().FieldByName("Msg").Set(msg)
		out := f.Call([]reflect.Value{reflect.ValueOf(r.Context()), req})
		err, _ = reflect.TypeAssert[error](out[1])
		text := ""
		if err == nil && out[0].MethodByName("Receive").IsValid() {
			if !out[0].MethodByName("Receive").Call(nil)[0].Bool() {
				err, _ = reflect.TypeAssert[error](out[0].MethodByName("Err").Call(nil)[0])
			} else {
				text = textOf(out[0].MethodByName("Msg").Call(nil)[0])
			}
			out[0].MethodByName("Close").Call(nil)
		} else if err == nil {
			text = textOf(out[0].Elem().FieldByName("Msg"))
		}
		if err != nil {
			status, e := env.Error(err)
			http.Error(w, e.GetCode().String()+" "+e.GetMessage(), status)
			return
		}
		_, _ = io.WriteString(w, text)
	})
	mux.HandleFunc("GET /mirror/{session}", func(w http.ResponseWriter, r *http.Request) {
		err := env.Stream(w, r, r.PathValue("session"), func(*agentdv1.RunResponse, func(name, data string) error) error { return nil })
		if err == nil {
			return
		}
		status, e := env.Error(err)
		http.Error(w, e.GetCode().String()+" "+e.GetMessage(), status)
	})
	return nil
}

func textOf(msg reflect.Value) string { return protojson.Format(msg.Interface().(proto.Message)) }

// mirrored makes a call by the face, and returns its status and what it says.
func mirrored(t *testing.T, c *http.Client, url, method string, req proto.Message) (int, string) {
	t.Helper()
	data, err := proto.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Post(url+"/mirror/"+method, "application/octet-stream", bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// namesNone are the methods that name no session. What they say to a caller has none of another one's.
var namesNone = []string{
	"CreateSession", "ListSessions", "GetCapabilities", "ListModels", "ListSharedState", "SetSharedState", "RemoveSharedState",
	"ApplyAgent", "GetAgent", "ListAgents", "ArchiveAgent", "DeleteAgent",
}

// TestFaceOwnSessions: on the routes of a face a session exists for who has created it, and for operators, whatever
// method of SessionService the face calls. SessionService itself shows it to the whole tenant.
func TestFaceOwnSessions(t *testing.T) {
	t.Parallel()
	d := start(t, daemon.Config{
		DataDir: t.TempDir(), Authenticate: byHeader, Scripts: map[string]string{"asks": asks}, Faces: []server.Face{mirror{}},
		TenantRequestsPerSecond: 1_000_000,
	})
	ann, bob, eve := clientOf(t, "ann@acme"), clientOf(t, "bob@acme"), clientOf(t, "eve@acme/observer")
	olga, foreign := clientOf(t, "olga@acme/operator"), clientOf(t, "ann@umbrella")
	native := speaking(t, d, "ann@acme")
	waiting := func() *agentdv1.Turn {
		t.Helper()
		turn := call(t, native.CreateTurn, &agentdv1.CreateTurnRequest{Execute: lookRequest("look")}).GetTurn()
		return until(t, native, turn, agentdv1.TurnStatus_TURN_STATUS_WAITING_FOR_CLIENT)
	}
	const none, missing = "nothing-has-this-id", "ERROR_CODE_SESSION_NOT_FOUND"
	methods := agentdv1.File_agentd_v1_sessions_proto.Services().ByName("SessionService").Methods()
	named := 0
	for of := range reflect.TypeFor[agentdv1connect.SessionServiceClient]().Methods() {
		m := methods.ByName(protoreflect.Name(of.Name))
		if m == nil {
			t.Fatalf("the protocol has no method %s", of.Name)
		}
		turn := waiting()
		id := turn.GetSessionId()
		req, ok := filled(m, id, turn.GetId())
		if ok == slices.Contains(namesNone, of.Name) {
			t.Errorf("%s: names a session: %v; say in namesNone if it names none", of.Name, ok)
		}
		for who, c := range map[string]*http.Client{"bob": bob, "an observer": eve, "ann of another tenant": foreign} {
			status, text := mirrored(t, c, d.URL(), of.Name, req)
			if !ok {
				if strings.Contains(text, id) {
					t.Errorf("%s says to %s: %s", of.Name, who, text)
				}
				continue
			}
			unknown, _ := filled(m, none, turn.GetId())
			wantStatus, want := mirrored(t, c, d.URL(), of.Name, unknown)
			if status != wantStatus || strings.ReplaceAll(text, id, none) != want {
				t.Errorf("%s: %d %s to %s, of an id that nobody has: %d %s", of.Name, status, text, who, wantStatus, want)
			}
			if who != "an observer" && (status != http.StatusNotFound || !strings.HasPrefix(text, missing)) {
				t.Errorf("%s: %d %s to %s, want 404 %s", of.Name, status, text, who, missing)
			}
		}
		if !ok {
			continue
		}
		named++
		if of.Name != "DeleteSession" { // once is enough
			if status, text := mirrored(t, olga, d.URL(), of.Name, req); strings.HasPrefix(text, missing) {
				t.Errorf("%s: %d %s to an operator", of.Name, status, text)
			}
		}
		if status, text := mirrored(t, ann, d.URL(), of.Name, req); strings.HasPrefix(text, missing) {
			t.Errorf("%s: %d %s to who has created it", of.Name, status, text)
		}
		if _, text := mirrored(t, bob, d.URL(), "GetSession", &agentdv1.GetSessionRequest{SessionId: id}); !strings.HasPrefix(text, missing) {
			t.Errorf("after %s bob reads %s", of.Name, text)
		}
	}
	if named < 19 {
		t.Errorf("only %d methods name a session", named)
	}
	if err := attempt(t, bob, d.URL(), methods.ByName("GetSession"), &agentdv1.GetSessionRequest{SessionId: waiting().GetSessionId()}); err != nil {
		t.Errorf("SessionService says to bob: %v", err)
	}
}

// Lists of the whole tenant have what the caller has created, page by page, and no more.
func TestFaceOwnLists(t *testing.T) {
	t.Parallel()
	d := start(t, daemon.Config{Authenticate: byHeader, Scripts: map[string]string{"asks": asks}, Faces: []server.Face{mirror{}}})
	made := map[string][]string{}
	for i := range 40 {
		who := []string{"ann@acme", "bob@acme"}[i/7%2] // some of one, then some of the other
		c := speaking(t, d, who)
		turn := call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: lookRequest("look")}).GetTurn()
		turn = until(t, c, turn, agentdv1.TurnStatus_TURN_STATUS_WAITING_FOR_CLIENT)
		asks := &agentdv1.Interaction{Kind: agentdv1.InteractionKind_INTERACTION_KIND_APPROVAL}
		call(t, c.RaiseInteraction, &agentdv1.RaiseInteractionRequest{
			SessionId: turn.GetSessionId(), ToolCallId: turn.GetPendingToolCalls()[0].GetToolCallId(), N: 1, Interaction: asks,
		})
		made[who] = append(made[who], turn.GetSessionId())
		made["olga@acme/operator"] = append(made["olga@acme/operator"], turn.GetSessionId())
	}
	made["eve@acme/observer"], made["ann@umbrella"] = nil, nil
	for who, want := range made {
		c := clientOf(t, who)
		lists := map[string]func(size int32, page string) (ids []string, next string){
			"ListSessions": func(size int32, page string) (ids []string, next string) {
				out := pageOf(t, c, d.URL(), "ListSessions", &agentdv1.ListSessionsRequest{PageSize: size, PageToken: page}, &agentdv1.ListSessionsResponse{})
				for _, s := range out.GetSessions() {
					ids = append(ids, s.GetId())
				}
				return ids, out.GetNextPageToken()
			},
			"ListTurns": func(size int32, page string) (ids []string, next string) {
				out := pageOf(t, c, d.URL(), "ListTurns", &agentdv1.ListTurnsRequest{PageSize: size, PageToken: page}, &agentdv1.ListTurnsResponse{})
				for _, s := range out.GetTurns() {
					ids = append(ids, s.GetSessionId())
				}
				return ids, out.GetNextPageToken()
			},
			"ListInteractions": func(size int32, page string) (ids []string, next string) {
				out := pageOf(t, c, d.URL(), "ListInteractions", &agentdv1.ListInteractionsRequest{PageSize: size, PageToken: page}, &agentdv1.ListInteractionsResponse{})
				for _, s := range out.GetInteractions() {
					ids = append(ids, s.GetSessionId())
				}
				return ids, out.GetNextPageToken()
			},
		}
		for name, list := range lists {
			for _, size := range []int32{1, 3, 100} {
				var got []string
				for page := ""; ; {
					ids, next := list(size, page)
					if len(ids) > int(size) {
						t.Errorf("%s: a page of %d for %d", name, len(ids), size)
					}
					got = append(got, ids...)
					if page = next; page == "" {
						break
					}
				}
				slices.Reverse(got)
				if !slices.Equal(got, want) {
					t.Errorf("%s, %s, pages of %d: %d sessions %q, want %d", who, name, size, len(got), got, len(want))
				}
			}
		}
	}
}

func pageOf[P proto.Message](t *testing.T, c *http.Client, url, method string, req proto.Message, into P) P {
	t.Helper()
	status, text := mirrored(t, c, url, method, req)
	if err := protojson.Unmarshal([]byte(text), into); status != http.StatusOK || err != nil {
		t.Fatalf("%s: %d %s, %v", method, status, text, err)
	}
	return into
}

// Who may make a session under an id reaches none that another one has made under it, and may not take it over.
func TestFaceOwnCreate(t *testing.T) {
	t.Parallel()
	d := start(t, daemon.Config{Authenticate: byHeader, Faces: []server.Face{mirror{}}, TenantRequestsPerSecond: 1_000_000})
	clients := map[string]*http.Client{"ann": clientOf(t, "ann@acme"), "bob": clientOf(t, "bob@acme")}
	olga := speaking(t, d, "olga@acme/operator")
	for n := range 30 {
		id := fmt.Sprintf("s-%d", n)
		said := map[string]string{}
		var mu sync.Mutex // protects said
		var wg sync.WaitGroup
		for who, c := range clients {
			for _, busy := range []agentdv1.OnBusy{agentdv1.OnBusy_ON_BUSY_UNSPECIFIED, agentdv1.OnBusy_ON_BUSY_WAIT} {
				wg.Go(func() {
					ex := execute(llm("root", "echo"), "from "+who).GetExecute()
					ex.SessionId, ex.Create, ex.OnBusy = &id, true, busy
					status, text := mirrored(t, c, d.URL(), "CreateTurn", &agentdv1.CreateTurnRequest{Execute: ex})
					mu.Lock()
					defer mu.Unlock()
					if status == http.StatusOK {
						said[who] = "ok"
					} else if said[who] == "" {
						said[who] = text
					}
				})
			}
		}
		wg.Wait()
		owner := call(t, olga.GetSession, &agentdv1.GetSessionRequest{SessionId: id}).GetSession().GetCreatedBy()
		for _, turn := range call(t, olga.ListTurns, &agentdv1.ListTurnsRequest{SessionId: id}).GetTurns() {
			if turn.GetCreatedBy() != owner {
				t.Errorf("a turn of %s in the session of %s", turn.GetCreatedBy(), owner)
			}
		}
		for who, text := range said {
			if (text == "ok") != (who == owner) {
				t.Errorf("%s: %s, the session is that of %s", who, text, owner)
			}
		}
	}
}

// A token for one session reaches that one by a face, whoever has created it, and no other.
func TestFaceOwnToken(t *testing.T) {
	t.Parallel()
	d := start(t, daemon.Config{DataDir: t.TempDir(), Authenticate: byHeader, Faces: []server.Face{mirror{}}})
	ann := speaking(t, d, "ann@acme")
	mine := call(t, ann.CreateSession, &agentdv1.CreateSessionRequest{}).GetSession().GetId()
	other := call(t, ann.CreateSession, &agentdv1.CreateSessionRequest{}).GetSession().GetId()
	for _, maker := range []string{"ann@acme", "olga@acme/operator"} {
		c := speaking(t, d, maker)
		token := call(t, c.CreateSessionToken, &agentdv1.CreateSessionTokenRequest{SessionId: mine}).GetToken()
		page := &http.Client{Transport: headed{map[string]string{"Authorization": "Bearer " + token}, h2c(t).Transport}}
		if status, text := mirrored(t, page, d.URL(), "GetSession", &agentdv1.GetSessionRequest{SessionId: mine}); status != http.StatusOK {
			t.Errorf("with a token of %s: %d %s", maker, status, text)
		}
		if status, _, _ := send(t, page, http.MethodGet, d.URL()+"/mirror/"+other, ""); status != http.StatusNotFound {
			t.Errorf("another session with a token of %s: %d", maker, status)
		}
	}
	if status, text := mirrored(t, clientOf(t, "bob@acme"), d.URL(), "CreateSessionToken", &agentdv1.CreateSessionTokenRequest{SessionId: mine}); status != http.StatusNotFound {
		t.Errorf("a token of bob for the session of ann: %d %s", status, text)
	}
	if status, text, _ := send(t, clientOf(t, "bob@acme"), http.MethodGet, d.URL()+"/mirror/"+mine, "", "Last-Event-ID", "0"); status != http.StatusNotFound {
		t.Errorf("bob streams the session of ann: %d %s", status, text)
	}
}
