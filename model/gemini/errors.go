package gemini

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"time"

	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/model/adapter"
)

// maxErrorBody bounds what is read of an error's body, in bytes.
const maxErrorBody = 64 << 10

// apiStatus is Google's error object.
type apiStatus struct {
	Error *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Status  string `json:"status"`
		Details []struct {
			Reason     string `json:"reason"`
			RetryDelay string `json:"retryDelay"`
		} `json:"details"`
	} `json:"error"`
}

// failure makes an error of a response whose status is not 200.
func (l *llm) failure(ctx context.Context, resp *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return l.apiError(resp.StatusCode, resp.Header, body)
}

// apiError makes an error of an error body: an error object, an array with one
// in it, as Vertex AI sends, or any text. status 200 means that the body came
// within a stream and tells its status itself.
func (l *llm) apiError(status int, header http.Header, body []byte) error {
	f := adapter.Failure{Provider: name, Status: status, Header: header, Message: string(body),
		Secrets: []string{l.secret}}
	var retry time.Duration
	if s, ok := parseStatus(body); ok {
		f.Message, f.Code = s.Error.Message, s.Error.Status
		if status == http.StatusOK {
			f.Status = s.Error.Code
		}
		for _, d := range s.Error.Details {
			if d.Reason != "" {
				f.Code = d.Reason
			}
			if d, err := time.ParseDuration(d.RetryDelay); err == nil {
				retry = d
			}
		}
	}
	if f.Status < http.StatusBadRequest {
		f.Status = 0
	}
	e := f.Error()
	if e.RetryAfter == 0 {
		e.RetryAfter = min(max(retry, 0), seam.MaxRetryAfter)
	}
	return e
}

// parseStatus reads an error body.
func parseStatus(body []byte) (apiStatus, bool) {
	body = bytes.TrimSpace(body)
	if bytes.HasPrefix(body, []byte("[")) {
		var list []apiStatus
		if err := json.Unmarshal(body, &list); err == nil && len(list) > 0 && list[0].Error != nil {
			return list[0], true
		}
		return apiStatus{}, false
	}
	var s apiStatus
	err := json.Unmarshal(body, &s)
	return s, err == nil && s.Error != nil
}
