package fakeprovider_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/test/fakeprovider"
	"github.com/apzuk3/agentd/internal/test/providertest"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/anthropic"
	"github.com/apzuk3/agentd/model/gemini"
	"github.com/apzuk3/agentd/model/openai"
)

// adapter is the adapter of a wire at an address.
func adapter(t *testing.T, wire providertest.Wire, url string, tr http.RoundTripper) model.LLM {
	t.Helper()
	var p model.Provider
	switch wire {
	case providertest.Anthropic:
		p = anthropic.New(anthropic.Config{APIKey: "key", BaseURL: url, Transport: tr})
	case providertest.Gemini:
		p = gemini.New(gemini.Config{APIKey: "key", BaseURL: url, Transport: tr})
	case providertest.OpenAIChat:
		p = openai.New(openai.Config{Name: "chat", API: openai.Chat, APIKey: "key", BaseURL: url, Transport: tr})
	default:
		p = openai.New(openai.Config{Name: "responses", API: openai.Responses, APIKey: "key", BaseURL: url, Transport: tr})
	}
	m, err := p.Open("fake-1", "key")
	if err != nil {
		t.Fatal(err)
	}
	return m.LLM
}

func ask(ctx context.Context, m model.LLM) (*model.Response, string, error) {
	var pieces []string
	resp, err := m.Generate(ctx, &model.Request{Config: &genai.GenerateContentConfig{}, Contents: []*genai.Content{genai.NewContentFromText("hi", genai.RoleUser)}}, func(d model.Delta) {
		pieces = append(pieces, d.Text)
	})
	return resp, strings.Join(pieces, "|"), err
}

var full = fakeprovider.Reply{
	Thoughts: []string{"I might ", "ask."}, Text: []string{"Grüezi, ", "日本 ", "🙂."},
	Calls: []providertest.ToolCall{{ID: "c1", Name: "one", Args: `{"z":1,"a":"x"}`}, {ID: "c2", Name: "two"}},
	Usage: providertest.Usage{Prompt: 10, Completion: 5, Cached: 4, Total: 15},
}

// The adapters hear what a reply says, piece by piece, on each wire; and the same
// reader hears it that reads recorded streams.
func TestWires(t *testing.T) {
	for _, wire := range providertest.Wires {
		t.Run(string(wire), func(t *testing.T) {
			p, url := fakeprovider.Start(t, fakeprovider.Answer(full))
			resp, pieces, err := ask(t.Context(), adapter(t, wire, url, nil))
			if err != nil {
				t.Fatal(err)
			}
			if pieces != "I might |ask.|Grüezi, |日本 |🙂." {
				t.Errorf("pieces %q", pieces)
			}
			var calls []string
			for _, part := range resp.Content.Parts {
				if c := part.FunctionCall; c != nil {
					calls = append(calls, fmt.Sprint(c.Name, c.Args))
				}
			}
			if got := fmt.Sprint(calls); got != "[onemap[a:x z:1] twomap[]]" {
				t.Errorf("calls %s", got)
			}
			if u := resp.Usage; u.Prompt != 10 || u.Completion != 5 || u.Cached != 4 || u.Total != 15 || resp.Model != "fake" {
				t.Errorf("usage %+v of %s", u, resp.Model)
			}
			got := p.Calls()
			if len(got) != 1 || p.Count() != 1 || got[0].Wire != wire || got[0].Key() != "key" {
				t.Fatalf("calls %+v", got)
			}
			req, err := got[0].Request()
			if err != nil || len(req.Items) != 1 || req.Items[0].Text != "hi" {
				t.Errorf("request %+v, %v", req, err)
			}
		})
	}
}

// An answer that is cut off before its end is an error, at each of its bytes.
func TestCutAtEachByte(t *testing.T) {
	for _, wire := range providertest.Wires {
		t.Run(string(wire), func(t *testing.T) {
			p := fakeprovider.New(nil)
			m := adapter(t, wire, "http://provider.invalid", p)
			events, essential := fakeprovider.Render(wire, full)
			if all := len(strings.Join(events, "")); essential == 0 || essential >= all {
				t.Fatalf("%d of %d bytes", essential, all)
			}
			for at := 0; at < essential; at += 7 {
				for _, drop := range []bool{false, true} {
					reply := full
					reply.CutAfter, reply.Drop = &at, drop
					var done error
					reply.Done = func(err error) { done = err }
					p.Use(fakeprovider.Answer(reply))
					if _, _, err := ask(t.Context(), m); err == nil || done == nil {
						t.Fatalf("cut after %d bytes: %v, %v", at, err, done)
					}
				}
			}
		})
	}
}

// A refusal is told in the wire's form, with its headers.
func TestRefusal(t *testing.T) {
	for _, wire := range providertest.Wires {
		t.Run(string(wire), func(t *testing.T) {
			_, url := fakeprovider.Start(t, fakeprovider.Answer(
				fakeprovider.Reply{Status: 429, Message: "slow down", Header: http.Header{"Retry-After": {"7"}}},
				fakeprovider.Reply{Text: []string{"Back."}}))
			m := adapter(t, wire, url, nil)
			_, _, err := ask(t.Context(), m)
			if e, ok := errors.AsType[*model.Error](err); !ok || e.Kind != model.KindRateLimited || e.RetryAfter != 7*time.Second || !strings.Contains(e.Error(), "slow down") {
				t.Errorf("%#v", err)
			}
			if _, text, err := ask(t.Context(), m); err != nil || text != "Back." {
				t.Errorf("%q, %v", text, err)
			}
		})
	}
}

// Without a network a provider lives in a bubble of fake time: it pauses, hangs, and
// ends with the request.
func TestBubble(t *testing.T) {
	for _, wire := range providertest.Wires {
		t.Run(string(wire), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reply := full
				reply.Before = func(context.Context, int) error { time.Sleep(time.Second); return nil }
				p := fakeprovider.New(fakeprovider.Answer(reply))
				m := adapter(t, wire, "http://provider.invalid", p)
				begin := time.Now()
				if _, text, err := ask(t.Context(), m); err != nil || !strings.HasSuffix(text, "🙂.") || time.Since(begin) < 5*time.Second {
					t.Errorf("%q, %v, after %v", text, err, time.Since(begin))
				}
				p.Use(fakeprovider.Hang())
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if _, _, err := ask(ctx, m); err == nil || p.Count() != 1 {
					t.Errorf("%v after %d calls", err, p.Count())
				}
				p.Use(fakeprovider.Answer(fakeprovider.Reply{Drop: true}))
				if _, _, err := ask(t.Context(), m); err == nil || p.Count() != 1 {
					t.Errorf("%v after %d calls", err, p.Count())
				}
			})
		})
	}
}
