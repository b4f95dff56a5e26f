// What a real server does not do on demand.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { Code, ConnectError } from "@connectrpc/connect";
import { Agentd, AgentdError, llm, Transcript, type Event, type RunOptions } from "@apzuk3/agentd";
import { ErrorCode, InteractionStatus, type ResolveInteractionRequest } from "@apzuk3/agentd/proto";
import { defaultReconnect, Outage } from "../dist/backoff.js";
import { gather, Latch, told } from "./gather.js";
import { chunk, end, error, lost, playing, question, type Message, type Stream } from "./playing.js";

const textOf = (events: Event[]) => events.flatMap((e) => (e.type === "output_chunk" ? [e.content] : [])).join("");

test("a text whose first pieces have no seq is not repeated after a cut, wherever that is", async () => {
  const whole = "aä€😀".repeat(3);
  for (let cut = 0; cut <= [...whole].length; cut++) {
    const first = [...whole].slice(0, cut).join("");
    // The second time the pieces are cut elsewhere.
    const again = [chunk(0n, whole.slice(0, 1)), chunk(0n, whole.slice(1, 3)), chunk(7n, whole.slice(3)), end];
    const { agentd, asked } = playing([{ send: [chunk(5n, "before", "l"), ...(first === "" ? [] : [chunk(0n, first)])], fail: lost }, { send: again }]);
    assert.equal(textOf(await gather(agentd.attach("s"))), `before${whole}`, `cut after ${cut}`);
    assert.deepEqual(asked.map((r) => [r.afterSeq, r.turnId]), [[undefined, ""], [5n, "t"]]);
  }
});

test("what ends a stream and what ends a turn", async () => {
  for (const [name, streams, want] of [
    ["the stream broke", [{ send: [], fail: lost }, { send: [end] }], "end"],
    ["the server stops", [{ send: [error(ErrorCode.UNAVAILABLE)] }, { send: [end] }], "end"],
    ["the stream is too old", [{ send: [error(ErrorCode.TIMEOUT)], fail: lost }, { send: [end] }], "end"],
    ["closed without a word", [{ send: [chunk(1n, "a")] }, { send: [end] }], "end"],
    ["the log cannot be read", [{ send: [error(ErrorCode.INTERNAL)] }], "INTERNAL"],
    ["the turn failed", [{ send: [error(ErrorCode.MODEL_UNAVAILABLE, 3n), { seq: 4n, response: { case: "end", value: {} } }] }], "MODEL_UNAVAILABLE"],
    ["a code of tomorrow", [{ send: [error(4711 as ErrorCode)] }], "UNSPECIFIED"],
    ["not allowed", [{ send: [], fail: new ConnectError("no", Code.PermissionDenied) }], "PERMISSION_DENIED"],
    ["another server", [{ send: [], fail: new ConnectError("404", Code.Unimplemented) }], "INVALID_REQUEST"],
  ] as [string, Stream[], string][]) {
    const got = await gather(playing(streams).agentd.attach("s")).then(
      (events) => events.at(-1)?.type,
      (err: AgentdError) => err.code,
    );
    assert.equal(got, want, name);
  }
});

test("numbers of the state have every digit as text, and are JavaScript's otherwise", async () => {
  const stateDeltaJson = '{"far":[1e400,-1e400],"gone":null,"id":9007199254740993,"small":0.5}';
  const update: Message = { seq: 1n, response: { case: "stateUpdate", value: { stateDelta: { id: 1 }, stateDeltaJson } } };
  const old: Message = { seq: 2n, response: { case: "stateUpdate", value: { stateDelta: { small: 2 } } } };
  const { agentd } = playing([{ send: [update, old, end] }]);
  const run = agentd.attach("s");
  const [first, second] = await gather(run);
  const far = [Number.MAX_VALUE, -Number.MAX_VALUE];
  assert.ok(first?.type === "state_update" && second?.type === "state_update");
  assert.deepEqual(first.stateDelta, { far, gone: null, id: 9007199254740992, small: 0.5 });
  assert.equal(first.stateDeltaJson, stateDeltaJson);
  assert.equal(second.stateDeltaJson, '{"small":2}');
  assert.deepEqual(run.state, { far, id: 9007199254740992, small: 2 });
  assert.equal(JSON.stringify(first).includes("null,null"), false);
});

