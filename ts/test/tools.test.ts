import assert from "node:assert/strict";
import { test } from "node:test";
import { Agentd, AgentdError, llm, ToolOutput, Transcript, type Event, type Part } from "@apzuk3/agentd";
import { SessionService } from "@apzuk3/agentd/proto";
import { createClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-web";
import { z } from "zod";
import { serve } from "./daemon.js";
import { gather, Latch } from "./gather.js";
import { proxy } from "./proxy.js";

// Calls each tool that its prompt names with one set of arguments, then tells what came back.
const caller = (args: string, ...tools: string[]) => `
answers:
  - when: {after_tool: ${tools[0]}}
    text: '${tools.map((name) => `{{tool_result "${name}"}}`).join("|")}'
  - when: {}
    calls: [${tools.map((name) => `{name: ${name}, ${args}}`).join(", ")}]
`;
const agent = (...tools: string[]) => llm({ name: "a", model: "scripted/caller", tools });

test("what a tool returns, and what it throws, reaches the model", async (t) => {
  const names = ["text", "object", "nothing", "thrower", "picky", "cyclic", "late", "halves"];
  const daemon = await serve(t, { caller: caller("args: {n: 5}", ...names) });
  let picky = 0;
  const never = new Latch();
  const cycle: Record<string, unknown> = {};
  cycle["self"] = cycle;
  const description = "x";
  const agentd = new Agentd(daemon.url)
    .addTool("text", { description, input: z.object({ n: z.coerce.string() }), run: ({ n }) => `as it is ${n.length}` })
    .addTool("object", { description, input: z.object({ n: z.number().transform((n) => n * 2) }), run: ({ n }) => Promise.resolve({ twice: n }) })
    .addTool("nothing", { description, run: () => {} })
    .addTool("thrower", { description, run: () => Promise.reject(new Error("no luck today")) })
    .addTool("picky", { description, input: z.object({ n: z.number().max(3), m: z.string() }), run: () => picky++ })
    .addTool("cyclic", { description, run: () => cycle })
    .addTool("late", { description, timeoutMs: 20, run: () => never.opened })
    .addTool("halves", { description, run: () => "a\ud800b" });
  const { text } = await agentd.run({ agent: agent(...names), prompt: "go" }).result();
  const results = text.split("|");
  assert.equal(results[0], "as it is 1");
  assert.equal(results[1], '{"twice":10}');
  assert.equal(results[2], '{"output":null}');
  assert.match(results[3]!, /no luck today/);
  assert.match(results[4]!, /do not fit the schema of picky(.|\n)*n(.|\n)*m/);
  assert.equal(picky, 0);
  assert.match(results[5]!, /circular/);
  assert.match(results[6]!, /longer than 20 ms/);
  assert.equal(results[7], "a\ufffdb");
});

test("files reach the model, of a prompt and of a tool's result", async (t) => {
  const look = `
answers:
  - {when: {after_tool: look}, text: '{{last_user}}|{{tool_result "look"}}'}
  - {when: {}, calls: [{name: look, args: {}}]}
`;
  const daemon = await serve(t, { caller: look });
  const picture = { mimeType: "image/png", data: Uint8Array.of(0, 128, 255) };
  const agentd = new Agentd(daemon.url).addTool("look", { description: "x", run: () => new ToolOutput("seen", [picture, { text: "twice" }]) });
  const parts: Part[] = [{ text: "at" }, picture, { mimeType: "image/gif", uri: "https://x.example/a.gif" }];
  const run = agentd.run({ agent: agent("look"), prompt: "look", parts });
  const events = await gather(run);
  const transcript = new Transcript();
  events.forEach((event) => transcript.add(event));
  assert.equal(transcript.text, "lookat\n[image/png, 3 bytes]\n[image/gif, https://x.example/a.gif]|seen\n\ntwice\n[image/png, 3 bytes]");
  for (const seen of [events, await gather(agentd.attach(run.sessionId!, { observe: true }))]) {
    const results = seen.flatMap((e) => (e.type === "tool_call_answered" ? [e] : []));
    assert.deepEqual(results.map((e) => [e.output, e.parts]), [["seen", [picture, { text: "twice" }]]]);
  }
  const alone = await agentd.run({ agent: agent("look"), parts: [picture] }).result();
  assert.match(alone.text, /^\[image\/png, 3 bytes\]\|/);
});

test("arguments that are no JSON are a tool error", async (t) => {
  const daemon = await serve(t, { caller: caller("args_text: '{oops'", "one") });
  let ran = 0;
  const agentd = new Agentd(daemon.url).addTool("one", { description: "x", input: z.object({}), run: () => ran++ });
  const { text } = await agentd.run({ agent: agent("one"), prompt: "go" }).result();
  assert.match(text, /JSON/);
  assert.equal(ran, 0);
});

test("tools run next to each other, but not more of them than was allowed", async (t) => {
  const names = ["t1", "t2", "t3", "t4", "t5"];
  const daemon = await serve(t, { caller: caller("args: {}", ...names) });
  for (const [limit, most] of [[undefined, 5], [2, 2]] as const) {
    let running = 0;
    let peak = 0;
    const release = new Latch();
    const agentd = new Agentd(daemon.url, limit === undefined ? {} : { maxConcurrentTools: limit });
    for (const name of names) {
      agentd.addTool(name, {
        description: name,
        run: async () => {
          peak = Math.max(peak, ++running);
          await release.opened;
          running--;
          return name;
        },
      });
    }
    let text = "";
    let asked = 0;
    for await (const event of agentd.run({ agent: agent(...names), prompt: "go" })) {
      text += event.type === "output_chunk" ? event.content : "";
      if (event.type === "tool_call" && ++asked === names.length) {
        await new Promise((resolve) => setTimeout(resolve)); // lets all start that may
        assert.equal(running, most);
        release.open();
      }
    }
    assert.equal(text, names.join("|"));
    assert.equal(peak, most);
  }
});

test("a cancelled call aborts its tool", async (t) => {
  const daemon = await serve(t, { caller: caller("args: {}", "wait") });
  const started = new Latch();
  const reasons: unknown[] = [];
  const agentd = new Agentd(daemon.url).addTool("wait", {
    description: "Waits",
    run: (_, { signal }) => {
      started.open();
      return new Promise((resolve) => signal.addEventListener("abort", () => resolve(reasons.push(signal.reason))));
    },
  });
  const run = agentd.run({ agent: agent("wait"), prompt: "go" });
  const events: Event[] = [];
  for await (const event of run) {
    events.push(event);
    if (event.type === "tool_call") {
      await started.opened;
      await agentd.turns.cancel(run.sessionId!, run.turnId!, "enough for today");
    }
  }
  assert.equal(reasons.length, 1);
  assert.match(String(reasons[0]), /canceled/);
  assert.ok(events.some((e) => e.type === "tool_call_canceled"));
  const end = events.at(-1);
  assert.ok(end?.type === "end" && !end.completed && end.reason === "enough for today");
  assert.deepEqual(end.receipt?.canceledToolCalls.map((call) => call.toolName), ["wait"]);
  assert.ok(!events.some((e) => e.type === "error"));
});

test("one call is cancelled by whoever knows it, and the turn goes on", async (t) => {
  const daemon = await serve(t, { caller: caller("args: {}", "wait") });
  const other = new Agentd(daemon.url);
  const reasons: unknown[] = [];
  const started = new Latch();
  const agentd = new Agentd(daemon.url).addTool("wait", {
    description: "Waits",
    run: (_, { signal }) => {
      started.open();
      return new Promise((resolve) => signal.addEventListener("abort", () => resolve(reasons.push(signal.reason))));
    },
  });
  const run = agentd.run({ agent: agent("wait"), prompt: "go" });
  const events: Event[] = [];
  let call = "";
  for await (const event of run) {
    events.push(event);
    if (event.type === "tool_call") {
      await started.opened;
      call = event.toolCallId;
      const turn = await other.turns.cancelToolCall(run.sessionId!, call);
      assert.deepEqual(turn.pendingToolCalls, []);
    }
  }
  assert.equal(reasons.length, 1);
  assert.ok(events.some((e) => e.type === "tool_call_canceled" && e.toolCallId === call));
  const end = events.at(-1);
  assert.ok(end?.type === "end" && end.completed);
  const [sessionId, turnId] = [run.sessionId!, run.turnId!];
  assert.equal((await other.turns.cancelToolCall(sessionId, call, turnId)).id, turnId);
  await assert.rejects(other.turns.cancelToolCall(sessionId, "nothing"), (e: unknown) => e instanceof AgentdError && e.code === "NOT_FOUND");
});

test("a tool stops whose call somebody else has answered", async (t) => {
  const daemon = await serve(t, { caller: caller("args: {}", "wait") });
  const other = createClient(SessionService, createConnectTransport({ baseUrl: daemon.url }));
  let reason: unknown;
  const agentd = new Agentd(daemon.url).addTool("wait", {
    description: "Waits",
    run: (_, { signal }) => new Promise((resolve) => signal.addEventListener("abort", () => resolve(void (reason = signal.reason)))),
  });
  const run = agentd.run({ agent: agent("wait"), prompt: "go" });
  const events: Event[] = [];
  for await (const event of run) {
    events.push(event);
    if (event.type === "tool_call") {
      await other.submitToolResults({ sessionId: run.sessionId!, turnId: run.turnId!, results: [{ toolCallId: event.toolCallId, result: { case: "output", value: "by hand" } }] });
    }
  }
  assert.match(String(reason), /has its result/);
  assert.ok(events.some((e) => e.type === "tool_call_answered" && e.output === "by hand"));
  assert.ok(!events.some((e) => e.type === "error"));
});

test("a tool writes state", async (t) => {
  const daemon = await serve(t, { caller: caller("args: {}", "count") });
  const agentd = new Agentd(daemon.url).addTool("count", {
    description: "Counts",
    run: (_, { setState }) => {
      setState("count", 3);
      return "done";
    },
  });
  const events = await gather(agentd.run({ agent: agent("count"), prompt: "go", state: { before: true } }));
  const states = events.flatMap((e) => (e.type === "state_update" ? [e.stateDelta] : []));
  assert.deepEqual([states[0], states.at(-1)], [{ before: true }, { count: 3 }]);
  const texts = events.flatMap((e) => (e.type === "state_update" ? [e.stateDeltaJson] : []));
  assert.deepEqual([texts[0], texts.at(-1)], ['{"before":true}', '{"count":3}']);
});

test("a result that the server does not take becomes a tool error", async (t) => {
  const daemon = await serve(t, { caller: caller("args: {}", "big") }, "--max-message-bytes=65536");
  const agentd = new Agentd(daemon.url).addTool("big", { description: "x", run: () => "x".repeat(100_000) });
  const events = await gather(agentd.run({ agent: agent("big"), prompt: "go" }));
  const refused = events.find((e) => e.type === "error");
  assert.ok(refused?.type === "error" && refused.error.code === "LIMIT_EXCEEDED");
  assert.match(events.flatMap((e) => (e.type === "output_chunk" ? [e.content] : [])).join(""), /its result was refused/);
});

test("a result that no server takes is a tool error at once", async (t) => {
  const names = ["text", "escaped", "separators", "state", "files", "thrown", "fits"];
  const daemon = await serve(t, { caller: caller("args: {}", ...names) });
  const description = "x";
  let submitted = 0;
  const counting: typeof fetch = (input, init) => {
    submitted += String(input instanceof Request ? input.url : input).endsWith("/SubmitToolResults") ? 1 : 0;
    return fetch(input, init);
  };
  const agentd = new Agentd(daemon.url, { fetch: counting })
    .addTool("text", { description, run: () => "x".repeat(2_000_000) })
    .addTool("escaped", { description, run: () => "\x01".repeat(200_000) })
    .addTool("separators", { description, run: () => "\u2028".repeat(200_000) })
    .addTool("state", { description, run: (_, { setState }) => (setState("k", "x".repeat(1 << 20)), "small") })
    .addTool("files", { description, run: () => new ToolOutput("small", [{ mimeType: "image/png", data: new Uint8Array(3_200_000) }]) })
    .addTool("thrown", { description, run: () => Promise.reject(new Error(`why: ${"x".repeat(2_000_000)}`)) })
    .addTool("fits", { description, run: () => "x".repeat((1 << 20) - 514) });
  const events = await gather(agentd.run({ agent: agent(...names), prompt: "go" }));
  assert.ok(!events.some((e) => e.type === "error"));
  assert.equal(submitted, names.length);
  const told = new Map(events.flatMap((e) => (e.type === "tool_call_answered" ? [[e.toolName, e] as const] : [])));
  for (const [name, bytes] of [["text", 2_000_514], ["escaped", 1_200_514], ["separators", 1_200_514]] as const) {
    assert.equal(told.get(name)?.error, `the tool's result takes ${bytes} bytes as JSON, at most 1048576 are allowed`);
  }
  assert.match(String(told.get("state")?.error), /takes \d+ bytes as JSON, at most 1048576/);
  assert.match(String(told.get("files")?.error), /takes \d+ bytes with its parts, at most 4194304/);
  assert.match(String(told.get("thrown")?.error), /^why: x{16379} \[cut\]$/);
  assert.equal(told.get("fits")?.output?.length, (1 << 20) - 514);
});

test("a call is answered from memory by a later run of the same client", async (t) => {
  const daemon = await serve(t, { caller: caller("args: {}", "one") });
  const way = await proxy(t, daemon.url);
  way.losing.set("SubmitToolResults", Number.MAX_SAFE_INTEGER);
  way.withhold = true;
  let ran = 0;
  const agentd = new Agentd(way.url, { reconnect: { baseMs: 1, capMs: 1 } }).addTool("one", { description: "x", run: () => `run ${++ran}` });
  const stop = new AbortController();
  const run = agentd.run({ agent: agent("one"), prompt: "go", signal: stop.signal, onLeave: "detach" });
  const left = assert.rejects(gather(run), { message: "left" });
  await way.seen("SubmitToolResults", 3);
  stop.abort(new Error("left"));
  await left;
  way.losing.clear();
  const { text } = await agentd.attach(run.sessionId!, { turnId: run.turnId! }).result();
  assert.equal(text, "run 1");
  assert.equal(ran, 1);
});

test("a call goes to another client when the one that was asked leaves", async (t) => {
  const daemon = await serve(t, { caller: caller("args: {}", "one") });
  const asked = new Latch();
  const stop = new AbortController();
  const first = new Agentd(daemon.url).addTool("one", {
    description: "x",
    run: () => {
      asked.open();
      return new Promise(() => {}); // never, and it does not listen either
    },
  });
  const run = first.run({ agent: agent("one"), prompt: "go", signal: stop.signal, onLeave: "detach" });
  const left = assert.rejects(gather(run), { message: "gone" });
  await asked.opened;
  const noticed = new Latch();
  const second = new Agentd(daemon.url).addTool("one", { description: "x", run: () => "by the second" });
  const events: Event[] = [];
  const watching = (async () => {
    for await (const event of second.attach(run.sessionId!, { turnId: run.turnId! })) {
      events.push(event);
      if (event.type === "tool_call_announced") {
        noticed.open();
      }
    }
  })();
  await noticed.opened;
  stop.abort(new Error("gone"));
  await left;
  await watching;
  assert.ok(events.some((e) => e.type === "output_chunk" && e.content.includes("second")));
  assert.equal(events.at(-1)?.type, "end");
});
