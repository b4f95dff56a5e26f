package gemini

import (
	"cmp"
	"strconv"
	"strings"
)

// fromEnv returns the Config with what Getenv has in place of fields that are empty.
func (c Config) fromEnv() Config {
	if c.Getenv == nil {
		return c
	}
	get := func(name string) string { return strings.TrimSpace(c.Getenv(name)) }
	vertex, _ := strconv.ParseBool(get("GOOGLE_GENAI_USE_VERTEXAI")) // anything else is no
	c.Vertex = c.Vertex || vertex
	c.APIKey = cmp.Or(c.APIKey, get("GEMINI_API_KEY"))
	c.BaseURL = cmp.Or(c.BaseURL, get("GOOGLE_GEMINI_BASE_URL"))
	c.Project = cmp.Or(c.Project, get("GOOGLE_CLOUD_PROJECT"))
	c.Location = cmp.Or(c.Location, get("GOOGLE_CLOUD_LOCATION"))
	return c
}
