import assert from "node:assert/strict";
import { test } from "node:test";
import { Agentd, AgentdError, llm, loop, parallel, sequential, type Event } from "@apzuk3/agentd";
import { z } from "zod";
import { serve } from "./daemon.js";
import { gather, rising } from "./gather.js";

const greeter = llm({ name: "greeter", model: "scripted/demo", instruction: "Greet people.", tools: ["greet"] });

function withGreet(url: string, options = {}): Agentd {
  return new Agentd(url, options).addTool("greet", {
    description: "Returns a greeting",
    input: z.object({ name: z.string().describe("whom to greet") }),
    run: ({ name }, { agentPath, toolCallId, sessionId }) => {
      assert.deepEqual(agentPath, ["greeter"]);
      assert.ok(toolCallId !== "" && sessionId !== "");
      return Promise.resolve(`Hello, ${name}!`);
    },
  });
}

test("a whole turn with a tool", async (t) => {
  const daemon = await serve(t);
  const run = withGreet(daemon.url).run({ agent: greeter, prompt: "Say hi to Alice" });
  const events = await gather(run);
  const types = events.map((e) => e.type);
  assert.equal(types[0], "turn_started");
  assert.equal(types.at(-1), "end");
  assert.equal(types.filter((type) => type === "tool_call").length, 1);
  assert.ok(rising(events));
  const said = (thought: boolean) => events.flatMap((e) => (e.type === "output_chunk" && e.isThought === thought ? [e.content] : [])).join("");
  assert.equal(said(false), "Let me use greet for that.The tool greet says: Hello, Alice!");
  assert.match(said(true), /Say hi to Alice/);
  const end = events.at(-1) as Event & { type: "end" };
  assert.equal(end.completed, true);
  assert.equal(end.usage?.modelCalls, 2);
  assert.ok(end.time instanceof Date);
  assert.equal(run.turnId, end.turnId);
  assert.ok(run.sessionId);
  assert.throws(() => run[Symbol.asyncIterator](), /once/);
});

test("result gathers a turn, and the session goes on", async (t) => {
  const agentd = withGreet((await serve(t)).url);
  const first = await agentd.run({ agent: greeter, prompt: "Say hi to Alice" }).result();
  assert.equal(first.text, "Let me use greet for that.The tool greet says: Hello, Alice!");
  assert.equal(first.messages.length, 2);
  assert.equal(first.completed, true);
  assert.equal(first.usage?.modelCalls, 2);
  assert.equal(first.turn.outputText, "The tool greet says: Hello, Alice!");
  assert.equal(first.turn.status, "succeeded");
  const { sessionId } = first.turn;
  const second = await agentd.run({ sessionId, prompt: "And hi to Bob" }).result();
  assert.match(second.text, /Hello, Bob!$/);

  const turns = await gatherAll(agentd.turns.list({ sessionId, pageSize: 1 }));
  assert.deepEqual(turns.map((turn) => turn.id), [second.turn.id, first.turn.id]);
  assert.equal((await agentd.turns.get(sessionId)).id, second.turn.id);
  const events = await gatherAll(agentd.turns.events(sessionId, { turnId: first.turn.id, pageSize: 2 }));
  assert.ok(events.length > 4 && rising(events as Event[]));
  assert.deepEqual([events[0]?.type, events.at(-1)?.type], ["turn_started", "end"]);
});

test("trees of all kinds", async (t) => {
  const daemon = await serve(t, { line: "answers: [{when: {}, text: '{{system}}'}]" });
  const line = (name: string) => llm({ name, model: "scripted/line", instruction: `I am ${name}.` });
  const asked: unknown[] = [];
  const agentd = new Agentd(daemon.url).addTool("loop_continue", {
    description: "Says whether to go on",
    input: z.looseObject({ iteration: z.number() }),
    run: (input) => {
      asked.push(input.iteration);
      return { continue: input.iteration < 2 };
    },
  });
  const tree = sequential({
    name: "all",
    agents: [
      line("one"),
      parallel({ name: "both", agents: [line("left"), line("right")] }),
      loop({ name: "again", agents: [line("round")], maxIterations: 5 }),
    ],
  });
  const { messages } = await agentd.run({ agent: tree, prompt: "go" }).result();
  const count = (name: string) => messages.filter((m) => m.agentPath.at(-1) === name).length;
  assert.deepEqual(["one", "left", "right", "round"].map(count), [1, 1, 1, 2]);
  assert.deepEqual(messages.find((m) => m.agentPath.at(-1) === "left")?.agentPath, ["all", "both", "left"]);
  assert.deepEqual(asked, [1, 2]);
});

test("a turn that fails throws its error, with what it has used", async (t) => {
  const daemon = await serve(t, { limited: "answers: [{text: ok}, {error: {kind: blocked, message: not that}}]" });
  const agentd = new Agentd(daemon.url);
  const agent = llm({ name: "a", model: "scripted/limited" });
  const { turn } = await agentd.run({ agent, prompt: "go" }).result();
  const run = agentd.run({ agent, prompt: "go", sessionId: turn.sessionId });
  await assert.rejects(run.result(), (err) => {
    assert.ok(err instanceof AgentdError);
    assert.equal(err.code, "CONTENT_BLOCKED");
    assert.equal(err.retryable, false);
    assert.match(err.message, /not that/);
    assert.equal(err.sessionId, turn.sessionId);
    assert.equal(err.turnId, run.turnId);
    assert.equal(err.usage?.modelCalls, 0);
    return true;
  });
});

