package gemini

import (
	"strconv"
	"strings"
)

// FromEnv returns a Config with what getenv, such as os.Getenv, has: the server's own
// key is GEMINI_API_KEY, the address GOOGLE_GEMINI_BASE_URL, and
// GOOGLE_GENAI_USE_VERTEXAI, GOOGLE_CLOUD_PROJECT and GOOGLE_CLOUD_LOCATION are
// about Vertex AI.
func FromEnv(getenv func(name string) string) Config {
	get := func(name string) string { return strings.TrimSpace(getenv(name)) }
	vertex, _ := strconv.ParseBool(get("GOOGLE_GENAI_USE_VERTEXAI")) // anything else is no
	return Config{
		APIKey: get("GEMINI_API_KEY"), BaseURL: get("GOOGLE_GEMINI_BASE_URL"),
		Vertex: vertex, Project: get("GOOGLE_CLOUD_PROJECT"), Location: get("GOOGLE_CLOUD_LOCATION"),
	}
}
