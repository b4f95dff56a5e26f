package daemon_test

import (
	"strings"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// badRequestsOfOthers are what methods of services besides SessionService must refuse, by called.
func badRequestsOfOthers() map[string][]badRequest {
	bad := func(name, json string, says ...string) badRequest {
		return badRequest{name: name, json: json, code: invalidArgument, kind: invalidRequest, says: says}
	}
	// The goals of Start and Resume, with execute of the one and of the other.
	goal := func(execute string) []badRequest {
		with := func(rest string) string { return `{"goal":"x","execute":{` + execute + `}` + rest + `}` }
		also := func(field string) string { return `{"goal":"x","execute":{` + execute + `,` + field + `}}` }
		return []badRequest{
			bad("no execute", `{"goal":"x"}`, "execute"),
			bad("a prompt", also(`"userPrompt":"hi"`), "execute.user_prompt", "leave user_prompt empty"),
			bad("a file", also(`"userParts":[{"text":"hi"}]`), "execute.user_parts"),
			bad("a turn", also(`"turnId":"t"`), "execute.turn_id"),
			bad("a queue", also(`"onBusy":"ON_BUSY_ENQUEUE"`), "execute.on_busy"),
			bad("its clients", also(`"onDisconnect":"ON_DISCONNECT_CANCEL"`), "execute.on_disconnect"),
			bad("turns", with(`,"maxTurns":-1`), "max_turns", "0"),
			bad("tokens", with(`,"maxInputTokens":"-1"`), "max_input_tokens"),
			bad("cost", with(`,"maxCost":-1`), "max_cost"),
			bad("no failure", with(`,"onFailure":99`), "on_failure"),
			bad("a deferral", with(`,"schedule":{"maxDefer":"0.5s"}`), "max_defer"),
			bad("a long name", with(`,"doneTool":{"name":"{long}"}`), "done_tool.name", "64"),
		}
	}
	start := append(goal(`"agent":{"name":"a","llm":{"model":"echo"}}`),
		bad("no goal", `{"execute":{"agent":{"name":"a","llm":{"model":"echo"}}}}`, "goal is empty"),
		badRequest{name: "no such tool", json: `{"goal":"x","execute":{"agent":{"name":"a","llm":{"model":"echo","toolNames":["nobody"]}}}}`, code: invalidArgument, kind: badTree, says: []string{`"nobody"`}},
		badRequest{name: "a goal without a price", json: `{"goal":"x","maxCost":1,"execute":{"sessionId":"nobody"}}`, code: connect.CodeNotFound, kind: noSession, says: []string{`"nobody"`}},
	)
	var resume []badRequest
	for _, r := range goal(`"sessionId":"{done}","agent":{"name":"a","llm":{"model":"echo"}}`) {
		r.json = `{"goal":` + r.json + `}`
		resume = append(resume, r)
	}
	resume = append(resume,
		bad("nothing", `{}`, "goal"),
		bad("no session", `{"goal":{"goal":"x","execute":{"agent":{"name":"a","llm":{"model":"echo"}}}}}`, "execute.session_id"),
		badRequest{name: "unknown session", json: `{"goal":{"execute":{"sessionId":"nobody"}}}`, code: connect.CodeNotFound, kind: noSession, says: []string{`"nobody"`}},
		bad("no goal", `{"goal":{"execute":{"sessionId":"{done}"}}}`, "goal is empty"),
	)
	// A schedule: when, and what.
	what := `"execute":{"userPrompt":"hi","agent":{"name":"a","llm":{"model":"echo"}}}`
	schedule := func(name, rest string, says ...string) badRequest { return bad(name, `{`+what+`,`+rest+`}`, says...) }
	each := func(name, field string, says ...string) badRequest {
		return bad(name, `{"every":"60s",`+strings.TrimSuffix(what, "}")+`,`+field+`}}`, says...)
	}
	create := []badRequest{
		bad("no time", `{`+what+`}`, "cron", "every", "at"),
		bad("nothing to start", `{"every":"60s"}`, "execute"),
		schedule("a bad id", `"every":"60s","id":"a b"`, "id", "letter"),
		schedule("a long id", `"every":"60s","id":"{long}"`, "id", "128"),
		schedule("too often", `"every":"9s"`, "every", "10"),
		schedule("too rarely", `"every":"31536001s"`, "every"),
		schedule("no cron", `"cron":{}`, "expression"),
		schedule("a bad cron", `"cron":{"expression":"61 * * * *"}`, "cron", "61"),
		schedule("never", `"cron":{"expression":"0 0 30 2 *"}`, "cron"),
		schedule("no zone", `"cron":{"expression":"@daily","timeZone":"Mars/Olympus"}`, "Mars/Olympus"),
		each("a turn", `"turnId":"t"`, "execute.turn_id"),
		each("a key", `"idempotencyKey":"k"`, "execute.idempotency_key"),
		each("a queue", `"onBusy":"ON_BUSY_ENQUEUE"`, "execute.on_busy"),
		each("a fork", `"fork":true`, "execute.fork"),
		each("a new session", `"create":true`, "execute.create"),
		each("a bad session", `"sessionId":"a b"`, "execute.session_id"),
		bad("no prompt", `{"every":"60s","execute":{"agent":{"name":"a","llm":{"model":"echo"}}}}`, "execute.user_prompt"),
		bad("no agent", `{"every":"60s","execute":{"userPrompt":"hi"}}`, "execute needs an agent"),
		{name: "no such tool", json: `{"every":"60s","execute":{"userPrompt":"hi","agent":{"name":"a","llm":{"model":"echo","toolNames":["nobody"]}}}}`, code: invalidArgument, kind: badTree, says: []string{`"nobody"`}},
	}
	kept := []badRequest{
		bad("no id", `{}`, "id", "1"), bad("a long id", `{"id":"{long}"}`, "id", "128"),
		{name: "unknown", json: `{"id":"nobody"}`, code: connect.CodeNotFound, kind: agentdv1.ErrorCode_ERROR_CODE_NOT_FOUND, says: []string{`"nobody"`}},
	}
	log := []badRequest{
		bad("before the beginning", `{"afterSeq":"-1"}`, "after_seq"),
		bad("a long session", `{"filter":{"sessionId":"{long}"}}`, "filter.session_id", "128"),
		bad("a long branch", `{"filter":{"branchPrefix":"{kilobyte}{kilobyte}"}}`, "filter.branch_prefix", "1024"),
		bad("a long author", `{"filter":{"author":"{kilobyte}"}}`, "filter.author", "256"),
		bad("a tree of nothing", `{"filter":{"tree":true}}`, "tree", "session_id"),
	}
	noGoal := func(rest string) badRequest {
		return badRequest{name: "no goal", json: `{"sessionId":"{done}"` + rest + `}`, code: connect.CodeFailedPrecondition, kind: notNow, says: []string{"no goal"}}
	}
	get := noGoal("")
	get.code, get.kind = connect.CodeNotFound, notFound
	return map[string][]badRequest{
		"GoalService.Start":  start,
		"GoalService.Resume": resume,
		"GoalService.Get":    append(named(""), get),
		"GoalService.List": append(paged(""), bad("no status", `{"statuses":[0]}`, "statuses"),
			bad("many", `{"statuses":[1,2,3,4,5,1,2,3,4]}`, "statuses", "8"), bad("a long session", `{"sessionId":"{long}"}`, "session_id")),
		"GoalService.Control": append(named(`,"action":"GOAL_ACTION_PAUSE"`), bad("no action", `{"sessionId":"{done}"}`, "action"),
			bad("an unknown action", `{"sessionId":"{done}","action":99}`, "action"), noGoal(`,"action":"GOAL_ACTION_PAUSE"`), noGoal(`,"action":"GOAL_ACTION_STOP"`)),
		"GoalService.Inject": append(named(`,"text":"x"`), bad("nothing", `{"sessionId":"{done}"}`, "text"),
			bad("a long key", `{"sessionId":"{done}","text":"x","idempotencyKey":"{kilobyte}"}`, "idempotency_key"), noGoal(`,"text":"x"`)),
		"ScheduleService.Create": create, "ScheduleService.Get": kept, "ScheduleService.Delete": kept,
		"ScheduleService.List": {
			bad("negative page", `{"pageSize":-1}`, "page_size"), bad("large page", `{"pageSize":1001}`, "page_size", "1000"),
			bad("a token of nobody", `{"pageToken":"%%%"}`, "page_token"), bad("a long token", `{"pageToken":"{kilobytes}"}`, "page_token", "1024"),
		},
		"EventService.List":  append(log, bad("negative", `{"limit":-1}`, "limit"), bad("many", `{"limit":1001}`, "limit", "1000")),
		"EventService.Watch": log,
	}
}
