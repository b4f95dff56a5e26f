package model_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/model"
)

// functions declares functions of these names.
func functions(names ...string) *genai.Tool {
	t := &genai.Tool{}
	for _, name := range names {
		t.FunctionDeclarations = append(t.FunctionDeclarations, &genai.FunctionDeclaration{Name: name})
	}
	return t
}

func resultOf(response map[string]any) *genai.Part {
	return &genai.Part{FunctionResponse: &genai.FunctionResponse{ID: "1", Name: "t", Response: response}}
}

func declared(req *model.Request) string {
	var names []string
	for _, d := range req.Functions() {
		names = append(names, d.Name)
	}
	return strings.Join(names, " ")
}

// References are those of a part that was stored, too, and of results alone.
func TestReferences(t *testing.T) {
	p := resultOf(map[string]any{"output": "x"})
	p.PartMetadata = map[string]any{"k": "v"}
	with := seam.Refer(p, "b", "a", "b")
	if got := model.References(with); !slices.Equal(got, []string{"b", "a"}) || with.PartMetadata["k"] != "v" {
		t.Errorf("refers to %q, has %v", got, with.PartMetadata)
	}
	if len(p.PartMetadata) != 1 || model.References(p) != nil {
		t.Errorf("the part has become %v", p.PartMetadata)
	}
	data, err := json.Marshal(with)
	if err != nil {
		t.Fatal(err)
	}
	var stored genai.Part
	if err := json.Unmarshal(data, &stored); err != nil || !reflect.DeepEqual(&stored, with) {
		t.Errorf("%s is read as %+v, error %v", data, stored, err)
	}
	if none := seam.Refer(with); model.References(none) != nil || none.PartMetadata["k"] != "v" {
		t.Errorf("without references it is %v", none.PartMetadata)
	}
	for name, none := range map[string]*genai.Part{
		"nil": nil, "a text": {Text: "x", PartMetadata: with.PartMetadata},
		"other data": {FunctionResponse: &genai.FunctionResponse{}, PartMetadata: map[string]any{seam.MetaTools: "a"}},
	} {
		if got := model.References(none); got != nil {
			t.Errorf("%s refers to %q", name, got)
		}
	}
}

// Deferred functions are left out until they are found, or must be called.
func TestLoad(t *testing.T) {
	search := &genai.Tool{GoogleSearch: &genai.GoogleSearch{}}
	both := functions("d")
	both.CodeExecution = &genai.ToolCodeExecution{}
	must := &genai.ToolConfig{FunctionCallingConfig: &genai.FunctionCallingConfig{Mode: genai.FunctionCallingConfigModeAny, AllowedFunctionNames: []string{"c"}}}
	contents := []*genai.Content{nil, {Role: genai.RoleUser, Parts: []*genai.Part{
		nil, seam.Refer(resultOf(map[string]any{"output": ""}), "b", "a", "nowhere"), seam.Refer(resultOf(nil), "b"),
	}}}
	for name, tc := range map[string]struct {
		req                    model.Request
		loaded, left, deferred string
		tools                  int
	}{
		"nothing deferred":  {model.Request{Contents: contents}, "", "a b c d", "", 4},
		"one found":         {model.Request{Contents: contents, Deferred: []string{"c", "b", "d"}}, "b", "a b", "", 3},
		"none found":        {model.Request{Deferred: []string{"b"}}, "", "a c d", "", 4},
		"all":               {model.Request{Deferred: []string{"a", "b", "c", "d"}}, "", "", "", 2},
		"searched":          {model.Request{Contents: contents, Deferred: []string{"c", "b", "d"}, ToolSearch: true}, "b", "a b c d", "c d", 4},
		"all found":         {model.Request{Contents: contents, Deferred: []string{"b"}, ToolSearch: true}, "b", "a b c d", "", 4},
		"one chosen of all": {model.Request{Contents: contents, Config: &genai.GenerateContentConfig{ToolConfig: must}, Deferred: []string{"b", "c", "d"}, ToolSearch: true}, "b", "a c", "", 4},
		"chosen":            {model.Request{Config: &genai.GenerateContentConfig{ToolConfig: must}, Deferred: []string{"c", "d"}}, "", "a b c", "", 4},
	} {
		t.Run(name, func(t *testing.T) {
			req := tc.req
			if req.Config == nil {
				req.Config = &genai.GenerateContentConfig{}
			}
			req.Config.Tools = []*genai.Tool{functions("a", "b"), search, functions("c"), both}
			if got := strings.Join(req.Loaded(), " "); got != tc.loaded {
				t.Errorf("loaded %q, want %q", got, tc.loaded)
			}
			got := req.Load()
			if declared(got) != tc.left || strings.Join(got.Deferred, " ") != tc.deferred || got.ToolSearch != (tc.deferred != "") || len(got.Config.Tools) != tc.tools {
				t.Errorf("declared %q in %d tools, deferred %q, searches: %t", declared(got), len(got.Config.Tools), got.Deferred, got.ToolSearch)
			}
			if declared(&req) != "a b c d" || len(both.FunctionDeclarations) != 1 {
				t.Errorf("the request has become %q", declared(&req))
			}
		})
	}
}

