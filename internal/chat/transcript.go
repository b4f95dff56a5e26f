package chat

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/apzuk3/agentd/internal/cli"
	"github.com/apzuk3/agentd/internal/plainfile"
)

// totals are what all turns have used.
type totals struct {
	Turns        int     `json:"turns"`
	InputTokens  int64   `json:"input_tokens"`
	OutputTokens int64   `json:"output_tokens"`
	Cost         float64 `json:"cost_usd"`
	unpriced     bool
}

func (t *totals) add(e *cli.Ending) {
	sum := e.End.GetUsageSummary()
	t.Turns++
	t.InputTokens += int64(sum.GetTotalUsage().GetPromptTokens())
	t.OutputTokens += int64(sum.GetTotalUsage().GetCompletionTokens())
	t.Cost += sum.GetEstimatedCost()
	t.unpriced = t.unpriced || sum.GetUnpricedCalls() > 0
}

// summary is the last line of a chat.
func (t *totals) summary(model string) string {
	cost := fmt.Sprintf("$%.4f", t.Cost)
	if t.unpriced || t.Turns == 0 {
		cost = "$—"
	}
	if model == "" {
		model = "the session's models"
	}
	return fmt.Sprintf("%d turn(s) · ↑%d ↓%d tokens · %s (%s)",
		t.Turns, t.InputTokens, t.OutputTokens, cost, cli.Clean(model))
}

const (
	// maxMessages and maxTranscript bound what a transcript holds; what comes then is not in it.
	maxMessages   = 10_000
	maxTranscript = 16 << 20
)

// transcript is what was said, in a file of the project; none in a project without .agents.
type transcript struct {
	path  string
	bytes int
	form  transcriptForm
}

type transcriptForm struct {
	Version   int       `json:"version"`
	StartedAt time.Time `json:"started_at"`
	EndedAt   time.Time `json:"ended_at"`
	Model     string    `json:"model"`
	Messages  []message `json:"messages"`
	Usage     *totals   `json:"usage"`
}

type message struct {
	Role string `json:"role"` // user or assistant
	Text string `json:"text"`
}

// begin names the file by the time.
func (t *transcript) begin(root, model string) {
	folder := filepath.Join(root, ".agents")
	if info, err := os.Stat(folder); err != nil || !info.IsDir() {
		return
	}
	now := time.Now().UTC().Truncate(time.Second)
	t.path = filepath.Join(folder, "sessions", strings.ReplaceAll(now.Format(time.RFC3339), ":", "-")+".json")
	t.form = transcriptForm{Version: 1, StartedAt: now, Model: model, Messages: []message{}}
}

// add adds a turn.
func (t *transcript) add(user, assistant string) {
	t.bytes += len(user) + len(assistant)
	if t.path == "" || len(t.form.Messages)+2 > maxMessages || t.bytes > maxTranscript {
		return
	}
	if user != "" {
		t.form.Messages = append(t.form.Messages, message{"user", user})
	}
	if assistant != "" {
		t.form.Messages = append(t.form.Messages, message{"assistant", assistant})
	}
}

// save replaces the file as a whole.
func (t *transcript) save(used *totals) error {
	if t.path == "" || len(t.form.Messages) == 0 {
		return nil
	}
	t.form.EndedAt, t.form.Usage = time.Now().UTC().Truncate(time.Second), used
	data, err := json.MarshalIndent(t.form, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(t.path), 0o700); err != nil {
		return err
	}
	return plainfile.Replace(t.path, append(data, '\n'), 0o600)
}
