// What options mean: one thing each.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Agentd, AgentdError, llm, type AgentdOptions, type AttachOptions, type Resolution, type Prompter, type RunOptions } from "@apzuk3/agentd";
import { ErrorCode, InteractionStatus, type CreateTurnRequest, type ResolveInteractionRequest } from "@apzuk3/agentd/proto";
import { amountOf, longestWaitMs } from "../dist/amounts.js";
import { defaultReconnect, policyOf } from "../dist/backoff.js";
import { headersOf } from "../dist/options.js";
import { gather } from "./gather.js";
import { chunk, end, lost, playing, question, refusedWith } from "./playing.js";

const refused = { name: "AgentdError", code: "INVALID_REQUEST" } as const;
const agent = llm({ name: "a", model: "echo" });
/** Numbers that are no time and no amount. */
const nonsense = [Number.NaN, -1, -Infinity, -(2 ** 31), "5" as unknown as number, {} as unknown as number];
/** Times that no timer can wait for. */
const eternities = [Infinity, 2 ** 31, Number.MAX_VALUE];

/** waits notes what timers are asked to wait for, until the test ends. */
function waits(t: { after(f: () => void): void }): number[] {
  const noted: number[] = [];
  const real = globalThis.setTimeout;
  globalThis.setTimeout = Object.assign((f: () => void, ms: number, ...more: []) => {
    noted.push(ms);
    return real(f, ms, ...more);
  }, real);
  t.after(() => void (globalThis.setTimeout = real));
  return noted;
}

test("an option that is undefined is not set", async (t) => {
  const unset = undefined as unknown as number;
  const reconnect = { maxElapsedMs: unset, startElapsedMs: unset, baseMs: unset, capMs: unset };
  assert.deepEqual(policyOf(reconnect), defaultReconnect);
  assert.deepEqual(policyOf(undefined), defaultReconnect);
  const options = {
    silenceMs: unset, requestTimeoutMs: unset, maxConcurrentTools: unset, reconnect, keys: { gemini: unset }, headers: { "x-unset": unset }, prompter: unset,
  } as unknown as AgentdOptions;
  const noted = waits(t);
  const { agentd, asked } = playing([{ send: [chunk(1n, "a")], fail: lost }, { send: [end] }], {}, options);
  const attaching = { turnId: unset, afterSeq: unset, visibility: unset, observe: unset, onLeave: unset, prompter: unset, signal: unset, headers: unset };
  assert.deepEqual((await gather(agentd.attach("s", attaching as unknown as AttachOptions))).map((e) => e.type), ["output_chunk", "end"]);
  assert.equal(asked.length, 2);
  for (const ms of noted) {
    assert.ok(ms >= 0 && ms <= 45_000, `a timer of ${ms}`);
  }
  assert.ok(noted.some((ms) => ms === 45_000), "no timer for silence");
  assert.deepEqual([...headersOf({ a: "1" }, { a: undefined, b: "2" } as unknown as HeadersInit, new Headers({ c: "3" }), [["d", "4"]])], [["a", "1"], ["b", "2"], ["c", "3"], ["d", "4"]]);
});

test("a time that no timer can wait for is as long as one can", async (t) => {
  for (const ms of eternities) {
    const noted = waits(t);
    const reconnect = { maxElapsedMs: ms, startElapsedMs: ms, baseMs: ms === Infinity ? ms : 1, capMs: ms };
    const { off: _, ...policy } = policyOf(reconnect);
    assert.ok(Object.values(policy).every((wait) => wait > 0));
    assert.ok(policyOf(reconnect).capMs <= longestWaitMs && policyOf(reconnect).baseMs <= longestWaitMs);
    const { agentd, asked } = playing([{ send: [chunk(1n, "a")], fail: lost }, { send: [end] }], { methods: { getTurn: () => ({ turn: { id: "t" } }) } }, {
      silenceMs: ms, requestTimeoutMs: ms, maxConcurrentTools: Infinity, reconnect: { ...reconnect, baseMs: 1 },
    });
    assert.equal((await agentd.attach("s").result()).text, "a");
    assert.equal(asked.length, 2);
    for (const wait of noted) {
      assert.ok(wait >= 0 && wait <= longestWaitMs, `a timer of ${wait}`);
    }
  }
});

