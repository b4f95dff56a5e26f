package openai

import "strings"

// name is that of the provider with the interface that fits its address; the
// others require theirs.
const (
	name          = "openai"
	nameChat      = "openai-chat"
	nameResponses = "openai-responses"
)

// FromEnv returns a Config with the server's own key, of OPENAI_API_KEY, and the
// address, of OPENAI_BASE_URL, as getenv, such as os.Getenv, has them.
func FromEnv(getenv func(name string) string) Config {
	return Config{
		APIKey:  strings.TrimSpace(getenv("OPENAI_API_KEY")),
		BaseURL: strings.TrimSpace(getenv("OPENAI_BASE_URL")),
	}
}
