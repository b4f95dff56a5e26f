package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/apzuk3/agentd/internal/encoded"
	"github.com/apzuk3/agentd/internal/rawjson"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
	"github.com/apzuk3/agentd/model/internal/wire"
)

// maxErrorBody bounds what is read of a response that is no stream, in bytes.
const maxErrorBody = 64 << 10

// apiError is a server's description of an error. Servers differ: code may be
// a number, and the whole may be a text.
type apiError struct {
	Message string
	Code    string
	Type    string
	Status  int
}

// UnmarshalJSON implements json.Unmarshaler. It takes any JSON.
func (e *apiError) UnmarshalJSON(data []byte) error {
	var fields struct {
		Message  string `json:"message"`
		Detail   any    `json:"detail"`
		Type     any    `json:"type"`
		Code     any    `json:"code"`
		Status   any    `json:"status"`
		Metadata struct {
			Raw any `json:"raw"` // OpenRouter: what the provider behind it said.
		} `json:"metadata"`
		Inner struct {
			Filter json.RawMessage `json:"content_filter_result"` // Azure
		} `json:"innererror"`
	}
	if json.Unmarshal(data, &fields) != nil {
		var text string
		if json.Unmarshal(data, &text) == nil {
			e.Message = text
		}
		return nil
	}
	e.Message, e.Type, e.Code = fields.Message, asText(fields.Type), asText(fields.Code)
	if e.Message == "" {
		e.Message = asText(fields.Detail)
	}
	if raw := asText(fields.Metadata.Raw); raw != "" {
		e.Message += ": " + raw
	}
	if why := categories(fields.Inner.Filter); why != "" {
		e.Message += ": " + why
	}
	for _, v := range []any{fields.Status, fields.Code} {
		if n, ok := v.(float64); ok && n >= 400 && n < 600 {
			e.Status = int(n)
			break
		}
	}
	return nil
}

// asText is v if it is a string, else its JSON; "" for null.
func asText(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	default:
		b, err := rawjson.Marshal(v)
		if err != nil {
			return ""
		}
		return string(b)
	}
}

// noQuota and noBilling are codes of a rate limit that only a payment lifts.
const (
	noQuota   = "insufficient_quota"
	noBilling = "billing_not_active"
)

// codeStatus maps error codes and types to the HTTP status they go with, for
// errors that come inside a stream.
var codeStatus = map[string]int{
	"rate_limit_exceeded":       http.StatusTooManyRequests,
	"rate_limit_error":          http.StatusTooManyRequests,
	noQuota:                     http.StatusTooManyRequests,
	noBilling:                   http.StatusTooManyRequests,
	"invalid_api_key":           http.StatusUnauthorized,
	"authentication_error":      http.StatusUnauthorized,
	"permission_error":          http.StatusForbidden,
	"model_not_found":           http.StatusNotFound,
	"invalid_request_error":     http.StatusBadRequest,
	"invalid_prompt":            http.StatusBadRequest,
	"invalid_encrypted_content": http.StatusBadRequest,
	"context_length_exceeded":   http.StatusBadRequest,
	"content_filter":            http.StatusBadRequest,
	"content_policy_violation":  http.StatusBadRequest,
	"bio_policy":                http.StatusBadRequest,
	"data_residency_mismatch":   http.StatusBadRequest,
	"vector_store_timeout":      http.StatusGatewayTimeout,
	"server_error":              http.StatusInternalServerError,
	"server_overloaded":         http.StatusServiceUnavailable,
	"overloaded_error":          http.StatusServiceUnavailable,
}