// Of more found functions than a request may declare the newest are declared; of
// the others the model is told that it must look again.
func TestLoadNewest(t *testing.T) {
	var names []string
	for i := range 400 {
		names = append(names, fmt.Sprintf("t%03d", i))
	}
	now := functions(slices.Concat([]string{"find", "calc"}, names)...)
	refer := func(names ...string) *genai.Content {
		return &genai.Content{Role: genai.RoleUser, Parts: []*genai.Part{seam.Refer(resultOf(map[string]any{"output": ""}), names...)}}
	}
	contents := []*genai.Content{refer(names[:150]...), refer(names[200:]...), refer(names[2], names[1])}
	want := slices.Concat([]string{"find", "calc"}, names[1:3], names[276:])
	for _, searches := range []bool{false, true} {
		req := &model.Request{Contents: contents, Config: &genai.GenerateContentConfig{Tools: []*genai.Tool{now}}, Deferred: names, ToolSearch: searches}
		if got := req.Loaded(); len(got) != 350 {
			t.Errorf("%d functions are loaded, want 350", len(got))
		}
		got := req.Load()
		loaded := slices.DeleteFunc(got.Functions(), func(d *genai.FunctionDeclaration) bool { return slices.Contains(got.Deferred, d.Name) })
		if left := declared(&model.Request{Config: &genai.GenerateContentConfig{Tools: []*genai.Tool{{FunctionDeclarations: loaded}}}}); left != strings.Join(want, " ") || len(loaded) != seam.MaxFunctions {
			t.Errorf("searches: %t: %d functions are told: %s", searches, len(loaded), left)
		}
		if len(got.Deferred) != map[bool]int{true: 274}[searches] {
			t.Errorf("searches: %t: %d functions are deferred", searches, len(got.Deferred))
		}
		says := got.ReferencesInWords(nil, nil)
		for at, notes := range []string{"To call the tool t000 look for it again.", "You can call the tool t399 now.", "You can call the tool t002 now.\nYou can call the tool t001 now."} {
			if text := fmt.Sprint(says[at].Parts[0].FunctionResponse.Response["output"]); !strings.Contains(text, notes) || strings.Contains(text, "You have no tool") {
				t.Errorf("searches: %t: result %d says: %s", searches, at, text)
			}
		}
		chosen := &genai.ToolConfig{FunctionCallingConfig: &genai.FunctionCallingConfig{Mode: genai.FunctionCallingConfigModeAny, AllowedFunctionNames: []string{"t000", "t160"}}}
		req.Config.ToolConfig = chosen
		if got := declared(req.Load()); got != "find calc t000 t160" {
			t.Errorf("searches: %t: with chosen ones these are declared: %s", searches, got)
		}
	}
}

// What a result refers to is said behind what it is, whatever that is.
func TestReferencesInWords(t *testing.T) {
	const note = "You can call the tool a-1 now.\nYou have no tool nowhere."
	refer := func(response map[string]any) *genai.Part {
		return seam.Refer(resultOf(response), "native", "a.1", "nowhere")
	}
	for name, tc := range map[string]struct {
		is, want map[string]any
		kept     string
	}{
		"nothing":          {map[string]any{"output": ""}, map[string]any{"output": note}, "native"},
		"text":             {map[string]any{"output": "x"}, map[string]any{"output": "x\n\n" + note}, "native"},
		"a value":          {map[string]any{"output": 1}, map[string]any{"output": 1, "text": note}, "native"},
		"a value and text": {map[string]any{"output": 1, "text": "x"}, map[string]any{"output": 1, "text": "x\n\n" + note}, "native"},
		"an object":        {map[string]any{"text": "x"}, map[string]any{"output": map[string]any{"text": "x"}, "text": note}, "native"},
		"empty":            {nil, map[string]any{"output": note}, "native"},
		"an error":         {map[string]any{"error": "x"}, map[string]any{"error": "x\n\n" + note}, "native"},
	} {
		said := &genai.Content{Role: genai.RoleUser, Parts: []*genai.Part{{Text: "x"}, refer(tc.is)}}
		other := &genai.Content{Role: genai.RoleModel, Parts: []*genai.Part{{Text: "y"}}}
		req := &model.Request{Contents: []*genai.Content{other, said}, Config: &genai.GenerateContentConfig{Tools: []*genai.Tool{functions("a.1")}}}
		got := req.ReferencesInWords(func(name string) string {
			if name == "a.1" {
				return "a-1"
			}
			return ""
		}, func(name string) bool { return name == "native" })
		result := got[1].Parts[1]
		if !reflect.DeepEqual(result.FunctionResponse.Response, tc.want) || strings.Join(model.References(result), " ") != tc.kept {
			t.Errorf("%s: told %v, refers to %q, want %v", name, result.FunctionResponse.Response, model.References(result), tc.want)
		}
		if got[0] != other || got[1].Parts[0] != said.Parts[0] || !reflect.DeepEqual(said.Parts[1], refer(tc.is)) {
			t.Errorf("%s: the conversation has changed", name)
		}
	}
	req := &model.Request{Contents: []*genai.Content{{Role: genai.RoleUser, Parts: []*genai.Part{resultOf(nil)}}}, Config: &genai.GenerateContentConfig{}}
	if got := req.ReferencesInWords(nil, nil); &got[0] != &req.Contents[0] {
		t.Error("a conversation without references was copied")
	}
}

// What is said of a reference takes its name and a sentence; what a conversation says of
// all is no more than the sum.
func TestReferenceTextIsSmall(t *testing.T) {
	const results, names = 500, 64 // a result has at most so many parts
	name := strings.Repeat("n", 64)
	req := &model.Request{Config: &genai.GenerateContentConfig{Tools: []*genai.Tool{functions("other")}}}
	for range results {
		refer := seam.Refer(resultOf(map[string]any{"output": ""}), slices.Repeat([]string{name}, names)...)
		req.Contents = append(req.Contents, &genai.Content{Role: genai.RoleUser, Parts: []*genai.Part{refer}})
	}
	size := 0
	for _, c := range req.ReferencesInWords(nil, nil) {
		note, _ := c.Parts[0].FunctionResponse.Response["output"].(string)
		size += len(note)
	}
	if most := results * names * (len(name) + 100); size == 0 || size > most {
		t.Errorf("references in words take %d bytes, want at most %d", size, most)
	}
}
