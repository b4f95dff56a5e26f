import assert from "node:assert/strict";
import { test } from "node:test";
import { Agentd, llm, type Event } from "@apzuk3/agentd";
import { z } from "zod";
import { serve } from "./daemon.js";
import { gather, Latch, rising, told } from "./gather.js";
import { proxy } from "./proxy.js";

// Two messages of 150 words with a call of two tools between them; delay is what each word of the first one takes.
const words = (n: number, of: string) => Array.from({ length: n }, (_, i) => `${of}${i}`).join(" ");
const long = (delay: string) => ({
  long: `
answers:
  - when: {after_tool: one}
    chunk_delay: 1ms
    text: "${words(150, "ω")} {{tool_result \\"one\\"}} {{tool_result \\"two\\"}}"
  - when: {}
    chunk_delay: ${delay}
    thoughts: "${words(20, "thought")}"
    text: "${words(150, "ä")}"
    calls: [{name: one}, {name: two}]
`,
});
const scripts = long("1ms");
const agent = llm({ name: "a", model: "scripted/long", tools: ["one", "two"] });
const quick = { reconnect: { baseMs: 1, capMs: 20 } };

function client(url: string, ran: string[], options = {}): Agentd {
  const agentd = new Agentd(url, { ...quick, ...options });
  for (const name of ["one", "two"]) {
    agentd.addTool(name, {
      description: name,
      run: (_, { toolCallId }) => {
        ran.push(toolCallId);
        return `result of ${name}`;
      },
    });
  }
  return agentd;
}

for (let seed of [7, 8, 9]) test(`a connection that is cut again and again loses and repeats nothing (seed ${seed})`, async (t) => {
  const daemon = await serve(t, scripts);
  const way = await proxy(t, daemon.url);
  way.cutAfter = () => 700 + ((seed = (seed * 1103515245 + 12345) % 2 ** 31) % 4000);
  const ran: string[] = [];
  const agentd = client(way.url, ran);
  const run = agentd.run({ agent, prompt: "go" });
  const events = await gather(run);
  assert.ok(way.cuts > 5, `${way.cuts} cuts`);
  assert.ok(rising(events));
  assert.equal(new Set(ran).size, 2);
  assert.equal(ran.length, 2, "a tool ran twice");

  way.cutAfter = undefined;
  const whole = await gather(agentd.attach(run.sessionId!, { turnId: run.turnId! }));
  assert.deepEqual(told(events), told(whole));
  const { messages } = told(whole) as { messages: { text: string }[] };
  assert.equal(messages[0]?.text, words(150, "ä"));
  assert.equal(messages[1]?.text, `${words(150, "ω")} result of one result of two`);

  // From each event on, the rest.
  for (const from of [whole[0]!, whole[1]!, ...whole.slice(-4, -1)].filter((e) => e.seq > 0)) {
    const rest = await gather(agentd.attach(run.sessionId!, { turnId: run.turnId!, afterSeq: String(from.seq) }));
    const wanted = whole.filter((e) => e.seq > from.seq && e.type !== "output_chunk").map((e) => e.seq);
    assert.deepEqual(rest.filter((e) => e.type !== "output_chunk").map((e) => e.seq), wanted);
  }
  assert.deepEqual(await gather(agentd.attach(run.sessionId!, { turnId: run.turnId!, afterSeq: whole.at(-1)!.seq })), []);
  await assert.rejects(gather(agentd.attach(run.sessionId!, { afterSeq: "1152921504606846976" })), { code: "INVALID_REQUEST" });
});

