// What the client adds to the protocol: plain events, leaving and cancelling, the connection, sets of tools, and state in tools.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Agentd, AgentdError, llm, loop, ToolSet, type Event } from "@apzuk3/agentd";
import { serve } from "./daemon.js";
import { gather, Latch } from "./gather.js";
import { chunk, end, lost, playing } from "./playing.js";
import { proxy } from "./proxy.js";

const echo = llm({ name: "a", model: "echo" });
const calls = (...names: string[]) => `
answers:
  - when: {after_tool: ${names[0]}}
    text: '${names.map((name) => `{{tool_result "${name}"}}`).join("|")} {{system}}'
  - when: {}
    calls: [${names.map((name) => `{name: ${name}, args: {}}`).join(", ")}]
`;
const waiting = { wait: calls("wait") };
const waiter = llm({ name: "a", model: "scripted/wait", tools: ["wait"] });

/** patient is a client with a tool that ends with its call. */
function patient(url: string): Agentd {
  return new Agentd(url, { reconnect: { baseMs: 1, capMs: 20 } }).addTool("wait", {
    description: "Waits",
    run: (_, { signal }) => new Promise((_resolve, reject) => signal.addEventListener("abort", () => reject(signal.reason as Error))),
  });
}

/** framed is a frame of a Connect stream: a message, or with flags 2 the end. */
function framed(flags: number, json: unknown): Uint8Array<ArrayBuffer> {
  const data = new TextEncoder().encode(JSON.stringify(json));
  const out = new Uint8Array(5 + data.length);
  new DataView(out.buffer).setUint32(1, data.length);
  out.set([flags]);
  out.set(data, 5);
  return out;
}

const streamed = (...frames: Uint8Array<ArrayBuffer>[]) =>
  Promise.resolve(new Response(new Blob(frames), { headers: { "content-type": "application/connect+json" } }));
const finished = { seq: "9007199254740993", turnId: "t", end: { completed: true } };

test("every event is JSON, files and errors included", async () => {
  const picture = { mimeType: "image/png", data: Uint8Array.of(0, 128, 255) };
  const { agentd } = playing([
    {
      send: [
        { seq: 1n, turnId: "t", time: { seconds: 60n, nanos: 0 }, response: { case: "toolCallAnswered", value: { toolCallId: "c", parts: [{ content: { case: "inline", value: picture } }] } } },
        { seq: 2n, turnId: "t", response: { case: "historyCompacted", value: { throughSeq: 1n, promptTokens: 5n } } },
      ],
      fail: lost,
    },
    { send: [end] },
  ]);
  const events: Event[] = [];
  for await (const event of agentd.attach("s")) {
    events.push(event);
  }
  const read = JSON.parse(JSON.stringify(events)) as { [key: string]: unknown; error?: { code: string; message: string } }[];
  assert.deepEqual(read.map((e) => [e["type"], e["seq"]]), [["tool_call_answered", 1], ["history_compacted", 2], ["connection_lost", 0], ["connection_restored", 0], ["end", 1000]]);
  assert.deepEqual([read[0]!["time"], read[0]!["parts"]], ["1970-01-01T00:01:00.000Z", [{ mimeType: "image/png", data: "AID/" }]]);
  assert.equal(read[2]?.error?.code, "UNAVAILABLE");
  assert.match(read[2]?.error?.message ?? "", /connection reset/);
});

test("what this client is too old for is an unknown event, and words that are new come as they are", async () => {
  const fetch = () => streamed(
    framed(0, { event: { seq: "1", turnId: "t", goalReached: { goal: "tea", share: 0.5 } } }),
    framed(0, { event: { seq: "2", turnId: "t", modelCallEnded: { stopReason: "STOP_REASON_TIRED", mood: "good" } } }),
    framed(0, { event: { seq: "3", turnId: "t" } }),
    framed(0, { event: finished }),
    framed(2, {}),
  );
  const [unknown, ended, over] = await gather(new Agentd("http://unused", { fetch }).attach("s"));
  assert.deepEqual([unknown?.type, unknown?.seq], ["unknown", 1]);
  assert.ok(unknown?.type === "unknown" && unknown.name === "goalReached");
  assert.deepEqual(unknown.data, { goal: "tea", share: 0.5 });
  assert.ok(ended?.type === "model_call_ended" && ended.stopReason === "tired" && !("mood" in ended));
  assert.deepEqual([over?.type, over?.seq], ["end", Number.MAX_SAFE_INTEGER]);
});

