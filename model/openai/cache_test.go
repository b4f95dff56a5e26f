package openai

import (
	"strings"
	"testing"
	"time"

	"github.com/apzuk3/agentd/model"
)

// A server that is not OpenAI's own is told nothing that only OpenAI knows.
func TestCacheElsewhere(t *testing.T) {
	for _, api := range []API{Chat, Responses} {
		l := &llm{cfg: &Config{Name: "openai", BaseURL: "http://127.0.0.1:1/v1", API: api}, model: "llama"}
		req := *requests()["plain"]
		send := func() (string, error) {
			body, err := bodyOf(l, &req)
			return string(body), err
		}
		before, err := send()
		if err != nil {
			t.Fatal(err)
		}
		req.Cache = &model.Cache{Key: "k"}
		if after, err := send(); err != nil || after != before {
			t.Errorf("%s sends %s, %v, without a cache %s", api, after, err, before)
		}
		req.Cache.TTL = time.Minute
		if _, err := send(); err == nil || !strings.Contains(err.Error(), "cache.ttl is 1m0s") {
			t.Errorf("%s, with a TTL: %v", api, err)
		}
	}
}

// OpenAI's own server is told the same in a region as anywhere.
func TestCacheInRegions(t *testing.T) {
	for _, baseURL := range []string{"", "https://eu.api.openai.com/v1"} {
		got, err := openFor(t, Config{BaseURL: baseURL}, "gpt-5").cache(&model.Cache{Key: "k", TTL: 24 * time.Hour})
		if want := (promptCache{Key: "k", Retention: "24h"}); err != nil || got != want {
			t.Errorf("%q: %+v, %v", baseURL, got, err)
		}
	}
}
