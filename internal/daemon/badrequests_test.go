package daemon_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/session/limits"
)

// badRequest is a request that a method must refuse. Its JSON holds names in
// braces, which stand for what the test has made, see fixtures.
type badRequest struct {
	name, json string
	code       connect.Code
	kind       agentdv1.ErrorCode
	says       []string
	// jsonOnly is that the other forms cannot say it.
	jsonOnly bool
}

const (
	invalidArgument = connect.CodeInvalidArgument
	invalidRequest  = agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST
	noSession       = agentdv1.ErrorCode_ERROR_CODE_SESSION_NOT_FOUND
	notFound        = agentdv1.ErrorCode_ERROR_CODE_NOT_FOUND
	notNow          = agentdv1.ErrorCode_ERROR_CODE_FAILED_PRECONDITION
	limitExceeded   = agentdv1.ErrorCode_ERROR_CODE_LIMIT_EXCEEDED
	badTree         = agentdv1.ErrorCode_ERROR_CODE_INVALID_AGENT_TREE
	conflict        = agentdv1.ErrorCode_ERROR_CODE_CONFLICT
)

// named are the requests that every method with a session_id refuses.
func named(rest string) []badRequest {
	return []badRequest{
		{name: "no session", json: `{` + strings.TrimPrefix(rest, ",") + `}`, code: invalidArgument, kind: invalidRequest, says: []string{"session_id", "1"}},
		{name: "unknown session", json: `{"sessionId":"nobody"` + rest + `}`, code: connect.CodeNotFound, kind: noSession, says: []string{`"nobody"`}},
		{name: "long session", json: `{"sessionId":"{long}"` + rest + `}`, code: invalidArgument, kind: invalidRequest, says: []string{"session_id", "128"}},
		{name: "session of another type", json: `{"sessionId":7` + rest + `}`, code: invalidArgument, kind: invalidRequest, says: []string{"sessionId"}, jsonOnly: true},
	}
}

// ofTurn are the requests that every read with a turn_id refuses besides.
func ofTurn(rest string) []badRequest {
	return append(append(named(rest), ofTurnID(rest)...),
		badRequest{name: "session without turns", json: `{"sessionId":"{empty}"` + rest + `}`, code: connect.CodeNotFound, kind: notFound, says: []string{`{empty}`, "no turn"}},
	)
}

// ofChange are the requests that every method refuses which changes a turn: it has
// to be named.
func ofChange(rest string) []badRequest {
	return append(append(named(`,"turnId":"{doneTurn}"`+rest), ofTurnID(rest)...),
		badRequest{name: "session without turns", json: `{"sessionId":"{empty}","turnId":"e-nobody"` + rest + `}`, code: connect.CodeNotFound, kind: notFound, says: []string{`{empty}`, "no turn"}},
		badRequest{name: "no turn", json: `{"sessionId":"{wait}"` + rest + `}`, code: invalidArgument, kind: invalidRequest, says: []string{"turn_id", "1"}},
		badRequest{name: "empty turn", json: `{"sessionId":"{wait}","turnId":""` + rest + `}`, code: invalidArgument, kind: invalidRequest, says: []string{"turn_id", "1"}},
	)
}

// ofTurnID are the requests that every method refuses for its turn_id.
func ofTurnID(rest string) []badRequest {
	return []badRequest{
		{name: "unknown turn", json: `{"sessionId":"{done}","turnId":"e-nobody"` + rest + `}`, code: connect.CodeNotFound, kind: notFound, says: []string{`"e-nobody"`, `{done}`}},
		{name: "turn of another session", json: `{"sessionId":"{done}","turnId":"{waitTurn}"` + rest + `}`, code: connect.CodeNotFound, kind: notFound, says: []string{`{waitTurn}`}},
		{name: "long turn", json: `{"sessionId":"{done}","turnId":"{long}"` + rest + `}`, code: invalidArgument, kind: invalidRequest, says: []string{"turn_id", "128"}},
	}
}

// paged are the requests that every list refuses; size is the name of its limit.
func paged(rest string) []badRequest {
	return []badRequest{
		{name: "negative page", json: `{"pageSize":-1` + rest + `}`, code: invalidArgument, kind: invalidRequest, says: []string{"page_size", "greater than or equal to 0"}},
		{name: "large page", json: `{"pageSize":1001` + rest + `}`, code: invalidArgument, kind: invalidRequest, says: []string{"page_size", "1000"}},
		{name: "page of another type", json: `{"pageSize":"many"` + rest + `}`, code: invalidArgument, kind: invalidRequest, says: []string{"pageSize"}, jsonOnly: true},
		{name: "token of nobody", json: `{"pageToken":"garbage"` + rest + `}`, code: invalidArgument, kind: invalidRequest, says: []string{"page_token"}},
		{name: "token that is none", json: `{"pageToken":"%%%"` + rest + `}`, code: invalidArgument, kind: invalidRequest, says: []string{"page_token"}},
		{name: "long token", json: `{"pageToken":"{kilobyte}"` + rest + `}`, code: invalidArgument, kind: invalidRequest, says: []string{"page_token", "512"}},
	}
}

// positioned are the requests that methods with after_seq refuse.
func positioned() []badRequest {
	return []badRequest{
		{name: "position to come", json: `{"sessionId":"{done}","afterSeq":"1099511627776"}`, code: invalidArgument, kind: invalidRequest, says: []string{"after_seq", "1099511627776"}},
		{name: "largest position", json: `{"sessionId":"{done}","afterSeq":"9223372036854775807"}`, code: invalidArgument, kind: invalidRequest, says: []string{"after_seq"}},
		{name: "negative position", json: `{"sessionId":"{done}","afterSeq":"-1"}`, code: invalidArgument, kind: invalidRequest, says: []string{"after_seq", "0"}},
		{name: "position that is none", json: `{"sessionId":"{done}","afterSeq":"x"}`, code: invalidArgument, kind: invalidRequest, says: []string{"afterSeq"}, jsonOnly: true},
		{name: "unknown visibility", json: `{"sessionId":"{done}","visibility":77}`, code: invalidArgument, kind: invalidRequest, says: []string{"visibility"}},
	}
}

// placed are the requests that methods with a cursor refuse.
func placed() []badRequest {
	return []badRequest{
		{name: "cursor of nobody", json: `{"sessionId":"{done}","cursor":"garbage"}`, code: invalidArgument, kind: invalidRequest, says: []string{"cursor"}},
		{name: "cursor and more", json: `{"sessionId":"{done}","cursor":"{doneCursor}A"}`, code: invalidArgument, kind: invalidRequest, says: []string{"cursor"}},
		{name: "cursor of another session", json: `{"sessionId":"{wait}","cursor":"{doneCursor}"}`, code: invalidArgument, kind: invalidRequest, says: []string{"cursor", "another session", "{wait}"}},
		{name: "token in place of a cursor", json: `{"sessionId":"{done}","cursor":"{sessionsToken}"}`, code: invalidArgument, kind: invalidRequest, says: []string{"cursor"}},
		{name: "long cursor", json: `{"sessionId":"{done}","cursor":"{kilobyte}"}`, code: invalidArgument, kind: invalidRequest, says: []string{"cursor", "512"}},
		{name: "cursor of another type", json: `{"sessionId":"{done}","cursor":7}`, code: invalidArgument, kind: invalidRequest, says: []string{"cursor"}, jsonOnly: true},
		{name: "unknown visibility", json: `{"sessionId":"{done}","visibility":77}`, code: invalidArgument, kind: invalidRequest, says: []string{"visibility"}},
	}
}

