package peer

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/apzuk3/agentd/bench/internal/script"
	"github.com/apzuk3/agentd/internal/backoff"
)

// Floor is a client that calls the model itself, through a proxy: it holds the conversation, and sends all of it each
// time.
type Floor struct {
	url    string
	client *http.Client
}

// NewFloor returns the client of a proxy of Gemini's wire.
func NewFloor(url string) *Floor {
	return &Floor{
		url:    url + "/v1beta/models/" + script.GeminiModel + ":streamGenerateContent?alt=sse",
		client: http1(),
	}
}

// Begin begins a conversation.
func (f *Floor) Begin() Conversation { return &floorConversation{server: f} }

// floorConversation is owned by the goroutine that runs its turn.
type floorConversation struct {
	server   *Floor
	contents []byte // JSON values, separated by commas
	past     int
}

// Turn runs a turn: it calls the model, runs its tools, and calls it again until it asks for none.
func (c *floorConversation) Turn(ctx context.Context, t Turn) (Heard, error) {
	var h Heard
	c.add(fmt.Sprintf(`{"parts":[{"text":%q}],"role":"user"}`, t.Prompt()))
	for {
		var calls []byte
		asked, said := 0, len(h.Text)
		err := stream(ctx, c.server.client, c.server.url, c.body(), func(event []byte) error {
			var e geminiEvent
			if err := json.Unmarshal(event, &e); err != nil {
				return err
			}
			for _, candidate := range e.Candidates {
				for _, part := range candidate.Content.Parts {
					if part.Text != "" {
						h.say(part.Text)
					}
					if call := part.FunctionCall; call != nil {
						calls = fmt.Appendf(calls, `{"functionCall":{"args":%s,"name":%q}},`, call.Args, call.Name)
						asked++
					}
				}
			}
			h.Usage.Prompt += e.UsageMetadata.PromptTokenCount
			h.Usage.Completion += e.UsageMetadata.CandidatesTokenCount
			return nil
		})
		if err != nil {
			return h, err
		}
		h.ModelCalls++
		if asked == 0 {
			c.add(fmt.Sprintf(`{"parts":[{"text":%q}],"role":"model"}`, h.Text[said:]))
			return h, nil
		}
		h.ToolCalls += asked
		c.add(fmt.Sprintf(`{"parts":[%s],"role":"model"}`, calls[:len(calls)-1]))
		// The tools run at the same time.
		if err := backoff.Wait(ctx, t.Wait); err != nil {
			return h, err
		}
		var answers []byte
		for range asked {
			answers = fmt.Appendf(answers, `{"functionResponse":{"name":%q,"response":{"output":%q}}},`,
				script.Tool, script.Result(c.past))
			c.past++
		}
		c.add(fmt.Sprintf(`{"parts":[%s],"role":"user"}`, answers[:len(answers)-1]))
	}
}

func (c *floorConversation) add(content string) {
	if len(c.contents) > 0 {
		c.contents = append(c.contents, ',')
	}
	c.contents = append(c.contents, content...)
}

// body is the request that agentd would make, too.
func (c *floorConversation) body() []byte {
	return fmt.Appendf(make([]byte, 0, len(c.contents)+1024),
		`{"contents":[%s],"generationConfig":{},"systemInstruction":{"parts":[{"text":%q}],"role":"user"},`+
			`"tools":[{"functionDeclarations":[{"description":%q,"name":%q,"parametersJsonSchema":%s}]}]}`,
		c.contents, script.Instruction, script.ToolDescription, script.Tool, script.Schema)
}
