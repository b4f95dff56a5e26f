package openai

import (
	"strings"

	"github.com/apzuk3/agentd/model"
)

// name is that of the provider with the interface that fits its address; the
// others insist on theirs.
const (
	name          = "openai"
	nameChat      = "openai-chat"
	nameResponses = "openai-responses"
)

func init() { //nolint:gochecknoinits // it is how a provider is there by being imported
	for name, api := range map[string]API{name: Auto, nameChat: Chat, nameResponses: Responses} {
		model.RegisterDefault(name, func(getenv func(string) string) (model.Provider, error) {
			return New(Config{
				Name: name, API: api,
				APIKey:  strings.TrimSpace(getenv("OPENAI_API_KEY")),
				BaseURL: strings.TrimSpace(getenv("OPENAI_BASE_URL")),
			}), nil
		})
	}
}