// labelled are the requests that methods with names for a session refuse.
func labelled(rest string) []badRequest {
	return []badRequest{
		{name: "many labels", json: `{"labels":{{labels}}` + rest + `}`, code: invalidArgument, kind: invalidRequest, says: []string{"labels", "64"}},
		{name: "long label", json: `{"labels":{"{long}":"x"}` + rest + `}`, code: invalidArgument, kind: invalidRequest, says: []string{"labels", "63"}},
		{name: "label without a name", json: `{"labels":{"":"x"}` + rest + `}`, code: invalidArgument, kind: invalidRequest, says: []string{"labels"}},
		{name: "long value", json: `{"labels":{"a":"{kilobytes}"}` + rest + `}`, code: invalidArgument, kind: invalidRequest, says: []string{"labels", "1024"}},
		{name: "long name", json: `{"clientRef":"{kilobyte}"` + rest + `}`, code: invalidArgument, kind: invalidRequest, says: []string{"client_ref", "256"}},
		{name: "labels of another type", json: `{"labels":["a"]` + rest + `}`, code: invalidArgument, kind: invalidRequest, says: []string{"unexpected token ["}, jsonOnly: true},
	}
}

// agent is a tree that runs, as JSON.
const agent = `"agent":{"name":"root","llm":{"model":"echo"}}`

// uriOf is a request with a file that is elsewhere.
func uriOf(uri string) string {
	return `{"execute":{"userPrompt":"hi","userParts":[{"file":{"mimeType":"image/png","uri":"` + uri + `"}}],` + agent + `}}`
}

// llmOf is a request whose agent has fields besides its model.
func llmOf(fields string) string {
	return `{"execute":{"userPrompt":"hi","agent":{"name":"root","llm":{"model":"echo",` + fields + `}}}}`
}

