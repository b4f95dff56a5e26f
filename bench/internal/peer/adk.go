package peer

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/apzuk3/agentd/bench/internal/script"
)

// ADK is a client of ADK's REST server, which runs the tools itself.
type ADK struct {
	url    string
	client *http.Client
}

// NewADK returns the client of a server.
func NewADK(url string) *ADK { return &ADK{url: url, client: http1()} }

// Begin begins a conversation.
func (a *ADK) Begin() Conversation { return &adkConversation{server: a} }

// adkConversation is owned by the goroutine that runs its turn.
type adkConversation struct {
	server  *ADK
	session string
}

// Turn runs a turn, after it has made the session.
func (c *adkConversation) Turn(ctx context.Context, t Turn) (Heard, error) {
	var h Heard
	if c.session == "" {
		if err := c.create(ctx); err != nil {
			return h, err
		}
	}
	body := fmt.Appendf(nil, `{"appName":%q,"userId":"bench","sessionId":%q,"streaming":true,`+
		`"newMessage":{"role":"user","parts":[{"text":%q}]}}`, script.Agent, c.session, t.Prompt())
	whole := ""
	waiting := 0
	err := stream(ctx, c.server.client, c.server.url+"/run_sse", body, func(event []byte) error {
		var e geminiEvent
		if err := json.Unmarshal(event, &e); err != nil {
			return err
		}
		if e.Error != nil || e.ErrorCode != "" {
			return fmt.Errorf("ADK says: %s", event)
		}
		for _, part := range e.Content.Parts {
			switch {
			case part.FunctionCall != nil && !e.Partial:
				h.ToolCalls++
				waiting++
			case part.Text != "" && e.Partial:
				h.say(part.Text)
			case part.Text != "":
				whole += part.Text
			}
		}
		if e.Partial {
			return nil
		}
		if e.UsageMetadata.PromptTokenCount > 0 {
			h.ModelCalls++
			h.Usage.Prompt += e.UsageMetadata.PromptTokenCount
			h.Usage.Completion += e.UsageMetadata.CandidatesTokenCount
		}
		if t.Waiting != nil && waiting > 0 {
			t.Waiting()
		}
		return nil
	})
	h.Whole = &whole
	return h, err
}

func (c *adkConversation) create(ctx context.Context) error {
	url := c.server.url + "/apps/" + script.Agent + "/users/bench/sessions"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader([]byte("{}")))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.server.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	var made struct{ ID string }
	if err := json.Unmarshal(body, &made); err != nil || made.ID == "" {
		return fmt.Errorf("%s: %s: %.200s", url, resp.Status, body)
	}
	c.session = made.ID
	return nil
}
