package daemon

import (
	"slices"
	"strconv"
	"strings"

	"github.com/apzuk3/agentd/session"
)

// ProvidersFromEnv reads what the environment says about the providers, under
// the names that their own tools use.
func ProvidersFromEnv(getenv func(string) string) Providers {
	get := func(name string) string { return strings.TrimSpace(getenv(name)) }
	vertex, _ := strconv.ParseBool(get("GOOGLE_GENAI_USE_VERTEXAI")) // anything else is no
	return Providers{
		GeminiAPIKey:     session.Secret(get("GEMINI_API_KEY")),
		AnthropicAPIKey:  session.Secret(get("ANTHROPIC_API_KEY")),
		OpenAIAPIKey:     session.Secret(get("OPENAI_API_KEY")),
		GeminiBaseURL:    get("GOOGLE_GEMINI_BASE_URL"),
		AnthropicBaseURL: get("ANTHROPIC_BASE_URL"),
		OpenAIBaseURL:    get("OPENAI_BASE_URL"),
		Vertex:           vertex,
		VertexProject:    get("GOOGLE_CLOUD_PROJECT"),
		VertexLocation:   get("GOOGLE_CLOUD_LOCATION"),
	}
}

// getenv reads the environment for providers that have registered themselves, and
// remembers the secrets among what they read.
func (c *Config) getenv(name string) string {
	if c.Getenv == nil {
		return ""
	}
	value := c.Getenv(name)
	lower := strings.ToLower(name)
	if value != "" && slices.ContainsFunc(secretNames, func(s string) bool { return strings.HasSuffix(lower, s) }) {
		c.keys = append(c.keys, value)
	}
	return value
}

// secrets are the keys that no log line may hold.
func (p Providers) secrets() []string {
	var out []string
	for _, s := range []session.Secret{p.GeminiAPIKey, p.AnthropicAPIKey, p.OpenAIAPIKey} {
		if s != "" {
			out = append(out, string(s))
		}
	}
	return out
}