// badRequests are by method.
func badRequests() map[string][]badRequest {
	const results = `,"results":[{"toolCallId":"x","output":"y"}]`
	const session = `,"sessionId":"{done}"`
	all := map[string][]badRequest{
		"CreateSession": append(labelled(""),
			badRequest{name: "id of another form", json: `{"sessionId":"a/b"}`, code: invalidArgument, kind: invalidRequest, says: []string{"session_id", "a/b", "letter"}},
			badRequest{name: "long id", json: `{"sessionId":"{kilobyte}"}`, code: invalidArgument, kind: invalidRequest, says: []string{"session_id", "128"}},
			badRequest{name: "id of another session", json: `{"sessionId":"{done}","clientRef":"mine"}`, code: connect.CodeAborted, kind: conflict, says: []string{"session_id", "another id"}},
			badRequest{name: "unknown agent", json: `{"agentRef":{"name":"nobody"}}`, code: connect.CodeNotFound, kind: notFound, says: []string{"nobody"}},
			badRequest{name: "id and key", json: `{"sessionId":"x","idempotencyKey":"k"}`, code: invalidArgument, kind: invalidRequest, says: []string{"idempotency_key", "session_id"}},
			badRequest{name: "metadata that is no object", json: `{"metadata":["a"]}`, code: invalidArgument, kind: invalidRequest, says: []string{"unexpected token"}, jsonOnly: true},
			badRequest{name: "long key", json: `{"idempotencyKey":"{long}"}`, code: invalidArgument, kind: invalidRequest, says: []string{"idempotency_key", "128"}},
			badRequest{name: "the same key for another session", json: `{"idempotencyKey":"taken","clientRef":"another"}`, code: connect.CodeAborted, kind: conflict, says: []string{"idempotency_key"}}),
		"ApplyAgent": {
			{name: "no agent", json: `{"name":"a"}`, code: invalidArgument, kind: badTree, says: []string{"agent"}},
			{name: "no name", json: `{` + agent + `}`, code: invalidArgument, kind: invalidRequest, says: []string{"name", "1"}},
			{name: "name of another form", json: `{"name":"a b",` + agent + `}`, code: invalidArgument, kind: invalidRequest, says: []string{"name", "a b", "letter"}},
			{name: "name of a hash", json: `{"name":"a@12345678",` + agent + `}`, code: invalidArgument, kind: invalidRequest, says: []string{"name", "letter"}},
			{name: "long name", json: `{"name":"{kilobyte}",` + agent + `}`, code: invalidArgument, kind: invalidRequest, says: []string{"name", "128"}},
			{name: "bad tree", json: `{"name":"a","agent":{"name":"root","llm":{"model":"echo","toolNames":["look"]}}}`, code: invalidArgument, kind: badTree, says: []string{"root", "look"}},
			{name: "unknown model", json: `{"name":"a","agent":{"name":"root","llm":{"model":"nobody/x"}}}`, code: connect.CodeUnavailable, kind: agentdv1.ErrorCode_ERROR_CODE_MODEL_UNAVAILABLE, says: []string{"nobody"}},
			{name: "metadata that is no object", json: `{"name":"a","metadata":["a"],` + agent + `}`, code: invalidArgument, kind: invalidRequest, says: []string{"unexpected token"}, jsonOnly: true},
			{name: "large metadata", json: `{"name":"a","metadata":{"a":"{kilobytes}{kilobytes}{kilobytes}{kilobytes}{kilobytes}{kilobytes}{kilobytes}{kilobytes}{kilobytes}"},` + agent + `}`, code: connect.CodeResourceExhausted, kind: limitExceeded, says: []string{"metadata", "16384"}},
			{name: "negative version", json: `{"name":"a","version":"-1",` + agent + `}`, code: invalidArgument, kind: invalidRequest, says: []string{"version", "0"}},
			{name: "version of nothing", json: `{"name":"a","version":"3",` + agent + `}`, code: connect.CodeAborted, kind: conflict, says: []string{"version 0", "3"}},
		},
		"GetAgent": {
			{name: "nothing", json: `{}`, code: invalidArgument, kind: invalidRequest, says: []string{"agent_ref"}},
			{name: "no name", json: `{"agentRef":{"version":"1"}}`, code: invalidArgument, kind: invalidRequest, says: []string{"agent_ref.name", "1"}},
			{name: "unknown", json: `{"agentRef":{"name":"nobody"}}`, code: connect.CodeNotFound, kind: notFound, says: []string{"nobody"}},
			{name: "short hash", json: `{"agentRef":{"name":"nobody@1234"}}`, code: invalidArgument, kind: invalidRequest, says: []string{"agent_ref.name", "8", "nobody@1234"}},
			{name: "hash and version", json: `{"agentRef":{"name":"nobody@12345678","version":"1"}}`, code: invalidArgument, kind: invalidRequest, says: []string{"agent_ref.version"}},
			{name: "negative version", json: `{"agentRef":{"name":"nobody","version":"-1"}}`, code: invalidArgument, kind: invalidRequest, says: []string{"agent_ref.version", "0"}},
		},
		"ListAgents": append(paged(""),
			badRequest{name: "token of other things", json: `{"pageToken":"{turnsToken}"}`, code: invalidArgument, kind: invalidRequest, says: []string{"page_token"}},
			badRequest{name: "long name", json: `{"name":"{kilobyte}"}`, code: invalidArgument, kind: invalidRequest, says: []string{"name", "128"}}),
		"ArchiveAgent": {
			{name: "no name", json: `{}`, code: invalidArgument, kind: invalidRequest, says: []string{"name", "1"}},
			{name: "unknown", json: `{"name":"nobody"}`, code: connect.CodeNotFound, kind: notFound, says: []string{"nobody"}},
		},
		"DeleteAgent": {
			{name: "no name", json: `{}`, code: invalidArgument, kind: invalidRequest, says: []string{"name", "1"}},
			{name: "unknown", json: `{"name":"nobody"}`, code: connect.CodeNotFound, kind: notFound, says: []string{"nobody"}},
		},
		"GetSession": named(""),
		"ListSessions": append(paged(""),
			badRequest{name: "token of another list", json: `{"pageToken":"{sessionsToken}","clientRef":"another"}`, code: invalidArgument, kind: invalidRequest, says: []string{"page_token"}},
			badRequest{name: "token of other things", json: `{"pageToken":"{turnsToken}"}`, code: invalidArgument, kind: invalidRequest, says: []string{"page_token"}},
			badRequest{name: "unknown state", json: `{"states":[9]}`, code: invalidArgument, kind: invalidRequest, says: []string{"states[0]"}},
			badRequest{name: "no state", json: `{"states":[0]}`, code: invalidArgument, kind: invalidRequest, says: []string{"states[0]"}},
			badRequest{name: "no status", json: `{"turnStatuses":["TURN_STATUS_UNSPECIFIED"]}`, code: invalidArgument, kind: invalidRequest, says: []string{"turn_statuses[0]"}},
			badRequest{name: "unknown status", json: `{"turnStatuses":[99]}`, code: invalidArgument, kind: invalidRequest, says: []string{"turn_statuses[0]"}},
			badRequest{name: "time that is none", json: `{"createdSince":"yesterday"}`, code: invalidArgument, kind: invalidRequest, says: []string{"Timestamp", "yesterday"}, jsonOnly: true}),
		"UpdateSession": append(append(named(""), labelled(session)[:3]...),
			badRequest{name: "another version", json: `{"sessionId":"{done}","version":"77"}`, code: connect.CodeAborted, kind: conflict, says: []string{"version", "77"}},
			badRequest{name: "version 0", json: `{"sessionId":"{done}","version":"0"}`, code: invalidArgument, kind: invalidRequest, says: []string{"version", "1"}},
			badRequest{name: "no state", json: `{"sessionId":"{done}","state":"SESSION_STATE_UNSPECIFIED"}`, code: invalidArgument, kind: invalidRequest, says: []string{"state"}},
			badRequest{name: "unknown state", json: `{"sessionId":"{done}","state":9}`, code: invalidArgument, kind: invalidRequest, says: []string{"state"}}),
		"CompactSession": append(named(""),
			badRequest{name: "no turn", json: `{"sessionId":"{empty}"}`, code: connect.CodeFailedPrecondition, kind: notNow, says: []string{"{empty}", "no turn"}},
			badRequest{name: "long focus", json: `{"sessionId":"{done}","focus":"{kilobytes}{kilobytes}{kilobytes}{kilobytes}{kilobytes}{kilobytes}{kilobytes}{kilobytes}{kilobytes}"}`, code: invalidArgument, kind: invalidRequest, says: []string{"focus", "16384"}}),
		"DeleteSession": named(""),
		"ForkSession": append(append(named(""), labelled(session)...),
			badRequest{name: "position to come", json: `{"sessionId":"{done}","throughSeq":"1099511627776"}`, code: invalidArgument, kind: invalidRequest, says: []string{"seq"}},
			badRequest{name: "negative position", json: `{"sessionId":"{done}","throughSeq":"-1"}`, code: invalidArgument, kind: invalidRequest, says: []string{"through_seq"}}),
		"CreateTurn": {
			{name: "nothing", json: `{}`, code: invalidArgument, kind: invalidRequest, says: []string{"execute"}},
			{name: "agent and agent_ref", json: `{"execute":{"userPrompt":"hi","agentRef":{"name":"a"},` + agent + `}}`, code: invalidArgument, kind: invalidRequest, says: []string{"agent_ref"}},
			{name: "unknown agent", json: `{"execute":{"userPrompt":"hi","agentRef":{"name":"nobody"}}}`, code: connect.CodeNotFound, kind: notFound, says: []string{"nobody"}},
			{name: "no prompt", json: `{"execute":{` + agent + `}}`, code: invalidArgument, kind: invalidRequest, says: []string{"user_prompt"}},
			{name: "blank prompt", json: `{"execute":{"userPrompt":" \n",` + agent + `}}`, code: invalidArgument, kind: invalidRequest, says: []string{"user_prompt"}},
			{name: "no prompt for a session", json: `{"execute":{"sessionId":"{done}"}}`, code: invalidArgument, kind: invalidRequest, says: []string{"user_prompt", "WatchTurn"}},
			{name: "long prompt", json: `{"execute":{"userPrompt":"{kilobytes}{kilobytes}",` + agent + `}}`, code: connect.CodeResourceExhausted, kind: limitExceeded, says: []string{"user_prompt", "3000"}},
			{name: "blank parts", json: `{"execute":{"userParts":[{"text":" "}],` + agent + `}}`, code: invalidArgument, kind: invalidRequest, says: []string{"user_prompt"}},
			{name: "empty part", json: `{"execute":{"userPrompt":"hi","userParts":[{"text":"a"},{}],` + agent + `}}`, code: invalidArgument, kind: invalidRequest, says: []string{"user_parts[1]"}},
			{name: "part of empty text", json: `{"execute":{"userPrompt":"hi","userParts":[{"text":""}],` + agent + `}}`, code: invalidArgument, kind: invalidRequest, says: []string{"user_parts[0].text"}},
			{name: "file without a type", json: `{"execute":{"userPrompt":"hi","userParts":[{"inline":{"data":"eA=="}}],` + agent + `}}`, code: invalidArgument, kind: invalidRequest, says: []string{"user_parts[0].inline.mime_type"}},
			{name: "file of no type", json: `{"execute":{"userPrompt":"hi","userParts":[{"inline":{"mimeType":"png","data":"eA=="}}],` + agent + `}}`, code: invalidArgument, kind: invalidRequest, says: []string{"user_parts[0].inline.mime_type", `"png"`}},
			{name: "empty file", json: `{"execute":{"userPrompt":"hi","userParts":[{"inline":{"mimeType":"image/png"}}],` + agent + `}}`, code: invalidArgument, kind: invalidRequest, says: []string{"user_parts[0].inline.data"}},
			{name: "file nowhere", json: `{"execute":{"userPrompt":"hi","userParts":[{"file":{"mimeType":"image/png"}}],` + agent + `}}`, code: invalidArgument, kind: invalidRequest, says: []string{"user_parts[0].file.uri"}},
			{name: "file of the server's", json: uriOf("file:///etc/passwd"), code: invalidArgument, kind: invalidRequest, says: []string{"user_parts[0].file.uri", "https, http and gs", `"file:///etc/passwd"`}},
			{name: "file that is a program", json: uriOf("JavaScript:alert(1)"), code: invalidArgument, kind: invalidRequest, says: []string{"user_parts[0].file.uri", `"JavaScript:alert(1)"`}},
			{name: "file within its URI", json: uriOf("data:image/png;base64,eA=="), code: invalidArgument, kind: invalidRequest, says: []string{"user_parts[0].file.uri", "inline"}},
			{name: "tool of a prompt", json: `{"execute":{"userPrompt":"hi","userParts":[{"tool":{"toolName":"t"}}],` + agent + `}}`, code: invalidArgument, kind: invalidRequest, says: []string{"user_parts[0].tool", "result of a tool"}},
			{name: "long URI", json: uriOf("https://{kilobytes}{kilobytes}{kilobytes}{kilobytes}{kilobytes}"), code: invalidArgument, kind: invalidRequest, says: []string{"user_parts[0].file.uri", "8192", "10008"}},
			{name: "prompt and parts", json: `{"execute":{"userPrompt":"{kilobyte}","userParts":[{"inline":{"mimeType":"image/png","data":"{kilobytes}{kilobytes}"}}],` + agent + `}}`, code: connect.CodeResourceExhausted, kind: limitExceeded, says: []string{"user_prompt", "user_parts", "4017", "4000"}},
			{name: "payloads of another type", json: `{"execute":{"userPrompt":"hi","rawPayloads":"yes",` + agent + `}}`, code: invalidArgument, kind: invalidRequest, says: []string{"rawPayloads"}, jsonOnly: true},
			{name: "many fallbacks", json: llmOf(`"fallbackModels":["echo","echo","echo","echo","echo","echo","echo","echo","echo"]`), code: invalidArgument, kind: badTree, says: []string{"fallback_models", "8", "9"}},
			{name: "fallback without a name", json: llmOf(`"fallbackModels":[""]`), code: invalidArgument, kind: badTree, says: []string{"fallback_models[0]", "1"}},
			{name: "long fallback", json: llmOf(`"fallbackModels":["{kilobyte}"]`), code: invalidArgument, kind: badTree, says: []string{"fallback_models[0]", "256", "1000"}},
			{name: "unknown fallback", json: llmOf(`"fallbackModels":["scripted/nobody"]`), code: connect.CodeUnavailable, kind: agentdv1.ErrorCode_ERROR_CODE_MODEL_UNAVAILABLE, says: []string{"nobody"}},
			{name: "fallback to itself by another name", json: llmOf(`"fallbackModels":["echo/echo"]`), code: invalidArgument, kind: badTree, says: []string{"fallback_models[0]", "\"echo/echo\"", "\"echo\""}},
			{name: "share of nothing", json: llmOf(`"compaction":{"atShare":"NaN"}`), code: invalidArgument, kind: badTree, says: []string{"compaction.at_share", "NaN"}},
			{name: "negative share", json: llmOf(`"compaction":{"atShare":-0.5}`), code: invalidArgument, kind: badTree, says: []string{"compaction.at_share", "0", "-0.5"}},
			{name: "large share", json: llmOf(`"compaction":{"atShare":80}`), code: invalidArgument, kind: badTree, says: []string{"compaction.at_share", "1", "80"}},
			{name: "negative window", json: llmOf(`"compaction":{"contextTokens":"-7"}`), code: invalidArgument, kind: badTree, says: []string{"compaction.context_tokens", "0", "-7"}},
			{name: "long summary model", json: llmOf(`"compaction":{"model":"{kilobyte}"}`), code: invalidArgument, kind: badTree, says: []string{"compaction.model", "256", "1000"}},
			{name: "unknown summary model", json: llmOf(`"compaction":{"atShare":0.5,"model":"scripted/nobody"}`), code: connect.CodeUnavailable, kind: agentdv1.ErrorCode_ERROR_CODE_MODEL_UNAVAILABLE, says: []string{"nobody"}},
			{name: "cache for no time", json: llmOf(`"generation":{"cache":{"mode":"MODE_ON","ttl":"0s"}}`), code: invalidArgument, kind: badTree, says: []string{"cache.ttl", "0s"}},
			{name: "cache for days", json: llmOf(`"generation":{"cache":{"mode":"MODE_ON","ttl":"86401s"}}`), code: invalidArgument, kind: badTree, says: []string{"cache.ttl", "86401s"}},
			{name: "unknown cache", json: llmOf(`"generation":{"cache":{"mode":9}}`), code: invalidArgument, kind: badTree, says: []string{"cache.mode", "9"}},
			{name: "deferred in vain", json: `{"execute":{"userPrompt":"hi","agent":{"name":"root","llm":{"model":"echo","toolNames":["t"]}},"tools":[{"name":"t","description":"x","deferred":true}]}}`, code: invalidArgument, kind: badTree, says: []string{"deferred", "tool_search"}},
			{name: "many parts", json: `{"execute":{"userPrompt":"hi","userParts":[{parts}],` + agent + `}}`, code: invalidArgument, kind: invalidRequest, says: []string{"user_parts", "64"}},
			{name: "large parts", json: `{"execute":{"userPrompt":"hi","userParts":[{"inline":{"mimeType":"image/png","data":"{kilobytes}{kilobytes}{kilobytes}"}}],` + agent + `}}`, code: connect.CodeResourceExhausted, kind: limitExceeded, says: []string{"user_parts", "4517", "4000"}},
			{name: "long texts", json: `{"execute":{"userPrompt":"{kilobytes}","userParts":[{"text":"{kilobytes}"}],` + agent + `}}`, code: connect.CodeResourceExhausted, kind: limitExceeded, says: []string{"user_parts", "4000 bytes", "3000"}},
			{name: "the same key with other parts", json: `{"execute":{"sessionId":"{done}","userPrompt":"hi","userParts":[{"text":"hi"}],"idempotencyKey":"once"}}`, code: connect.CodeAborted, kind: conflict, says: []string{"idempotency_key"}},
			{name: "file that is no base64", json: `{"execute":{"userPrompt":"hi","userParts":[{"inline":{"mimeType":"image/png","data":"%%%"}}],` + agent + `}}`, code: invalidArgument, kind: invalidRequest, says: []string{"data"}, jsonOnly: true},
			{name: "a part of two kinds", json: `{"execute":{"userPrompt":"hi","userParts":[{"text":"a","file":{"mimeType":"image/png","uri":"x"}}],` + agent + `}}`, code: invalidArgument, kind: invalidRequest, says: []string{"oneof"}, jsonOnly: true},
			{name: "no agent", json: `{"execute":{"userPrompt":"hi"}}`, code: invalidArgument, kind: invalidRequest, says: []string{"agent"}},
			{name: "agent without a kind", json: `{"execute":{"userPrompt":"hi","agent":{"name":"root"}}}`, code: invalidArgument, kind: badTree, says: []string{"root"}},
			{name: "unknown model", json: `{"execute":{"userPrompt":"hi","agent":{"name":"root","llm":{"model":"scripted/nobody"}}}}`, code: connect.CodeUnavailable, kind: agentdv1.ErrorCode_ERROR_CODE_MODEL_UNAVAILABLE, says: []string{"nobody"}},
			{name: "no key", json: `{"execute":{"userPrompt":"hi","agent":{"name":"root","llm":{"model":"gpt-x"}}}}`, code: connect.CodeFailedPrecondition, kind: agentdv1.ErrorCode_ERROR_CODE_AUTH_FAILED, says: []string{"OPENAI_API_KEY"}},
			{name: "tool that nobody offers", json: `{"execute":{"userPrompt":"hi","agent":{"name":"root","llm":{"model":"echo","toolNames":["look"]}}}}`, code: invalidArgument, kind: badTree, says: []string{"look"}},
			{name: "bad name of a tool", json: `{"execute":{"userPrompt":"hi",` + agent + `,"tools":[{"name":"a b","description":"x"}]}}`, code: invalidArgument, kind: badTree, says: []string{"tools[0]"}},
			{name: "tool without description", json: `{"execute":{"userPrompt":"hi",` + agent + `,"tools":[{"name":"a"}]}}`, code: invalidArgument, kind: badTree, says: []string{"tools[0]", "description"}},
			{name: "unknown session", json: `{"execute":{"sessionId":"nobody","userPrompt":"hi"}}`, code: connect.CodeNotFound, kind: noSession, says: []string{`"nobody"`}},
			{name: "busy session", json: `{"execute":{"sessionId":"{busy}","userPrompt":"hi"}}`, code: connect.CodeFailedPrecondition, kind: agentdv1.ErrorCode_ERROR_CODE_SESSION_BUSY, says: []string{`{busy}`}},
			{name: "turn", json: `{"execute":{"sessionId":"{done}","userPrompt":"hi","turnId":"{doneTurn}"}}`, code: connect.CodeAborted, kind: conflict, says: []string{"turn_id", "{doneTurn}"}},
			{name: "turn of a busy session", json: `{"execute":{"sessionId":"{wait}","userPrompt":"hi","turnId":"{waitTurn}","onBusy":"ON_BUSY_INTERRUPT"}}`, code: connect.CodeAborted, kind: conflict, says: []string{"turn_id", "{waitTurn}"}},
			{name: "turn with a space", json: `{"execute":{"sessionId":"{done}","userPrompt":"hi","turnId":"my turn"}}`, code: invalidArgument, kind: invalidRequest, says: []string{"turn_id", "my turn"}},
			{name: "long turn", json: `{"execute":{"sessionId":"{done}","userPrompt":"hi","turnId":"{long}"}}`, code: invalidArgument, kind: invalidRequest, says: []string{"turn_id", "128"}},
			{
				name: "no effort", says: []string{"thinking.effort"}, code: invalidArgument, kind: agentdv1.ErrorCode_ERROR_CODE_INVALID_AGENT_TREE,
				json: `{"execute":{"userPrompt":"hi","agent":{"name":"a","llm":{"model":"echo","generation":{"thinking":{"effort":"EFFORT_UNSPECIFIED"}}}}}}`,
			},
			{name: "unknown way to be busy", json: `{"execute":{"sessionId":"{done}","userPrompt":"hi","onBusy":44}}`, code: invalidArgument, kind: invalidRequest, says: []string{"on_busy"}},
			{name: "budget below zero", json: `{"execute":{"sessionId":"{done}","userPrompt":"hi","budget":{"tokens":"-1"}}}`, code: invalidArgument, kind: invalidRequest, says: []string{"budget"}},
			{name: "grace without a cancel", json: `{"execute":{"sessionId":"{done}","userPrompt":"hi","disconnectGrace":"1s"}}`, code: invalidArgument, kind: invalidRequest, says: []string{"disconnect_grace"}},
			{name: "the same key for another turn", json: `{"execute":{"sessionId":"{done}","userPrompt":"another","idempotencyKey":"once"}}`, code: connect.CodeAborted, kind: conflict, says: []string{"idempotency_key"}},
			{name: "too much", json: `{"execute":{"userPrompt":"hi",` + agent + `,"initialState":{"a":"{message}"}}}`, code: connect.CodeResourceExhausted, kind: limitExceeded, says: []string{"65536"}},
			{name: "prompt of another type", json: `{"execute":{"userPrompt":{"text":"hi"},` + agent + `}}`, code: invalidArgument, kind: invalidRequest, says: []string{"userPrompt"}, jsonOnly: true},
			{name: "half of a message", json: `{"execute":{"userPrompt":"hi"`, code: invalidArgument, kind: invalidRequest, jsonOnly: true},
		},
		"GetTurn": ofTurn(""),
		"ListTurns": append(paged(session),
			badRequest{name: "unknown session", json: `{"sessionId":"nobody"}`, code: connect.CodeNotFound, kind: noSession, says: []string{`"nobody"`}},
			badRequest{name: "token of another list", json: `{"pageToken":"{turnsToken}","sessionId":"{wait}"}`, code: invalidArgument, kind: invalidRequest, says: []string{"page_token"}},
			badRequest{name: "token of other things", json: `{"pageToken":"{sessionsToken}"}`, code: invalidArgument, kind: invalidRequest, says: []string{"page_token"}},
			badRequest{name: "unknown status", json: `{"statuses":[99]}`, code: invalidArgument, kind: invalidRequest, says: []string{"statuses[0]"}}),
		"CancelTurn": append(ofChange(""),
			badRequest{name: "long reason", json: `{"sessionId":"{done}","turnId":"{doneTurn}","reason":"{kilobytes}{kilobytes}{kilobytes}"}`, code: invalidArgument, kind: invalidRequest, says: []string{"reason", "4096"}}),
		"CancelToolCall": append(ofChange(`,"toolCallId":"x"`),
			badRequest{name: "no call", json: `{"sessionId":"{wait}","turnId":"{waitTurn}"}`, code: invalidArgument, kind: invalidRequest, says: []string{"tool_call_id", "1"}},
			badRequest{name: "long call", json: `{"sessionId":"{wait}","turnId":"{waitTurn}","toolCallId":"{long}{long}"}`, code: invalidArgument, kind: invalidRequest, says: []string{"tool_call_id", "256"}},
			badRequest{name: "unknown call", json: `{"sessionId":"{wait}","turnId":"{waitTurn}","toolCallId":"x"}`, code: connect.CodeNotFound, kind: notFound, says: []string{`no call "x"`, "{waitTurn}"}},
			badRequest{name: "unknown call of a turn that is over", json: `{"sessionId":"{done}","turnId":"{doneTurn}","toolCallId":"{call}"}`, code: connect.CodeNotFound, kind: notFound, says: []string{"{call}", "{doneTurn}"}},
			badRequest{name: "call of another type", json: `{"sessionId":"{wait}","turnId":"{waitTurn}","toolCallId":1}`, code: invalidArgument, kind: invalidRequest, says: []string{"toolCallId"}, jsonOnly: true}),
		"ListTurnEvents": append(append(ofTurn(""), positioned()...),
			badRequest{name: "negative size", json: `{"sessionId":"{done}","pageSize":-1}`, code: invalidArgument, kind: invalidRequest, says: []string{"page_size", "0"}},
			badRequest{name: "large size", json: `{"sessionId":"{done}","pageSize":10001}`, code: invalidArgument, kind: invalidRequest, says: []string{"page_size", "10000"}}),
		"ListSessionEvents": append(append(named(""), placed()...),
			badRequest{name: "negative size", json: `{"sessionId":"{done}","pageSize":-1}`, code: invalidArgument, kind: invalidRequest, says: []string{"page_size", "0"}},
			badRequest{name: "large size", json: `{"sessionId":"{done}","pageSize":10001}`, code: invalidArgument, kind: invalidRequest, says: []string{"page_size", "10000"}}),
		"WatchSession": append(named(""), placed()...),
		"WatchTurn": append(append(ofTurn(""), positioned()...),
			badRequest{name: "tools of an observer", json: `{"sessionId":"{done}","toolNames":["look"],"observe":true}`, code: invalidArgument, kind: invalidRequest, says: []string{"observe", "tool_names"}},
			badRequest{name: "no session", json: `{}`, code: invalidArgument, kind: invalidRequest, says: []string{"session_id"}},
			badRequest{name: "unknown session", json: `{"sessionId":"nobody"}`, code: connect.CodeNotFound, kind: noSession, says: []string{`"nobody"`}},
			badRequest{name: "many tools", json: `{"sessionId":"{done}","toolNames":[{names}]}`, code: invalidArgument, kind: invalidRequest, says: []string{"tool_names", "512"}}),
		"SubmitToolResults": append(ofChange(results),
			badRequest{name: "no results", json: `{"sessionId":"{wait}","turnId":"{waitTurn}"}`, code: invalidArgument, kind: invalidRequest, says: []string{"results", "1"}},
			badRequest{name: "many results", json: `{"sessionId":"{wait}","turnId":"{waitTurn}","results":[{results}]}`, code: invalidArgument, kind: invalidRequest, says: []string{"results", "512"}},
			badRequest{name: "result of another session", json: `{"sessionId":"{wait}","turnId":"{waitTurn}","results":[{"sessionId":"{done}","toolCallId":"{call}","output":"x"}]}`, code: invalidArgument, kind: invalidRequest, says: []string{"results[0]", "{done}"}},
			badRequest{name: "result of another type", json: `{"sessionId":"{wait}","turnId":"{waitTurn}","results":[{"toolCallId":"{call}","output":{"a":1}}]}`, code: invalidArgument, kind: invalidRequest, says: []string{"output"}, jsonOnly: true}),
		"GetInteraction": ofInteraction(""),
		"ResolveInteraction": append(ofInteraction(`,"resolution":{"approve":{}}`),
			badRequest{name: "no resolution", json: `{"sessionId":"{done}","interactionId":"x"}`, code: invalidArgument, kind: invalidRequest, says: []string{"resolution"}},
			badRequest{name: "no decision", json: `{"sessionId":"{done}","interactionId":"x","resolution":{}}`, code: invalidArgument, kind: invalidRequest, says: []string{"decision"}}),
		"RaiseInteraction": append(named(`,"toolCallId":"x","n":1,"interaction":{"kind":1}`),
			badRequest{name: "no call", json: `{"sessionId":"{wait}","n":1,"interaction":{"kind":1}}`, code: invalidArgument, kind: invalidRequest, says: []string{"tool_call_id", "1"}},
			badRequest{name: "long call", json: `{"sessionId":"{wait}","toolCallId":"{long}{long}","n":1,"interaction":{"kind":1}}`, code: invalidArgument, kind: invalidRequest, says: []string{"tool_call_id", "256"}},
			badRequest{name: "unknown call", json: `{"sessionId":"{wait}","toolCallId":"x","n":1,"interaction":{"kind":1}}`, code: connect.CodeFailedPrecondition, kind: notNow, says: []string{`"x"`}},
			badRequest{name: "call of a turn that is over", json: `{"sessionId":"{done}","toolCallId":"x","n":1,"interaction":{"kind":1}}`, code: connect.CodeFailedPrecondition, kind: notNow, says: []string{`"x"`}},
			badRequest{name: "no number", json: `{"sessionId":"{wait}","toolCallId":"{call}","interaction":{"kind":1}}`, code: invalidArgument, kind: invalidRequest, says: []string{"n must be 1 to 64"}},
			badRequest{name: "a gap", json: `{"sessionId":"{wait}","toolCallId":"{call}","n":2,"interaction":{"kind":1}}`, code: invalidArgument, kind: invalidRequest, says: []string{"number 1, not 2"}},
			badRequest{name: "nothing asked", json: `{"sessionId":"{wait}","toolCallId":"{call}","n":1}`, code: invalidArgument, kind: invalidRequest, says: []string{"interaction"}},
			badRequest{name: "no kind", json: `{"sessionId":"{wait}","toolCallId":"{call}","n":1,"interaction":{"question":"x"}}`, code: invalidArgument, kind: invalidRequest, says: []string{"interaction.kind"}},
			badRequest{name: "unknown kind", json: `{"sessionId":"{wait}","toolCallId":"{call}","n":1,"interaction":{"kind":99}}`, code: invalidArgument, kind: invalidRequest, says: []string{"interaction.kind"}},
			badRequest{name: "no question", json: `{"sessionId":"{wait}","toolCallId":"{call}","n":1,"interaction":{"kind":3}}`, code: invalidArgument, kind: invalidRequest, says: []string{"interaction.question"}}),
		"ListModelCalls": append(append(ofTurn(""), paged(session)...),
			badRequest{name: "token of other things", json: `{"pageToken":"{turnsToken}"` + session + `}`, code: invalidArgument, kind: invalidRequest, says: []string{"page_token"}}),
		"ListInteractions": append(paged(""),
			badRequest{name: "unknown session", json: `{"sessionId":"nobody"}`, code: connect.CodeNotFound, kind: noSession, says: []string{`"nobody"`}},
			badRequest{name: "turn without a session", json: `{"turnId":"{doneTurn}"}`, code: invalidArgument, kind: invalidRequest, says: []string{"turn_id", "session_id"}},
			badRequest{name: "token of other things", json: `{"pageToken":"{sessionsToken}"}`, code: invalidArgument, kind: invalidRequest, says: []string{"page_token"}},
			badRequest{name: "unknown status", json: `{"statuses":[99]}`, code: invalidArgument, kind: invalidRequest, says: []string{"statuses[0]"}}),
		"ListSharedState": {
			{name: "negative page size", json: `{"pageSize":-1}`, code: invalidArgument, kind: invalidRequest, says: []string{"page_size", "0"}},
			{name: "large page", json: `{"pageSize":1001}`, code: invalidArgument, kind: invalidRequest, says: []string{"page_size", "1000"}},
			{name: "token of nobody", json: `{"pageToken":"garbage"}`, code: invalidArgument, kind: invalidRequest, says: []string{"page_token"}},
			{name: "token of other things", json: `{"pageToken":"{sessionsToken}"}`, code: invalidArgument, kind: invalidRequest, says: []string{"page_token"}},
			{name: "long prefix", json: `{"prefix":"{kilobyte}"}`, code: invalidArgument, kind: invalidRequest, says: []string{"prefix", "256"}},
		},
		"SetSharedState": {
			{name: "no values", json: `{}`, code: invalidArgument, kind: invalidRequest, says: []string{"values", "1"}},
			{name: "empty key", json: `{"values":[{"key":"","value":"1"}]}`, code: invalidArgument, kind: invalidRequest, says: []string{"values[0].key", "1"}},
			{name: "no JSON", json: `{"values":[{"key":"app:x","value":"spring sale"}]}`, code: invalidArgument, kind: invalidRequest, says: []string{"values[0].value", "JSON"}},
			{name: "a key twice", json: `{"values":[{"key":"app:x","value":"1"},{"key":"app:x","value":"2"}]}`, code: invalidArgument, kind: invalidRequest, says: []string{"values[1].key", "twice"}},
			{name: "a session's own key", json: `{"values":[{"key":"plan","value":"1"}]}`, code: invalidArgument, kind: invalidRequest, says: []string{"plan", "app:"}},
		},
		"RemoveSharedState": {
			{name: "no keys", json: `{}`, code: invalidArgument, kind: invalidRequest, says: []string{"keys", "1"}},
			{name: "empty key", json: `{"keys":[""]}`, code: invalidArgument, kind: invalidRequest, says: []string{"keys[0]", "1"}},
			{name: "a session's own key", json: `{"keys":["app:x","plan"]}`, code: invalidArgument, kind: invalidRequest, says: []string{"keys[1]", "plan", "app:"}},
			{name: "a key of a turn", json: `{"keys":["temp:x"]}`, code: invalidArgument, kind: invalidRequest, says: []string{"keys[0]", "temp:x"}},
		},
		// They ask for nothing that could be wrong.
		"GetCapabilities": {},
		"ListModels":      {},
		"CreateSessionToken": {
			{name: "no session", json: `{}`, code: invalidArgument, kind: invalidRequest, says: []string{"session_id"}},
			{name: "unknown session", json: `{"sessionId":"nobody"}`, code: connect.CodeNotFound, kind: noSession, says: []string{`"nobody"`}},
			{name: "many tools", json: `{"sessionId":"{done}","toolNames":[{names}]}`, code: invalidArgument, kind: invalidRequest, says: []string{"tool_names", "512"}},
			{name: "no time", json: `{"sessionId":"{done}","lifetime":"0s"}`, code: invalidArgument, kind: invalidRequest, says: []string{"lifetime"}},
			{name: "too long a time", json: `{"sessionId":"{done}","lifetime":"3601s"}`, code: invalidArgument, kind: invalidRequest, says: []string{"lifetime", "3600"}},
		},
	}
	return all
}

