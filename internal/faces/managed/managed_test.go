package managed_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/internal/daemon"
)

// greets is a model that calls the tool once and then says what it returned.
const greets = `
answers:
  - {when: {after_tool: greet}, text: 'done: {{tool_result "greet"}}'}
  - {when: {step: 1}, text: calling, calls: [{name: greet, args: {name: Ada}}]}
`

func TestTurn(t *testing.T) {
	d := open(t, daemon.Config{Scripts: map[string]string{"greets": greets}})
	id := d.session("scripted/greets")
	d.post(id, said("go"))
	events := d.untilIdle(id, "requires_action")
	fmt.Println(strings.Join(kinds(events), "\n"))
	for _, e := range events {
		fmt.Println(e)
	}
	use := ""
	for _, e := range events {
		if e.text("type") == "agent.custom_tool_use" {
			use = e.text("id")
		}
	}
	fmt.Println(d.post(id, object{"type": "user.custom_tool_result", "custom_tool_use_id": use, "content": []object{{"type": "text", "text": "hi Ada"}}}))
	for _, e := range d.untilIdle(id, "end_turn") {
		fmt.Println(e)
	}
	fmt.Println(d.must("GET", "/v1/sessions/"+id, nil))
}
