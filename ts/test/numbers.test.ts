// What is not given, 0 and below 0 mean for each option: the table that the tests of the Go client read too.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test, type TestContext } from "node:test";
import { AgentdError, llm, type Agentd, type AgentdOptions, type AttachOptions, type RunOptions } from "@apzuk3/agentd";
import type { CreateSessionTokenRequest, CreateTurnRequest, ForkSessionRequest, ListTurnsRequest } from "@apzuk3/agentd/proto";
import { SessionStore } from "@apzuk3/agentd/react";
import { longestWaitMs } from "../dist/amounts.js";
import { policyOf } from "../dist/backoff.js";
import { limitsOf } from "../dist/resultsize.js";
import { all, gather, Latch } from "./gather.js";
import { end, playing, type Message } from "./playing.js";

/** Means is a number, in milliseconds where it is a time, or what there is in place of one. */
type Means = number | "none" | "refused" | "over";
interface Row {
  go?: string;
  typescript?: string;
  unset: Means;
  zero: Means;
  negative: Means;
}

const rows = JSON.parse(readFileSync(new URL("../../client/testdata/numbers.json", import.meta.url), "utf8")) as Row[];
const agent = llm({ name: "a", model: "echo", tools: ["work"] });
const work = { description: "Works", run: () => "" };

/** waits notes what timers are asked to wait for meanwhile. */
async function waits(meanwhile: () => Promise<unknown>): Promise<number[]> {
  const noted: number[] = [];
  const real = globalThis.setTimeout;
  globalThis.setTimeout = Object.assign((f: () => void, ms: number, ...more: []) => {
    noted.push(ms);
    return real(f, ms, ...more);
  }, real);
  try {
    await meanwhile();
  } finally {
    globalThis.setTimeout = real;
  }
  return noted;
}

/** created is the request for a turn. */
async function created(options: Partial<RunOptions>, add: (agentd: Agentd) => void = (agentd) => agentd.addTool("work", work)) {
  const requests: CreateTurnRequest[] = [];
  const createTurn = (request: CreateTurnRequest) => (requests.push(request), { turn: { id: "t", sessionId: "s" } });
  const { agentd } = playing([{ send: [end] }], { methods: { createTurn } });
  add(agentd);
  await gather(agentd.run({ agent, prompt: "p", ...options }));
  return requests[0]!.execute!;
}

type Time = { seconds: bigint; nanos: number } | undefined;
const msOf = (time: Time): Means => (time === undefined ? "none" : Number(time.seconds) * 1000 + time.nanos / 1e6);
const boundOf = (n: bigint | number): Means => (Number(n) === 0 ? "none" : Number(n));
const waitOf = (ms: number): Means => (ms === longestWaitMs ? "none" : ms);

/** busy is how many of 20 tool calls run at once. */
async function busy(options: AgentdOptions): Promise<number> {
  const calls = Array.from({ length: 20 }, (_, i): Message => {
    const value = { sessionId: "s", toolCallId: `c${i}`, toolName: "work", toolInput: "{}", agentPath: ["a"] };
    return { seq: BigInt(i + 1), turnId: "t", response: { case: "toolCall", value } };
  });
  const { agentd } = playing([{ send: calls, hang: true }], {}, options);
  const leave = new Latch();
  let running = 0;
  agentd.addTool("work", { description: "Works", run: (_, { signal }) => (running++, new Promise((done) => signal.addEventListener("abort", done))) });
  let seen = 0;
  for await (const event of agentd.attach("s")) {
    seen += event.type === "tool_call" ? 1 : 0;
    if (seen === 20) {
      await new Promise((resolve) => setImmediate(resolve));
      leave.open();
      break;
    }
  }
  await leave.opened;
  return running;
}

/** read is how many turns a store reads of 60. */
async function read(t: TestContext, history: number | undefined): Promise<number> {
  const turns = Array.from({ length: 60 }, (_, i) => ({ id: `t${i}`, sessionId: "s", status: 5, userPrompt: "p" }));
  const { agentd } = playing([], {
    methods: {
      listTurns: () => ({ turns }),
      async *watchSession(_: unknown, { signal }: { signal: AbortSignal }) {
        for (const { id } of [...turns].reverse()) {
          yield { event: { ...end, turnId: id, seq: BigInt(1000 - Number(id.slice(1))) } };
        }
        await new Promise((resolve) => signal.addEventListener("abort", resolve));
      },
    },
  });
  const store = new SessionStore(agentd, { sessionId: "s", history });
  const ready = new Latch();
  t.after(store.subscribe(() => store.getSnapshot().status === "loading" || ready.open()));
  await ready.opened;
  return store.getSnapshot().messages.length;
}

const budget = (of: keyof NonNullable<RunOptions["budget"]>, field: (budget: NonNullable<CreateTurnRequest["execute"]>["budget"] & {}) => Means) =>
  async (n?: number) => {
    const execute = await created({ budget: { [of]: n }, sessionBudget: { [of]: n } });
    assert.equal(field(execute.sessionBudget!), field(execute.budget!));
    return field(execute.budget!);
  };
