// What a real server does not do on demand: a server of this file's own, in memory.
import assert from "node:assert/strict";
import { test } from "node:test";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { Code, ConnectError, createRouterTransport, type ServiceImpl } from "@connectrpc/connect";
import { Agentd, AgentdError, Transcript, type Event } from "@apzuk3/agentd";
import {
  ErrorCode,
  InteractionKind,
  InteractionStatus,
  RunResponse_ErrorResponseSchema,
  SessionService,
  type ResolveInteractionRequest,
  type RunResponseSchema,
  type WatchTurnRequest,
} from "@apzuk3/agentd/proto";
import { defaultReconnect, Outage } from "../dist/backoff.js";
import { gather, told } from "./gather.js";

type Message = MessageInitShape<typeof RunResponseSchema>;
/** A stream: what it sends, and how it ends. */
type Stream = { send: Message[]; fail?: ConnectError; hang?: boolean };

const chunk = (seq: bigint, content: string, messageId = "m"): Message => ({ seq, turnId: "t", response: { case: "outputChunk", value: { content, messageId, agentPath: ["a"] } } });
const end: Message = { seq: 1000n, turnId: "t", response: { case: "end", value: { completed: true } } };
const error = (code: ErrorCode, seq = 0n): Message => ({ seq, response: { case: "error", value: { code, message: "said so", retryable: true } } });

/** playing returns a client of a server that plays streams one after the other, and what it was asked. */
function playing(streams: Stream[], more: Partial<Parameters<typeof service>[0]> = {}, options = {}) {
  const asked: WatchTurnRequest[] = [];
  const transport = createRouterTransport((router) => router.service(SessionService, service({ asked, streams, ...more })));
  const agentd = new Agentd("http://unused", { transport, reconnect: { baseMs: 1, capMs: 2, maxElapsedMs: 5_000 }, ...options });
  return { agentd, asked };
}

function service(o: { asked: WatchTurnRequest[]; streams: Stream[]; resolved?: ResolveInteractionRequest[]; status?: InteractionStatus; refusal?: ErrorCode }): Partial<ServiceImpl<typeof SessionService>> {
  return {
    async *watchTurn(request, { signal }) {
      o.asked.push(request);
      const { send, fail, hang } = o.streams[o.asked.length - 1] ?? { send: [], fail: new ConnectError("no more streams", Code.Internal) };
      for (const event of send) {
        yield { event };
      }
      if (hang === true) {
        await new Promise((resolve) => signal.addEventListener("abort", resolve));
      }
      if (fail !== undefined) {
        throw fail;
      }
    },
    getInteraction: () => ({ interaction: { status: o.status ?? InteractionStatus.PENDING } }),
    resolveInteraction(request) {
      o.resolved?.push(request);
      if (o.refusal !== undefined) {
        throw new ConnectError("no", Code.FailedPrecondition, undefined, [
          { desc: RunResponse_ErrorResponseSchema, value: create(RunResponse_ErrorResponseSchema, { code: o.refusal, message: "no" }) },
        ]);
      }
      return {};
    },
  };
}

const lost = new ConnectError("connection reset", Code.Unknown);
const textOf = (events: Event[]) => events.flatMap((e) => (e.type === "text" ? [e.text] : [])).join("");

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

test("a silent stream is replaced, and heartbeats are no events", async () => {
  const beat: Message = { response: { case: "heartbeat", value: {} } };
  const { agentd, asked } = playing([{ send: [beat, chunk(1n, "a")], hang: true }, { send: [beat, end] }], {}, { silenceMs: 20 });
  const events = await gather(agentd.attach("s"));
  assert.deepEqual(events.map((e) => e.type), ["text", "end"]);
  assert.equal(asked.length, 2);
});

test("a retract starts messages over", () => {
  const base = { seq: 0n, turnId: "t", time: undefined, replayed: false, display: undefined };
  const say = (agent: string, messageId: string, text: string, more = {}): Event => ({ ...base, type: "text", text, thought: false, last: false, messageId, agentPath: [agent], ...more });
  const retract = (messageId: string): Event => ({ ...base, type: "retract", messageId, agentPath: [] });
  for (const [name, events, want] of [
    ["one message", [say("a", "1", "x"), say("a", "2", "y"), retract("2"), say("a", "2", "z")], "xz"],
    ["all unfinished", [say("a", "1", "x"), say("a", "2", "y"), say("b", "3", "w"), retract(""), say("a", "2", "z")], "xz"],
    ["finished by its last piece", [say("a", "1", "x", { last: true }), retract("")], "x"],
    ["finished by its time", [say("a", "1", "x", { time: new Date() }), retract("")], "x"],
    ["finished by a call", [say("a", "1", "x"), { ...base, type: "tool_call", call: { id: "c", name: "n", input: "", agentPath: ["a"] } }, retract("")], "x"],
    ["finished, but said again", [say("a", "1", "x"), say("a", "2", "y"), retract(""), say("a", "1", "X"), say("a", "1", "Y")], "XY"],
    ["agents side by side", [say("a", "1", "one "), say("b", "2", "two"), say("a", "1", "more")], "one more\n\ntwo"],
    ["thoughts are no text", [say("a", "1", "hm", { thought: true }), say("a", "1", "x")], "x"],
  ] as [string, Event[], string][]) {
    const transcript = new Transcript();
    events.forEach((event) => transcript.add(event));
    assert.equal(transcript.text, want, name);
  }
  assert.deepEqual(told([say("a", "1", "x"), retract("1")]).messages, []);
});

const question = (status: InteractionStatus, seq: bigint, replayed = false): Message => ({
  seq,
  turnId: "t",
  replayed,
  response: {
    case: status === InteractionStatus.PENDING ? "interactionRequested" : "interactionResolved",
    value: { interaction: { id: "q", sessionId: "s", turnId: "t", kind: InteractionKind.INPUT, question: "which?", status } },
  },
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
  assert.equal((await iterator.next()).value?.seq, 2n);
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
  const watching = playing([{ send: [question(InteractionStatus.PENDING, 1n), end] }]);
  await gather(watching.agentd.attach("s", { prompter, watchOnly: true }));
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

test("waits grow up to a cap, for as long as the policy says; sleep does not count", () => {
  const policy = { ...defaultReconnect, maxElapsedMs: 100_000, baseMs: 100, capMs: 1_000 };
  const outage = new Outage(policy);
  for (const limit of [100, 200, 400, 800, 1_000, 1_000]) {
    const wait = outage.next(0);
    assert.ok(wait !== undefined && wait >= 0 && wait <= limit, `${wait} of ${limit}`);
  }
  assert.ok(outage.next(3_600_000) !== undefined, "an hour of sleep");
  assert.equal(outage.next(3_640_000), undefined);
  outage.over();
  assert.ok(outage.next(3_640_001)! <= 100);
  assert.equal(new Outage({ ...policy, maxElapsedMs: 0 }).next(), undefined);
});

test("options that make no sense are refused", () => {
  for (const options of [{ silenceMs: 0 }, { requestTimeoutMs: -1 }, { maxConcurrentTools: Number.NaN }]) {
    assert.throws(() => new Agentd("http://unused", options), { name: "AgentdError", code: "INVALID_REQUEST" });
  }
});