test("bad input is refused with the code and the place", async (t) => {
  const daemon = await serve(t);
  const agentd = withGreet(daemon.url);
  const thrown = (code: string, pattern: RegExp) => (err: unknown) => {
    assert.ok(err instanceof AgentdError, String(err));
    assert.deepEqual([err.code, pattern.test(err.message)], [code, true], err.message);
    return true;
  };
  const agent = llm({ name: "a", model: "echo" });
  // By this client.
  assert.throws(() => agentd.run({ prompt: "hi" }), thrown("INVALID_REQUEST", /needs an agent/));
  assert.throws(() => agentd.run({ agent, prompt: "" }), thrown("INVALID_REQUEST", /prompt/));
  assert.throws(() => agentd.run({ agent: llm({ name: "a", model: "echo", tools: ["nope"] }), prompt: "hi" }), thrown("INVALID_AGENT_TREE", /a names the tool "nope".*greet/));
  const run = () => "";
  assert.throws(() => agentd.addTool("greet", { description: "x", run }), thrown("INVALID_REQUEST", /twice/));
  assert.throws(() => agentd.addTool("a b", { description: "x", run }), thrown("INVALID_REQUEST", /"a b" must match/));
  assert.throws(() => agentd.addTool("b", { description: "", run }), thrown("INVALID_REQUEST", /description/));
  assert.throws(() => agentd.addTool("b", { description: "é".repeat(9000), run }), thrown("INVALID_REQUEST", /18000 bytes/));
  assert.throws(() => agentd.addTool("b", { description: "x", input: z.string(), run }), thrown("INVALID_REQUEST", /must be a schema of the type "object"/));
  assert.throws(() => agentd.addTool("b", { description: "x", input: z.object({ d: z.date() }), run }), thrown("INVALID_REQUEST", /no JSON Schema/));
  assert.throws(() => agentd.addTool("b", { description: "x", input: z.object({ d: z.string().describe("x".repeat(40000)) }), run }), thrown("INVALID_REQUEST", /at most 32768/));
  assert.throws(() => agentd.addTool("b", { description: "x", timeoutMs: -1, run }), thrown("INVALID_REQUEST", /timeoutMs/));
  // By the server.
  await assert.rejects(gather(agentd.run({ agent: llm({ name: "not a name", model: "echo" }), prompt: "hi" })), thrown("INVALID_AGENT_TREE", /not a name/));
  await assert.rejects(gather(agentd.run({ agent, prompt: "hi", sessionId: "nobody" })), thrown("SESSION_NOT_FOUND", /nobody/));
  await assert.rejects(gather(agentd.run({ agent: llm({ name: "a", model: "claude-x" }), prompt: "hi" })), thrown("AUTH_FAILED", /ANTHROPIC_API_KEY/));
  await assert.rejects(gather(agentd.attach("nobody")), thrown("SESSION_NOT_FOUND", /nobody/));
  await assert.rejects(agentd.turns.get("nobody"), thrown("SESSION_NOT_FOUND", /nobody/));
  await assert.rejects(agentd.turns.get(""), thrown("INVALID_REQUEST", /session_id/));
});

test("a server that is not there, or is another one, is said so", async (t) => {
  const gone = new Agentd("http://127.0.0.1:1", { reconnect: { off: true } });
  const agent = llm({ name: "a", model: "echo" });
  await assert.rejects(gone.run({ agent, prompt: "hi" }).result(), { name: "AgentdError", code: "UNAVAILABLE", retryable: true });
  const daemon = await serve(t);
  await assert.rejects(new Agentd(`${daemon.url}/elsewhere`).run({ agent, prompt: "hi" }).result(), { name: "AgentdError", code: "INVALID_REQUEST" });
});

test("keys and headers are sent, fetch is the caller's", async (t) => {
  const daemon = await serve(t);
  const seen: Headers[] = [];
  const agentd = new Agentd(daemon.url, {
    keys: { anthropic: "secret" },
    headers: { "X-One": "1", "X-Two": "1" },
    fetch: (input, init) => {
      seen.push(new Headers(init?.headers));
      return fetch(input, init);
    },
  });
  await agentd.run({ agent: llm({ name: "a", model: "echo" }), prompt: "hi", headers: { "x-two": "2" } }).result();
  assert.deepEqual(new Set(seen.map((h) => [h.get("x-agentd-anthropic-api-key"), h.get("x-one"), h.get("x-two")].join())), new Set(["secret,1,2"]));
  assert.equal(seen.length, 3); // CreateTurn, WatchTurn, GetTurn
});

async function gatherAll<T>(items: AsyncIterable<T>): Promise<T[]> {
  const out: T[] = [];
  for await (const item of items) {
    out.push(item);
  }
  return out;
}
