package peer

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// maxEvent is the longest line of an event stream, in bytes.
const maxEvent = 16 << 20

// stream posts a body and hands each event of the answer to heard.
func stream(ctx context.Context, client *http.Client, url string, body []byte, heard func(event []byte) error) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header["Content-Type"] = []string{"application/json"}
	req.Header["X-Goog-Api-Key"] = []string{"bench"}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		why, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
		return fmt.Errorf("%s: %s: %s", url, resp.Status, why)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxEvent)
	for lines.Scan() {
		if event, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: ")); ok {
			if err := heard(event); err != nil {
				return err
			}
		}
	}
	return lines.Err()
}

// geminiEvent is what a client needs of an event of Gemini, and of one of ADK, which has its content without
// candidates.
type geminiEvent struct {
	Candidates    []struct{ Content geminiContent }
	Content       geminiContent
	Partial       bool
	Error         any
	ErrorCode     string
	UsageMetadata struct{ PromptTokenCount, CandidatesTokenCount int64 }
}

type geminiContent struct {
	Parts []struct {
		Text         string
		FunctionCall *struct {
			Name string
			Args json.RawMessage
		}
		FunctionResponse *struct{}
	}
}
