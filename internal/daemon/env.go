package daemon

import (
	"slices"
	"strings"

	"github.com/apzuk3/agentd/model"
)

// Secrets are what the providers of a daemon read from the environment under the
// names of secrets; no log line may hold them. Providers that cannot be made are
// New's to report.
func Secrets(getenv func(name string) string) []string {
	cfg := Config{Getenv: getenv}
	_, _ = model.Registered(cfg.getenv)
	return cfg.keys
}

// getenv reads the environment for providers, below what the config itself says,
// and remembers the secrets among what they read.
func (c *Config) getenv(name string) string {
	if name == scriptsVariable {
		return c.ScriptsDir
	}
	value := c.Providers.getenv(name)
	if value == "" && c.Getenv != nil {
		value = c.Getenv(name)
	}
	lower, secret := strings.ToLower(name), strings.TrimSpace(value)
	if secret != "" && !slices.Contains(c.keys, secret) && slices.ContainsFunc(secretNames, func(s string) bool { return strings.HasSuffix(lower, s) }) {
		c.keys = append(c.keys, secret)
	}
	return value
}

// scriptsVariable is where scripted finds its folder.
const scriptsVariable = "AGENTD_SCRIPTS"

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