test("a silent stream is replaced, and heartbeats are no events", async () => {
  const beat: Message = { response: { case: "heartbeat", value: {} } };
  const { agentd, asked } = playing([{ send: [beat, chunk(1n, "a")], hang: true }, { send: [beat, end] }], {}, { silenceMs: 20 });
  const events = await gather(agentd.attach("s"));
  assert.deepEqual(events.map((e) => e.type), ["output_chunk", "end"]);
  assert.equal(asked.length, 2);
});

test("a retract starts messages over", () => {
  const base = { seq: 0, turnId: "t", time: undefined, replayed: false, display: undefined };
  const say = (agent: string, messageId: string, content: string, more = {}): Event => ({ ...base, type: "output_chunk", content, isThought: false, last: false, messageId, agentPath: [agent], ...more });
  const retract = (messageId: string): Event => ({ ...base, type: "message_retracted", messageId, agentPath: [] });
  for (const [name, events, want] of [
    ["one message", [say("a", "1", "x"), say("a", "2", "y"), retract("2"), say("a", "2", "z")], "xz"],
    ["all unfinished", [say("a", "1", "x"), say("a", "2", "y"), say("b", "3", "w"), retract(""), say("a", "2", "z")], "xz"],
    ["finished by its last piece", [say("a", "1", "x", { last: true }), retract("")], "x"],
    ["finished by its time", [say("a", "1", "x", { time: new Date() }), retract("")], "x"],
    ["finished as the server says", [say("a", "1", "x"), { ...base, type: "message_completed", messageId: "1", agentPath: ["a"], textBytes: 1, thoughtBytes: 0 }, retract("")], "x"],
    ["another one is finished", [say("a", "1", "x"), { ...base, type: "message_completed", messageId: "0", agentPath: ["a"], textBytes: 1, thoughtBytes: 0 }, retract("")], ""],
    ["finished by a call", [say("a", "1", "x"), { ...base, type: "tool_call", toolCallId: "c", toolName: "n", toolInput: "", agentPath: ["a"] }, retract("")], "x"],
    ["finished, but said again", [say("a", "1", "x"), say("a", "2", "y"), retract(""), say("a", "1", "X"), say("a", "1", "Y")], "XY"],
    ["agents side by side", [say("a", "1", "one "), say("b", "2", "two"), say("a", "1", "more")], "one more\n\ntwo"],
    ["thoughts are no text", [say("a", "1", "hm", { isThought: true }), say("a", "1", "x")], "x"],
  ] as [string, Event[], string][]) {
    const transcript = new Transcript();
    events.forEach((event) => transcript.add(event));
    assert.equal(transcript.text, want, name);
  }
  assert.deepEqual(told([say("a", "1", "x"), retract("1")]).messages, []);
});

test("a person is asked once, and answers", async () => {
  const resolved: ResolveInteractionRequest[] = [];
  const pending = question(InteractionStatus.PENDING, 1n);
  const twice = [pending, question(InteractionStatus.PENDING, 2n)];
  const { agentd } = playing([{ send: twice, fail: lost }, { send: [pending], hang: true }], { resolved }, { silenceMs: 1_000 });
  const asked: string[] = [];
  const run = agentd.attach("s", {
    prompter: async ({ question: text }) => {
      asked.push(text);
      await Promise.resolve();
      return { answer: "this one" };
    },
  });
  const iterator = run[Symbol.asyncIterator]();
  assert.equal((await iterator.next()).value?.type, "interaction_requested");
  assert.equal((await iterator.next()).value?.seq, 2);
  const waiting = iterator.next();
  while (resolved.length === 0) {
    await new Promise((resolve) => setImmediate(resolve));
  }
  await iterator.return?.();
  await waiting;
  assert.deepEqual(asked, ["which?"]);
  assert.deepEqual(resolved.map((r) => [r.sessionId, r.interactionId, r.resolution?.decision]), [["s", "q", { case: "answer", value: "this one" }]]);
  assert.match(resolved[0]!.resolution!.idempotencyKey, /^[0-9a-f]{32}$/);
});

