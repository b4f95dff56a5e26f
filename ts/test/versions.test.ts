// Servers that are older than this client, and newer ones.
import assert from "node:assert/strict";
import { test } from "node:test";
import { fromJson, type DescMessage, type JsonObject, type JsonValue } from "@bufbuild/protobuf";
import { Agentd, AgentdError, llm, type AgentdOptions, type RunOptions } from "@apzuk3/agentd";
import { SessionService } from "@apzuk3/agentd/proto";
import { SessionStore, type SessionSnapshot } from "@apzuk3/agentd/react";
import { all, gather } from "./gather.js";

/** What the older server knows of requests, by message. */
const known: Record<string, string[]> = {
  CreateTurnRequest: ["execute"],
  "RunRequest.ExecuteRequest": ["userPrompt", "agent", "tools", "sessionId", "initialStateJson", "idempotencyKey"],
  Agent: ["name", "description", "llm", "sequential", "parallel", "loop"],
  LlmAgent: ["model", "instruction", "toolNames", "subAgents", "outputKey"],
  LoopAgent: ["agents", "maxIterations"],
  Tool: ["name", "description", "inputSchema"],
  WatchTurnRequest: ["sessionId", "turnId", "afterSeq", "toolNames"],
  SubmitToolResultsRequest: ["sessionId", "turnId", "results"],
  "RunRequest.ToolCallResponse": ["toolCallId", "toolName", "output", "error"],
  GetTurnRequest: ["sessionId", "turnId"],
  CancelTurnRequest: ["sessionId", "turnId", "reason"],
  ListTurnsRequest: ["sessionId", "pageSize", "pageToken"],
  GetSessionRequest: ["sessionId"],
};

/** later is the path of a field of a request that the older server does not know; undefined for none. */
function later(desc: DescMessage, json: JsonObject, at = ""): string | undefined {
  const short = desc.typeName.replace("agentd.v1.", "");
  for (const [name, value] of Object.entries(json)) {
    const field = desc.fields.find(({ jsonName }) => jsonName === name);
    assert.ok(field !== undefined, `${short} has no ${name}`);
    const path = `${at}${name}`;
    if (!known[short]?.includes(name)) {
      return path;
    }
    const inner = field.message;
    if (inner !== undefined && inner.typeName.startsWith("agentd.v1.")) {
      const items = (Array.isArray(value) ? value : [value]) as JsonObject[];
      const found = items.map((item, i) => later(inner, item, `${path}${Array.isArray(value) ? `[${i}]` : ""}.`)).find((p) => p !== undefined);
      if (found !== undefined) {
        return found;
      }
    }
  }
  return undefined;
}

const enveloped = (flags: number, json: unknown) => {
  const data = Buffer.from(JSON.stringify(json));
  const head = Buffer.alloc(5);
  head.writeUInt8(flags);
  head.writeUInt32BE(data.length, 1);
  return Buffer.concat([head, data]);
};

/**
 * older is a client of a server that refuses by name what it does not know, as docs/errors.md says, and what it was
 * asked; done is what has been done.
 */