test("a turn goes on when the daemon is killed and started again, in the middle of text and of a tool", async (t) => {
  const daemon = await serve(t, long("10ms")); // it is killed before it has said all
  const way = await proxy(t, daemon.url);
  const ran: string[] = [];
  const working = new Latch();
  const release = new Latch();
  const agentd = new Agentd(way.url, quick);
  for (const name of ["one", "two"]) {
    agentd.addTool(name, {
      description: name,
      run: async (_, { toolCallId }) => {
        ran.push(toolCallId);
        working.open();
        await release.opened;
        return `result of ${name}`;
      },
    });
  }
  const restart = async () => {
    await daemon.end("SIGKILL");
    await daemon.start();
    way.target = daemon.url;
  };
  const events: Event[] = [];
  const run = agentd.run({ agent, prompt: "go" });
  let pieces = 0;
  for await (const event of run) {
    events.push(event);
    if (event.type === "output_chunk" && !event.isThought && ++pieces === 20) {
      await restart();
    }
    if (event.type === "tool_call" && !events.some((e) => e.type === "tool_call" && e !== event)) {
      await working.opened;
      await restart();
      release.open();
    }
  }
  assert.ok(events.some((e) => e.type === "message_retracted"));
  assert.equal(events.at(-1)?.type, "end");
  assert.ok(rising(events));
  assert.deepEqual([ran.length, new Set(ran).size], [2, 2], "each tool ran once");
  const { messages } = told(events) as { messages: { text: string; thoughts: string }[] };
  assert.deepEqual(messages.map((m) => m.text), [words(150, "ä"), `${words(150, "ω")} result of one result of two`]);
  assert.equal(messages[0]?.thoughts, words(20, "thought"));
});

test("a daemon that stops in good order hands over to the next one", async (t) => {
  const daemon = await serve(t, scripts, "--shutdown-grace=1ms");
  const way = await proxy(t, daemon.url);
  const agentd = client(way.url, []);
  const events: Event[] = [];
  for await (const event of agentd.run({ agent, prompt: "go" })) {
    events.push(event);
    if (events.length === 30) {
      await daemon.end("SIGTERM");
      await daemon.start();
      way.target = daemon.url;
    }
  }
  const { messages } = told(events) as { messages: { text: string }[] };
  assert.equal(messages.at(-1)?.text, `${words(150, "ω")} result of one result of two`);
});

test("a stream that is as old as the server lets it is replaced", async (t) => {
  const daemon = await serve(t, scripts, "--stream-timeout=60ms");
  const way = await proxy(t, daemon.url);
  const events = await gather(client(way.url, []).run({ agent, prompt: "go" }));
  assert.ok(way.requests.filter((method) => method === "WatchTurn").length > 2);
  assert.ok(!events.some((e) => e.type === "error"));
  const { messages } = told(events) as { messages: { text: string }[] };
  assert.deepEqual(messages.map((m) => m.text), [words(150, "ä"), `${words(150, "ω")} result of one result of two`]);
});

test("a request that is lost, or its answer, is made again", async (t) => {
  const daemon = await serve(t, scripts);
  for (const [withhold, lost] of [[true, 5], [false, 2]] as const) {
    const way = await proxy(t, daemon.url);
    way.withhold = withhold;
    way.losing.set("SubmitToolResults", lost);
    way.losing.set("GetTurn", 2);
    const ran: string[] = [];
    const { text } = await client(way.url, ran).run({ agent, prompt: "go" }).result();
    assert.match(text, /result of one result of two$/);
    assert.deepEqual([way.losing.get("SubmitToolResults"), way.losing.get("GetTurn")], [0, 0]);
    assert.equal(ran.length, 2);
  }
});

test("a stream that is silent counts as dead", async (t) => {
  const daemon = await serve(t, { slow: "answers: [{delay: 1h, text: never}]" });
  const way = await proxy(t, daemon.url);
  const started = new Latch();
  const run = new Agentd(way.url, { silenceMs: 300, reconnect: { maxElapsedMs: 700, baseMs: 1 } }).run({ agent: llm({ name: "a", model: "scripted/slow" }), prompt: "go" });
  await assert.rejects(
    (async () => {
      for await (const event of run) {
        if (event.type === "turn_started") {
          started.open();
        }
      }
    })(),
    { code: "UNAVAILABLE", message: /not even a heartbeat/ },
  );
  await started.opened;
  assert.ok(way.requests.filter((method) => method === "WatchTurn").length > 2);
  await way.quiet();
});

