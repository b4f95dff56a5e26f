package managed

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// failure is a refusal in the form of the protocol.
type failure struct {
	status  int
	message string
	retry   time.Duration // after which the same may succeed; 0 for unknown
}

func (f *failure) Error() string { return f.message }

func badf(format string, args ...any) error {
	return &failure{status: http.StatusBadRequest, message: fmt.Sprintf(format, args...)}
}

func missingf(format string, args ...any) error {
	return &failure{status: http.StatusNotFound, message: fmt.Sprintf(format, args...)}
}

// kindOfStatus are the types of errors, by their statuses.
var kindOfStatus = map[int]string{
	http.StatusBadRequest:            "invalid_request_error",
	http.StatusRequestEntityTooLarge: "invalid_request_error",
	http.StatusUnauthorized:          "authentication_error",
	http.StatusForbidden:             "permission_error",
	http.StatusNotFound:              "not_found_error",
	http.StatusGone:                  "not_found_error",
	http.StatusConflict:              "conflict_error",
	http.StatusTooManyRequests:       "rate_limit_error",
	http.StatusGatewayTimeout:        "timeout_error",
	statusOverloaded:                 "overloaded_error",
}

// statusOverloaded says that the server, or its store, takes nothing now.
const statusOverloaded = 529

// statusOf is the status for a code of agentd. The status of server.FaceEnv.Error counts for those that are not here.
func statusOf(status int, e *agentdv1.RunResponse_ErrorResponse) int {
	switch {
	case status == http.StatusTooManyRequests, status == http.StatusRequestEntityTooLarge: // a limit of the server
	case e.GetCode() == agentdv1.ErrorCode_ERROR_CODE_UNAVAILABLE:
		return statusOverloaded
	case e.GetCode() == agentdv1.ErrorCode_ERROR_CODE_LIMIT_EXCEEDED:
		return http.StatusTooManyRequests
	case e.GetCode() == agentdv1.ErrorCode_ERROR_CODE_SESSION_BUSY: // as many messages wait as may
		return http.StatusTooManyRequests
	}
	return status
}

// failureOf makes an error one of the protocol.
func (f *face) failureOf(err error) *failure {
	if own, ok := errors.AsType[*failure](err); ok {
		return own
	}
	status, e := f.env.Error(err)
	return &failure{status: statusOf(status, e), message: e.GetMessage(), retry: e.GetRetryAfter().AsDuration()}
}

// failureIf is failureOf, nil for no error.
func (f *face) failureIf(err error) *failure {
	if err == nil {
		return nil
	}
	return f.failureOf(err)
}

// isCode reports whether an error of SessionService has a code.
func (f *face) isCode(err error, code agentdv1.ErrorCode) bool {
	if _, own := errors.AsType[*failure](err); own || err == nil {
		return false
	}
	_, e := f.env.Error(err)
	return e.GetCode() == code
}

// errorBody is an error as the protocol writes it.
type errorBody struct {
	Type  string `json:"type"`
	Error struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	} `json:"error"`
	RequestID *string `json:"request_id"`
}

func bodyOfFailure(e *failure, requestID string) []byte {
	body := errorBody{Type: "error"}
	body.Error.Type, body.Error.Message = kindOfStatus[e.status], e.message
	if body.Error.Type == "" {
		body.Error.Type = "api_error"
	}
	if requestID != "" {
		body.RequestID = &requestID
	}
	return marshal(body)
}

// refuse writes a refusal.
func refuse(w http.ResponseWriter, e *failure) {
	h := w.Header()
	id := h.Get(requestID)
	if id == "" {
		id = newRequestID()
		h.Set(requestID, id)
	}
	if e.status == http.StatusConflict {
		h.Set("x-should-retry", "false")
	}
	if e.retry > 0 {
		h.Set("Retry-After", strconv.FormatInt(int64((e.retry+time.Second-1)/time.Second), 10))
	}
	write(w, e.status, bodyOfFailure(e, id))
}

// requestID is the header that names a request.
const requestID = "request-id"

func newRequestID() string { return "req_" + strings.ToLower(rand.Text()) }

// write writes a reply. A client that is gone reads nothing.
func write(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// marshal is json.Marshal for what can be marshaled. It leaves <, > and & as they are.
func marshal(v any) []byte {
	var out strings.Builder
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil { // not reached: no type of this package fails
		return []byte("null")
	}
	return []byte(strings.TrimSuffix(out.String(), "\n"))
}
