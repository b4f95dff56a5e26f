package main

import (
	"encoding/json"
	"errors"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/apzuk3/agentd/client"
)

// command runs a command of a client in this process.
func command(t *testing.T, env map[string]string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs strings.Builder
	all := map[string]string{"HOME": t.TempDir()}
	maps.Copy(all, env)
	code = run(nil, args, all, &out, &errs)
	return code, out.String(), errs.String()
}

// TestKeys makes keys beside a daemon in a process of its own, which the first of them closes.
func TestKeys(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := binary(t, map[string]string{"AGENTD_ADDR": "127.0.0.1:0", "AGENTD_DATA": dir})
	models := func(env map[string]string, args ...string) (int, string) {
		code, _, errs := command(t, env, append([]string{"models", "--url", d.url}, args...)...)
		return code, errs
	}
	if code, errs := models(nil); code != exitOK {
		t.Fatalf("without a key: %d, %s", code, errs)
	}
	code, key, errs := agentd(t, "keys", "create", "ops", "--role", "operator", "--note", "the first", "--data", dir)
	if key = strings.TrimSpace(key); code != exitOK || !strings.HasPrefix(key, "agentd_key_") || !strings.Contains(errs, "first key") {
		t.Fatalf("create: %d, %q, %q", code, key, errs)
	}
	await(t, "the daemon to close", func() bool {
		code, errs := models(nil)
		return code == exitError && strings.Contains(errs, "UNAUTHENTICATED")
	})
	if code, errs := models(map[string]string{"AGENTD_API_KEY": key}); code != exitOK {
		t.Errorf("with the key of the environment: %d, %s", code, errs)
	}
	file := filepath.Join(t.TempDir(), "key")
	for text, want := range map[string]string{"": "is empty", "agentd_key_abcdefghijkl_X\n": "UNAUTHENTICATED", strings.Repeat("x", 20_000): "it is no token"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if code, errs := models(map[string]string{"AGENTD_API_KEY": key}, "--api-key-file", file); code != exitError || !strings.Contains(errs, want) {
			t.Errorf("with the file %.40q: %d, %s, want %q", text, code, errs, want)
		}
	}
	if err := os.WriteFile(file, []byte(key+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, errs := models(nil, "--api-key-file", file); code != exitOK {
		t.Errorf("with the key of a file: %d, %s", code, errs)
	}
	if _, out, _ := agentd(t, "keys", "create", "ann", "--tenant", "acme", "--expires", "1h", "--json", "--data", dir); !strings.Contains(out, `"tenant":"acme"`) {
		t.Errorf("created %s", out)
	}
	list := func(args ...string) (lines []keyLine) {
		code, out, errs := agentd(t, append([]string{"keys", "list", "--data", dir}, args...)...)
		if code != exitOK || strings.Contains(out, key) {
			t.Fatalf("list: %d, %s%s", code, out, errs)
		}
		for dec := json.NewDecoder(strings.NewReader(out)); dec.More(); {
			var line keyLine
			if err := dec.Decode(&line); err != nil {
				t.Fatal(err)
			}
			lines = append(lines, line)
		}
		return lines
	}
	if all, acme, none := list(), list("--tenant", "acme"), list("--tenant", ""); len(all) != 2 || len(acme) != 1 || len(none) != 1 ||
		acme[0].Principal != "ann" || acme[0].Expires == nil || none[0].Note != "the first" || none[0].Role != "operator" {
		t.Errorf("listed %+v, %+v, %+v", all, acme, none)
	}
	id := list("--tenant", "")[0].ID
	if code, _, errs := agentd(t, "keys", "revoke", "--data", dir, "nothing", id); code != exitError || !strings.Contains(errs, `"nothing"`) {
		t.Errorf("revoke one of two: %d, %s", code, errs)
	}
	await(t, "the key to end", func() bool { code, _ := models(map[string]string{"AGENTD_API_KEY": key}); return code == exitError })
	if revoked := list("--tenant", ""); revoked[0].Revoked == nil {
		t.Errorf("after the revocation: %+v", revoked)
	}
	for _, args := range [][]string{{"keys", "create", ""}, {"keys", "create", "a\nb"}, {"keys", "create", "a", "--role", "root"}, {"keys", "create", "a", "--expires", "-1h"}} {
		if code, _, errs := agentd(t, append(args, "--data", dir)...); code != exitUsage {
			t.Errorf("%q: %d, %s", args, code, errs)
		}
	}
	if code, out, errs := agentd(t, "check", "--data", dir); code != exitOK {
		t.Errorf("check: %d, %s%s", code, out, errs)
	}
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !done(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited a minute for %s", what)
		}
	}
}

// TestOpenAddress: a server that nobody has to prove anything to listens where other machines reach it only if it is
// told to; a key, made before or after, closes it.
func TestOpenAddress(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	env := map[string]string{"AGENTD_ADDR": ":0", "AGENTD_DATA": dir}
	if code, _, errs := command(t, env, "serve"); code != exitError || !strings.Contains(errs, "--insecure") || !strings.Contains(errs, "keys create") {
		t.Errorf("an open address: %d, %s", code, errs)
	}
	env["AGENTD_INSECURE"] = "true"
	d := inProcess(t, env)
	_, port, err := net.SplitHostPort(d.addr)
	if err != nil {
		t.Fatal(err)
	}
	url := "http://127.0.0.1:" + port
	if _, err := client.New(url).CreateSession(t.Context(), client.NewSessionInfo{}); err != nil {
		t.Errorf("with --insecure: %v", err)
	}
	_, key, _ := agentd(t, "keys", "create", "ops", "--data", dir)
	await(t, "the daemon to close", func() bool {
		_, err := client.New(url).CreateSession(t.Context(), client.NewSessionInfo{})
		return errors.Is(err, client.ErrUnauthenticated)
	})
	d.signal(os.Interrupt)
	if code := d.wait(); code != 0 {
		t.Fatalf("ended with %d: %s", code, d.log)
	}
	if !strings.Contains(d.log.String(), "without authentication") {
		t.Errorf("the log has no warning: %s", d.log)
	}
	delete(env, "AGENTD_INSECURE")
	d = inProcess(t, env)
	_, port, _ = net.SplitHostPort(d.addr)
	c := client.New("http://127.0.0.1:"+port, client.WithAPIKey(strings.TrimSpace(key)))
	if s, err := c.CreateSession(t.Context(), client.NewSessionInfo{}); err != nil || s.CreatedBy != "ops" {
		t.Errorf("with a key and without --insecure: %+v, %v", s, err)
	}
}

// TestAuthFlags refuses flags that do not go together.
func TestAuthFlags(t *testing.T) {
	for want, args := range map[string][]string{
		"--client-ca needs":  {"--client-ca", "ca.pem"},
		"go together":        {"--oidc-issuer", "https://issuer.test"},
		"only one is set":    {"--oidc-audience", "agentd"},
		"neither an address": {"--trusted-proxies", "proxy.test"},
		"without TLS":        {"--oidc-issuer", "http://issuer.test", "--oidc-audience", "agentd"},
	} {
		code, _, errs := command(t, nil, append([]string{"serve", "--data", ":memory:", "--addr", "127.0.0.1:0"}, args...)...)
		if code == exitOK || !strings.Contains(errs, want) {
			t.Errorf("%q: %d, %s, want %q", args, code, errs, want)
		}
	}
}
