package daemon_test

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/server"
)

// keeper is a face that does with its objects what a request says.
type keeper struct{ name string }

func (k keeper) Name() string { return k.name }

func (k keeper) Mount(mux *http.ServeMux, env server.FaceEnv) error {
	mux.HandleFunc("/"+k.name+"/{kind}/{id}", func(w http.ResponseWriter, r *http.Request) {
		kind, id := r.PathValue("kind"), r.PathValue("id")
		body, err := io.ReadAll(r.Body)
		said := ""
		switch {
		case err != nil:
		case r.Method == http.MethodPut:
			var now, version int64
			version, _ = strconv.ParseInt(r.URL.Query().Get("version"), 10, 64)
			now, err = env.Objects.Put(r.Context(), kind, id, version, body)
			said = strconv.FormatInt(now, 10)
		case r.Method == http.MethodDelete:
			err = env.Objects.Delete(r.Context(), kind, id)
		case r.URL.Query().Has("list"):
			var ids []string
			var data [][]byte
			ids, data, err = env.Objects.List(r.Context(), kind, r.URL.Query().Get("after"), 2)
			said = fmt.Sprintf("%v %s", ids, data)
		default:
			var data []byte
			var version int64
			data, version, err = env.Objects.Get(r.Context(), kind, id)
			said = fmt.Sprintf("%d %s", version, data)
		}
		if err != nil {
			status, e := env.Error(err)
			http.Error(w, e.GetMessage(), status)
			return
		}
		_, _ = io.WriteString(w, said)
	})
	return nil
}

// A face keeps objects of its own, in versions, for each tenant, also across a restart.
func TestFaceObjects(t *testing.T) {
	cfg := daemon.Config{DataDir: t.TempDir(), Authenticate: byHeader, Faces: []server.Face{keeper{"one"}, keeper{"two"}}}
	d := start(t, cfg)
	ask := func(who, method, path, body string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, d.URL()+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Test-Who", who)
		resp, err := http.DefaultClient.Do(req)
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
	type step struct {
		who, method, path, body string
		status                  int
		says                    string
	}
	steps := func(all []step) {
		t.Helper()
		for _, s := range all {
			if status, text := ask(s.who, s.method, s.path, s.body); status != s.status || !strings.Contains(text, s.says) {
				t.Errorf("%s %s %s: %d %q, want %d %q", s.who, s.method, s.path, status, text, s.status, s.says)
			}
		}
	}
	const ann, eve = "ann@acme", "eve@umbrella"
	steps([]step{
		{ann, "GET", "/one/k/a", "", 404, "no object"},
		{ann, "PUT", "/one/k/a", "first", 200, "1"},
		{ann, "PUT", "/one/k/a", "again", 409, "version 1"},
		{ann, "PUT", "/one/k/a?version=1", "second", 200, "2"},
		{ann, "PUT", "/one/k/b?version=7", "x", 409, "version 0"},
		{ann, "PUT", "/one/k/b", "bee", 200, "1"},
		{ann, "PUT", "/one/k/c", "sea", 200, "1"},
		{ann, "GET", "/one/k/a?list", "", 200, "[a b] [second bee]"},
		{ann, "GET", "/one/k/a?list&after=b", "", 200, "[c] [sea]"},
		{ann, "PUT", "/one/k/" + strings.Repeat("x", 129), "x", 400, "128 bytes"},
		{ann, "PUT", "/one/k/large", strings.Repeat("x", 64<<10+1), 429, "65536"},
		{ann, "GET", "/two/k/a", "", 404, "no object"},
		{eve, "GET", "/one/k/a", "", 404, "no object"},
		{eve, "DELETE", "/one/k/a", "", 404, "no object"},
	})
	stop(t, d)
	d = start(t, cfg)
	steps([]step{
		{ann, "GET", "/one/k/a", "", 200, "2 second"},
		{ann, "DELETE", "/one/k/a", "", 200, ""},
		{ann, "DELETE", "/one/k/a", "", 404, "no object"},
	})
}
