package adkbridge

import (
	"context"
	"slices"
	"strings"
	"testing"

	"google.golang.org/genai"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
)

// TestCompactCut repeats the request for a summary that was cut at its limit, with a
// higher one, and uses that limit at once for the rest of the turn. What was cut is
// shown to no client, and its usage is counted.
func TestCompactCut(t *testing.T) {
	for name, tc := range map[string]struct {
		longest, thinks int64 // of the model, in tokens
		limits          []int32
		sums            int
	}{
		"enough":          {0, 400, []int32{250, 500, 500}, 2},
		"more than there": {0, 900, []int32{250, 500, 500}, 0}, // once more after the prompt was refused
		"longest":         {400, 300, []int32{250, 400, 400}, 2},
		"no longer":       {200, 300, []int32{200, 200}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := &narrowModels{known: true, longest: tc.longest}
			w.summary = w.thinking(tc.thinks)
			r := New(Config{Resolve: w.Resolve})
			run := long(t, compacts(2000, &agentdv1.Compaction{AtShare: 0.8}), "12 rounds")
			if err := r.runTurn(t.Context(), run); err != nil && tc.sums > 0 {
				t.Fatal(err)
			}
			var limits []int32
			for _, req := range w.summed {
				limits = append(limits, req.Config.MaxOutputTokens)
			}
			sums := compacted(r, run)
			if !slices.Equal(limits, tc.limits) || len(sums) != tc.sums {
				t.Errorf("limits of %v tokens, %d summaries", limits, len(sums))
			}
			for _, ev := range sums {
				if ev.Compacted.Summary != "what matters" {
					t.Errorf("the summary is %q", ev.Compacted.Summary)
				}
			}
			if taken, reported := run.usage(r); taken != reported || taken.Total != w.bill().Total {
				t.Errorf("the log has %+v, told is %+v, the bill is %+v", taken, reported, w.bill())
			}
			sameHistory(t, r, run)
		})
	}
}

// A model that has failed gets no second request for a summary that another one has
// begun.
func TestCompactCutFallsBack(t *testing.T) {
	w := &narrowModels{known: true}
	w.summary = w.thinking(400)
	r := New(Config{Resolve: w.Resolve})
	tree := compacts(2000, &agentdv1.Compaction{AtShare: 0.8})
	tree.GetLlm().Model, tree.GetLlm().FallbackModels = "down-2000", []string{"narrow-2000"}
	run := long(t, tree, "12 rounds")
	if err := r.runTurn(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	responses, sums := 0, len(compacted(r, run))
	for _, req := range w.requests {
		if len(req.Functions()) > 0 {
			responses++
		}
	}
	if len(w.summed) != sums+1 || w.down != responses+sums {
		t.Errorf("%d answers and %d summaries, of which %d were asked for, took %d calls of the model that fails", responses, sums, len(w.summed), w.down)
	}
	sameHistory(t, r, run)
}

// searching is a model with a window of 200,000 tokens whose provider has read a
// short prompt several times, and reports the sum.
type searching struct {
	provided *model.Provided
	run      *genai.Part // nil for none

	sums int // summaries that were asked for
}

func (s *searching) Resolve(string, map[string]string) (Model, error) {
	return Model{LLM: s, Provider: "p", Window: 200_000}, nil
}

func (s *searching) Generate(_ context.Context, req *model.Request, _ func(model.Delta)) (*model.Response, error) {
	resp := &model.Response{
		Content:      genai.NewContentFromText(strings.Repeat("found. ", 100), genai.RoleModel),
		FinishReason: genai.FinishReasonStop, Usage: model.Usage{Prompt: 170_000, Completion: 200, Total: 170_200},
	}
	if strings.HasPrefix(adapter.Text(req.Config.SystemInstruction), summaryInstruction) {
		s.sums++
		resp.Content = genai.NewContentFromText("summary", genai.RoleModel)
		return resp, nil
	}
	resp.Provided = s.provided
	if s.run != nil {
		resp.Content.Parts = slices.Insert(resp.Content.Parts, 0, s.run)
	}
	return resp, nil
}

// TestCompactSearches: the sum over several readings of a prompt is not its length,
// and has nothing summarised.
func TestCompactSearches(t *testing.T) {
	for name, tc := range map[string]struct {
		model searching
		sums  int
	}{
		"no tool": {searching{}, 3},
		"use":     {searching{provided: &model.Provided{Uses: []model.Use{{Name: "web_search"}}}}, 0},
		"source":  {searching{provided: &model.Provided{Citations: []model.Cite{{URI: "https://example.com"}}}}, 0},
		"part":    {searching{run: &genai.Part{PartMetadata: map[string]any{seam.MetaProvider: "p", seam.MetaOpaque: "{}"}}}, 0},
		"code":    {searching{run: &genai.Part{CodeExecutionResult: &genai.CodeExecutionResult{Output: "1"}}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := &tc.model
			r := New(Config{Resolve: s.Resolve})
			run := newFakeRun(t, compacts(0, &agentdv1.Compaction{AtShare: 0.8}), "search "+strings.Repeat("u", 300))
			for i := range 4 {
				if i > 0 {
					run.begin("go on " + strings.Repeat("u", 300))
				}
				if err := r.runTurn(t.Context(), run); err != nil {
					t.Fatal(err)
				}
				sameHistory(t, r, run)
			}
			if s.sums != tc.sums {
				t.Errorf("%d summaries, want %d", s.sums, tc.sums)
			}
		})
	}
}

// TestConversationIsBounded: the text for a summary stays within its limit, whatever
// the size and number of its pieces.
func TestConversationIsBounded(t *testing.T) {
	const limit = 16 << 10
	for name, tc := range map[string]struct{ contents, bytes int }{
		"many short ones": {50_000, 3}, "few long ones": {5, 4 << 20}, "many long ones": {2000, 10 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Repeat("é", tc.bytes/2)
			contents := make([]*genai.Content, tc.contents)
			for i := range contents {
				contents[i] = genai.NewContentFromText(text, genai.RoleUser)
			}
			if got := len(conversation(contents, limit)); got > limit+100 || got < limit/2 {
				t.Errorf("%d bytes, want %d", got, limit)
			}
		})
	}
}
