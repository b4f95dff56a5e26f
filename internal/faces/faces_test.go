package faces

import (
	"net/http"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/server"
)

type face string

func (f face) Name() string                             { return string(f) }
func (face) Mount(*http.ServeMux, server.FaceEnv) error { return nil }

func TestNamed(t *testing.T) {
	of := map[string]func() server.Face{"b": func() server.Face { return face("b") }, "a": func() server.Face { return face("a") }}
	got, err := named(of, []string{"b", "a", "b"})
	if err != nil || len(got) != 2 || got[0].Name() != "b" || got[1].Name() != "a" {
		t.Errorf("faces %v, %v", got, err)
	}
	if _, err := named(of, []string{"a", "c"}); err == nil || !strings.Contains(err.Error(), `no face "c": there are a, b`) {
		t.Errorf("an unknown face: %v", err)
	}
	if _, err := Named([]string{"c"}); err == nil || !strings.Contains(err.Error(), `"c"`) {
		t.Errorf("an unknown face: %v", err)
	}
	for name, made := range known {
		if made().Name() != name {
			t.Errorf("face %s calls itself %s", name, made().Name())
		}
	}
}
