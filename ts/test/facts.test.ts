// Who has done what, what was left out, and what errors know besides their text, as a real daemon tells it.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Agentd, AgentdError, llm, type AgentdOptions, type Event } from "@apzuk3/agentd";
import { guarded, serve } from "./daemon.js";
import { all, gather, Latch } from "./gather.js";

const scripts = {
  desk: `
answers:
  - {when: {after_tool: note}, text: noted}
  - {when: {after_tool: ask_user}, text: '{{tool_result "ask_user"}}'}
  - {when: {user: ask}, calls: [{name: ask_user, args: {question: "which?"}}]}
  - {when: {}, calls: [{name: note, args: {}}]}
`,
};
const echo = llm({ name: "a", model: "echo" });
const desk = llm({ name: "a", model: "scripted/desk", tools: ["note"], builtinTools: ["ask_user"] });

function as(url: string, token: string, options: AgentdOptions = {}): Agentd {
  return new Agentd(url, { headers: { authorization: `Bearer ${token}` }, reconnect: { off: true }, ...options });
}

const only = <T extends Event["type"]>(events: Event[], type: T) => events.filter((event): event is Event & { type: T } => event.type === type);

/** failure is what a call fails with. */
async function failure(call: () => unknown): Promise<AgentdError> {
  try {
    await call();
  } catch (thrown) {
    assert.ok(thrown instanceof AgentdError, String(thrown));
    return thrown;
  }
  return assert.fail("it did not fail");
}