// ofInteraction are the requests that methods with an interaction_id refuse.
func ofInteraction(rest string) []badRequest {
	const id = `,"interactionId":"x"`
	return append(named(id+rest),
		badRequest{name: "unknown interaction", json: `{"sessionId":"{done}"` + id + rest + `}`, code: connect.CodeNotFound, kind: notFound, says: []string{`"x"`}},
		badRequest{name: "no interaction", json: `{"sessionId":"{done}"` + rest + `}`, code: invalidArgument, kind: invalidRequest, says: []string{"interaction_id", "1"}},
		badRequest{name: "long interaction", json: `{"sessionId":"{done}","interactionId":"{long}{long}"` + rest + `}`, code: invalidArgument, kind: invalidRequest, says: []string{"interaction_id", "256"}},
	)
}

// form is a message as it stands on the wire, whatever it says.
type form struct{ data []byte }

// forms is a codec that lets messages through as they are.
type forms struct{ name string }

func (f forms) Name() string { return f.name }

func (forms) Marshal(m any) ([]byte, error) {
	switch m := m.(type) {
	case *form:
		return m.data, nil
	case proto.Message: // the wire's own
		return proto.Marshal(m)
	default:
		return nil, fmt.Errorf("%T is no form", m)
	}
}

func (forms) Unmarshal(data []byte, m any) error {
	switch m := m.(type) {
	case *form:
		m.data = bytes.Clone(data)
		return nil
	case proto.Message:
		return proto.Unmarshal(data, m)
	default:
		return fmt.Errorf("%T is no form", m)
	}
}