function older(options: AgentdOptions = {}) {
  const asked: string[] = [];
  const done: string[] = [];
  const answered: string[] = [];
  const answers: Record<string, (request: JsonObject) => JsonValue> = {
    CreateTurn: () => ({ turn: { id: "t", sessionId: "s" } }),
    GetTurn: () => ({ turn: { id: "t", sessionId: "s", status: "TURN_STATUS_SUCCEEDED", outputText: "ok" } }),
    CancelTurn: () => ({ turn: { id: "t", sessionId: "s", status: "TURN_STATUS_CANCELED" } }),
    SubmitToolResults: (request) => (answered.push(JSON.stringify(request["results"])), {}),
    ListTurns: () => ({}),
    GetSession: () => ({ session: { id: "s" } }),
  };
  const call = { seq: "1", turnId: "t", toolCall: { sessionId: "s", toolCallId: "c", toolName: "work", toolInput: "{}", agentPath: ["a"] } };
  const text = { seq: "2", turnId: "t", outputChunk: { content: "ok", last: true, agentPath: ["a"] } };
  const end = { seq: "3", turnId: "t", end: { completed: true } };
  const fetch = async (input: string | URL | Request, init?: RequestInit) => {
    const name = String(input).replace(/.*\//, "");
    asked.push(name);
    const method = SessionService.methods.find((one) => one.name === name);
    const streams = name === "WatchTurn";
    if (method === undefined || (answers[name] === undefined && !streams)) {
      return new Response("404 page not found\n", { status: 404 });
    }
    const body = Buffer.from(await new Response(init?.body).arrayBuffer());
    const json = JSON.parse(body.subarray(streams ? 5 : 0).toString()) as JsonObject;
    fromJson(method.input, json);
    const field = later(method.input, json);
    if (field !== undefined) {
      const message = `this server does not know \`${field.replace(/.*\./, "")}\`; it is older than the client, or the name is misspelled`;
      const debug = { code: "ERROR_CODE_INVALID_REQUEST", message, violations: [{ field, rule: "unknown" }] };
      const error = { code: "invalid_argument", message, details: [{ type: "agentd.v1.RunResponse.ErrorResponse", value: "", debug }] };
      return streams
        ? new Response(enveloped(2, { error }), { headers: { "content-type": "application/connect+json" } })
        : Response.json(error, { status: 400 });
    }
    done.push(name);
    if (!streams) {
      return Response.json(answers[name]!(json));
    }
    const frames = [call, text, end].filter(({ seq }) => Number(seq) > Number(json["afterSeq"] ?? 0)).map((event) => enveloped(0, { event }));
    return new Response(Buffer.concat([...frames, enveloped(2, {})]), { headers: { "content-type": "application/connect+json" } });
  };
  const agentd = new Agentd("http://unused", { fetch, reconnect: { baseMs: 1, capMs: 2 }, ...options });
  let ran = 0;
  agentd.addTool("work", { description: "Works", run: () => `done ${++ran}` });
  return { agentd, asked, done, answered, ran: () => ran };
}

const agent = llm({ name: "a", model: "echo", instruction: "Be brief.", tools: ["work"] });

test("what an older server knows works with it", async () => {
  const { agentd, asked, answered } = older();
  const { text, turn } = await agentd.run({ agent, prompt: "hi", state: { n: 0 } }).result();
  assert.deepEqual([text, turn.status, answered], ["ok", "succeeded", ['[{"toolCallId":"c","toolName":"work","output":"done 1"}]']]);
  assert.deepEqual((await gather(agentd.attach("s", { turnId: "t", afterSeq: 1 }))).map((e) => e.type), ["output_chunk", "end"]);
  assert.deepEqual([(await agentd.turns.cancel("s")).status, await all(agentd.turns.list()), (await agentd.sessions.get("s")).id], ["canceled", [], "s"]);
  assert.equal(new Set(asked).has("ListTurns"), true);
});

/** refusedBy checks a refusal by the older server. */
function refusedBy(field: string, what: RegExp = /older than the client/): (err: unknown) => true {
  return (err) => {
    assert.ok(err instanceof AgentdError, String(err));
    assert.deepEqual([err.code, err.retryable], ["INVALID_REQUEST", false], err.message);
    assert.match(err.message, what);
    assert.deepEqual(err.violations, field === "" ? [] : [{ field, rule: "unknown" }]);
    return true;
  };
}

test("what an older server does not know is refused by name, and nothing runs", async () => {
  const without = llm({ name: "a", model: "echo" });
  const tree = (more: Partial<Parameters<typeof llm>[0]>) => ({ agent: llm({ name: "a", model: "echo", ...more }) });
  const later: [string, Partial<RunOptions>][] = [
    ["execute.userParts", { parts: [{ text: "more" }] }],
    ["execute.rawPayloads", { rawPayloads: true }],
    ["execute.onBusy", { onBusy: "interrupt" }],
    ["execute.onDisconnect", { onDisconnect: "cancel" }],
    ["execute.disconnectGrace", { disconnectGraceMs: 1000 }],
    ["execute.instruction", { instruction: "Speak Latin." }],
    ["execute.instructionMode", { instructionMode: "replace" }],
    ["execute.seedMessages", { seedMessages: [{ role: "user", content: "hello" }] }],
    ["execute.fork", { sessionId: "s", fork: true }],
    ["execute.labels", { labels: { a: "b" } }],
    ["execute.author", { author: "ann" }],
    ["execute.metadata", { metadata: { dir: "" } }],
    ["execute.create", { sessionId: "s", create: true }],
    ["execute.turnId", { turnId: "mine" }],
    ["execute.toolTimeout", { toolTimeoutMs: 1000 }],
    ["execute.budget", { budget: { modelCalls: 1 } }],
    ["execute.sessionBudget", { sessionBudget: {} }],
    ["execute.agent.llm.fallbackModels", tree({ fallbackModels: ["other"] })],
    ["execute.agent.llm.compaction", tree({ compaction: { atShare: 0 } })],
    ["execute.agent.llm.generation", tree({ generation: { temperature: 0 } })],
    ["execute.agent.llm.includeHistory", tree({ history: "turn" })],
    ["execute.agent.llm.builtinTools", tree({ builtinTools: ["ask_user"] })],
    ["execute.agent.llm.outputSchema", tree({ output: { type: "object" } })],
    ["execute.agent.llm.agentTools", tree({ agentTools: [{ agent: llm({ name: "b", model: "echo" }), history: "fork" }] })],
    ["execute.agent.llm.backgroundAgents", tree({ backgroundAgents: {} })],
    ["execute.agent.llm.subAgents[0].llm.generation", tree({ subAgents: [llm({ name: "b", model: "echo", generation: { seed: 0 } })] })],
  ];
  for (const [field, more] of later) {
    const { agentd, asked, done, ran } = older();
    await assert.rejects(agentd.run({ agent: without, prompt: "hi", ...more }).result(), refusedBy(field), field);
    assert.deepEqual([asked, done, ran()], [["CreateTurn"], [], 0], field);
  }
  for (const [field, definition] of [["needsApproval", { needsApproval: true }], ["deferred", { deferred: true }], ["timeout", { timeoutMs: 1000 }]] as const) {
    const { agentd, done } = older();
    agentd.addTool("pay", { description: "Pays", run: () => assert.fail("it ran"), ...definition });
    await assert.rejects(agentd.run({ agent: llm({ name: "a", model: "echo", tools: ["pay"] }), prompt: "hi" }).result(), refusedBy(`execute.tools[0].${field}`));
    assert.deepEqual(done, []);
  }
});

test("an older server that cannot watch as it is asked to is not watched otherwise", async () => {
  for (const [field, options] of [["observe", { observe: true }], ["display", { display: true }], ["observe", { observe: true, visibility: "public" }]] as const) {
    const { agentd, asked, done, ran } = older();
    await assert.rejects(gather(agentd.attach("s", options)), refusedBy(field));
    assert.deepEqual([asked, done, ran()], [["WatchTurn"], [], 0]);
  }
  // The turn of a run whose stream is refused is left as its caller wants.
  const { agentd, done } = older();
  await assert.rejects(agentd.run({ agent, prompt: "hi", display: true }).result(), refusedBy("display"));
  assert.deepEqual(done, ["CreateTurn", "CancelTurn"]);
});

test("a method that an older server does not have is named", async () => {
  const { agentd } = older();
  for (const [name, call] of [
    ["SetSharedState", () => agentd.sharedState.set({ "app:a": 1 })],
    ["ListSharedState", () => all(agentd.sharedState.list())],
    ["ForkSession", () => agentd.sessions.fork("s")],
    ["CompactSession", () => agentd.sessions.compact("s")],
    ["ListSessions", () => all(agentd.sessions.list())],
    ["ResolveInteraction", () => agentd.interactions.resolve("s", "q", { approve: true })],
    ["GetCapabilities", () => agentd.capabilities()],
  ] as const) {
    await assert.rejects(call, refusedBy("", new RegExp(`does not serve ${name} of .*older than this client`)), name);
  }
  await assert.rejects(all(agentd.turns.list({ statuses: ["running"] })), refusedBy("statuses"));
  await assert.rejects(agentd.turns.get("s", "t", { userParts: true }), refusedBy("userParts"));
});

/** newer is a client of a server that says more than this client knows. */
function newer(events: JsonObject[], answers: Record<string, JsonValue> = {}) {
  const reported: string[] = [];
  const fetch = (input: string | URL | Request) => {
    const name = String(input).replace(/.*\//, "");
    if (name === "SubmitToolResults") {
      reported.push(name);
    }
    const body = [...events.map((event) => enveloped(0, { event, weather: "fair" })), enveloped(2, { metadata: { "x-new": ["1"] }, mood: "good" })];
    return Promise.resolve(
      name.startsWith("Watch")
        ? new Response(Buffer.concat(body), { headers: { "content-type": "application/connect+json" } })
        : Response.json(answers[name] ?? {}),
    );
  };
  const agentd = new Agentd("http://unused", { fetch }).addTool("work", { description: "Works", run: () => assert.fail("it ran") });
  return { agentd, reported };
}

const finished = { seq: "90", turnId: "t", mood: "good", end: { completed: true, verdict: { fair: true } } };
const news: JsonObject[] = [
  { seq: "1", turnId: "t", execute: { sessionId: "s", warnings: [{ code: "of_the_future", scale: 3 }], plan: "b" } },
  { seq: "2", turnId: "t", goalReached: { goal: "tea", share: 0.5 } },
  { seq: "3", turnId: "t", bare: true },
  { seq: "4", turnId: "t", outputChunk: { content: "well", agentPath: ["a"], voice: "alto" }, display: { kind: "KIND_SONG", phase: 77, pitch: 2 } },
  { seq: "5", turnId: "t", modelCallEnded: { outcome: "OUTCOME_POSTPONED", stopReason: 99, usage: { promptTokens: "3", dreams: "1" } } },
  { seq: "6", turnId: "t", toolCallAnswered: { toolCallId: "c", parts: [{ hologram: { size: 1 } }, { text: "seen", font: "sans" }] } },
  { seq: "7", turnId: "t", interactionRequested: { interaction: { id: "q", kind: "INTERACTION_KIND_DANCE", status: "INTERACTION_STATUS_PENDING", hall: "b" } } },
  { seq: "8", turnId: "t", interactionResolved: { interaction: { id: "q", status: "INTERACTION_STATUS_WITHDRAWN", resolution: { bow: {} } } } },
  { seq: "9", turnId: "t", modelCallRetried: { code: "ERROR_CODE_MODEL_ASLEEP", wait: "1.5s" } },
  { seq: "10", turnId: "t", agentStarted: { agentPath: ["a"], kind: "AGENT_KIND_REMOTE" } },
  { seq: "11", turnId: "t", stateUpdate: { stateDelta: { n: 1 }, stateTree: {} } },
];

test("what a newer server tells is unknown, as it comes, or left out, and no error", async () => {
  const { agentd, reported } = newer([...news, finished]);
  const events = await gather(agentd.attach("s"));
  assert.deepEqual(events.map((e) => e.type), [
    "turn_started", "unknown", "unknown", "output_chunk", "model_call_ended", "tool_call_answered", "interaction_requested", "interaction_resolved",
    "model_call_retried", "agent_started", "state_update", "end",
  ]);
  const [started, unknown, bare, said, ended, answered, asked, resolved, retried, agentStarted] = events;
  assert.ok(started?.type === "turn_started" && started.warnings[0]?.code === "of_the_future");
  assert.ok(unknown?.type === "unknown" && bare?.type === "unknown");
  assert.deepEqual([unknown.name, unknown.data, unknown.seq, bare.name, bare.data], ["goalReached", { goal: "tea", share: 0.5 }, 2, "bare", true]);
  assert.deepEqual(said?.display, { kind: "song", phase: "unknown", ref: "", visibility: "unspecified" });
  assert.ok(ended?.type === "model_call_ended");
  assert.deepEqual([ended.outcome, ended.stopReason, ended.usage?.promptTokens], ["postponed", "unknown", 3]);
  assert.ok(answered?.type === "tool_call_answered");
  assert.deepEqual(answered.parts, [{ text: "seen" }]);
  assert.ok(asked?.type === "interaction_requested" && asked.interaction.kind === "dance");
  assert.ok(resolved?.type === "interaction_resolved" && resolved.interaction.status === "withdrawn" && resolved.interaction.resolution === undefined);
  assert.ok(retried?.type === "model_call_retried" && retried.code === "UNSPECIFIED" && retried.waitMs === 1500);
  assert.ok(agentStarted?.type === "agent_started" && agentStarted.kind === "remote");
  assert.doesNotThrow(() => JSON.stringify(events));
  assert.deepEqual(reported, []);
});

test("a result and a page take what a newer server tells", async () => {
  const turn = { id: "t", sessionId: "s", status: "TURN_STATUS_HIBERNATING", errorCode: "ERROR_CODE_MODEL_ASLEEP", dream: {}, outputText: "well" };
  const answers = {
    GetTurn: { turn },
    GetSession: { session: { id: "s", state: "SESSION_STATE_FROZEN", lastTurnStatus: 44, color: "red" }, more: 1 },
    GetCapabilities: { features: ["SessionService.Dream"], dreams: true, providers: [{ name: "p", mood: 1 }] },
    ListModels: { models: [{ name: "m", price: { tiers: [{ input: 1, dreams: 2 }] }, dreams: {} }] },
    ListTurns: { turns: [turn], total: 1 },
    ListTurnEvents: { events: [...news, finished], total: 3 },
  };
  const { agentd } = newer([...news, finished], answers);
  const result = await agentd.attach("s").result();
  assert.deepEqual([result.text, result.completed, result.turn.status, result.turn.errorCode], ["well", true, "hibernating", "UNSPECIFIED"]);
  const session = await agentd.sessions.get("s");
  assert.deepEqual([session.state, session.lastTurnStatus, "color" in session], ["frozen", "unknown", false]);
  assert.deepEqual((await agentd.capabilities()).features, ["SessionService.Dream"]);
  assert.equal((await agentd.models()).models[0]?.price?.tiers[0]?.input, 1);
  assert.equal((await all(agentd.turns.events("s"))).length, news.length + 1);
  const store = new SessionStore(agentd, { sessionId: "s" });
  const read = await new Promise<SessionSnapshot>((resolve) => {
    const leave = store.subscribe(() => store.getSnapshot().status === "ready" && (leave(), resolve(store.getSnapshot())));
  });
  assert.deepEqual([read.messages.map(({ text }) => text), read.state, read.error], [["", "well"], { n: 1 }, undefined]);
});

test("an error of a newer server has its text, whatever its code", async () => {
  const debug = { code: "ERROR_CODE_OUT_OF_TEA", message: "no tea", retryable: true, teapot: 1, limit: { name: "cups", value: "2", received: "3", unit: "cup" } };
  const error = { code: "data_loss", message: "no tea", details: [{ type: "agentd.v1.Other", value: "" }, { type: "agentd.v1.RunResponse.ErrorResponse", value: "", debug }] };
  const agentd = new Agentd("http://unused", { fetch: () => Promise.resolve(Response.json(error, { status: 418 })) });
  await assert.rejects(agentd.capabilities(), (err) => {
    assert.ok(err instanceof AgentdError);
    assert.deepEqual([err.code, err.message, err.retryable, err.limit], ["UNSPECIFIED", "no tea", true, { name: "cups", value: 2, received: 3 }]);
    return true;
  });
  const failing = newer([...news, { seq: "80", turnId: "t", error: debug }, { ...finished, end: { completed: false } }]);
  await assert.rejects(gather(failing.agentd.attach("s")), { code: "UNSPECIFIED", message: "no tea" });
});

test("a page of an older server, which cannot watch a session, is told so and waits for nothing", async () => {
  const { agentd, done, ran } = older();
  const store = new SessionStore(agentd, { sessionId: "s" });
  const { error, status } = await new Promise<SessionSnapshot>((resolve) => {
    const leave = store.subscribe(() => store.getSnapshot().error !== undefined && (leave(), resolve(store.getSnapshot())));
  });
  assert.equal(status, "ready");
  refusedBy("", /does not serve WatchSession of .*older than this client/)(error);
  assert.deepEqual([done, ran()], [["ListTurns"], 0]);
});
