package tools_test

import (
	"errors"
	"testing"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/client/conf"
	"github.com/apzuk3/agentd/client/permit"
	"github.com/apzuk3/agentd/client/tools"
)

// TestUnattended: a goal whose tools would ask, where nobody is there to be asked, is refused before anything is sent.
func TestUnattended(t *testing.T) {
	c := client.New("http://127.0.0.1:1") // where nobody is
	for _, mode := range conf.Modes() {
		for _, asked := range []bool{false, true} {
			cfg := conf.Default()
			cfg.Root, cfg.Permissions.Mode = t.TempDir(), mode
			var p permit.Prompter
			if asked {
				p = permit.Serialize(permit.InTurn(nil))
			}
			gate, err := permit.New(cfg, p)
			if err != nil {
				t.Fatal(err)
			}
			pack, err := tools.Build(cfg, gate, tools.Default())
			if err != nil {
				t.Fatal(err)
			}
			spec := client.GoalSpec{Agent: client.LLM("a", "echo", client.Tools("read_file")), Goal: "sort it"}
			_, err = c.StartGoal(t.Context(), spec, client.WithTools(pack.Set))
			if refused := errors.Is(err, permit.ErrNoPrompter); refused != (mode == "ask" && !asked) || !refused && !errors.Is(err, client.ErrUnavailable) {
				t.Errorf("mode %s, with somebody %v: %v", mode, asked, err)
			}
		}
	}
}