// caller calls any method on one wire.
type caller struct {
	hc   *http.Client
	url  string
	json bool
	opts []connect.ClientOption
	path string // the method's name unless ""
}

func (c caller) call(t *testing.T, method protoreflect.MethodDescriptor, data []byte) ([]byte, error) {
	replies, err := c.callContext(t.Context(), method, data)
	if err != nil || method.IsStreamingServer() {
		return nil, err
	}
	return replies[0], nil
}

// callContext returns all replies.
func (c caller) callContext(ctx context.Context, method protoreflect.MethodDescriptor, data []byte) (replies [][]byte, err error) {
	client := connect.NewClient[form, form](c.hc, c.url+"/"+string(method.Parent().FullName())+"/"+cmp.Or(c.path, string(method.Name())), c.opts...)
	if !method.IsStreamingServer() {
		resp, err := client.CallUnary(ctx, connect.NewRequest(&form{data}))
		if err != nil {
			return nil, err
		}
		return [][]byte{resp.Msg.data}, nil
	}
	stream, err := client.CallServerStream(ctx, connect.NewRequest(&form{data}))
	if err != nil {
		return nil, err
	}
	defer func() { _ = stream.Close() }()
	for stream.Receive() {
		replies = append(replies, stream.Msg().data)
	}
	return replies, stream.Err()
}