test("a message comes whole, wherever its bytes are cut", async () => {
  const text = "aä€😀".repeat(50);
  const said = framed(0, { event: { seq: "1", turnId: "t", outputChunk: { content: text, agentPath: ["a"] } } });
  const all = new Uint8Array(await new Blob([said, framed(0, { event: finished }), framed(2, {})]).arrayBuffer());
  for (const size of [1, 2, 7, 64, all.length]) {
    const fetch = () => {
      let at = 0;
      const body = new ReadableStream<Uint8Array<ArrayBuffer>>({
        pull(controller) {
          controller.enqueue(all.slice(at, at + size));
          at += size;
          if (at >= all.length) {
            controller.close();
          }
        },
      });
      return Promise.resolve(new Response(body, { headers: { "content-type": "application/connect+json" } }));
    };
    const events = await gather(new Agentd("http://unused", { fetch }).attach("s"));
    assert.deepEqual(events.map((e) => (e.type === "output_chunk" ? e.content : e.type)), [text, "end"], `pieces of ${size}`);
  }
});

test("answers that are not of the protocol are errors that say so", async () => {
  // Fields of other kinds, a code that is not known, and no message.
  const binary = Buffer.from([0x49, 1, 2, 3, 4, 5, 6, 7, 8, 0x3d, 1, 2, 3, 4, 0x0a, 1, 0x73, 0x10, 99]).toString("base64").replace(/=+$/, "");
  const json = (status: number, body: unknown) => Promise.resolve(Response.json(body, { status }));
  const detail = (value: string) => ({ code: "failed_precondition", message: "no", details: [{ type: "agentd.v1.RunResponse.ErrorResponse", value }] });
  for (const [name, fetch, code, says] of [
    ["a page", () => Promise.resolve(new Response("<html>", { headers: { "content-type": "text/html" } })), "UNAVAILABLE", /"text\/html", not application\/json/],
    ["a proxy", () => Promise.resolve(new Response("bad gateway", { status: 502 })), "UNAVAILABLE", /HTTP 502/],
    ["a proxy that asks who", () => Promise.resolve(new Response("", { status: 401 })), "UNAUTHENTICATED", /HTTP 401/],
    ["nothing there", () => Promise.resolve(new Response("", { status: 404 })), "INVALID_REQUEST", /does not serve/],
    ["null", () => json(500, null), "UNAVAILABLE", /HTTP 500/],
    ["too much", () => json(429, { code: "resource_exhausted", message: "slowly" }), "LIMIT_EXCEEDED", /\[resource_exhausted\] slowly/],
    ["an error without its JSON", () => json(400, detail("EAgaBGJ1c3kgAQ")), "SESSION_BUSY", /^busy$/],
    ["an error of another shape", () => json(400, detail(binary)), "UNSPECIFIED", /^$/],
  ] as [string, typeof globalThis.fetch, string, RegExp][]) {
    await assert.rejects(new Agentd("http://unused", { fetch }).capabilities(), (err) => {
      assert.ok(err instanceof AgentdError, name);
      assert.equal(err.code, code, name);
      assert.match(err.message, says, name);
      return true;
    });
  }
  const slow = new Agentd("http://unused", { requestTimeoutMs: 5, fetch: (_, init) => new Promise((_r, reject) => init!.signal!.addEventListener("abort", () => reject(init!.signal!.reason as Error))) });
  await assert.rejects(slow.capabilities(), { code: "TIMEOUT", message: /no reply after 5 ms/ });
});

