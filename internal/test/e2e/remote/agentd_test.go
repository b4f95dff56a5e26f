package remote_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/agentdtest"
	face "github.com/apzuk3/agentd/internal/faces/managed"
	"github.com/apzuk3/agentd/internal/test/testdaemon"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
	"github.com/apzuk3/agentd/server"
)

// other is a second daemon, whose model does the steps.
type other struct {
	*seenBy
	steps []step
	d     *agentdtest.Daemon
	http  *httptest.Server // in front of it
	kind  string           // how it is spoken to
}

// newOther starts a daemon that is spoken to as a backend of a kind.
func newOther(t *testing.T, kind string, steps []step) *other {
	o := &other{seenBy: newSeen(), steps: steps, kind: kind}
	o.d = agentdtest.Start(t, agentdtest.Config{Providers: []model.Provider{o}, Addr: "127.0.0.1:0"}, func(c *testdaemon.Config) {
		c.Daemon.Faces = []server.Face{face.Face{}}
	})
	to, err := url.Parse(o.d.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.FlushInterval = -1
	proxy.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }
	cut := false
	for _, st := range steps {
		cut = cut || st.cut
	}
	proxy.ModifyResponse = func(resp *http.Response) error {
		o.mu.Lock()
		defer o.mu.Unlock()
		path := resp.Request.URL.Path
		if cut && (strings.HasSuffix(path, "/WatchTurn") || strings.HasSuffix(path, "/events/stream")) {
			cut = false
			resp.Body = &shortBody{resp.Body, 600}
		}
		return nil
	}
	o.http = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		o.mu.Lock()
		o.auth = append(o.auth, r.Header.Get("Authorization")+r.Header.Get("X-Api-Key"))
		if strings.HasSuffix(r.URL.Path, "/CancelTurn") || bytes.Contains(body, []byte(`"user.interrupt"`)) {
			o.closed += 100
		}
		o.mu.Unlock()
		r.Header.Del("X-Api-Key") // the daemon asks for no key, and takes none
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		o.http.CloseClientConnections()
		o.http.Close()
	})
	return o
}

// shortBody breaks after some bytes.
type shortBody struct {
	io.ReadCloser
	left int
}

func (b *shortBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, io.ErrUnexpectedEOF
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

func (o *other) file() string {
	return fmt.Sprintf("desk: {kind: %s, url: %q, key_env: DESK_KEY}\n", o.kind, o.http.URL)
}

// backend is o as a backend of a test.
func (o *other) backend(name string) *backend {
	canceled := func() bool { o.mu.Lock(); defer o.mu.Unlock(); return o.closed > 0 }
	return &backend{name, o.seenBy, o.file(), canceled, o}
}

// Describe implements model.Provider.
func (*other) Describe() model.Description {
	return model.Description{Name: "steps", Keyless: true, Names: []string{"steps"}}
}

// Open implements model.Provider.
func (o *other) Open(string, string) (model.Model, error) {
	return model.Model{LLM: o}, nil
}

// Generate does the step that follows what the conversation has.
func (o *other) Generate(ctx context.Context, req *model.Request, emit func(model.Delta)) (*model.Response, error) {
	at := 0
	for _, c := range req.Contents {
		if c.Role == genai.RoleModel {
			at++
		}
	}
	o.mu.Lock()
	if at == 0 {
		o.sessions++
		o.specs = append(o.specs, adapter.Text(req.Config.SystemInstruction))
	}
	last := req.Contents[len(req.Contents)-1]
	if text := adapter.Text(last); text != "" {
		o.messages = append(o.messages, text)
	}
	for _, p := range last.Parts {
		if r := p.FunctionResponse; r != nil {
			o.answers[r.ID]++
			text, failed := r.Response["error"].(string)
			if !failed {
				text, _ = r.Response["output"].(string)
			}
			o.texts[r.ID], o.errors[r.ID] = text, failed
		}
	}
	o.mu.Unlock()
	st := step{say: "the script has ended"}
	if at < len(o.steps) {
		st = o.steps[at]
	}
	if st.fails != "" {
		return nil, &model.Error{Kind: model.KindInvalid, Provider: "steps", Message: st.fails}
	}
	resp := &model.Response{
		Content: &genai.Content{Role: genai.RoleModel}, FinishReason: genai.FinishReasonStop,
		Usage: model.Usage{Prompt: 7, Completion: 3, Total: 10}, Model: "steps-1",
	}
	if st.say != "" {
		for word := range strings.SplitAfterSeq(st.say, " ") {
			emit(model.Delta{Text: word})
		}
		resp.Content.Parts = append(resp.Content.Parts, &genai.Part{Text: st.say})
	}
	if st.hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if st.uses != "" {
		resp.Provided = &model.Provided{Uses: []model.Use{{ID: "own", Name: st.uses, Input: `{"x":1}`, Output: `"found"`}}}
	}
	for i, name := range st.calls {
		resp.Content.Parts = append(resp.Content.Parts, adapter.NewCall(fmt.Sprintf("c%d", i), name, fmt.Sprintf(`{"q":%d}`, i+1)))
	}
	return resp, nil
}
