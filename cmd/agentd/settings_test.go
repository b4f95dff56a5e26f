package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"

	"github.com/apzuk3/agentd/internal/daemon"
)

// configOf writes a configuration file.
func configOf(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "agentd.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestSettingsAreWhole: each flag of serve is a key, a variable and a row of docs/configuration.md, which
// says its default and whether a reload changes it; and there are no others.
func TestSettingsAreWhole(t *testing.T) {
	type row struct{ Default, Reload string }
	rows := map[string]row{}
	page, err := os.Open("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = page.Close() }()
	for lines := bufio.NewScanner(page); lines.Scan(); {
		cells := strings.Split(lines.Text(), "|") // key, default, what a change needs, what it is
		if len(cells) != 6 || !strings.HasPrefix(cells[1], " `") {
			continue
		}
		key := strings.Trim(cells[1], " `")
		if _, twice := rows[key]; twice || strings.TrimSpace(cells[4]) == "" {
			t.Errorf("two rows for %s, or one that says nothing", key)
		}
		rows[key] = row{strings.Trim(cells[2], " `"), strings.TrimSpace(cells[3])}
	}
	want := map[string]row{}
	_, flags, err := flagsOf(&serveCmd{})
	if err != nil {
		t.Fatal(err)
	}
	var help bytes.Buffer
	run(nil, []string{"serve", "--help"}, nil, &help, &help)
	text := strings.Join(strings.Fields(help.String()), " ")
	for _, f := range flags {
		r := row{Default: f.Default}
		if !f.Tag.Has(liveTag) {
			r.Reload = "restart"
		}
		want[keyOf(f.Name)] = r
		if !strings.Contains(text, "($"+variable(f.Name)+")") {
			t.Errorf("the help of serve does not name %s", variable(f.Name))
		}
	}
	for _, s := range providerSettings {
		r := row{}
		if s.restart {
			r.Reload = "restart"
		}
		want[s.key] = r
	}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Errorf("the settings, and docs/configuration.md:\n%s", diff)
	}
}

// other is another value for a flag than its default.
func other(t *testing.T, f *kong.Flag) string {
	t.Helper()
	switch f.Target.Interface().(type) {
	case slog.Level:
		return "error"
	case time.Duration:
		return "37m"
	case budgetFlag:
		return "tokens=7" // each budget may have tokens
	case bool:
		return "true"
	case float64:
		return "0.7"
	case int:
		return "77"
	}
	switch f.Name {
	case "on-disconnect":
		return "cancel"
	case "log-format":
		return "json"
	case "backends":
		return configOf(t, `desk: {kind: agentd, url: "http://127.0.0.1:8080"}`)
	case "tenants":
		return configOf(t, "tenants: {acme: {day_budget: {cost: 3}}}")
	case "trusted-proxies":
		return "192.0.2.0/24"
	}
	return configOf(t, "text") // a file, or a text
}

// TestLiveFlags changes one flag after the other: a reload takes it over exactly if it says so.
func TestLiveFlags(t *testing.T) {
	env := map[string]string{"HOME": t.TempDir()}
	of := func(flags ...string) daemon.Config {
		t.Helper()
		p := &process{env: env, args: append([]string{"serve", "--tls-cert=a", "--tls-key=b", "--trusted-proxies=10.0.0.0/8",
			"--oidc-issuer=https://issuer.example", "--oidc-audience=agentd"}, flags...)}
		cmd, _, err := p.readAgain()
		if err != nil {
			t.Fatal(err)
		}
		cfg, err := cmd.config(p)
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	equal := func(a, b daemon.Config) bool {
		a.Getenv, b.Getenv = nil, nil
		return reflect.DeepEqual(a, b)
	}
	_, flags, err := flagsOf(&serveCmd{})
	if err != nil {
		t.Fatal(err)
	}
	before := of()
	for _, f := range flags {
		value := "managed-agents"
		if f.Name != "face" { // which has to be one that there is
			value = other(t, f)
		}
		next := of("--" + f.Name + "=" + value)
		if slices.Contains([]string{"log-level", "log-format", "shutdown-grace"}, f.Name) { // of the command itself
			continue
		}
		if equal(before, next) {
			t.Errorf("--%s changes nothing", f.Name)
		}
		took := before.Reloaded(next)
		if f.Tag.Has(liveTag) && !equal(took, next) {
			t.Errorf("a reload does not take over --%s", f.Name)
		}
		if !f.Tag.Has(liveTag) && !equal(took, before) {
			t.Errorf("a reload takes over --%s, which is said to need a restart", f.Name)
		}
	}
}

// TestFaceFlag: a face that there is not is refused before anything is served.
func TestFaceFlag(t *testing.T) {
	p := &process{env: map[string]string{"HOME": t.TempDir()}, args: []string{"serve", "--face=agui"}}
	cmd, _, err := p.readAgain()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cmd.config(p); err == nil || !strings.Contains(err.Error(), `--face: there is no face "agui": there are managed-agents`) {
		t.Errorf("an unknown face: %v", err)
	}
}

// TestConfig: flag before variable before file before default, for the value and for what is said of it.
func TestConfig(t *testing.T) {
	name := configOf(t, `max_turns: 1
max_queued: 2
max_streams: 3
data: ${env:HOME}/data
cors_origins: [https://a.example, https://b.example]
turn_budget: {calls: 10, cost: 2.5}
gemini_api_key: ${env:CANARY}
anthropic_api_key: canary-2
openai_base_url: http://me:canary-3@127.0.0.1:1/v1?key=canary-4
`)
	env := map[string]string{
		"HOME": t.TempDir(), "CANARY": "canary-1", "AGENTD_CONFIG": "none.yaml", "AGENTD_MAX_QUEUED": "22", "AGENTD_MAX_TURNS": "11",
		"ANTHROPIC_API_KEY": "canary-5", "AGENTD_MAX_CONNS": "",
	}
	var stdout, stderr bytes.Buffer
	args := []string{"config", "--json", "--config", name, "--max-turns=111", "--session-budget=tokens=5,time=1h"}
	if code := run(nil, args, env, &stdout, &stderr); code != exitOK {
		t.Fatalf("%d: %s", code, stderr.String())
	}
	got := map[string]setting{}
	for line := range strings.Lines(stdout.String()) {
		var s setting
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			t.Fatal(err)
		}
		got[s.Key] = s
	}
	for key, want := range map[string]setting{
		"max_turns":          {Value: "111", Source: "flag"},
		"session_budget":     {Value: "tokens=5,time=1h0m0s", Source: "flag"},
		"max_queued":         {Value: "22", Source: "environment variable AGENTD_MAX_QUEUED"},
		"max_streams":        {Value: "3", Source: name + ":3"},
		"max_conns":          {Value: "4096", Source: "default"},
		"data":               {Value: "${env:HOME}/data", Source: name + ":4"},
		"cors_origins":       {Value: "https://a.example,https://b.example", Source: name + ":5"},
		"turn_budget":        {Value: "calls=10,cost=2.5", Source: name + ":6"},
		"addr":               {Value: "127.0.0.1:8080", Source: "default"},
		"shutdown_grace":     {Value: "8s", Source: "default"},
		"gemini_api_key":     {Value: "***", Source: name + ":7"},
		"anthropic_api_key":  {Value: "***", Source: "environment variable ANTHROPIC_API_KEY"},
		"openai_api_key":     {Value: "", Source: "default"},
		"openai_base_url":    {Value: "http://127.0.0.1:1/v1", Source: name + ":9"},
		"anthropic_base_url": {Value: "", Source: "default"},
	} {
		if want.Key = key; !reflect.DeepEqual(got[key], want) {
			t.Errorf("got %+v, want %+v", got[key], want)
		}
	}
	if strings.Contains(stdout.String()+stderr.String(), "canary") {
		t.Errorf("a key is shown: %s%s", stdout.String(), stderr.String())
	}

	p := &process{env: env, args: append([]string{"serve"}, args[2:]...)}
	cmd, _, err := p.readAgain()
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := cmd.config(p)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Turns.MaxTurns != 111 || cfg.Turns.MaxQueued != 22 || cfg.MaxStreams != 3 || cfg.MaxConns != 4096 ||
		cfg.DataDir != env["HOME"]+"/data" || len(cfg.CORSOrigins) != 2 || cfg.Turns.Budget.ModelCalls != 10 {
		t.Errorf("the daemon gets %+v", cfg)
	}
	for name, want := range map[string]string{"GEMINI_API_KEY": "canary-1", "ANTHROPIC_API_KEY": "canary-5", "OPENAI_API_KEY": "", "HOME": env["HOME"]} {
		if got := cfg.Getenv(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	// Commands on the database find it by the same file.
	var backup bytes.Buffer
	if code := run(nil, []string{"backup", "--config", name, filepath.Join(t.TempDir(), "b")}, env, &backup, &backup); code != exitError || !strings.Contains(backup.String(), env["HOME"]+"/data") {
		t.Errorf("%d: %s", code, backup.String())
	}
}

// TestConfigFiles: files that are refused, and how.
func TestConfigFiles(t *testing.T) {
	keyFile := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(keyFile, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"HOME": t.TempDir(), "CANARY": "canary"}
	for text, want := range map[string]string{
		"max_turn: 5":                       `:1:1: unknown key "max_turn": did you mean max_turns?`,
		"addr: a:1\n  # x\nmax_turns: many": `:3:12: max_turns: expected a valid 64 bit int but got "many"`,
		"max_turns: 0":                      ":1:12: max_turns is 0, must be at least 1",
		"tool_timeout: 10":                  `:1:15: tool_timeout: expected duration but got "10": time: missing unit in duration "10"`,
		"log_format: xml":                   `:1:13: log_format must be one of "text","json" but got "xml"`,
		"log_level: ${env:CANARY}":          `:1:12: log_level: slog: level string "${env:CANARY}": unknown name`,
		"turn_budget: {calls: 0}":           `:1:14: turn_budget: "calls=0": want an amount above 0`,
		"addr: 8080":                        ":1:7: addr: want a text, got the number 8080: put it in quotes if it is one",
		"config: x":                         `:1:1: unknown key "config"`,
		"url: x":                            `:1:1: unknown key "url"`,
		"gemini_api_key: ${env:NONE}":       ":1:17: the environment variable NONE is not set",
		"gemini_api_key: a\ngemini_api_key_file: " + keyFile: ":2:22: gemini_api_key and gemini_api_key_file are both there: want one of them",
		"gemini_api_key_file: " + keyFile:                    ":1:22: gemini_api_key_file: " + keyFile + ": want a file that holds a key, on one line",
		"openai_api_key_file: none":                          ":1:22: openai_api_key_file: open none: no such file or directory",
	} {
		name := configOf(t, text)
		for _, command := range []string{"serve", "config"} {
			var stdout, stderr bytes.Buffer
			code := run(nil, []string{command, "--config=" + name}, env, &stdout, &stderr)
			if code != exitUsage || !strings.HasPrefix(stderr.String(), name+want) || stdout.Len() > 0 {
				t.Errorf("%s: %s: %d, %q, want %s", text, command, code, stderr.String(), want)
			}
			if strings.Contains(stderr.String(), "canary") {
				t.Errorf("a value of the environment is shown: %s", stderr.String())
			}
		}
	}
	var stderr bytes.Buffer
	if code := run(nil, []string{"serve"}, map[string]string{"AGENTD_CONFIG": "none.yaml"}, &stderr, &stderr); code != exitUsage || !strings.Contains(stderr.String(), "none.yaml") {
		t.Errorf("of no file: %d, %s", code, stderr.String())
	}
}

// TestKeyFiles: where a key comes from counts before its form.
func TestKeyFiles(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	a, b := file("a", "key-a\n"), file("b", " key-b ")
	for name, tc := range map[string]struct {
		text string
		env  map[string]string
		want string
	}{
		"file":                          {"gemini_api_key_file: " + a, nil, "key-a"},
		"variable before file":          {"gemini_api_key_file: " + a, map[string]string{"GEMINI_API_KEY": "key-c"}, "key-c"},
		"variable of a file":            {"gemini_api_key: key-d", map[string]string{"GEMINI_API_KEY_FILE": b}, "key-b"},
		"variable of a file and file":   {"gemini_api_key_file: " + a, map[string]string{"GEMINI_API_KEY_FILE": b}, "key-b"},
		"both variables are a mistake":  {"", map[string]string{"GEMINI_API_KEY_FILE": b, "GEMINI_API_KEY": "x"}, "error: GEMINI_API_KEY and GEMINI_API_KEY_FILE are both set: want one of them"},
		"a variable of a file too long": {"", map[string]string{"GEMINI_API_KEY_FILE": file("long", strings.Repeat("x", 1<<17))}, "error: GEMINI_API_KEY_FILE: " + filepath.Join(dir, "long") + " has more than 65536 bytes: want a file that holds a key alone"},
	} {
		p := &process{env: tc.env, args: []string{"serve", "--data=:memory:"}}
		if tc.text != "" {
			p.args = append(p.args, "--config="+configOf(t, tc.text))
		}
		cmd, _, err := p.readAgain()
		var cfg daemon.Config
		if err == nil {
			cfg, err = cmd.config(p)
		}
		got := fmt.Sprint("error: ", err)
		if err == nil {
			got = cfg.Getenv("GEMINI_API_KEY")
		}
		if got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

// agentd config --check reads the files that the configuration names.
func TestConfigCheck(t *testing.T) {
	env := map[string]string{"HOME": t.TempDir()}
	for text, want := range map[string]string{
		"max_turns: 5":                 "ok\n",
		"prices: none.yaml":            "none.yaml",
		"tls_cert: a.pem":              "both a certificate and a key",
		"addr: here":                   "want host:port",
		"instruction_file: none.txt":   "none.txt",
		"tls_cert: no\ntls_key: where": "open no:",
	} {
		var out bytes.Buffer
		code := run(nil, []string{"config", "--check", "--config", configOf(t, text)}, env, &out, &out)
		if (code == exitOK) != (want == "ok\n") || !strings.Contains(out.String(), want) {
			t.Errorf("%s: %d, %q, want %q", text, code, out.String(), want)
		}
	}
}
