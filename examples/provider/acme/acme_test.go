package acme_test

import (
	"encoding/json"
	"testing"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/examples/provider/acme"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/modeltest"
)

// frame is one event of ACME's stream.
func frame(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return "data: " + string(data) + "\n\n"
}

type object = map[string]any

func encode(a modeltest.Response) (w modeltest.Wire) {
	for _, p := range a.Pieces {
		switch {
		case p.Call != nil:
			w.Frames = append(w.Frames, frame(object{"call": object{"id": p.Call.ID, "name": p.Call.Name, "args": p.Call.Args}}))
		case p.Thought != "":
			w.Frames = append(w.Frames, frame(object{"thought": p.Thought}))
		default:
			w.Frames = append(w.Frames, frame(object{"text": p.Text}))
		}
	}
	reason := "end"
	if a.Finish == genai.FinishReasonMaxTokens {
		reason = "length"
	}
	w.Frames = append(w.Frames, frame(object{"done": object{"reason": reason, "usage": a.Usage}}))
	return w
}

func TestConformance(t *testing.T) {
	modeltest.Run(t, modeltest.Harness{
		Open: func(_ testing.TB, baseURL, serverKey string) model.Provider {
			return acme.New(baseURL, serverKey)
		},
		Model:  "rocket-1",
		Encode: encode,
		EncodeError: func(_ int, code, message string) string {
			data, err := json.Marshal(object{"code": code, "message": message})
			if err != nil {
				panic(err)
			}
			return string(data)
		},
		Refusals: map[string]modeltest.Refusal{
			"too long":   {Kind: model.KindContextTooLong, Wire: modeltest.Wire{Status: 413}},
			"overloaded": {Kind: model.KindUnavailable, Wire: modeltest.Wire{Frames: []string{frame(object{"text": "well"}), frame(object{"error": object{"status": 503, "message": "busy"}})}}},
		},
		Can: modeltest.Can{
			Thoughts: true, CallsWithoutID: true, CallIDs: true, BadArgs: true, ArgsText: true,
			CachedUsage: true, CacheWriteUsage: true, ThoughtsUsage: true,
		},
	})
}

// ACME's models have prices, so that budgets in money can be held.
func TestPrices(t *testing.T) {
	used := model.Usage{Prompt: 2_000_000, Cached: 1_000_000, Completion: 1_000_000, Thoughts: 500_000}
	nanos, known := modeltest.Cost(t, acme.New("", "k"), "acme/rocket-1", used)
	if !known || nanos != 10_500_000_000 {
		t.Errorf("costs %v, %v", nanos, known)
	}
}
