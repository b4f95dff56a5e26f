package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// ago is a time as people read it best: relative within a day, else the date.
func ago(now time.Time, at *timestamppb.Timestamp) string {
	if at == nil {
		return "-"
	}
	t := at.AsTime()
	d := now.Sub(t)
	switch {
	case d < -time.Minute || d >= 24*time.Hour:
		return t.In(now.Location()).Format("2006-01-02 15:04")
	case d < time.Second:
		return "now"
	case d < time.Minute:
		return strconv.Itoa(int(d/time.Second)) + "s ago"
	case d < time.Hour:
		return strconv.Itoa(int(d/time.Minute)) + "m ago"
	default:
		return strconv.Itoa(int(d/time.Hour)) + "h ago"
	}
}

// exact is a time with its distance.
func exact(now time.Time, at *timestamppb.Timestamp) string {
	if at == nil {
		return ""
	}
	text := at.AsTime().In(now.Location()).Format("2006-01-02 15:04:05 MST")
	if short := ago(now, at); strings.HasSuffix(short, "ago") || short == "now" {
		text += " (" + short + ")"
	}
	return text
}

// duration is a time span with three digits or so.
func duration(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	default:
		return d.Round(time.Second).String()
	}
}

// number groups digits: 1234567 is 1,234,567.
func number(n int64) string {
	if n < 0 {
		return "-" + number(-n)
	}
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// dollars is a cost; of 0 there is nothing to tell.
func dollars(usd float64) string {
	switch {
	case usd <= 0:
		return "-"
	case usd < 0.0001:
		return "<$0.0001"
	case usd < 1:
		return fmt.Sprintf("$%.4f", usd)
	default:
		return fmt.Sprintf("$%.2f", usd)
	}
}

// size is a count; 0 is one that is not known.
func size(n int64) string {
	if n == 0 {
		return "-"
	}
	return number(n)
}

// prices is a price of a model, and in brackets those for longer prompts.
func prices(m *agentdv1.Model, which func(*agentdv1.PriceTier) float64) string {
	tiers := m.GetPrice().GetTiers()
	if len(tiers) == 0 {
		return "-"
	}
	var out strings.Builder
	out.WriteString(price(which(tiers[0])))
	for _, longer := range tiers[1:] {
		out.WriteString(" (" + price(which(longer)) + ")")
	}
	return out.String()
}

// written is what writing into the provider's cache costs, by how long it is kept
// where that makes a difference; "" where it costs what other tokens do.
func written(m *agentdv1.Model) string {
	kept := map[time.Duration]bool{}
	for _, t := range m.GetPrice().GetTiers() {
		for _, w := range t.GetCacheWrites() {
			kept[w.GetTtl().AsDuration()] = true
		}
	}
	var out []string
	for _, ttl := range slices.Sorted(maps.Keys(kept)) {
		text := prices(m, func(t *agentdv1.PriceTier) float64 { return writeFor(t, ttl) })
		if ttl > 0 {
			text = span(ttl) + " " + text
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

// writeFor is what it costs to write what the provider keeps for so long.
func writeFor(t *agentdv1.PriceTier, ttl time.Duration) float64 {
	out := t.GetInput()
	for _, w := range t.GetCacheWrites() {
		if w.GetTtl().AsDuration() <= ttl {
			out = w.GetPrice()
		}
	}
	return out
}

// span is a duration without what is zero at its end: 1h, not 1h0m0s.
func span(d time.Duration) string {
	out := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(out, zero) {
			out = out[:len(out)-2]
		}
	}
	return out
}

// price is what a million tokens cost.
func price(usd float64) string { return "$" + strconv.FormatFloat(usd, 'f', -1, 64) }

// word is SUCCEEDED of an enum TURN_STATUS_SUCCEEDED, in lower case and with
// spaces.
func word(enum fmt.Stringer, prefix string) string {
	s := strings.TrimPrefix(enum.String(), prefix)
	if s == "UNSPECIFIED" {
		return "-"
	}
	return strings.ToLower(strings.ReplaceAll(s, "_", " "))
}

// codeName is SESSION_BUSY for ERROR_CODE_SESSION_BUSY.
func codeName(c agentdv1.ErrorCode) string { return strings.TrimPrefix(c.String(), "ERROR_CODE_") }

func status(s agentdv1.TurnStatus) string { return word(s, "TURN_STATUS_") }

func labels(m map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, k+"="+m[k])
	}
	return strings.Join(out, " ")
}

// unserved says that a call waits for a client, and what helps.
func unserved(u *agentdv1.ToolCallUnserved) string {
	text := fmt.Sprintf("no attached client has the tool %s; attach one with: agentd run --attach %s FILE",
		u.GetToolName(), u.GetSessionId())
	if at := u.GetExpireTime(); at != nil {
		text += "; waiting until " + at.AsTime().Local().Format("2006-01-02 15:04:05 MST")
	}
	return Clean(text)
}

// calls is a number of model calls.
func calls(n int64) string {
	if n == 1 {
		return "1 model call"
	}
	return number(n) + " model calls"
}

// cost is what was spent as far as it is known, and says so where some of it is not.
func cost(u *agentdv1.Usage) string {
	known, unpriced := u.GetCostUsd(), u.GetUnpricedCalls()
	switch {
	case unpriced == 0:
		return dollars(known)
	case known <= 0:
		return "price unknown"
	}
	least, calls := "≥ "+dollars(known), " calls"
	if known < 0.0001 {
		least = "> $0"
	}
	if unpriced == 1 {
		calls = " call"
	}
	return least + " (" + number(unpriced) + calls + " unpriced)"
}

// usage says what was used, in a few words.
func usage(u *agentdv1.Usage) string {
	out := []string{calls(u.GetModelCalls()), number(u.GetTotalTokens()) + " tokens"}
	if u.GetCostUsd() > 0 || u.GetUnpricedCalls() > 0 {
		out = append(out, cost(u))
	}
	return strings.Join(out, ", ")
}

// budget says what may be spent; of no bound there is nothing to tell.
func budget(b *agentdv1.Budget) string {
	var out []string
	if n := b.GetModelCalls(); n > 0 {
		out = append(out, calls(n))
	}
	if n := b.GetTokens(); n > 0 {
		out = append(out, number(n)+" tokens")
	}
	if usd := b.GetCostUsd(); usd > 0 {
		out = append(out, dollars(usd))
	}
	if d := b.GetWallTime().AsDuration(); d > 0 {
		out = append(out, duration(d))
	}
	return strings.Join(out, ", ")
}

// ended is what a turn has used, as far as its end can say.
func ended(end *agentdv1.RunResponse_EndResponse) *agentdv1.Usage {
	sum := end.GetUsageSummary()
	return &agentdv1.Usage{
		TotalTokens: int64(sum.GetTotalUsage().GetTotalTokens()), ModelCalls: int64(sum.GetLlmCalls()),
		CostUsd: new(sum.GetEstimatedCost()), UnpricedCalls: int64(sum.GetUnpricedCalls()),
	}
}

// Summary is the last line of a turn.
func (e *Ending) Summary() string {
	how := "completed"
	switch {
	case e.Err != nil:
		how = fmt.Sprintf("failed: %s (%s)", line(e.Err.GetMessage(), 500), codeName(e.Err.GetCode()))
	case !e.End.GetCompleted():
		how = "stopped: " + cmp.Or(line(e.End.GetReason(), 500), "cancelled")
	}
	return fmt.Sprintf("%s; %s, %s, session %s", how, usage(ended(e.End)), duration(e.Took), Clean(e.Session))
}