test("numbers that make no sense are refused, each by its name", () => {
  for (const bad of nonsense) {
    const unmade: [string, () => unknown][] = [];
    for (const name of ["silenceMs", "requestTimeoutMs", "maxConcurrentTools", "maxResultBytes", "maxMessageBytes"]) {
      unmade.push([name, () => new Agentd("http://unused", { [name]: bad })]);
    }
    for (const name of Object.keys(defaultReconnect)) {
      if (name === "off") {
        continue; // which is no number
      }
      unmade.push([`reconnect.${name}`, () => new Agentd("http://unused", { reconnect: { [name]: bad } })]);
    }
    const { agentd } = playing([]);
    const run = (more: Partial<RunOptions>) => () => agentd.run({ agent, prompt: "p", ...more });
    for (const name of ["disconnectGraceMs", "toolTimeoutMs"]) {
      unmade.push([name, run({ [name]: bad })]);
    }
    for (const name of ["modelCalls", "tokens", "costUsd", "wallTimeMs"]) {
      unmade.push([`budget.${name}`, run({ budget: { [name]: bad } })], [`sessionBudget.${name}`, run({ sessionBudget: { [name]: bad } })]);
    }
    for (const list of [agentd.sessions, agentd.turns, agentd.interactions]) {
      unmade.push(["pageSize", () => list.list({ pageSize: bad })]);
    }
    unmade.push(["timeoutMs", () => agentd.addTool("t", { description: "d", timeoutMs: bad, run: () => "" })]);
    for (const [name, make] of unmade) {
      assert.throws(make, (err) => err instanceof AgentdError && err.code === "INVALID_REQUEST" && err.message.includes(`${name} is`), `${name}: ${String(bad)}`);
    }
  }
  assert.throws(() => new Agentd("http://unused", { maxConcurrentTools: 1.5 }), refused);
  assert.equal(amountOf("n", 0, { least: 0 }), 0);
});

test("a page has at most 1,000 items", async () => {
  const sizes: number[] = [];
  const methods = {
    listTurns: (request: { pageSize: number }) => (sizes.push(request.pageSize), {}),
    listModelCalls: (request: { pageSize: number }) => (sizes.push(request.pageSize), {}),
  };
  const { agentd } = playing([], { methods });
  for (const pageSize of [1001, 1.5, Infinity]) {
    assert.throws(() => agentd.turns.list({ pageSize }), refused, String(pageSize));
    await assert.rejects(agentd.turns.modelCalls("s", "", pageSize), refused, String(pageSize));
  }
  for (const pageSize of [undefined as unknown as number, 0, 1000]) {
    for await (const turn of agentd.turns.list({ pageSize })) {
      assert.fail(turn.id);
    }
    await agentd.turns.modelCalls("s", "", pageSize);
  }
  assert.deepEqual(sizes, [0, 0, 0, 0, 1000, 1000]);
});

test("half a model call and a time beyond the protocol's are refused", () => {
  const { agentd } = playing([]);
  for (const budget of [{ modelCalls: 1.5 }, { costUsd: Infinity }, { wallTimeMs: 3.2e10 }]) {
    assert.throws(() => agentd.run({ agent, prompt: "p", budget }), refused, JSON.stringify(budget));
  }
  for (const more of [{ toolTimeoutMs: 86_400_001 }, { disconnectGraceMs: Infinity }, { create: true }, { create: true, sessionId: "" }]) {
    assert.throws(() => agentd.run({ agent, prompt: "p", ...more }), refused, JSON.stringify(more));
  }
});

test("a position is the seq of an event, and nothing else", () => {
  const { agentd } = playing([]);
  for (const afterSeq of ["", " ", "-1", "1.5", "0x10", 1.5, -1, Number.NaN, "1n"]) {
    assert.throws(() => agentd.attach("s", { afterSeq }), refused, String(afterSeq));
  }
  for (const afterSeq of ["0", "12", 12, 0]) {
    agentd.attach("s", { afterSeq });
  }
});

