package otlp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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

// TestOwnProcess: what the SDK reports is a line of the log, but for what a stop has cut off.
func TestOwnProcess(t *testing.T) {
	var log bytes.Buffer
	OwnProcess(slog.New(slog.NewTextHandler(&log, nil)))
	t.Cleanup(func() { OwnProcess(slog.New(slog.DiscardHandler)) })
	otel.Handle(fmt.Errorf("collect: %w", context.Canceled))
	otel.Handle(errors.New("no such instrument"))
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "no such instrument") {
		t.Errorf("the log is %q", text)
	}
}
