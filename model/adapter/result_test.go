package adapter

import (
	"encoding/json"
	"math"
	"testing"

	"google.golang.org/genai"
)

func TestResult(t *testing.T) {
	for _, c := range []struct {
		response map[string]any
		want     string
		isError  bool
	}{
		{map[string]any{"output": "plain <b>"}, "plain <b>", false},
		{map[string]any{"output": []any{1, "x"}}, `[1,"x"]`, false},
		{map[string]any{"output": nil}, "null", false},
		{map[string]any{"output": json.Number("9007199254740993")}, "9007199254740993", false},
		{map[string]any{"error": "it broke"}, "it broke", true},
		{map[string]any{"error": map[string]any{"code": 7}}, `{"code":7}`, true},
		{map[string]any{"output": 1, "error": "x"}, `{"error":"x","output":1}`, false},
		{map[string]any{"b": "<&>", "a": 1}, `{"a":1,"b":"<&>"}`, false},
		{map[string]any{}, "{}", false},
		{nil, "{}", false},
		{map[string]any{"output": math.NaN()}, "null", false},
	} {
		got, isError := Result(&genai.FunctionResponse{Response: c.response})
		if got != c.want || isError != c.isError {
			t.Errorf("Result(%v) = %q, %v; want %q, %v", c.response, got, isError, c.want, c.isError)
		}
	}
}