const policy = (of: "maxElapsedMs" | "startElapsedMs" | "baseMs" | "capMs") => (n?: number) => policyOf({ [of]: n })[of];

/** What a number of an option means. */
const meanings: Record<string, (n: number | undefined, t: TestContext) => Means | Promise<Means>> = {
  toolTimeoutMs: async (n) => msOf((await created({ toolTimeoutMs: n })).toolTimeout),
  // The server waits two seconds longer, for the answer that the time is over.
  timeoutMs: async (n) => {
    const execute = await created({}, (agentd) => agentd.addTool("work", { ...work, timeoutMs: n }));
    const ms = msOf(execute.tools[0]?.timeout);
    return typeof ms === "number" ? ms - 2000 : ms;
  },
  maxConcurrentTools: (n) => busy({ maxConcurrentTools: n }),
  maxResultBytes: (n) => (playing([], {}, { maxResultBytes: n }), limitsOf({ maxResultBytes: n }).maxResultBytes),
  maxMessageBytes: (n) => (playing([], {}, { maxMessageBytes: n }), limitsOf({ maxMessageBytes: n }).maxMessageBytes),
  disconnectGraceMs: async (n) => {
    const ms = msOf((await created({ onDisconnect: "cancel", disconnectGraceMs: n })).disconnectGrace);
    return ms === "none" ? 0 : ms;
  },
  afterSeq: async (n) => {
    const { agentd, asked } = playing([{ send: [end] }]);
    await gather(agentd.attach("s", { afterSeq: n } as AttachOptions));
    return asked[0]?.afterSeq === undefined ? "none" : Number(asked[0].afterSeq);
  },
  throughSeq: async (n) => {
    let through: Means = "none";
    const forkSession = ({ throughSeq }: ForkSessionRequest) => ((through = throughSeq === undefined ? "none" : Number(throughSeq)), { session: {} });
    await playing([], { methods: { forkSession } }).agentd.sessions.fork("s", { throughSeq: n });
    return through;
  },
  "budget.modelCalls": budget("modelCalls", ({ modelCalls }) => boundOf(modelCalls)),
  "budget.tokens": budget("tokens", ({ tokens }) => boundOf(tokens)),
  "budget.costUsd": budget("costUsd", ({ costUsd }) => boundOf(costUsd)),
  "budget.wallTimeMs": budget("wallTimeMs", ({ wallTime }) => msOf(wallTime)),
  "reconnect.maxElapsedMs": policy("maxElapsedMs"),
  "reconnect.startElapsedMs": policy("startElapsedMs"),
  "reconnect.baseMs": policy("baseMs"),
  "reconnect.capMs": policy("capMs"),
  pageSize: async (n) => {
    const sizes: number[] = [];
    const { agentd } = playing([], { methods: { listTurns: ({ pageSize }: ListTurnsRequest) => (sizes.push(pageSize), {}) } });
    await all(agentd.turns.list({ pageSize: n }));
    return sizes[0]!;
  },
  silenceMs: async (n) => {
    const { agentd } = playing([{ send: [end] }], {}, { silenceMs: n });
    const noted = await waits(() => gather(agentd.attach("s")));
    return waitOf(noted[0]!);
  },
  requestTimeoutMs: async (n) => {
    const { agentd } = playing([], { methods: { getCapabilities: () => ({}) } }, { requestTimeoutMs: n });
    const noted = await waits(() => agentd.capabilities());
    return waitOf(noted[0]!);
  },
  lifetimeMs: async (n) => {
    const asked: CreateSessionTokenRequest[] = [];
    const createSessionToken = (request: CreateSessionTokenRequest) => (asked.push(request), { token: "t", expireTime: { seconds: 1n, nanos: 0 } });
    await playing([], { methods: { createSessionToken } }).agentd.sessions.createToken("s", { lifetimeMs: n });
    return msOf(asked[0]?.lifetime);
  },
  history: (n, t) => read(t, n),
};

for (const { typescript: name = "", unset, zero, negative } of rows.filter((row) => row.typescript !== undefined)) {
  test(`${name} means what the table says`, async (t) => {
    const of = meanings[name];
    assert.ok(of !== undefined, "nothing says what it means");
    const some = name === "maxConcurrentTools" || name === "history" ? 7 : 777;
    assert.equal(await of(some, t), some);
    for (const [n, means] of [[undefined, unset], [0, zero], [-1, negative]] as const) {
      if (means !== "refused") {
        assert.equal(await of(n, t), means, String(n));
        continue;
      }
      const refused = (err: unknown) => err instanceof AgentdError && err.code === "INVALID_REQUEST" && err.message.includes(`${name} is`);
      await assert.rejects(async () => of(n, t), refused, String(n));
    }
  });
}

test("the table has every option that this test knows", () => {
  const names = rows.flatMap(({ typescript }) => typescript ?? []);
  assert.deepEqual([...names].sort(), Object.keys(meanings).sort());
});
