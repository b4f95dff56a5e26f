package anthropic

import "strings"

// FromEnv returns a Config with the server's own key, of ANTHROPIC_API_KEY, and the
// address, of ANTHROPIC_BASE_URL, as getenv, such as os.Getenv, has them.
func FromEnv(getenv func(name string) string) Config {
	return Config{
		APIKey:  strings.TrimSpace(getenv("ANTHROPIC_API_KEY")),
		BaseURL: strings.TrimSpace(getenv("ANTHROPIC_BASE_URL")),
	}
}
