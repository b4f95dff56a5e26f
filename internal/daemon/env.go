package daemon

// Secrets are the keys that the providers and backends of a daemon with this config hold, the server's and the
// tenants'; no log line may hold them. What is not right is New's to report.
func Secrets(cfg Config) []string {
	all, err := providers(&cfg)
	if err != nil {
		return nil
	}
	out := secrets(all)
	found, err := parseBackends(&cfg)
	if err != nil {
		return out
	}
	for _, b := range found {
		if b.Key != "" {
			out = append(out, b.Key)
		}
	}
	hooks, err := readHooks(&cfg)
	if err != nil {
		return out
	}
	for i := range hooks {
		out = append(out, string(hooks[i].URL))
	}
	tenants, err := readTenants(&cfg, all)
	if err != nil {
		return out
	}
	for _, t := range tenants {
		out = append(out, keysOf(t)...)
	}
	return out
}

// getenv reads the environment for the built-in providers, below what the config itself
// says.
func (c *Config) getenv(name string) string {
	value := c.Providers.getenv(name)
	if value == "" && c.Getenv != nil {
		value = c.Getenv(name)
	}
	return value
}

// getenv says what is set here in the words of the environment.
func (p Providers) getenv(name string) string {
	switch name {
	case "GEMINI_API_KEY":
		return string(p.GeminiAPIKey)
	case "GOOGLE_GEMINI_BASE_URL":
		return p.GeminiBaseURL
	case "ANTHROPIC_API_KEY":
		return string(p.AnthropicAPIKey)
	case "ANTHROPIC_BASE_URL":
		return p.AnthropicBaseURL
	case "OPENAI_API_KEY":
		return string(p.OpenAIAPIKey)
	case "OPENAI_BASE_URL":
		return p.OpenAIBaseURL
	default:
		return ""
	}
}