test("without a server for too long, the run fails and says which turn it was", async (t) => {
  const daemon = await serve(t, scripts);
  const agentd = client(daemon.url, [], { reconnect: { maxElapsedMs: 100, baseMs: 1, capMs: 20 } });
  const run = agentd.run({ agent, prompt: "go" });
  await assert.rejects(
    (async () => {
      for await (const event of run) {
        if (event.type === "output_chunk") {
          await daemon.end("SIGKILL");
        }
      }
    })(),
    (err: { code: string; turnId: string; sessionId: string }) => err.code === "UNAVAILABLE" && err.turnId === run.turnId && err.sessionId === run.sessionId,
  );
});

test("leaving the loop ends what is fetched, and attach goes on", async (t) => {
  const daemon = await serve(t, scripts);
  const way = await proxy(t, daemon.url);
  const agentd = client(way.url, []);
  const run = agentd.run({ agent, prompt: "go", onLeave: "detach" });
  const events: Event[] = [];
  for await (const event of run) {
    events.push(event);
    if (event.type === "output_chunk" && events.length > 10) {
      break;
    }
  }
  await way.quiet();
  const rest = await gather(agentd.attach(run.sessionId!, { turnId: run.turnId!, afterSeq: events.at(-1)!.seq }));
  const { messages } = told([...events, ...rest]) as { messages: { text: string }[] };
  assert.deepEqual(messages.map((m) => m.text), [words(150, "ä"), `${words(150, "ω")} result of one result of two`]);
  // An iterator that is closed while it waits does not wait for ever.
  const iterator = agentd.attach(run.sessionId!)[Symbol.asyncIterator]();
  const first = iterator.next();
  await iterator.return?.();
  assert.deepEqual(await first, { done: true, value: undefined });
  assert.deepEqual(await iterator.next(), { done: true, value: undefined });
  await way.quiet();
});

test("an abort ends the run, and cancels the turn unless it is to go on", async (t) => {
  const daemon = await serve(t, { wait: "answers: [{calls: [{name: wait}]}, {when: {}, text: done}]" });
  const way = await proxy(t, daemon.url);
  for (const onLeave of ["detach", "cancel"] as const) {
    const aborted = new Latch();
    const agentd = new Agentd(way.url, quick).addTool("wait", {
      description: "Waits",
      input: z.object({}),
      run: (_, { signal }) => new Promise((_resolve, reject) => signal.addEventListener("abort", () => {
        aborted.open();
        reject(signal.reason as Error);
      })),
    });
    const stop = new AbortController();
    const reason = new Error("enough");
    const run = agentd.run({ agent: llm({ name: "a", model: "scripted/wait", tools: ["wait"] }), prompt: "go", signal: stop.signal, onLeave });
    await assert.rejects(
      (async () => {
        for await (const event of run) {
          if (event.type === "tool_call") {
            stop.abort(reason);
          }
        }
      })(),
      (err) => err === reason,
    );
    await aborted.opened;
    await way.quiet();
    const turn = await agentd.turns.get(run.sessionId!, run.turnId!);
    assert.equal(turn.receipt !== undefined, onLeave === "cancel");
    assert.equal((await agentd.turns.cancel(run.sessionId!)).statusMessage !== "", true);
  }
  // Also when the caller is busy, or leaves because of it.
  const stop = new AbortController();
  const agentd = new Agentd(way.url, quick).addTool("wait", { description: "Waits", run: () => new Promise(() => {}) });
  const run = agentd.run({ agent: llm({ name: "a", model: "scripted/wait", tools: ["wait"] }), prompt: "go", signal: stop.signal, onLeave: "cancel" });
  for await (const event of run) {
    if (event.type === "tool_call") {
      stop.abort();
      await way.seen("CancelTurn", 4);
      break;
    }
  }
  assert.equal((await agentd.turns.get(run.sessionId!, run.turnId!)).status, "canceled");
  const aborted = AbortSignal.abort(new Error("before"));
  const never = new Agentd(way.url).run({ agent: llm({ name: "a", model: "echo" }), prompt: "go", signal: aborted });
  await assert.rejects(gather(never), { message: "before" });
  assert.equal(never.turnId, undefined);
});