// callers are the wires.
func callers(t *testing.T, d *daemon.Daemon) map[string]caller {
	t.Helper()
	h1, h2 := &http.Client{Transport: &http.Transport{}}, h2c(t)
	t.Cleanup(h1.CloseIdleConnections)
	binary := connect.WithCodec(forms{"proto"})
	return map[string]caller{
		"Connect JSON":   {hc: h1, url: d.URL(), json: true, opts: []connect.ClientOption{connect.WithCodec(forms{"json"})}},
		"Connect binary": {hc: h2, url: d.URL(), opts: []connect.ClientOption{binary}},
		"gRPC":           {hc: h2, url: d.URL(), opts: []connect.ClientOption{connect.WithGRPC(), binary}},
		"gRPC-Web":       {hc: h1, url: d.URL(), opts: []connect.ClientOption{connect.WithGRPCWeb(), binary}},
	}
}

// fixtures makes what bad requests speak of, and returns the names it has there.
func fixtures(t *testing.T, c agentdv1connect.SessionServiceClient) *strings.Replacer {
	t.Helper()
	ex := &agentdv1.RunRequest_ExecuteRequest{UserPrompt: "hi", Agent: llm("root", "echo")}
	create := func(ex *agentdv1.RunRequest_ExecuteRequest) *agentdv1.Turn {
		t.Helper()
		return call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: ex}).GetTurn()
	}
	done := until(t, c, create(ex), agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED)
	id := done.GetSessionId()
	done = until(t, c, create(&agentdv1.RunRequest_ExecuteRequest{UserPrompt: "hi", SessionId: &id, IdempotencyKey: "once"}), agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED)
	wait := until(t, c, create(lookRequest("1")), agentdv1.TurnStatus_TURN_STATUS_WAITING_FOR_CLIENT)
	busy := create(lookRequest("2"))
	stream, err := c.WatchTurn(t.Context(), connect.NewRequest(&agentdv1.WatchTurnRequest{SessionId: busy.GetSessionId(), ToolNames: []string{"look"}}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stream.Close() })
	for stream.Receive() && stream.Msg().GetEvent().GetToolCall() == nil {
	}
	empty := call(t, c.CreateSession, &agentdv1.CreateSessionRequest{IdempotencyKey: "taken"}).GetSession()
	sessions := call(t, c.ListSessions, &agentdv1.ListSessionsRequest{PageSize: 1})
	turns := call(t, c.ListTurns, &agentdv1.ListTurnsRequest{PageSize: 1, SessionId: id})
	read := call(t, c.ListSessionEvents, &agentdv1.ListSessionEventsRequest{SessionId: id})
	list := func(n int, format string) string {
		var out []string
		for i := range n {
			out = append(out, strings.ReplaceAll(format, "#", fmt.Sprint(i)))
		}
		return strings.Join(out, ",")
	}
	return strings.NewReplacer(
		"{done}", id, "{doneTurn}", done.GetId(), "{empty}", empty.GetId(), "{busy}", busy.GetSessionId(),
		"{wait}", wait.GetSessionId(), "{waitTurn}", wait.GetId(), "{call}", wait.GetPendingToolCalls()[0].GetToolCallId(),
		"{doneCursor}", read.GetNextCursor(),
		"{sessionsToken}", sessions.GetNextPageToken(), "{turnsToken}", turns.GetNextPageToken(),
		"{long}", strings.Repeat("x", 129), "{kilobyte}", strings.Repeat("x", 1000), "{kilobytes}", strings.Repeat("x", 2000),
		"{message}", strings.Repeat("x", 1<<16), "{{labels}}", "{"+list(65, `"l#":"x"`)+"}",
		"{names}", list(513, `"t#"`), "{results}", list(513, `{"toolCallId":"c#"}`), "{parts}", list(65, `{"text":"p#"}`),
	)
}