test("nobody is asked what is settled", async () => {
  // A question of the past.
  const prompter = () => assert.fail("asked");
  const replayed = playing([{ send: [question(InteractionStatus.PENDING, 1n, true), end] }], { status: InteractionStatus.RESOLVED });
  assert.deepEqual((await gather(replayed.agentd.attach("s", { prompter }))).map((e) => e.type), ["interaction_requested", "end"]);
  // One that somebody else answers meanwhile.
  let reason: unknown;
  const settled = playing([{ send: [question(InteractionStatus.PENDING, 1n), question(InteractionStatus.RESOLVED, 2n), end] }]);
  await gather(settled.agentd.attach("s", { prompter: (_, signal) => new Promise((resolve) => signal.addEventListener("abort", () => resolve(void (reason = signal.reason)))) }));
  assert.match(String(reason), /settled/);
});

test("a prompter that fails, and a refusal, are told as errors", async () => {
  for (const [prompter, refusal, want] of [
    [() => Promise.reject(new Error("no screen")), undefined, ["INTERNAL", "the prompter failed: no screen"]],
    [() => ({ deny: true as const }), ErrorCode.NOT_FOUND, ["NOT_FOUND", "no"]],
  ] as const) {
    const { agentd } = playing([{ send: [question(InteractionStatus.PENDING, 1n)], hang: true }], refusal === undefined ? {} : { refusal });
    for await (const event of agentd.attach("s", { prompter })) {
      if (event.type === "error") {
        assert.deepEqual([event.error.code, event.error.message], want);
        break;
      }
    }
  }
});

test("a result has the warnings of its turn, the first of them", async () => {
  const warning = (field: string) => ({ code: "app_state_ignored", field, message: `${field} was ignored` });
  const answered = (seq: bigint, ...fields: string[]): Message => ({
    seq,
    turnId: "t",
    response: { case: "toolCallAnswered", value: { toolCallId: `c${seq}`, toolName: "look", result: { case: "output", value: "" }, warnings: fields.map(warning) } },
  });
  const started: Message = { seq: 1n, turnId: "t", response: { case: "execute", value: { sessionId: "s", warnings: [warning("one")] } } };
  const methods = { getTurn: () => ({ turn: { id: "t" } }) };
  const { agentd } = playing([{ send: [started, answered(2n, "two"), answered(3n), end] }], { methods });
  assert.deepEqual((await agentd.attach("s").result()).warnings, [warning("one"), warning("two")]);

  const many = Array.from({ length: 200 }, (_, i) => String(i));
  const { agentd: loud } = playing([{ send: [started, answered(2n, ...many), answered(3n, ...many), end] }], { methods });
  const { warnings } = await loud.attach("s").result();
  assert.deepEqual([warnings.length, warnings[0]!.field, warnings.at(-1)!.field], [256, "one", "54"]);
});

test("waits grow up to a cap, for as long as the policy says; sleep does not count", () => {
  const policy = { ...defaultReconnect, maxElapsedMs: 100_000, baseMs: 100, capMs: 1_000 };
  const outage = new Outage(policy);
  for (const limit of [100, 200, 400, 800, 1_000, 1_000]) {
    const wait = outage.next(0, 0);
    assert.ok(wait !== undefined && wait >= 0 && wait <= limit, `${wait} of ${limit}`);
  }
  assert.ok(outage.next(0, 3_600_000) !== undefined, "an hour of sleep");
  assert.equal(outage.next(0, 3_640_000), undefined);
  outage.over();
  assert.ok(outage.next(0, 3_640_001)! <= 100);
  assert.equal(new Outage({ ...policy, maxElapsedMs: -1 }).next(), undefined);
});

