package model_test

import (
	"testing"

	"github.com/apzuk3/agentd/model"
)

func TestMissingKey(t *testing.T) {
	for _, c := range []struct {
		of   model.Description
		want string
	}{
		{model.Description{Name: "p"}, "p: no API key: send the header X-Agentd-P-Api-Key"},
		{
			model.Description{Name: "p-chat", KeysOf: "p", KeyVariables: []string{"P_API_KEY", "PX_API_KEY"}},
			"p-chat: no API key: set P_API_KEY or PX_API_KEY on the server or send the header X-Agentd-P-Api-Key",
		},
	} {
		if e := c.of.MissingKey(); e.Error() != c.want || e.Kind != model.KindAuth {
			t.Errorf("%v, want %s", e, c.want)
		}
	}
}
