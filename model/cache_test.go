package model_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/apzuk3/agentd/model"
)

func TestCacheSpan(t *testing.T) {
	spans := []time.Duration{5 * time.Minute, time.Hour}
	for _, tc := range []struct {
		ttl   time.Duration
		spans []time.Duration
		want  time.Duration
		says  string // of the error
	}{
		{0, spans, 5 * time.Minute, ""},
		{time.Second, spans, 5 * time.Minute, ""},
		{5 * time.Minute, spans, 5 * time.Minute, ""},
		{5*time.Minute + 1, spans, time.Hour, ""},
		{time.Hour, spans, time.Hour, ""},
		{time.Hour + 1, spans, 0, "1h0m0s at most"},
		{0, nil, 0, ""},
		{time.Second, nil, 0, "cache.ttl is 1s: this provider caches prompts by itself"},
	} {
		got, err := (&model.Cache{TTL: tc.ttl}).Span("acme", tc.spans...)
		if e, ok := errors.AsType[*model.Error](err); ok != (tc.says != "") || ok && (e.Kind != model.KindInvalid || e.Provider != "acme" || !strings.Contains(e.Message, tc.says)) {
			t.Errorf("%v of %v: %v, want %q", tc.ttl, tc.spans, err, tc.says)
		}
		if got != tc.want {
			t.Errorf("%v of %v: %v, want %v", tc.ttl, tc.spans, got, tc.want)
		}
	}
}