test("sessions, prompts, answers and resolutions say whose they are", async (t) => {
  const { url } = await guarded(t, scripts);
  const reached = new Latch();
  const release = new Latch();
  const description = "Notes";
  const ada = as(url, "ada").addTool("note", { description, run: async () => (reached.open(), await release.opened, "done") });
  const { id: sessionId, createdBy } = await ada.sessions.create();
  assert.equal(createdBy, "ada");
  const first = gather(ada.run({ agent: desk, sessionId, prompt: "note" }));
  await reached.opened;
  const bob = as(url, "bob/operator", { prompter: () => ({ answer: "this" }) }).addTool("note", { description, run: () => "by bob" });
  const queued = gather(bob.run({ agent: desk, sessionId, prompt: "ask", onBusy: "enqueue" }));
  while ((await all(ada.turns.list({ sessionId, statuses: ["pending"] }))).length === 0) {
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  release.open();
  assert.deepEqual(only(await first, "tool_call_answered").map((event) => event.createdBy), ["ada"]);
  const events = await queued;
  assert.deepEqual(only(events, "turn_queued").map((event) => event.createdBy), ["bob"]);
  const [asked] = only(events, "interaction_requested");
  const [resolved] = only(events, "interaction_resolved");
  assert.deepEqual([asked?.interaction.resolvedBy, asked?.interaction.expireTime! > new Date(), resolved?.interaction.resolvedBy], ["", true, "bob"]);
  const interaction = await ada.interactions.get(sessionId, asked!.interaction.id);
  assert.deepEqual([interaction.resolvedBy, interaction.resolution, interaction.toolCallId !== interaction.id], ["bob", { answer: "this" }, true]);
  assert.deepEqual((await all(ada.turns.list({ sessionId }))).map((turn) => turn.createdBy), ["bob", "ada"]);
  assert.deepEqual(only(await all(ada.sessions.events(sessionId)), "turn_queued").map((event) => event.createdBy), ["bob"]);
});

test("what a role may not do is refused, and what of a request is left out is told", async (t) => {
  const { url } = await guarded(t, scripts);
  const nobody = await failure(() => new Agentd(url).capabilities());
  assert.deepEqual([nobody.code, nobody.retryable], ["UNAUTHENTICATED", false]);
  assert.equal((await failure(() => new Agentd(url).run({ agent: echo, prompt: "hi" }).result())).code, "UNAUTHENTICATED");
  const ada = as(url, "ada").addTool("note", { description: "Notes", run: (_, { setState }) => (setState("app:b", 1), setState("own", 1), "done") });
  assert.equal((await failure(() => ada.sharedState.set({ "app:a": 1 }))).code, "PERMISSION_DENIED");
  await as(url, "bob/operator").sharedState.set({ "app:a": 1 });
  const result = await ada.run({ agent: desk, prompt: "note", state: { "app:a": 2, cart: 1 } }).result();
  const { sessionId } = result.turn;
  const events = await all(ada.turns.events(sessionId));
  const [started] = only(events, "turn_started");
  const [answered] = only(events, "tool_call_answered");
  assert.deepEqual(started?.warnings.map(({ code, field }) => [code, field]), [["app_state_ignored", `execute.initial_state_json["app:a"]`]]);
  assert.deepEqual(answered?.warnings.map(({ code }) => code), ["app_state_ignored"]);
  assert.match(answered?.warnings[0]?.message ?? "", /app:b/);
  assert.deepEqual(result.warnings, [...started!.warnings, ...answered!.warnings]);
  const own = await all(ada.sessions.events(sessionId));
  assert.equal(Object.keys(Object.assign({}, ...only(own, "state_update").map(({ stateDelta }) => stateDelta))).includes("app:b"), false);
  const observer = as(url, "eve/observer");
  assert.equal((await observer.sessions.get(sessionId)).createdBy, "ada");
  assert.equal((await failure(() => observer.turns.cancel(sessionId))).code, "PERMISSION_DENIED");
});

test("errors say what to do", async (t) => {
  const { url } = await serve(t, scripts, "--max-streams=1", "--max-message-bytes=100000");
  const agentd = new Agentd(url, { reconnect: { off: true } });
  const session = await agentd.sessions.create();
  assert.equal(session.createdBy, "local");

  const wrong = await failure(() => agentd.sessions.create({ labels: { "": "x" }, clientRef: "y".repeat(2000) }));
  assert.equal(wrong.code, "INVALID_REQUEST");
  assert.ok(wrong.violations.length >= 2 && wrong.violations.every(({ field, rule }) => field !== "" && rule !== ""), JSON.stringify(wrong));
  assert.ok(wrong.violations.some(({ field, rule }) => field === "client_ref" && rule.startsWith("string.max")), JSON.stringify(wrong.violations));

  const { maxMessageBytes } = await agentd.capabilities();
  const long = await failure(() => agentd.run({ agent: echo, prompt: "x".repeat(2 * maxMessageBytes) }).result());
  assert.deepEqual([long.code, long.limit?.name, long.limit?.value], ["LIMIT_EXCEEDED", "message_bytes", maxMessageBytes]);
  assert.ok(long.limit!.received === 0 || long.limit!.received > maxMessageBytes);

  const reached = new Latch();
  const worker = new Agentd(url).addTool("note", { description: "Notes", run: (_, { signal }) => (reached.open(), new Promise((_r, reject) => signal.addEventListener("abort", () => reject(signal.reason as Error)))) });
  const leave = new AbortController();
  t.after(() => leave.abort());
  const run = worker.run({ agent: desk, sessionId: session.id, prompt: "note", signal: leave.signal });
  const told = gather(run).catch(() => {});
  await reached.opened;
  const busy = await failure(() => agentd.run({ agent: echo, sessionId: session.id, prompt: "hi" }).result());
  assert.deepEqual([busy.code, busy.retryable, busy.sessionId, busy.turnId], ["SESSION_BUSY", true, session.id, run.turnId]);
  const full = await failure(() => gather(agentd.attach(session.id, { observe: true })));
  assert.deepEqual([full.code, full.retryable, full.limit], ["UNAVAILABLE", true, { name: "streams", value: 1, received: 2 }]);
  assert.ok((full.retryAfterMs ?? 0) > 0, String(full.retryAfterMs));
  await run.cancel();
  await told;

  const { id: other } = await agentd.sessions.create();
  const short = await failure(() => agentd.run({ agent: echo, sessionId: other, prompt: "hi", budget: { tokens: 1 } }).result().then(() => agentd.run({ agent: echo, sessionId: other, prompt: "hi", sessionBudget: { modelCalls: 1 } }).result()));
  assert.equal(short.code, "BUDGET_EXHAUSTED");
  assert.deepEqual([short.limit?.name, short.limit?.value, short.sessionId, short.turnId !== ""], ["session_model_calls", 1, other, true]);
  const taken = (await agentd.turns.get(other)).id;
  const conflict = await failure(() => agentd.run({ agent: echo, sessionId: other, prompt: "hi", turnId: taken }).result());
  assert.deepEqual([conflict.code, conflict.turnId], ["CONFLICT", taken]);
  assert.deepEqual(JSON.parse(JSON.stringify(conflict)).turnId, taken);
});

test("a call that nobody serves says until when it is waited for", async (t) => {
  const { url } = await serve(t, scripts);
  const agentd = new Agentd(url).addTool("note", { description: "Notes", run: () => new Promise(() => {}) });
  const run = agentd.run({ agent: desk, prompt: "note", onLeave: "detach" });
  for await (const event of run) {
    if (event.type === "tool_call") {
      break;
    }
  }
  for await (const event of new Agentd(url).attach(run.sessionId!)) {
    if (event.type === "tool_call_unserved") {
      assert.ok(event.expireTime! > new Date());
      assert.equal(event.toolName, "note");
      break;
    }
  }
});