test("what the server asks to wait comes before the growing wait, or ends the tries", () => {
  const outage = new Outage({ ...defaultReconnect, maxElapsedMs: 10_000, baseMs: 100 });
  const wait = outage.next(3_000, 0);
  assert.ok(wait !== undefined && wait >= 3_000 && wait <= 3_100, `${wait}`);
  assert.equal(outage.next(11_000, 0), undefined);
  const forEver = new Outage({ ...defaultReconnect, maxElapsedMs: Infinity });
  assert.equal(forEver.next(10 ** 12, 0), 2 ** 31 - 1);
});

/** framed is a frame of a Connect stream: a message, or with flags 2 the end. */
function framed(flags: number, json: unknown): Uint8Array<ArrayBuffer> {
  const data = new TextEncoder().encode(JSON.stringify(json));
  const head = new DataView(new ArrayBuffer(5));
  head.setUint8(0, flags);
  head.setUint32(1, data.length);
  return new Uint8Array([...new Uint8Array(head.buffer), ...data]);
}

test("a quiet turn is followed for as long as its streams hold", async (t) => {
  let now = 0;
  t.mock.method(performance, "now", () => now);
  let streams = 0;
  const fetch = () => {
    const last = ++streams === 20;
    const body = new ReadableStream<Uint8Array>(
      {
        pull(controller) {
          if (last) {
            controller.enqueue(framed(0, { event: { seq: "9", turnId: "t", end: { completed: true } } }));
            controller.enqueue(framed(2, {}));
            controller.close();
            return;
          }
          now += 10_000; // the headers have come, and nothing else does
          controller.error(new TypeError("connection reset"));
        },
      },
      { highWaterMark: 0 },
    );
    return Promise.resolve(new Response(body, { headers: { "content-type": "application/connect+json" } }));
  };
  const agentd = new Agentd("http://unused", { fetch, reconnect: { baseMs: 1, capMs: 2, maxElapsedMs: 60_000 } });
  assert.deepEqual((await gather(agentd.attach("s"))).map((e) => e.type), ["end"]);
  assert.equal(streams, 20);
});

test("a clock that is set is no time without progress", async (t) => {
  t.mock.timers.enable({ apis: ["Date"] });
  let streams = 0;
  const fetch = () => {
    const last = ++streams === 5;
    t.mock.timers.tick(3_600_000); // between one try and the next
    if (!last) {
      return Promise.reject(new TypeError("connection refused"));
    }
    const data = [framed(0, { event: { seq: "9", turnId: "t", end: { completed: true } } }), framed(2, {})];
    return Promise.resolve(new Response(new Blob(data), { headers: { "content-type": "application/connect+json" } }));
  };
  const agentd = new Agentd("http://unused", { fetch, reconnect: { baseMs: 1, capMs: 2, maxElapsedMs: 60_000 } });
  assert.deepEqual((await gather(agentd.attach("s"))).map((e) => e.type), ["end"]);
  assert.equal(streams, 5);
});

test("streams that break at once are given up", async (t) => {
  t.mock.method(performance, "now", () => 0);
  const broken = (): Stream => ({ send: [], fail: lost });
  const { agentd, asked } = playing([...Array(20)].map(broken), {}, { reconnect: { baseMs: 1, capMs: 2, off: true } });
  await assert.rejects(gather(agentd.attach("s")), (err) => err instanceof AgentdError && err.code === "UNAVAILABLE");
  assert.equal(asked.length, 1);
});

