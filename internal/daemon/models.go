package daemon

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/apzuk3/agentd/adkbridge"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/anthropic"
	"github.com/apzuk3/agentd/model/echo"
	"github.com/apzuk3/agentd/model/gemini"
	"github.com/apzuk3/agentd/model/openai"
	"github.com/apzuk3/agentd/model/scripted"
	"github.com/apzuk3/agentd/server"
)

// newRegistry returns the models that the config describes.
func newRegistry(cfg *Config) (*model.Registry, error) {
	scripts := make(map[string]*scripted.Script, len(cfg.Scripts))
	for name, text := range cfg.Scripts {
		s, err := scripted.Parse([]byte(text))
		if err != nil {
			return nil, fmt.Errorf("daemon: script %q: %w", name, err)
		}
		scripts[name] = s
	}
	script, err := scripted.New(scripted.Config{Dir: cfg.ScriptsDir, Scripts: scripts})
	if err != nil {
		return nil, fmt.Errorf("daemon: scripts: %w", err)
	}
	p := cfg.Providers
	oai := openai.Config{APIKey: string(p.OpenAIAPIKey), BaseURL: p.OpenAIBaseURL}
	chat, responses := oai, oai
	chat.Name, chat.API = "openai-chat", openai.Chat
	responses.Name, responses.API = "openai-responses", openai.Responses
	providers := []model.Provider{
		gemini.New(gemini.Config{
			APIKey: string(p.GeminiAPIKey), BaseURL: p.GeminiBaseURL,
			Vertex: p.Vertex, Project: p.VertexProject, Location: p.VertexLocation,
		}),
		anthropic.New(anthropic.Config{APIKey: string(p.AnthropicAPIKey), BaseURL: p.AnthropicBaseURL}),
		openai.New(oai),
		openai.New(chat),
		openai.New(responses),
		script,
		echo.New(echo.Config{}),
	}
	registered, err := model.Registered(cfg.getenv)
	if err != nil {
		return nil, fmt.Errorf("daemon: %w", err)
	}
	reg, err := model.NewRegistry(instead(instead(providers, registered), cfg.ExtraProviders)...)
	if err != nil {
		return nil, fmt.Errorf("daemon: %w", err)
	}
	return withPrices(reg, cfg.Prices)
}

// instead are providers with others added, which take the place of those of the
// same name.
func instead(providers, others []model.Provider) []model.Provider {
	return append(slices.DeleteFunc(providers, func(p model.Provider) bool {
		return slices.ContainsFunc(others, func(o model.Provider) bool { return o.Name() == p.Name() })
	}), others...)
}

// about is what the daemon tells of itself. Scripts may come and go while it
// runs.
func about(cfg *Config, reg *model.Registry) server.About {
	turns := cfg.Turns.WithDefaults()
	out := server.About{
		Version:        cfg.Version,
		BuiltinTools:   adkbridge.BuiltinTools(),
		MaxPromptBytes: turns.MaxPromptBytes,
		Retention:      turns.Retention,
		PricesDate:     reg.PricesDate(),
	}
	for _, st := range reg.Providers() {
		out.Providers = append(out.Providers, server.Provider{Name: st.Provider, HasKey: st.HasKey || !st.NeedsKey, BuiltinTools: st.Builtins})
		for _, name := range st.Models {
			known := reg.Knows(st.Provider, strings.TrimPrefix(name, st.Provider+"/"))
			out.Models = append(out.Models, server.Model{
				Name: name, Provider: st.Provider, Price: listPrice(known.Entry), Capabilities: capabilities(known.Capabilities),
			})
		}
	}
	return out
}

// logModels says which providers the server has a key for, and what to do when
// it has none.
func logModels(log *slog.Logger, reg *model.Registry) {
	var with, without []string
	for _, st := range reg.Providers() {
		switch {
		case !st.NeedsKey:
		case st.HasKey:
			with = append(with, st.Provider)
		default:
			without = append(without, st.Provider)
		}
	}
	if len(with) > 0 {
		log.Info("models", slog.Any("server_keys", with), slog.Any("callers_keys_only", without))
		return
	}
	log.Warn("no provider key: only the models echo and scripted/… (try scripted/demo) work without one. " +
		"Set GEMINI_API_KEY, ANTHROPIC_API_KEY or OPENAI_API_KEY, or have callers send " +
		"X-Agentd-Gemini-Api-Key, X-Agentd-Anthropic-Api-Key or X-Agentd-Openai-Api-Key")
}
