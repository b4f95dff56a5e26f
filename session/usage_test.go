package session_test

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/apzuk3/agentd/session/record"
)

// TestUsageOfEarlierForm: what was stored as its provider counted is read as it is
// counted now.
func TestUsageOfEarlierForm(t *testing.T) {
	for name, c := range map[string]struct {
		stored, provider string
		want             record.Usage
	}{
		"OpenAI":                {`{"prompt":100,"completion":40,"cached":60,"thoughts":15,"total":140,"calls":1}`, "openai", record.Usage{Prompt: 100, Completion: 40, Cached: 60, Thoughts: 15, Total: 140, Calls: 1}},
		"Gemini":                {`{"prompt":100,"completion":25,"cached":60,"thoughts":15,"total":140,"calls":1}`, "gemini", record.Usage{Prompt: 100, Completion: 40, Cached: 60, Thoughts: 15, Total: 140, Calls: 1}},
		"Anthropic":             {`{"prompt":90,"completion":40,"cached":60,"cache_write":30,"total":130,"calls":2,"cost_usd":0.5}`, "anthropic", record.Usage{Prompt: 150, Completion: 40, Cached: 60, CacheWrite: 30, Total: 190, Calls: 2, Cost: 500_000_000}},
		"Anthropic, all cached": {`{"prompt":40,"completion":40,"cached":60,"total":80,"calls":1}`, "anthropic", record.Usage{Prompt: 100, Completion: 40, Cached: 60, Total: 140, Calls: 1}},
		"of nobody known":       {`{"prompt":40,"completion":25,"cached":60,"thoughts":15,"total":80,"calls":1}`, "", record.Usage{Prompt: 100, Completion: 40, Cached: 60, Thoughts: 15, Total: 140, Calls: 1}},
	} {
		var u record.Usage
		if err := json.Unmarshal([]byte(c.stored), &u); err != nil {
			t.Fatal(err)
		}
		if u = u.CountedBy(c.provider); u != c.want {
			t.Errorf("%s: read as %+v, want %+v", name, u, c.want)
		}
		if again := u.CountedBy(""); again != u {
			t.Errorf("%s: what is counted as today becomes %+v", name, again)
		}
	}
}

// TestNanoUSD: amounts are exact in JSON, and those of earlier releases are rounded.
func TestNanoUSD(t *testing.T) {
	for stored, want := range map[string]record.NanoUSD{
		"0": 0, "1": 1e9, "0.1": 1e8, "0.15000000000000002": 150_000_000, "0.30000000000000004": 3e8, "1e-9": 1, "4e-10": 0,
		"2.5e3": 2500e9, "-0.25": -250_000_000, "1234567.891234567": 1_234_567_891_234_567, "9007199.254740993": 9_007_199_254_740_993,
		"9223372036.854775807": math.MaxInt64, "9223372036.9": math.MaxInt64, "1e300": math.MaxInt64, "-1e300": math.MinInt64,
	} {
		var got record.NanoUSD
		if err := json.Unmarshal([]byte(stored), &got); err != nil || got != want {
			t.Errorf("%s is read as %d, %v, want %d", stored, int64(got), err, int64(want))
		}
		data, err := json.Marshal(want)
		if err == nil {
			err = json.Unmarshal(data, &got)
		}
		if err != nil || got != want {
			t.Errorf("%d becomes %s and %d, %v", int64(want), data, int64(got), err)
		}
	}
	var got record.NanoUSD
	for _, bad := range []string{`"1"`, "{}", "true", "1e999"} {
		if err := json.Unmarshal([]byte(bad), &got); err == nil {
			t.Errorf("%s is read as %v", bad, got)
		}
	}
	for amount, want := range map[record.NanoUSD]string{0: "0", 1: "0.000000001", -1: "-0.000000001", 1_500_000_000: "1.5", -2e9: "-2"} {
		if got := amount.String(); got != want {
			t.Errorf("%d is %s, want %s", int64(amount), got, want)
		}
	}
}

// TestBudgetUSD: no amount above 0 becomes none.
func TestBudgetUSD(t *testing.T) {
	for dollars, want := range map[float64]record.NanoUSD{
		0: 0, 0.07: 70_000_000, 0.1: 1e8, 1e-12: 1, 5e-324: 1, 1e300: math.MaxInt64, math.Inf(1): math.MaxInt64, -1e-12: -1, math.NaN(): -1,
	} {
		if got := record.BudgetUSD(dollars); got != want {
			t.Errorf("%v is %d, want %d", dollars, int64(got), int64(want))
		}
	}
}

// TestUsageSaturates: sums stay at the greatest count, and EndResponse's are cut.
func TestUsageSaturates(t *testing.T) {
	const most = math.MaxInt64
	u := record.Usage{Prompt: most - 1, Completion: 5, Total: most, Calls: 1 << 40, Cost: most - 1, Unpriced: 1}
	u = u.Add(record.Usage{Prompt: 2, Completion: 1, Total: 3, Calls: 1, Cost: 2})
	if want := (record.Usage{Prompt: most, Completion: 6, Total: most, Calls: 1<<40 + 1, Cost: most, Unpriced: 1}); u != want {
		t.Errorf("the sum is %+v, want %+v", u, want)
	}
	if p := u.Proto(); p.GetPromptTokens() != most || p.GetTotalTokens() != most || p.GetModelCalls() != 1<<40+1 || p.GetCostUsd() != 9223372036.854775807 {
		t.Errorf("told as %v", p)
	}
	if s := u.Summary(); s.GetTotalUsage().GetPromptTokens() != math.MaxInt32 || s.GetTotalUsage().GetTotalTokens() != math.MaxInt32 || s.GetLlmCalls() != math.MaxInt32 {
		t.Errorf("summed up as %v", s)
	}
	for name, c := range map[string]struct {
		u     record.Usage
		known bool
	}{
		"nothing":   {record.Usage{}, true},
		"free":      {record.Usage{Calls: 2}, true},
		"in part":   {record.Usage{Calls: 2, Unpriced: 1}, true},
		"not known": {record.Usage{Calls: 2, Unpriced: 2}, false},
	} {
		if p := c.u.Proto(); (p.CostUsd != nil) != c.known || p.GetUnpricedCalls() != c.u.Unpriced {
			t.Errorf("%s: told as %v", name, p)
		}
	}
}
