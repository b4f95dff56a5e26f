package providertest

import (
	"encoding/json"
	"fmt"
)

// stream turns a recorded JSON answer into the event stream in which the
// provider would have sent it. request is what the client asked, for the options
// that shape a stream.
func stream(wire Wire, request object, answer json.RawMessage) ([]event, error) {
	var body object
	if err := json.Unmarshal(answer, &body); err != nil {
		return nil, fmt.Errorf("streaming a recorded answer: %w", err)
	}
	switch wire {
	case OpenAIChat:
		return streamChat(request, body), nil
	case OpenAIResponses:
		return streamResponses(body), nil
	case Anthropic:
		return streamAnthropic(body), nil
	case Gemini:
		return streamGemini(body), nil
	default:
		return nil, fmt.Errorf("streaming a recorded answer: unknown wire %q", wire)
	}
}
