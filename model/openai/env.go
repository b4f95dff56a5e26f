package openai

import (
	"cmp"
	"strings"
)

// name is that of the provider with the interface that fits its address; the
// others require theirs.
const (
	name          = "openai"
	nameChat      = "openai-chat"
	nameResponses = "openai-responses"
)

// fromEnv returns the Config with what Getenv has in place of fields that are empty.
func (c Config) fromEnv() Config {
	if c.Getenv != nil {
		c.APIKey = cmp.Or(c.APIKey, strings.TrimSpace(c.Getenv("OPENAI_API_KEY")))
		c.BaseURL = cmp.Or(c.BaseURL, strings.TrimSpace(c.Getenv("OPENAI_BASE_URL")))
	}
	return c
}
