package daemon

import "github.com/apzuk3/agentd/model"

// Secrets are the keys that the providers of a daemon hold, the built-in ones with this
// environment and others; no log line may hold them. Providers that are not right are
// New's to report.
func Secrets(getenv func(name string) string, others ...model.Provider) []string {
	all, err := providers(&Config{Getenv: getenv, ExtraProviders: others})
	if err != nil {
		return nil
	}
	return secrets(all)
}

// getenv reads the environment for the built-in providers, below what the config itself
// says.
func (c *Config) getenv(name string) string {
	value := c.Providers.getenv(name)
	if value == "" && c.Getenv != nil {
		value = c.Getenv(name)
	}
	return value
}

// getenv says what is set here in the words of the environment.
func (p Providers) getenv(name string) string {
	switch name {
	case "GEMINI_API_KEY":
		return string(p.GeminiAPIKey)
	case "GOOGLE_GEMINI_BASE_URL":
		return p.GeminiBaseURL
	case "ANTHROPIC_API_KEY":
		return string(p.AnthropicAPIKey)
	case "ANTHROPIC_BASE_URL":
		return p.AnthropicBaseURL
	case "OPENAI_API_KEY":
		return string(p.OpenAIAPIKey)
	case "OPENAI_BASE_URL":
		return p.OpenAIBaseURL
	default:
		return ""
	}
}