// failure makes an error of what the server said.
func (l *llm) failure(e apiError, status int, header http.Header) *model.Error {
	for _, s := range []int{e.Status, codeStatus[e.Code], codeStatus[e.Type]} {
		if status == 0 {
			status = s
		}
	}
	if status == 0 && strings.Contains(e.Code, "image") {
		status = http.StatusBadRequest // Of a failed response: an image that it could not read, or may not.
	}
	code := e.Code
	if code == "" {
		code = e.Type
	}
	err := adapter.Failure{
		Provider: l.cfg.Name, Status: status, Header: header,
		Code: code, Message: e.Message, Secrets: []string{l.key},
	}.Error()
	if slices.ContainsFunc([]string{e.Code, e.Type},
		func(code string) bool { return code == noQuota || code == noBilling }) {
		err.Final = true
	}
	if err.Kind == model.KindInvalid {
		text := strings.ToLower(e.Code + " " + e.Type + " " + e.Message)
		switch {
		case strings.Contains(text, "too large for model"):
			err.Kind = model.KindContextTooLong
		case strings.Contains(text, "invalid_prompt"), strings.Contains(text, "content_filter"),
			strings.Contains(text, "bio_policy"):
			err.Kind = model.KindBlocked
		}
	}
	return err
}

// post makes the request and returns a response that is an event stream, or
// JSON.
func (l *llm) post(ctx context.Context, path string, body *encoded.Body) (*http.Response, error) {
	resp, err := l.endpoint.Post(ctx, path, body, nil)
	if err != nil {
		return nil, adapter.TransportError(ctx, l.cfg.Name, err, l.key)
	}
	contentType := wire.ContentType(resp)
	ok := resp.StatusCode >= 200 && resp.StatusCode < 300
	if ok && !strings.HasPrefix(contentType, "text/html") {
		return resp, nil
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	if err := ctx.Err(); err != nil {
		return nil, adapter.TransportError(ctx, l.cfg.Name, err, l.key)
	}
	e := parseError(text)
	status := resp.StatusCode
	if e.Message == "" && status < http.StatusBadRequest {
		e.Message = "the response is no event stream but " + contentType
	}
	if ok {
		status = 0
	}
	return nil, l.failure(e, status, resp.Header)
}

// parseError reads an error body: {"error": …}, or the error by itself, or
// either as the only element of an array. What is no JSON, such as a proxy's
// page, is not repeated.
func parseError(body []byte) apiError {
	body = bytes.TrimSpace(body)
	var list []json.RawMessage
	if json.Unmarshal(body, &list) == nil && len(list) > 0 {
		body = list[0]
	}
	var envelope struct {
		Error *apiError `json:"error"`
	}
	if json.Unmarshal(body, &envelope) != nil {
		return apiError{}
	}
	if envelope.Error != nil {
		return *envelope.Error
	}
	var e apiError
	_ = json.Unmarshal(body, &e)
	return e
}

func (l *llm) invalid(format string, args ...any) *model.Error {
	return &model.Error{Kind: model.KindInvalid, Provider: l.cfg.Name, Message: fmt.Sprintf(format, args...)}
}

func (l *llm) broken(format string, args ...any) *model.Error {
	return &model.Error{Kind: model.KindUnavailable, Provider: l.cfg.Name, Message: fmt.Sprintf(format, args...)}
}

// tooMuch is broken for a response that would be as much another time.
func (l *llm) tooMuch(format string, args ...any) *model.Error {
	err := l.broken(format, args...)
	err.Final = true
	return err
}

// blocked is the error of content that is refused; why is what the server, or the
// model, says of it.
func (l *llm) blocked(what, why string) *model.Error {
	return adapter.Blocked(l.cfg.Name, what, why, l.key)
}

const (
	refused  = "the model refused to respond"
	filtered = "the provider's content filter stopped the response"
)

// categories are those for which Azure's content filter says that it has
// filtered, with how severe they are; "" for none.
func categories(results json.RawMessage) string {
	var byName map[string]json.RawMessage
	_ = json.Unmarshal(results, &byName) // It explains an error, no more.
	var out []string
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		var r struct {
			Filtered bool   `json:"filtered"`
			Severity string `json:"severity"`
		}
		if json.Unmarshal(byName[name], &r) != nil || !r.Filtered {
			continue
		}
		if r.Severity != "" {
			name += " (" + r.Severity + ")"
		}
		out = append(out, name)
	}
	return strings.Join(out, ", ")
}
