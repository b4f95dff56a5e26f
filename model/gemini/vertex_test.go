package gemini_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/gemini"
)

// Vertex AI with Application Default Credentials: a service account's file,
// whose token endpoint is ours.
func TestVertexWithDefaultCredentials(t *testing.T) {
	var path, auth, quota string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/token" {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"access_token":"vertex-token","token_type":"Bearer","expires_in":3600}`)
			return
		}
		path, auth, quota = r.URL.String(), r.Header.Get("Authorization"), r.Header.Get("X-Goog-User-Project")
		_, _ = io.WriteString(w, frame(json.RawMessage(done)))
	}))
	t.Cleanup(s.Close)

	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	account, err := json.Marshal(object{
		"type": "service_account", "project_id": "proj", "private_key_id": "id", "client_email": "svc@example.com",
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
		"token_uri":   s.URL + "/token", "quota_project_id": "billed",
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "account.json")
	if err := os.WriteFile(file, account, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", file)

	p := gemini.New(gemini.Config{Vertex: true, Project: "proj", Location: "europe-west4", BaseURL: s.URL})
	resp := ask(t, p, "gemini-2.5-flash", prompt("hello"))
	if resp.Content.Parts[0].Text != "ok" {
		t.Errorf("answer %+v", resp.Content)
	}
	if want := "/v1beta1/projects/proj/locations/europe-west4/publishers/google/models/gemini-2.5-flash:streamGenerateContent?alt=sse"; path != want {
		t.Errorf("path %s, want %s", path, want)
	}
	if auth != "Bearer vertex-token" || quota != "billed" {
		t.Errorf("authorization %q, quota project %q", auth, quota)
	}
}

// Without credentials the call fails as one of authorisation, and says no more
// than it should.
func TestVertexWithoutCredentials(t *testing.T) {
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", filepath.Join(t.TempDir(), "missing.json"))
	llm, err := gemini.New(gemini.Config{Vertex: true, Project: "proj"}).Open("gemini-2.5-flash", "")
	if err != nil {
		t.Fatal(err)
	}
	_, err = llm.Generate(t.Context(), prompt("hello"), func(model.Delta) {})
	if e, ok := errors.AsType[*model.Error](err); !ok || e.Kind != model.KindAuth || strings.Contains(e.Message, "missing.json") {
		t.Errorf("error %v", err)
	}
}
