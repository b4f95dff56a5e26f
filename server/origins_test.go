package server_test

import (
	"strings"
	"testing"

	"github.com/apzuk3/agentd/server"
)

// What no page is from is refused when the server is made, not page by page.
func TestOrigins(t *testing.T) {
	for origin, ok := range map[string]bool{
		"*": true, "https://app.example.com": true, "http://127.0.0.1:8081": true, "https://*.example.com": true, "chrome-extension://abc": true,
		"": false, "localhost:8081": false, "https://app.example.com/": false, "https://app.example.com/page": false, "app.example.com": false,
	} {
		_, err := server.New(server.Config{Sessions: faulty{}, CORSOrigins: []string{origin}})
		if (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "CORSOrigins") {
			t.Errorf("origin %q: %v", origin, err)
		}
	}
}