test("what is asked for reaches the server", async () => {
  const created: CreateTurnRequest[] = [];
  const methods = { createTurn: (request: CreateTurnRequest) => (created.push(request), { turn: { id: "t", sessionId: "mine" } }) };
  const { agentd, asked } = playing([{ send: [end] }, { send: [end] }, { send: [end] }], { methods });
  await gather(agentd.run({ agent, prompt: "p", sessionId: "mine", create: true, toolTimeoutMs: 1.25, disconnectGraceMs: 0 }));
  assert.deepEqual([created[0]?.execute?.create, created[0]?.execute?.sessionId, created[0]?.execute?.toolTimeout?.nanos], [true, "mine", 2_000_000]);
  await gather(agentd.attach("s", { observe: true }));
  assert.deepEqual(asked.map((r) => r.observe), [false, true]);
});

test("who may resolve is said per run", async () => {
  const asked = () => assert.fail("asked");
  const client = playing([{ send: [question(InteractionStatus.PENDING, 1n), end] }, { send: [question(InteractionStatus.PENDING, 1n), end] }], {}, { prompter: asked });
  await gather(client.agentd.attach("s"));
  await gather(client.agentd.attach("s", { observe: true }));
  for (const more of [{ prompter: asked }, { onLeave: "cancel" }] as AttachOptions[]) {
    assert.throws(() => client.agentd.attach("s", { observe: true, ...more }), refused);
  }
  assert.throws(() => client.agentd.attach("s", { onLeave: "stop" as "cancel" }), refused);
  const methods = { createTurn: () => ({ turn: { id: "t", sessionId: "s" } }) };
  const own = playing([{ send: [question(InteractionStatus.PENDING, 1n), end] }], { methods }, { prompter: asked });
  await gather(own.agentd.run({ agent, prompt: "p", prompter: null }));
});

/** settle has a prompter asked and returns what the run tells, and what was sent, once there is something, or nothing is to come. */
async function settle(prompter: Prompter): Promise<{ errors: string[]; resolved: ResolveInteractionRequest[] }> {
  const resolved: ResolveInteractionRequest[] = [];
  const errors: string[] = [];
  const { agentd } = playing([{ send: [question(InteractionStatus.PENDING, 1n)], hang: true }], { resolved });
  const leave = new AbortController();
  let asked = false;
  const asking: Prompter = async (interaction, signal) => {
    asked = true;
    return prompter(interaction, signal);
  };
  const following = gather(
    (async function* () {
      for await (const event of agentd.attach("s", { prompter: asking, signal: leave.signal })) {
        if (event.type === "error") {
          errors.push(event.error.code);
        }
        yield event;
      }
    })(),
  ).catch(() => {});
  for (let idle = 0; idle < 50 && errors.length + resolved.length === 0; idle += asked ? 1 : 0) {
    await new Promise((resolve) => setImmediate(resolve));
  }
  leave.abort();
  await following;
  return { errors, resolved };
}

test("what decides nothing is no answer", async () => {
  for (const nothing of [undefined, null]) {
    assert.deepEqual(await settle(() => nothing), { errors: [], resolved: [] }, String(nothing));
  }
  for (const decision of [{ approve: false }, { deny: false }, { answer: null }, { answer: undefined }, {}, { approve: true, deny: true }, { approve: "no" }]) {
    const { errors, resolved } = await settle(() => decision as unknown as Resolution);
    assert.deepEqual([errors, resolved.length], [["INVALID_REQUEST"], 0], JSON.stringify(decision));
    const { agentd } = playing([]);
    await assert.rejects(agentd.interactions.resolve("s", "q", decision as unknown as Resolution), refused);
  }
  for (const decision of [{ approve: true }, { approve: true, toolInput: {} }, { deny: true }, { answer: "" }] as Resolution[]) {
    assert.equal((await settle(() => decision)).resolved.length, 1, JSON.stringify(decision));
  }
});

test("a limit that was exceeded is not asked for again", async () => {
  let created = 0;
  const createTurn = () => {
    created++;
    throw refusedWith(ErrorCode.LIMIT_EXCEEDED);
  };
  const { agentd } = playing([], { methods: { createTurn } });
  await assert.rejects(agentd.run({ agent, prompt: "p" }).result(), (err) => err instanceof AgentdError && err.code === "LIMIT_EXCEEDED");
  assert.equal(created, 1);
});