test("a run says that its connection is lost, back, and given up", async () => {
  const states = async (play: ReturnType<typeof playing>) => {
    const out: string[] = [];
    try {
      for await (const event of play.agentd.attach("s")) {
        if (event.type === "connection_lost") {
          out.push(`lost ${event.error.code}`);
        } else if (event.type === "connection_restored" || event.type === "connection_abandoned") {
          assert.ok(event.attempts > 0 && event.afterMs >= 0);
          out.push(event.type === "connection_restored" ? `restored by ${event.attempts}` : `abandoned ${event.error.code}`);
        }
      }
    } catch (err) {
      out.push(`threw ${(err as AgentdError).code}`);
    }
    return out;
  };
  const broken = { send: [], fail: lost };
  assert.deepEqual(await states(playing([{ send: [chunk(1n, "a")], fail: lost }, broken, broken, { send: [end] }])), ["lost UNAVAILABLE", "restored by 3"]);
  const impatient = { reconnect: { baseMs: 1, capMs: 1, maxElapsedMs: 5 } };
  assert.deepEqual(await states(playing(Array(1_000).fill(broken), {}, impatient)), ["lost UNAVAILABLE", "abandoned UNAVAILABLE", "threw UNAVAILABLE"]);
  assert.deepEqual(await states(playing([broken, { send: [end] }], {}, { reconnect: { off: true } })), ["threw UNAVAILABLE"]);
});

test("who leaves a run cancels its turn, unless it is to go on; who leaves an attached one does not, unless it is to end", async (t) => {
  const { url } = await serve(t, waiting);
  const agentd = patient(url);
  for (const onLeave of [undefined, "cancel", "detach"] as const) {
    const run = agentd.run({ agent: waiter, prompt: "go", onLeave });
    for await (const event of run) {
      if (event.type === "tool_call") {
        break;
      }
    }
    const [sessionId, turnId] = [run.sessionId!, run.turnId!];
    assert.equal((await agentd.turns.get(sessionId, turnId)).status === "canceled", onLeave !== "detach", onLeave);
    if (onLeave !== "detach") {
      continue;
    }
    for (const again of [undefined, "cancel"] as const) {
      const attached = agentd.attach(sessionId, { turnId, onLeave: again });
      for await (const event of attached) {
        if (event.type === "tool_call") {
          break;
        }
      }
      assert.equal((await agentd.turns.get(sessionId, turnId)).status === "canceled", again === "cancel");
    }
  }
});

test("await using leaves a run", async (t) => {
  const { url } = await serve(t, waiting);
  const agentd = patient(url);
  let sessionId = "";
  {
    await using run = agentd.run({ agent: waiter, prompt: "go" });
    const events = run[Symbol.asyncIterator]();
    for (let next = await events.next(); next.done !== true && next.value.type !== "tool_call"; ) {
      next = await events.next();
    }
    sessionId = run.sessionId!;
  }
  assert.equal((await agentd.turns.get(sessionId)).status, "canceled");
  await using unused = agentd.run({ agent: waiter, prompt: "never" });
  assert.equal(unused.turnId, undefined);
});

test("a run is cancelled by itself and tells what was stopped", async (t) => {
  const daemon = await serve(t, waiting);
  const way = await proxy(t, daemon.url);
  way.losing.set("CancelTurn", 1);
  const run = patient(way.url).run({ agent: waiter, prompt: "go" });
  await assert.rejects(run.cancel(), { code: "INVALID_REQUEST", message: /nothing to cancel/ });
  let canceled: ReturnType<typeof run.cancel> | undefined;
  let over: Event | undefined;
  for await (const event of run) {
    if (event.type === "tool_call") {
      canceled = run.cancel("enough");
    }
    over = event;
  }
  assert.ok(over?.type === "end" && !over.completed && over.reason === "enough");
  assert.deepEqual(over.receipt?.canceledToolCalls.map(({ toolName }) => toolName), ["wait"]);
  assert.ok(over.receipt.tookMs >= 0);
  assert.equal((await canceled)?.status, "canceled");
  assert.equal((await run.cancel()).status, "canceled");
});

