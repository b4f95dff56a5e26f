package gemini

import (
	"strconv"
	"strings"

	"github.com/apzuk3/agentd/model"
)

func init() { //nolint:gochecknoinits // it is how a provider is there by being imported
	model.RegisterDefault(name, func(getenv func(string) string) (model.Provider, error) {
		get := func(name string) string { return strings.TrimSpace(getenv(name)) }
		vertex, _ := strconv.ParseBool(get("GOOGLE_GENAI_USE_VERTEXAI")) // anything else is no
		return New(Config{
			APIKey: get("GEMINI_API_KEY"), BaseURL: get("GOOGLE_GEMINI_BASE_URL"),
			Vertex: vertex, Project: get("GOOGLE_CLOUD_PROJECT"), Location: get("GOOGLE_CLOUD_LOCATION"),
		}), nil
	})
}
