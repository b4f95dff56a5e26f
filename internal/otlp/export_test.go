package otlp

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"strings"
	"testing"

	"go.opentelemetry.io/otel"
)

// TestCheck: what is wrong with a configuration is said, without its secrets.
func TestCheck(t *testing.T) {
	const endpoint = "http://127.0.0.1:4318"
	for want, c := range map[string]Config{
		"":                   {Endpoint: "https://collector.example/below", Headers: "a=b, c = d%20e ,", Share: 1},
		"want http://":       {Endpoint: "127.0.0.1:4318"},
		"neither a user":     {Endpoint: "http://me:canary@127.0.0.1:4318"},
		"nor a query":        {Endpoint: endpoint + "?key=canary"},
		"want http://HOST":   {Endpoint: "http://canary\x7f"},
		"share of traces":    {Endpoint: endpoint, Share: math.NaN()},
		"must be from 0":     {Endpoint: endpoint, Share: 1.1},
		"header 2":           {Endpoint: endpoint, Headers: "a=b,canary"},
		"header 1: want NAM": {Endpoint: endpoint, Headers: "a=canary%zz"},
	} {
		err := c.Check()
		if want == "" {
			if err != nil {
				t.Error(err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%+v: %v, want %q", c, err, want)
		}
	}
}

// TestLogErrors: what OpenTelemetry complains about is in the log, and nowhere else.
func TestLogErrors(t *testing.T) {
	var log bytes.Buffer
	LogErrors(slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	otel.Handle(errors.New("no room"))
	var line struct{ Level, Msg, Error string }
	if err := json.Unmarshal(log.Bytes(), &line); err != nil || line.Level != "DEBUG" || line.Error != "no room" {
		t.Errorf("the log is %s (%v)", log.Bytes(), err)
	}
}