test("a set of tools is attached under its name, and some of it", async (t) => {
  const { url } = await serve(t, { caller: calls("look"), round: "answers: [{when: {}, text: round}]" });
  const description = "x";
  const crm = new ToolSet().addTool("look", { description, run: () => "from the set" }).addTool("erase", { description, run: () => "gone" });
  const agentd = new Agentd(url, { attachments: { crm } }).addTool("own", { description, run: () => 1 });
  const agent = llm({ name: "a", model: "scripted/caller", mcpAttachments: [{ mcpName: "crm", includeToolNames: ["look"] }], tools: ["own"] });
  const first = agentd.run({ agent, prompt: "go" });
  const events = await gather(first);
  assert.ok(events.some((e) => e.type === "tool_call_answered" && e.output === "from the set"));
  const [call] = await agentd.turns.modelCalls(first.sessionId!);
  assert.deepEqual([...(call?.toolNames ?? [])].sort(), ["look", "own"]);
  // The session's last tree runs again, with the tools of the set.
  const again = await gather(agentd.run({ sessionId: first.sessionId!, prompt: "again" }));
  assert.ok(again.some((e) => e.type === "tool_call_answered" && e.output === "from the set"));
  const whole = await agentd.run({ agent: loop({ name: "l", agents: [llm({ name: "a", model: "scripted/round", mcpAttachments: ["crm"] })], maxIterations: 1 }), prompt: "go" }).result();
  assert.deepEqual([...((await agentd.turns.modelCalls(whole.turn.sessionId))[0]?.toolNames ?? [])].sort(), ["erase", "look"]);
  for (const [attached, says] of [
    ["hr", /attaches "hr", which is none of the client's attachments: crm/],
    [{ mcpName: "crm", includeToolNames: ["pay"] }, /has no tool "pay"; it has: erase, look/],
    ["toString", /none of the client's attachments/],
  ] as const) {
    assert.throws(() => agentd.run({ agent: llm({ name: "a", model: "echo", mcpAttachments: [attached] }), prompt: "x" }), { code: "INVALID_AGENT_TREE", message: says });
  }
  agentd.addTool("look", { description, run: () => "another" });
  assert.throws(() => agentd.run({ agent, prompt: "x" }), { code: "INVALID_AGENT_TREE", message: /another tool is also named "look"/ });
});

test("an instruction stands behind those of the agents", async (t) => {
  const { url } = await serve(t, { line: "answers: [{when: {}, text: '{{system}}'}]" });
  const agent = llm({ name: "a", model: "scripted/line", instruction: "Be brief." });
  const { text } = await new Agentd(url).run({ agent, prompt: "x", instruction: "Speak Latin." }).result();
  assert.match(text, /Be brief\.\s+Speak Latin\./);
});

test("a tool reads the session's state, and what it has set", async (t) => {
  const { url } = await serve(t, { caller: calls("count") });
  const seen: unknown[] = [];
  const agentd = new Agentd(url).addTool("count", {
    description: "Counts",
    run: (_, { getState, setState }) => {
      const { list } = getState("cart") as { list: number[] };
      list.push(1); // a copy
      const before = getState("count");
      setState("count", Number(before ?? 0) + 1);
      seen.push(before, getState("count"), getState("cart"), getState("nothing"), getState("toString"));
      setState("gone", null);
      seen.push(getState("gone"));
    },
  });
  const agent = llm({ name: "a", model: "scripted/caller", tools: ["count"] });
  const run = agentd.run({ agent, prompt: "go", state: { cart: { list: [] }, gone: true, __proto: 1 } });
  await gather(run);
  assert.deepEqual(seen, [undefined, 1, { list: [] }, undefined, undefined, undefined]);
  assert.deepEqual({ ...run.state }, { cart: { list: [] }, count: 1, __proto: 1 });
  await gather(agentd.run({ sessionId: run.sessionId!, prompt: "again" }));
  assert.deepEqual(seen.slice(6, 8), [1, 2]);
});

test("a turn that was never followed to its end leaves no tool running", async (t) => {
  const { url } = await serve(t, waiting);
  const stopped = new Latch();
  const agentd = new Agentd(url).addTool("wait", {
    description: "Waits",
    run: (_, { signal }) => new Promise((_resolve, reject) => signal.addEventListener("abort", () => (stopped.open(), reject(signal.reason as Error)))),
  });
  for await (const event of agentd.run({ agent: waiter, prompt: "go", onLeave: "detach" })) {
    if (event.type === "tool_call") {
      break;
    }
  }
  await stopped.opened;
  assert.equal((await agentd.run({ agent: echo, prompt: "hi" }).result()).text, "hi");
});
