package anthropic

import (
	"cmp"
	"strings"
)

// fromEnv returns the Config with what Getenv has in place of fields that are empty.
func (c Config) fromEnv() Config {
	if c.Getenv != nil {
		c.APIKey = cmp.Or(c.APIKey, strings.TrimSpace(c.Getenv("ANTHROPIC_API_KEY")))
		c.BaseURL = cmp.Or(c.BaseURL, strings.TrimSpace(c.Getenv("ANTHROPIC_BASE_URL")))
	}
	return c
}
