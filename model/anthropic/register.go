package anthropic

import (
	"strings"

	"github.com/apzuk3/agentd/model"
)

func init() { //nolint:gochecknoinits // it is how a provider is there by being imported
	model.RegisterDefault(name, func(getenv func(string) string) (model.Provider, error) {
		return New(Config{
			APIKey:  strings.TrimSpace(getenv("ANTHROPIC_API_KEY")),
			BaseURL: strings.TrimSpace(getenv("ANTHROPIC_BASE_URL")),
		}), nil
	})
}
