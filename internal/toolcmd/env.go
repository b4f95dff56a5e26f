package toolcmd

import (
	"net/url"
	"slices"
	"strings"
)

// withheld reports whether programs do not get a variable of the environment unless it
// is passed on purpose, see [Command].Pass: what gives access to model
// providers, and to the daemon. A name counts whatever its case.
//
//   - GEMINI_API_KEY, GOOGLE_API_KEY, and names that begin with ANTHROPIC_,
//     OPENAI_, AZURE_OPENAI_, OPENROUTER_, MISTRAL_, GROQ_, DEEPSEEK_, XAI_, COHERE_,
//     TOGETHER_, FIREWORKS_, PERPLEXITY_, CEREBRAS_ or AGENTD_ and hold KEY, TOKEN,
//     SECRET, PASSWORD, CREDENTIAL, AUTH or HEADERS;
//   - AGENTD_URL if it holds a user or a password.
func withheld(name, value string) bool {
	name = strings.ToUpper(name)
	if slices.Contains(exactly, name) {
		return true
	}
	if name == "AGENTD_URL" {
		u, err := url.Parse(value)
		return err != nil || u.User != nil
	}
	begins := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
	holds := func(word string) bool { return strings.Contains(name, word) }
	return slices.ContainsFunc(owners, begins) && slices.ContainsFunc(secrets, holds)
}

var (
	exactly = []string{"GEMINI_API_KEY", "GOOGLE_API_KEY"}
	owners  = []string{
		"ANTHROPIC_", "OPENAI_", "AZURE_OPENAI_", "OPENROUTER_", "MISTRAL_", "GROQ_", "DEEPSEEK_", "XAI_", "COHERE_",
		"TOGETHER_", "FIREWORKS_", "PERPLEXITY_", "CEREBRAS_", "AGENTD_",
	}
	secrets = []string{"KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL", "AUTH", "HEADERS"}
)

// environment is what a program gets of this process's environment.
func environment(all, pass []string) []string {
	out := make([]string, 0, len(all))
	for _, kv := range all {
		name, value, _ := strings.Cut(kv, "=")
		if slices.Contains(pass, name) || !withheld(name, value) {
			out = append(out, kv)
		}
	}
	return out
}
