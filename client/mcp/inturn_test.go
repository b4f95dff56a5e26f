//go:build unix

package mcp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/apzuk3/agentd/agentdtest"
	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/client/mcp"
)

// answers is a person with answers to questions, in order.
type answers struct {
	mu    sync.Mutex // protects the fields below
	left  []*client.Resolution
	asked []string
}

func (a *answers) Prompt(_ context.Context, in *client.Interaction) (*client.Resolution, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = append(a.asked, fmt.Sprintf("%s %q %v", in.Kind, in.Question, in.Choices))
	said := a.left[0]
	a.left = a.left[1:]
	return said, nil
}

// TestElicitInTurn: what a server asks becomes questions of the turn, by either transport.
func TestElicitInTurn(t *testing.T) {
	for name, entry := range wires(t) {
		t.Run(name, func(t *testing.T) {
			for want, said := range map[string]*client.Resolution{
				"accept Hal":   client.Answer("Hal"),
				"accept <nil>": client.Deny("none of your business"), // it may be left out
			} {
				s := build(t, map[string]any{"s": entry}, mcp.InTurn)[0]
				script := `{"answers":[{"calls":[{"name":"s_ask","args":{}}]},{"when":{},"text":"done"}]}`
				d := agentdtest.Start(t, agentdtest.Config{Scripts: map[string]string{"caller": script}})
				person := &answers{left: []*client.Resolution{said}}
				c := d.Client(client.WithAttachment("server", s.ToolSet()))
				agent := client.LLM("caller", "scripted/caller", client.AttachedTools("server"))
				got := ""
				for event, err := range c.Run(t.Context(), agent, "go", client.WithPrompter(person)) {
					if err != nil {
						t.Fatal(err)
					}
					if a, ok := event.Data.(*client.ToolCallAnswered); ok {
						got = a.Output + a.Error
					}
				}
				if got != want || !slices.Equal(person.asked, []string{`input "s asks: Who are you?\nname" []`}) {
					t.Errorf("the tool gave %q, want %q; asked %q", got, want, person.asked)
				}
			}
		})
	}
}

// asking has a tool fill in a form in a turn, and returns what came of it.
func asking(t *testing.T, p *sdk.ElicitParams, said ...*client.Resolution) (result string, asked []string) {
	t.Helper()
	script := `{"answers":[{"calls":[{"name":"form","args":{}}]},{"when":{},"text":"done"}]}`
	d := agentdtest.Start(t, agentdtest.Config{Scripts: map[string]string{"caller": script}})
	person := &answers{left: said}
	c := d.Client()
	err := client.AddTool(c, "form", "Asks.", func(ctx context.Context, _ struct{}) (any, error) {
		res, err := mcp.InTurn(ctx, "shop", &sdk.ElicitRequest{Params: p})
		if err != nil {
			return nil, err
		}
		content, err := json.Marshal(res.Content)
		return res.Action + " " + string(content), err
	})
	if err != nil {
		t.Fatal(err)
	}
	for event, err := range c.Run(t.Context(), client.LLM("caller", "scripted/caller", client.Tools("form")), "go", client.WithPrompter(person)) {
		if err != nil {
			t.Fatal(err)
		}
		if a, ok := event.Data.(*client.ToolCallAnswered); ok {
			result = a.Output + a.Error
		}
	}
	return result, person.asked
}

func TestForms(t *testing.T) {
	schema := json.RawMessage(`{"type":"object","required":["size","count"],"properties":{
		"count":{"type":"integer","minimum":1,"title":"How many","description":"At least one."},
		"gift":{"type":"boolean"},"price":{"type":"number"},"size":{"type":"string","enum":["S","M"]}}}`)
	form := &sdk.ElicitParams{Message: "Your order?", RequestedSchema: schema}
	yes, no := client.Approve(), client.Deny("")
	say := client.Answer
	for name, tc := range map[string]struct {
		p    *sdk.ElicitParams
		said []*client.Resolution
		want string
		asks string // of the last question
	}{
		"all": {form, []*client.Resolution{say("M"), say(" 2 "), say("yes"), say("1.5")},
			`accept {"count":2,"gift":true,"price":1.5,"size":"M"}`, "price"},
		"left out":  {form, []*client.Resolution{say("S"), say("1"), no, no}, `accept {"count":1,"size":"S"}`, "price"},
		"declined":  {form, []*client.Resolution{say("S"), no}, `decline null`, `How many: At least one.`},
		"corrected": {form, []*client.Resolution{say("S"), say("x"), say("0"), say("3"), no, no}, `accept {"count":3,"size":"S"}`, "price"},
		"never fits": {form, []*client.Resolution{say("L"), say("XL"), say("?")}, `cancel null`,
			`The answer \"XL\" does not fit`},
		"no fields":   {&sdk.ElicitParams{Message: "Sure?"}, []*client.Resolution{yes}, `accept {}`, "Sure?"},
		"not sure":    {&sdk.ElicitParams{Message: "Sure?"}, []*client.Resolution{no}, `decline null`, "Sure?"},
		"a page":      {&sdk.ElicitParams{Mode: "url", Message: "Log in.", URL: "https://x.example/"}, []*client.Resolution{yes}, `accept null`, "Open https://x.example/"},
		"a page, not": {&sdk.ElicitParams{Mode: "url", Message: "Log in.", URL: "https://x.example/"}, []*client.Resolution{no}, `decline null`, "Open https://x.example/"},
	} {
		t.Run(name, func(t *testing.T) {
			got, asked := asking(t, tc.p, tc.said...)
			if got != tc.want || len(asked) != len(tc.said) || !strings.Contains(asked[len(asked)-1], tc.asks) {
				t.Errorf("it came to %q, want %q; asked %q", got, tc.want, asked)
			}
		})
	}
	if res, err := mcp.InTurn(t.Context(), "shop", &sdk.ElicitRequest{Params: form}); err != nil || res.Action != "decline" {
		t.Errorf("outside of a call: %+v, %v", res, err)
	}
}
