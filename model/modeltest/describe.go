package modeltest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/internal/models"
	"github.com/apzuk3/agentd/model"
)

// description checks what the provider says of itself: that a registry takes it, that
// it is always the same, and that the server's key is named as a secret and is nowhere
// else.
func (h Harness) description(t *testing.T) {
	p := h.Open(t, "http://127.0.0.1:1", serverKey)
	d := p.Describe()
	if _, err := models.NewRegistry(p); err != nil {
		t.Errorf("a registry refuses the provider: %v", err)
	}
	second := p.Describe()
	second.Models = d.Models
	if !reflect.DeepEqual(d, second) {
		t.Errorf("Describe returns %+v, and then %+v", d, second)
	}
	if !slices.IsSorted(d.Models) {
		t.Errorf("the models %q are not sorted", d.Models)
	}
	if d.Keyless {
		t.Error("a provider without keys is none for this suite")
	}
	if len(d.KeyVariables) == 0 {
		t.Error("no environment variable holds the server's key: say it in KeyVariables")
	}
	if !slices.Contains(d.Secrets, serverKey) {
		t.Error("the server's key is none of the Secrets")
	}
	data, err := json.Marshal(d)
	if text := fmt.Sprintf("%v %+v %#v %s", d, d, d, data); err != nil || strings.Contains(text, "canary-") {
		t.Errorf("the description shows a key when printed: %v", err)
	}
	for _, s := range h.Open(t, "http://127.0.0.1:1", "").Describe().Secrets {
		if strings.TrimSpace(s) != "" {
			t.Error("a provider without a key has a secret")
		}
	}
	m, err := p.Open(h.Model, "")
	if err != nil {
		t.Fatal(err)
	}
	if m.LLM == nil {
		t.Error("Open returns a model without an LLM")
	}
	if m.Takes == nil {
		return
	}
	for _, f := range []model.File{{MIMEType: "image/png"}, {MIMEType: "made/up"},
		{MIMEType: "made/up", URI: "https://a.example/b"}, {MIMEType: "made/up", Result: true}} {
		if err := m.Takes(f); err != nil {
			if e := asError(t, err, model.KindInvalid); !strings.Contains(e.Message, f.MIMEType) {
				t.Errorf("message %q must name the media type %q", e.Message, f.MIMEType)
			}
		}
	}
}

// Cost is what a daemon with p counts for a call of the model name of usage u, in billionths
// of a US dollar; known is false if nobody knows its price.
func Cost(t testing.TB, p model.Provider, name string, u model.Usage) (nanos int64, known bool) {
	t.Helper()
	r, err := models.NewRegistry(p)
	if err != nil {
		t.Fatal(err)
	}
	provider, id, err := r.Route(name)
	if err != nil {
		t.Fatal(err)
	}
	return r.Knows(provider, id).Cost(u)
}
