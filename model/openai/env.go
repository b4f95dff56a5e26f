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

// All returns the three providers of one server: "openai", whose interface fits the
// address, and "openai-chat" and "openai-responses", which require one. The Name and
// the API of cfg do not count.
func All(cfg Config) []*Provider {
	var out []*Provider
	for _, p := range []struct {
		name string
		api  API
	}{{name, Auto}, {nameChat, Chat}, {nameResponses, Responses}} {
		cfg.Name, cfg.API = p.name, p.api
		out = append(out, New(cfg))
	}
	return out
}
