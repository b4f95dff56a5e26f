package main

import (
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// TestOperatorsAddress: serve tells where it serves its operator, and has profiles there.
func TestOperatorsAddress(t *testing.T) {
	d := inProcess(t, map[string]string{"AGENTD_ADDR": "127.0.0.1:0", "AGENTD_ADMIN_ADDR": "127.0.0.1:0", "AGENTD_DATA": ":memory:"})
	at := regexp.MustCompile(`"admin_addr":"([^"]+)"`).FindStringSubmatch(d.log.String())
	if at == nil {
		t.Fatalf("the log does not tell where: %s", d.log)
	}
	for path, want := range map[string]string{"/debug/pprof/": "heap", "/debug/pprof/goroutine?debug=1": "goroutine profile", "/readyz": "ready"} {
		if got := textAt(t, "http://"+at[1]+path); !strings.Contains(got, want) {
			t.Errorf("%s has %q, want %q", path, got, want)
		}
	}
}

// textAt returns what is at an address.
func textAt(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
