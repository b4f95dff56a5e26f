package daemon

import (
	"fmt"
	"strings"

	"github.com/apzuk3/agentd/internal/models"
	"github.com/apzuk3/agentd/internal/models/echo"
	"github.com/apzuk3/agentd/internal/models/scripted"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/anthropic"
	"github.com/apzuk3/agentd/model/gemini"
	"github.com/apzuk3/agentd/model/openai"
)

// providers are those of a daemon: the ones that every daemon has, and those of the config. One
// server of OpenAI is three providers: "openai", whose interface fits the address, and two that
// require one. A script takes the place of all of them.
func providers(cfg *Config) ([]model.Provider, error) {
	if cfg.script != nil {
		return []model.Provider{cfg.script}, nil
	}
	script, err := newScripted(cfg)
	if err != nil {
		return nil, err
	}
	ours := append(remoteProviders(cfg.getenv), echo.New(echo.Config{}), script)
	given := map[string]bool{}
	for i, p := range cfg.ExtraProviders {
		if p == nil {
			return nil, fmt.Errorf("daemon: provider %d is nil", i)
		}
		name := p.Describe().Name
		if given[name] {
			return nil, fmt.Errorf("daemon: provider %d is the second one of the name %q: give one of them", i, name)
		}
		given[name] = true
	}
	return models.Instead(ours, cfg.ExtraProviders), nil
}

// remoteProviders are the providers that every daemon has and that serve models over the network.
func remoteProviders(getenv func(name string) string) []model.Provider {
	out := []model.Provider{
		anthropic.New(anthropic.Config{Getenv: getenv}), gemini.New(gemini.Config{Getenv: getenv}),
	}
	for _, api := range []struct {
		name string
		api  openai.API
	}{{"openai", openai.Auto}, {"openai-chat", openai.Chat}, {"openai-responses", openai.Responses}} {
		out = append(out, openai.New(openai.Config{Name: api.name, API: api.api, Getenv: getenv}))
	}
	return out
}

// newScripted serves the scripts of the config besides those of its folder.
func newScripted(cfg *Config) (model.Provider, error) {
	scripts := make(map[string]*scripted.Script, len(cfg.Scripts))
	for name, text := range cfg.Scripts {
		s, err := scripted.Parse([]byte(text))
		if err != nil {
			return nil, fmt.Errorf("daemon: script %q: %w", name, err)
		}
		scripts[name] = s
	}
	p, err := scripted.New(scripted.Config{Dir: cfg.ScriptsDir, Scripts: scripts})
	if err != nil {
		return nil, fmt.Errorf("daemon: scripts: %w", err)
	}
	return p, nil
}

// secrets are the keys that providers hold.
func secrets(providers []model.Provider) []string {
	var out []string
	for _, p := range providers {
		for _, s := range p.Describe().Secrets {
			if s = strings.TrimSpace(s); s != "" {
				out = append(out, s)
			}
		}
	}
	return out
}