test("nobody has a tool: said once, also to who comes back, and again when it is so again", async () => {
  const unserved = (toolCallId: string): Message => ({
    turnId: "t",
    response: { case: "toolCallUnserved", value: { toolCallId, toolName: "look", agentPath: ["a"], expireTime: { seconds: 60n, nanos: 0 } } },
  });
  const { agentd } = playing([{ send: [chunk(1n, "a"), unserved("1")], fail: lost }, { send: [unserved("1"), unserved("2"), unserved("2")], fail: lost }, { send: [unserved("2"), unserved("2"), end] }]);
  const events = (await gather(agentd.attach("s"))).flatMap((e) => (e.type === "tool_call_unserved" ? [e] : []));
  assert.deepEqual(events.map((e) => e.toolCallId), ["1", "2", "2", "2"]);
  const { toolCallId, toolName, agentPath, expireTime, seq } = events[0]!;
  assert.deepEqual([toolCallId, toolName, agentPath, expireTime, seq], ["1", "look", ["a"], new Date(60_000), 0]);
});

/** starting returns a client whose server holds the start of a turn back until it is let, and what it has cancelled. */
function starting() {
  const [arrived, letGo] = [new Latch(), new Latch()];
  const cancelled: string[] = [];
  const gone = new Latch();
  const methods = {
    async createTurn() {
      arrived.open();
      await letGo.opened;
      return { turn: { id: "t", sessionId: "s" } };
    },
    cancelTurn(request: { sessionId: string; turnId: string }) {
      cancelled.push(`${request.sessionId}/${request.turnId}`);
      gone.open();
      return {};
    },
  };
  return { ...playing([], { methods }), arrived, letGo, cancelled, gone };
}

test("a turn that is left before its name is known is cancelled, unless it has another name", async () => {
  const agent = llm({ name: "a", model: "echo" });
  for (const more of [{}, { onLeave: "detach" }, { onLeave: "detach", idempotencyKey: "mine" }] as Partial<RunOptions>[]) {
    const { agentd, arrived, letGo, cancelled, gone } = starting();
    const leave = new AbortController();
    const whole = gather(agentd.run({ agent, prompt: "p", signal: leave.signal, ...more }));
    await arrived.opened;
    leave.abort(new Error("left"));
    await assert.rejects(whole, /left/); // at once
    letGo.open();
    if ("idempotencyKey" in more) {
      assert.deepEqual(cancelled, []);
      continue;
    }
    await gone.opened;
    assert.deepEqual(cancelled, ["s/t"], JSON.stringify(more));
  }
});

test("codes are those of docs/errors.md", async () => {
  const doc = await readFile(new URL("../../docs/errors.md", import.meta.url), "utf8");
  const rows = doc.split("\n").filter((line) => line.startsWith("| `")).map((line) => line.split(" | ")).filter((cells) => cells.length === 7);
  const names = rows.map(([code = ""]) => code.replaceAll(/[|` ]/g, ""));
  const codes = Object.keys(ErrorCode).filter((name) => !/^\d+$/.test(name) && name !== "UNSPECIFIED");
  assert.deepEqual([...names].sort(), codes.sort());
  for (const [i, name] of names.entries()) {
    assert.equal(new AgentdError(name as AgentdError["code"], "x").retryable, rows[i]?.[4] === "yes", name);
  }
});

test("credentials for the server are told apart from the key of a provider", async () => {
  for (const [stream, want] of [
    [{ send: [], fail: new ConnectError("who are you", Code.Unauthenticated) }, "UNAUTHENTICATED"],
    [{ send: [error(ErrorCode.UNAUTHENTICATED)] }, "UNAUTHENTICATED"],
    [{ send: [error(ErrorCode.AUTH_FAILED)] }, "AUTH_FAILED"],
  ] as [Stream, string][]) {
    await assert.rejects(gather(playing([stream]).agentd.attach("s")), (err: AgentdError) => err.code === want);
  }
});
