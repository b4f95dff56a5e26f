package server

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protowire"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/fault"
)

// A result that is refused still ends its call: its client counts the call as done and
// sends nothing more. If the message cannot be decoded, or is too large to be read, its
// beginning names the call: protobuf, binary and JSON, writes fields in order, the ids
// before the result. If it does not, only the ErrorResponse reports the refusal.

// headBytes is how much of an unread message is examined. The ids of the session and
// the call take less than 500 bytes.
const headBytes = 1 << 10

// resultHead names the call of a result; see resultOfEnvelope.
type resultHead struct{ sessionID, callID string }

// undecodable returns why a message could not be received. If the message was a result,
// the refusal becomes the result of its call.
func (st *stream) undecodable(err error) *fault.Error {
	e := receiveError(err, st.srv.now().MaxMessageBytes)
	if !inStep(err) && !errors.Is(err, errSlowMessage) {
		return e // the client, or its connection, is gone: it may send the message again
	}
	of, ok := resultOfEnvelope(st.t.body.head)
	if d, whole := errors.AsType[*decodeError](err); whole {
		of, ok = d.of, d.of.callID != ""
	}
	if !ok || st.observes || st.far.isAway() || of.sessionID != "" && of.sessionID != st.turn.SessionID() {
		return e
	}
	return st.submitResult(context.WithoutCancel(st.t.ctx), session.ClientResult{CallID: of.callID, Refused: e})
}

// invalid returns why a message that breaks a rule is refused. If the message is a
// result of this session, the refusal becomes the result of its call.
func (st *stream) invalid(msg *agentdv1.RunRequest, e *fault.Error) *fault.Error {
	r := msg.GetToolCallResponse()
	if st.observes || st.far.isAway() || r.GetToolCallId() == "" {
		return e
	}
	if id := r.GetSessionId(); id != "" && id != st.turn.SessionID() {
		return e
	}
	return st.submitResult(context.WithoutCancel(st.t.ctx), session.ClientResult{CallID: r.GetToolCallId(), Refused: e})
}

// submitResult records a result. The error says why not.
func (st *stream) submitResult(ctx context.Context, a session.ClientResult) *fault.Error {
	return st.resultOf("record result", st.turn.SubmitResult(ctx, a))
}

// resultOfEnvelope reads the beginning of a message on the wire, its prefix included.
// It inflates no more of a compressed message than it examines.
func resultOfEnvelope(head []byte) (resultHead, bool) {
	if len(head) < envelopeBytes {
		return resultHead{}, false
	}
	flags, data := head[0], head[envelopeBytes:]
	if flags&1 != 0 {
		z, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			return resultHead{}, false
		}
		data, _ = io.ReadAll(io.LimitReader(z, headBytes)) // cut off where the head is
	}
	return resultHeadOf(data)
}

// resultHeadOf reads as much of a message as there is.
func resultHeadOf(data []byte) (resultHead, bool) {
	of := resultHead{}
	if start := bytes.TrimLeft(data, " \t\r\n"); len(start) > 0 && start[0] == '{' {
		of.readJSON(data)
	} else {
		of.readBinary(data)
	}
	return of, of.callID != ""
}

// Fields of RunRequest and of ToolCallResponse.
const (
	toolCallResponseField = 3
	sessionIDField        = 1
	toolCallIDField       = 2
)

func (of *resultHead) readBinary(data []byte) {
	num, typ, n := protowire.ConsumeTag(data)
	if n < 0 || num != toolCallResponseField || typ != protowire.BytesType {
		return
	}
	data = data[n:]
	if _, n = protowire.ConsumeVarint(data); n < 0 { // the length, of which not all may be here
		return
	}
	for data = data[n:]; len(data) > 0; {
		num, typ, n := protowire.ConsumeTag(data)
		if n < 0 || typ != protowire.BytesType {
			return
		}
		value, m := protowire.ConsumeBytes(data[n:])
		if m < 0 {
			return
		}
		switch num {
		case sessionIDField:
			of.sessionID = string(value)
		case toolCallIDField:
			of.callID = string(value)
		}
		data = data[n+m:]
	}
}

func (of *resultHead) readJSON(data []byte) {
	type level struct {
		object, wantsKey bool
		key              string
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	in := []level{{}}
	for len(in) <= maxDepth {
		token, err := dec.Token()
		if err != nil {
			return
		}
		now := &in[len(in)-1]
		text, isText := token.(string)
		switch {
		case token == json.Delim('}') || token == json.Delim(']'):
			in = in[:len(in)-1]
			now = &in[len(in)-1]
		case token == json.Delim('{') || token == json.Delim('['):
			in = append(in, level{object: token == json.Delim('{'), wantsKey: token == json.Delim('{')})
			continue
		case now.wantsKey:
			now.key, now.wantsKey = text, false
			continue
		case isText && len(in) == 3 && (in[1].key == "toolCallResponse" || in[1].key == "tool_call_response"):
			of.set(now.key, text)
		}
		now.wantsKey = now.object // a value is over
	}
}

// set sets a field of a result in JSON.
func (of *resultHead) set(key, value string) {
	switch key {
	case "sessionId", "session_id":
		of.sessionID = value
	case "toolCallId", "tool_call_id":
		of.callID = value
	}
}

// resultsOf translates the results of a request. One that breaks a rule is refused
// for itself, like one that the session refuses.
func (s *sessionService) resultsOf(r *agentdv1.SubmitToolResultsRequest) ([]session.ClientResult, *fault.Error) {
	results, left := make([]session.ClientResult, 0, len(r.GetResults())), maxValues
	for i, result := range r.GetResults() {
		if named := result.GetSessionId(); named != "" && named != r.GetSessionId() {
			return nil, fault.Errorf(codeInvalid, "results[%d] names session %s, the request session %s", i,
				quote(named), quote(r.GetSessionId())).
				Breaking(fmt.Sprintf("results[%d].session_id", i), fault.RuleConflict)
		}
		a, e := session.ClientResult{CallID: result.GetToolCallId()}, check(s.rules, result)
		if e == nil {
			a, e = toolResultOf(result, &left)
		}
		if e != nil && result.GetToolCallId() == "" {
			at := fmt.Sprintf("results[%d].", i)
			e = e.Within(at)
			e.Message = at + e.Message
			return nil, e
		}
		a.Refused = e
		results = append(results, a)
	}
	return results, nil
}