// TestBadRequests sends what each method of the services must refuse, on each
// wire: with its code, the protocol's own in the details, and a message that
// names what was wrong. Nothing of it does any harm.
func TestBadRequests(t *testing.T) {
	d := start(t, daemon.Config{
		Scripts: map[string]string{"asks": asks}, MaxMessageBytes: 1 << 16,
		EventLog: true, DataDir: t.TempDir(), Turns: limits.Limits{MaxPromptBytes: 3000, MaxPartsBytes: 4000, IdleTurn: time.Hour},
	})
	fill := fixtures(t, wires(t, d)["Connect, binary, HTTP/1.1"])
	get := agentdv1.File_agentd_v1_sessions_proto.Services().ByName("SessionService").Methods().ByName("GetTurn")
	bad := badRequests()
	maps.Copy(bad, badRequestsOfOthers())
	for wire, c := range callers(t, d) {
		t.Run(wire, func(t *testing.T) {
			for _, method := range methods() {
				requests, ok := bad[called(method)]
				if !ok {
					t.Errorf("nothing is said of what %s refuses", called(method))
				}
				_, err := c.call(t, method, []byte{0xff})
				none := badRequest{name: "no message", code: invalidArgument, kind: invalidRequest, says: []string{"no " + string(method.Input().Name())}}
				none.check(t, called(method), fill, err)
				for _, req := range requests {
					if req.jsonOnly && !c.json {
						continue
					}
					_, err := c.call(t, method, c.form(t, method, fill.Replace(req.json)))
					req.check(t, called(method), fill, err)
					if _, err := c.call(t, get, c.form(t, get, fill.Replace(`{"sessionId":"{done}"}`))); err != nil {
						t.Fatalf("after %s, %s: %v", called(method), req.name, err)
					}
				}
			}
		})
	}
}

