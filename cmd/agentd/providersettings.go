package main

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/apzuk3/agentd/internal/configfile"
)

// hidden is shown in place of a secret.
const hidden = "***"

// providerSetting is a setting of a provider, or of a collector: a key of the configuration file that is an environment
// variable too. It is no flag, since all users of a machine can read command lines.
type providerSetting struct {
	key, variable string
	form          form
	restart       bool // a reload does not change it
}

// form is what a providerSetting holds.
type form int

const (
	secret     form = iota // a key
	secretFile             // the name of a file that holds a key; it follows its secret
	address                // a URL
)

// providerSettings are the settings of the built-in providers, and of the collector.
var providerSettings = []providerSetting{
	{"gemini_api_key", "GEMINI_API_KEY", secret, false},
	{"gemini_api_key_file", "GEMINI_API_KEY_FILE", secretFile, false},
	{"gemini_base_url", "GOOGLE_GEMINI_BASE_URL", address, false},
	{"anthropic_api_key", "ANTHROPIC_API_KEY", secret, false},
	{"anthropic_api_key_file", "ANTHROPIC_API_KEY_FILE", secretFile, false},
	{"anthropic_base_url", "ANTHROPIC_BASE_URL", address, false},
	{"openai_api_key", "OPENAI_API_KEY", secret, false},
	{"openai_api_key_file", "OPENAI_API_KEY_FILE", secretFile, false},
	{"openai_base_url", "OPENAI_BASE_URL", address, false},
	{"otlp_endpoint", "OTEL_EXPORTER_OTLP_ENDPOINT", address, true},
	{"otlp_headers", "OTEL_EXPORTER_OTLP_HEADERS", secret, true},
}

// providerEnv returns the environment with what the configuration file says of providers, and with the keys
// of files, and the settings that make it. The environment wins over the file. A key and a file of a key in
// one place are refused.
func (p *process) providerEnv() (getenv func(string) string, settings []setting, err error) {
	env := map[string]string{}
	var wrong []error
	for i, s := range providerSettings {
		now, written := p.providerValue(s)
		switch s.form {
		case secretFile:
			var before string // the key itself
			if before, err = p.keyOfFile(providerSettings[i-1], s, &now); err != nil {
				wrong = append(wrong, err)
			}
			env[providerSettings[i-1].variable] = before
			if now.Value = written; written != "" {
				now.raw = [2]string{written, before}
			}
		case address:
			env[s.variable] = written
			now.Value, now.raw = shownURL(written), written
		case secret:
			now.raw = written
			if written != "" {
				now.Value = hidden
			}
		}
		settings = append(settings, now)
	}
	return func(name string) string {
		if value, ok := env[name]; ok {
			return value
		}
		return p.env[name]
	}, settings, errors.Join(wrong...)
}

// providerValue returns a setting without its value, and the value.
func (p *process) providerValue(s providerSetting) (now setting, value string) {
	now = setting{Key: s.key, Source: defaultSource, live: !s.restart}
	if value = p.env[s.variable]; value != "" {
		now.Source = "environment variable " + s.variable
	} else if p.file != nil && p.file.Values[s.key].Text != "" {
		value, now.Source = p.file.Values[s.key].Text, p.file.At(s.key)
	}
	return now, value
}

// keyOfFile returns the key of a provider: its own setting, or what its file holds, whichever is set where
// more counts. at is the setting of the file.
func (p *process) keyOfFile(key, file providerSetting, at *setting) (string, error) {
	own, value := p.providerValue(key)
	_, name := p.providerValue(file)
	inEnv := func(s setting) bool { return strings.HasPrefix(s.Source, "environment") }
	switch {
	case name == "" || value != "" && inEnv(own) && !inEnv(*at):
		return value, nil
	case value != "" && inEnv(own) == inEnv(*at):
		if inEnv(own) {
			return "", fmt.Errorf("%s and %s are both set: want one of them", key.variable, file.variable)
		}
		return "", p.file.Problemf(file.key, "%s and %s are both there: want one of them", key.key, file.key)
	}
	text, err := configfile.ReadKey(name)
	if err != nil && !inEnv(*at) {
		return "", p.file.Problemf(file.key, "%s: %v", file.key, err)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", file.variable, err)
	}
	return text, nil
}

// shownURL is an address without a user and without a query, which may hold secrets.
func shownURL(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return hidden
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}
