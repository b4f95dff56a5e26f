// Package issuer is a part of agentd, not an API: it is a small OpenID Connect issuer for tests, with real keys and
// signatures.
package issuer

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/go-jose/go-jose/v4"
)

// Issuer issues tokens and serves the documents by which they are verified. Its methods may be called from any
// goroutine.
type Issuer struct {
	// URL is its name.
	URL string

	mu       sync.Mutex // protects the fields below
	keys     []jose.JSONWebKey
	made     int
	down     bool
	requests int
}

// New returns an issuer of a name, with one key. It listens to nothing.
func New(t testing.TB, url string) *Issuer {
	i := &Issuer{URL: url}
	i.Rotate(t, 1)
	return i
}

// Start returns an issuer that listens on a loopback address until the test ends.
func Start(t testing.TB) *Issuer {
	i := New(t, "")
	s := httptest.NewServer(i)
	t.Cleanup(s.Close)
	i.URL = s.URL
	return i
}

// Rotate adds a key, with which tokens are signed from now on, and keeps at most keep of them.
func (i *Issuer) Rotate(t testing.TB, keep int) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.made++
	own := jose.JSONWebKey{Key: key, KeyID: fmt.Sprint("key-", i.made), Algorithm: string(jose.ES256), Use: "sig"}
	i.keys = append([]jose.JSONWebKey{own}, i.keys...)
	i.keys = i.keys[:min(keep, len(i.keys))]
}

// Down has the issuer respond 503, or no longer.
func (i *Issuer) Down(down bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.down = down
}

// Requests returns how many requests there were.
func (i *Issuer) Requests() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.requests
}

// Key returns the key with which tokens are signed.
func (i *Issuer) Key() jose.JSONWebKey {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.keys[0]
}

// Token signs claims with the issuer's key; "iss" is the issuer if it is not among them.
func (i *Issuer) Token(t testing.TB, claims map[string]any) string {
	t.Helper()
	return Sign(t, jose.ES256, i.Key(), i.claims(claims))
}

func (i *Issuer) claims(claims map[string]any) map[string]any {
	all := map[string]any{"iss": i.URL}
	maps.Copy(all, claims)
	return all
}

// Sign signs claims with any key and algorithm.
func Sign(t testing.TB, alg jose.SignatureAlgorithm, key any, claims map[string]any) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, nil)
	if err != nil {
		t.Fatal(err)
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	text, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// ServeHTTP serves the discovery document and the public keys.
func (i *Issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.requests++
	if i.down {
		http.Error(w, "down", http.StatusServiceUnavailable)
		return
	}
	var reply any
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		reply = map[string]any{
			"issuer": i.URL, "jwks_uri": i.URL + "/keys", "id_token_signing_alg_values_supported": []string{"ES256"},
		}
	case "/keys":
		var public jose.JSONWebKeySet
		for _, k := range i.keys {
			public.Keys = append(public.Keys, k.Public())
		}
		reply = public
	default:
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(reply) // a client that is gone reads nothing
}

// RoundTrip serves a request without a connection.
func (i *Issuer) RoundTrip(r *http.Request) (*http.Response, error) {
	rec := httptest.NewRecorder()
	i.ServeHTTP(rec, r)
	return rec.Result(), nil
}
