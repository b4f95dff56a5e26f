package managed

import (
	"encoding/json"
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// The objects of the protocol as a client reads them. Times are RFC 3339, null for none; lists are never null.

type modelObject struct {
	ID string `json:"id"`
}

type toolObject struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"input_schema"`
}

// agentRef is an agent of a roster.
type agentRef struct {
	Type    string `json:"type"`
	ID      string `json:"id"`
	Version int64  `json:"version"`
}

// roster is what a coordinator may hand the conversation to. Agents are agentRefs in an agent, and whole agents in a
// session.
type roster struct {
	Type   string `json:"type"`
	Agents []any  `json:"agents"`
}

// agentBody is what agents, and the agents of sessions and threads, have in common.
type agentBody struct {
	ID          string       `json:"id"`
	Type        string       `json:"type"`
	Version     int64        `json:"version"`
	Name        string       `json:"name"`
	Model       modelObject  `json:"model"`
	System      string       `json:"system"`
	Description string       `json:"description"`
	Tools       []toolObject `json:"tools"`
	Multiagent  *roster      `json:"multiagent"`
	MCPServers  []struct{}   `json:"mcp_servers"`
	Skills      []struct{}   `json:"skills"`
}

type agentObject struct {
	agentBody
	Metadata   map[string]string `json:"metadata"`
	CreatedAt  *string           `json:"created_at"`
	UpdatedAt  *string           `json:"updated_at"`
	ArchivedAt *string           `json:"archived_at"`
}

type environmentObject struct {
	ID          string            `json:"id"`
	Type        string            `json:"type"`
	Name        string            `json:"name"`
	Description string            `json:"description"`
	Config      json.RawMessage   `json:"config"`
	Metadata    map[string]string `json:"metadata"`
	CreatedAt   *string           `json:"created_at"`
	UpdatedAt   *string           `json:"updated_at"`
	ArchivedAt  *string           `json:"archived_at"`
}

type money struct {
	Amount   string `json:"amount"`
	Currency string `json:"currency"`
}

type budgetObject struct {
	Type        string `json:"type"`
	MaxListCost money  `json:"max_list_cost"`
}

type usageObject struct {
	InputTokens          int64 `json:"input_tokens"`
	OutputTokens         int64 `json:"output_tokens"`
	CacheReadInputTokens int64 `json:"cache_read_input_tokens"`
}

type statsObject struct {
	ActiveSeconds   float64 `json:"active_seconds"`
	DurationSeconds float64 `json:"duration_seconds"`
}

type sessionObject struct {
	ID                 string            `json:"id"`
	Type               string            `json:"type"`
	Status             string            `json:"status"`
	Agent              agentBody         `json:"agent"`
	EnvironmentID      string            `json:"environment_id"`
	Title              *string           `json:"title"`
	Metadata           map[string]string `json:"metadata"`
	Budget             *budgetObject     `json:"budget"`
	Usage              usageObject       `json:"usage"`
	Stats              statsObject       `json:"stats"`
	Resources          []struct{}        `json:"resources"`
	VaultIDs           []struct{}        `json:"vault_ids"`
	OutcomeEvaluations []struct{}        `json:"outcome_evaluations"`
	CreatedAt          *string           `json:"created_at"`
	UpdatedAt          *string           `json:"updated_at"`
	ArchivedAt         *string           `json:"archived_at"`
}

type threadObject struct {
	ID             string      `json:"id"`
	Type           string      `json:"type"`
	SessionID      string      `json:"session_id"`
	Agent          agentBody   `json:"agent"`
	ParentThreadID *string     `json:"parent_thread_id"`
	Status         string      `json:"status"`
	Usage          usageObject `json:"usage"`
	Stats          statsObject `json:"stats"`
	CreatedAt      *string     `json:"created_at"`
	UpdatedAt      *string     `json:"updated_at"`
	ArchivedAt     *string     `json:"archived_at"`
}

// deletedObject says that something is gone.
type deletedObject struct {
	ID   string `json:"id"`
	Type string `json:"type"`
}

// page is a page of a list. NextPage is null on the last one.
type page struct {
	Data     []any   `json:"data"`
	NextPage *string `json:"next_page"`
}

func pageOf(data []any, next string) page {
	if data == nil {
		data = []any{}
	}
	p := page{Data: data}
	if next != "" {
		p.NextPage = &next
	}
	return p
}

// timeText is a time as the protocol writes it.
func timeText(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	s := t.UTC().Format(time.RFC3339Nano)
	return &s
}

func stampText(t *timestamppb.Timestamp) *string {
	if t == nil {
		return nil
	}
	return timeText(t.AsTime())
}

// usageOf counts tokens as the protocol does: those of the cache are not among the others.
func usageOf(u *agentdv1.Usage) usageObject {
	return usageObject{
		InputTokens:  max(0, u.GetPromptTokens()-u.GetCachedTokens()-u.GetCacheWriteTokens()),
		OutputTokens: u.GetCompletionTokens(), CacheReadInputTokens: u.GetCachedTokens(),
	}
}

// centsPerDollar: amounts are in the smallest unit of their currency.
const centsPerDollar = 100

// budget reads a budget: nil for one that is left out or null.
func (in *input) budget(name string) *budgetObject {
	b := in.object(name)
	if b == nil {
		return nil
	}
	out := &budgetObject{Type: b.one("type", "limit")}
	cost := b.object("max_list_cost")
	if cost == nil {
		b.failf("max_list_cost", `is missing, want {"amount": "2500", "currency": "USD"}`)
		return nil
	}
	out.MaxListCost.Currency = cost.one("currency", "USD")
	out.MaxListCost.Amount = cost.must("amount", 20)
	n, err := strconv.ParseInt(out.MaxListCost.Amount, 10, 64)
	if err != nil || n <= 0 || strconv.FormatInt(n, 10) != out.MaxListCost.Amount {
		cost.failf("amount", `is %.40q, want cents as a whole number above 0, such as "2500" for 25 dollars`,
			out.MaxListCost.Amount)
	}
	_ = cost.done() // in keeps the error
	_ = b.done()
	return out
}

// proto is a budget as agentd has it; none is one without bounds.
func (b *budgetObject) proto() *agentdv1.Budget {
	if b == nil {
		return &agentdv1.Budget{}
	}
	n, _ := strconv.ParseInt(b.MaxListCost.Amount, 10, 64) // budget has checked it
	return &agentdv1.Budget{CostUsd: float64(n) / centsPerDollar}
}

// budgetOf is a budget as the protocol has it, nil without one in money. A part of a cent is left out.
func budgetOf(b *agentdv1.Budget) *budgetObject {
	cents := int64(b.GetCostUsd()*centsPerDollar + 1e-6)
	if cents == 0 {
		return nil
	}
	return &budgetObject{Type: "limit", MaxListCost: money{Amount: strconv.FormatInt(cents, 10), Currency: "USD"}}
}