// form is a request as the wire has it.
func (c caller) form(t *testing.T, method protoreflect.MethodDescriptor, text string) []byte {
	t.Helper()
	if c.json {
		return []byte(text)
	}
	m := dynamicpb.NewMessage(method.Input())
	if err := protojson.Unmarshal([]byte(text), m); err != nil {
		t.Fatalf("%s: %.200s: %v", method.Name(), text, err)
	}
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func (r badRequest) check(t *testing.T, method string, fill *strings.Replacer, err error) {
	t.Helper()
	ce, ok := errors.AsType[*connect.Error](err)
	if !ok || ce.Code() != r.code {
		t.Errorf("%s, %s: %v, want %v", method, r.name, err, r.code)
		return
	}
	for _, want := range r.says {
		if !strings.Contains(ce.Message(), fill.Replace(want)) {
			t.Errorf("%s, %s: %q does not name %q", method, r.name, ce.Message(), fill.Replace(want))
		}
	}
	if len(ce.Message()) > 1000 {
		t.Errorf("%s, %s: a message of %d bytes", method, r.name, len(ce.Message()))
	}
	for _, detail := range ce.Details() {
		value, err := detail.Value()
		if e, ok := value.(*agentdv1.RunResponse_ErrorResponse); ok && err == nil && e.GetCode() == r.kind && e.GetMessage() == ce.Message() {
			return
		}
	}
	t.Errorf("%s, %s: the details are %v, want %v", method, r.name, ce.Details(), r.kind)
}

// TestNoRequests sends what is no call of a method at all.
func TestNoRequests(t *testing.T) {
	d := start(t, daemon.Config{MaxMessageBytes: 1 << 16})
	c := wires(t, d)["Connect, JSON, HTTP/1.1"]
	ex := &agentdv1.RunRequest_ExecuteRequest{UserPrompt: "hi", Agent: llm("root", "echo")}
	id := until(t, c, call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: ex}).GetTurn(), agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED).GetSessionId()
	hc := &http.Client{Transport: &http.Transport{DisableCompression: true}}
	t.Cleanup(hc.CloseIdleConnections)
	good := `{"sessionId":"` + id + `"}`
	json := http.Header{"Content-Type": {"application/json"}}
	with := func(name, value string) http.Header {
		h := json.Clone()
		h.Set(name, value)
		return h
	}
	for name, tc := range map[string]struct {
		verb, path, body string
		header           http.Header
		status           int
		says             string
	}{
		"GET of a write":         {http.MethodGet, "CancelTurn?connect=v1&encoding=json&message=%7B%7D", "", nil, http.StatusMethodNotAllowed, ""},
		"GET of a stream":        {http.MethodGet, "WatchTurn?connect=v1&encoding=json&message=%7B%7D", "", nil, http.StatusMethodNotAllowed, ""},
		"GET without a message":  {http.MethodGet, "GetTurn?connect=v1&encoding=json", "", nil, http.StatusBadRequest, `"invalid_argument"`},
		"GET in no encoding":     {http.MethodGet, "GetTurn?connect=v1&message=%7B%7D", "", nil, http.StatusUnsupportedMediaType, ""},
		"GET of compressed":      {http.MethodGet, "GetTurn?connect=v1&encoding=json&compression=gzip&message=%7B%7D", "", nil, http.StatusBadRequest, "compressed requests"},
		"GET of garbage":         {http.MethodGet, "GetTurn?connect=v1&encoding=json&message=%7B", "", nil, http.StatusBadRequest, `"invalid_argument"`},
		"DELETE":                 {http.MethodDelete, "GetTurn", "", json, http.StatusMethodNotAllowed, `\"DELETE\": GET, POST`},
		"PUT":                    {http.MethodPut, "GetTurn", good, json, http.StatusMethodNotAllowed, ""},
		"no such method":         {http.MethodPost, "ForgetTurn", good, json, http.StatusNotFound, "ForgetTurn"},
		"text":                   {http.MethodPost, "GetTurn", good, http.Header{"Content-Type": {"text/plain"}}, http.StatusUnsupportedMediaType, ""},
		"no content type":        {http.MethodPost, "GetTurn", good, nil, http.StatusUnsupportedMediaType, ""},
		"a stream's type":        {http.MethodPost, "GetTurn", good, http.Header{"Content-Type": {"application/connect+json"}}, http.StatusOK, "application/connect+json"},
		"a unary type":           {http.MethodPost, "WatchTurn", good, json, http.StatusUnsupportedMediaType, ""},
		"nothing":                {http.MethodPost, "GetTurn", "", json, http.StatusBadRequest, `"invalid_argument"`},
		"a list":                 {http.MethodPost, "GetTurn", "[]", json, http.StatusBadRequest, `"invalid_argument"`},
		"a misspelt field":       {http.MethodPost, "GetTurn", `{"sessionID":"` + id + `"}`, json, http.StatusBadRequest, "does not know `sessionID` of GetTurnRequest"},
		"a misspelt value":       {http.MethodPost, "CreateTurn", `{"execute":{"sessionId":"` + id + `","userPrompt":"hi","onBusy":"ON_BUSY_NEVER"}}`, json, http.StatusBadRequest, "ON_BUSY_NEVER"},
		"a misspelt filter":      {http.MethodPost, "ListSessions", `{"states":["OPEN"]}`, json, http.StatusBadRequest, "OPEN"},
		"two messages":           {http.MethodPost, "GetTurn", good + good, json, http.StatusBadRequest, `"invalid_argument"`},
		"binary that is JSON":    {http.MethodPost, "GetTurn", good, http.Header{"Content-Type": {"application/proto"}}, http.StatusBadRequest, `"invalid_argument"`},
		"too much":               {http.MethodPost, "GetTurn", `{"sessionId":"` + strings.Repeat("x", 1<<16) + `"}`, json, http.StatusTooManyRequests, `"resource_exhausted"`},
		"compressed":             {http.MethodPost, "GetTurn", "\x1f\x8b", with("Content-Encoding", "gzip"), http.StatusBadRequest, "compressed"},
		"compressed by whatever": {http.MethodPost, "GetTurn", "x", with("Content-Encoding", "br"), http.StatusNotImplemented, `"unimplemented"`},
		"a deadline of nobody":   {http.MethodPost, "GetTurn", good, with("Connect-Timeout-Ms", "soon"), http.StatusBadRequest, "soon"},
		"deep":                   {http.MethodPost, "CreateTurn", `{"execute":{"initialState":{"a":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + `}}}`, json, http.StatusTooManyRequests, "nested too deeply"},
		"not UTF-8":              {http.MethodPost, "GetTurn", "{\"sessionId\":\"\xff\"}", json, http.StatusBadRequest, `"invalid_argument"`},
		"good":                   {http.MethodPost, "GetTurn", good, json, http.StatusOK, id},
	} {
		req, err := http.NewRequestWithContext(t.Context(), tc.verb, d.URL()+"/agentd.v1.SessionService/"+tc.path, strings.NewReader(tc.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = tc.header.Clone()
		resp, err := hc.Do(req)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != tc.status || !strings.Contains(string(body), tc.says) {
			t.Errorf("%s: %d %.300s (%v), want %d with %q", name, resp.StatusCode, body, err, tc.status, tc.says)
		}
		call(t, c.GetTurn, &agentdv1.GetTurnRequest{SessionId: id})
	}
}
