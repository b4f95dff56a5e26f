package anthropic

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
	"github.com/apzuk3/agentd/model/internal/wire"
)

// maxErrorBody bounds what is read of a response that is no stream, in bytes.
const maxErrorBody = 64 << 10

// statusOverloaded is Anthropic's own status for an overloaded server.
const statusOverloaded = 529

// apiError is Anthropic's description of an error.
type apiError struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

// errorStatus maps the types of errors to the HTTP status they go with, for
// those that come inside a stream.
var errorStatus = map[string]int{
	"invalid_request_error": http.StatusBadRequest,
	"authentication_error":  http.StatusUnauthorized,
	"billing_error":         http.StatusPaymentRequired,
	"permission_error":      http.StatusForbidden,
	"not_found_error":       http.StatusNotFound,
	"request_too_large":     http.StatusRequestEntityTooLarge,
	"rate_limit_error":      http.StatusTooManyRequests,
	"api_error":             http.StatusInternalServerError,
	"timeout_error":         http.StatusGatewayTimeout,
	"overloaded_error":      statusOverloaded,
}

// failure makes an error of what Anthropic said. A status of 0 is that of the
// error's type.
func (l *llm) failure(e apiError, status int, header http.Header) *model.Error {
	if status == 0 {
		status = errorStatus[e.Type]
	}
	return adapter.Failure{
		Provider: name, Status: status, Header: header,
		Code: e.Type, Message: e.Message, Secrets: []string{l.key},
	}.Error()
}

// parseError reads an error body. What is no JSON, such as a proxy's page, is
// not repeated.
func parseError(body []byte) apiError {
	var e struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
	}
	if json.Unmarshal(body, &e) != nil {
		return apiError{}
	}
	out := apiError{}
	if json.Unmarshal(e.Error, &out) != nil {
		_ = json.Unmarshal(e.Error, &out.Message) // Some proxies send plain text.
	}
	if out.Message == "" {
		out.Message = e.Message
	}
	return out
}

// checkResponse refuses a response that is no event stream, and closes it.
func (l *llm) checkResponse(ctx context.Context, resp *http.Response) error {
	contentType := wire.ContentType(resp)
	ok := resp.StatusCode >= 200 && resp.StatusCode < 300
	if ok && !wire.IsJSON(contentType) && !strings.HasPrefix(contentType, "text/html") {
		return nil
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	if err := ctx.Err(); err != nil {
		return adapter.TransportError(ctx, name, err, l.key)
	}
	e := parseError(body)
	status := resp.StatusCode
	if e.Message == "" && status < http.StatusBadRequest {
		e.Message = "the response is no event stream but " + contentType
	}
	if ok {
		status = 0
	}
	return l.failure(e, status, resp.Header)
}
