import assert from "node:assert/strict";
import { test } from "node:test";
import { Agentd, AgentdError, llm } from "@apzuk3/agentd";
import { serve } from "./daemon.js";
import { all, gather } from "./gather.js";
import { proxy } from "./proxy.js";

const echo = llm({ name: "a", model: "echo" });

const refused = (code: string) => (err: unknown) => err instanceof AgentdError && err.code === code;

test("sessions are made, found, changed and removed", async (t) => {
  const { sessions, turns } = new Agentd((await serve(t)).url);
  const before = new Date();
  const made = [];
  for (let i = 0; i < 5; i++) {
    made.push(await sessions.create({ labels: { team: i % 2 === 0 ? "even" : "odd" }, clientRef: `chat ${i}` }));
  }
  const ids = made.map((session) => session.id).reverse();
  assert.deepEqual((await all(sessions.list({ pageSize: 2 }))).map((session) => session.id), ids);
  assert.deepEqual((await all(sessions.list({ labels: { team: "odd" } }))).map((session) => session.clientRef), ["chat 3", "chat 1"]);
  assert.deepEqual((await all(sessions.list({ clientRef: "chat 4" }))).map((session) => session.id), [made[4]!.id]);
  assert.deepEqual(await all(sessions.list({ createdBefore: new Date(before.getTime() - 60_000) })), []);
  assert.ok(made[0]!.createTime!.getTime() >= before.getTime() - 60_000);

  const one = made[0]!;
  const changed = await sessions.update(one.id, { version: one.version, labels: { team: "", owner: "me" }, state: "archived" });
  assert.deepEqual([changed.labels, changed.state], [{ owner: "me" }, "archived"]);
  assert.deepEqual(await sessions.get(one.id), changed);
  await assert.rejects(sessions.update(one.id, { version: one.version, clientRef: "late" }), refused("CONFLICT"));
  assert.equal((await all(sessions.list())).length, 5);
  assert.equal((await all(sessions.list({ states: ["active"] }))).length, 4);
  assert.deepEqual((await all(sessions.list({ states: ["archived"] }))).map((session) => session.id), [one.id]);

  await sessions.delete(one.id);
  await assert.rejects(sessions.get(one.id), refused("SESSION_NOT_FOUND"));
  await assert.rejects(turns.get(one.id), refused("SESSION_NOT_FOUND"));
  await assert.rejects(sessions.create({ labels: { "": "x" } }), refused("INVALID_REQUEST"));

  const named = { id: "ticket-17", metadata: { n: 1, deep: [{ a: null }] } };
  const own = await sessions.create(named);
  assert.deepEqual([own.id, own.metadata], [named.id, named.metadata]);
  assert.deepEqual(await sessions.create(named), own);
  await assert.rejects(sessions.create({ id: named.id }), refused("CONFLICT"));
  assert.deepEqual((await sessions.update(named.id, { metadata: { z: 1 } })).metadata, { z: 1 });
  assert.equal((await sessions.update(named.id, { metadata: {} })).metadata, undefined);
  await sessions.delete(named.id);

  const key = { idempotencyKey: "k", clientRef: "same" };
  assert.equal((await sessions.create(key)).id, (await sessions.create(key)).id);
  await assert.rejects(sessions.create({ ...key, clientRef: "other" }), refused("CONFLICT"));
});

test("a session has a budget of its own", async (t) => {
  const agentd = new Agentd((await serve(t)).url);
  const { sessions } = agentd;
  const { id, budget } = await sessions.create({ budget: { modelCalls: 2, costUsd: 0, wallTimeMs: 90_500 } });
  assert.deepEqual(budget, { modelCalls: 2, wallTimeMs: 90_500 });
  const run = (modelCalls?: number) =>
    agentd.run({ agent: echo, prompt: "hi", sessionId: id, ...(modelCalls === undefined ? {} : { sessionBudget: { modelCalls } }) }).result();
  await run(1);
  const spent = (value: number) => (err: unknown) =>
    err instanceof AgentdError && err.code === "BUDGET_EXHAUSTED" && err.limit?.name === "session_model_calls" && err.limit.value === value;
  await assert.rejects(run(1), spent(1));
  await run(100);
  await assert.rejects(run(100), spent(2));
  assert.deepEqual((await sessions.fork(id)).budget, budget);
  assert.deepEqual((await sessions.update(id, { budget: { tokens: 1e9, costUsd: 0.25 } })).budget, { tokens: 1e9, costUsd: 0.25 });
  assert.deepEqual((await sessions.update(id, { clientRef: "still" })).budget, { tokens: 1e9, costUsd: 0.25 });
  assert.equal((await sessions.update(id, { budget: {} })).budget, undefined);
  await run();
  assert.equal((await sessions.create()).budget, undefined);
  const bad = { budget: { tokens: -1 } };
  await assert.rejects(sessions.create(bad), refused("INVALID_REQUEST"));
  await assert.rejects(sessions.update(id, bad), refused("INVALID_REQUEST"));
});

test("a fork goes its own way", async (t) => {
  const agentd = new Agentd((await serve(t, { count: "answers: [{text: one}, {text: two}, {text: three}]" })).url);
  const agent = llm({ name: "a", model: "scripted/count" });
  const first = await agentd.run({ agent, prompt: "hi" }).result();
  const { sessionId } = first.turn;
  await agentd.run({ sessionId, prompt: "again" }).result();
  const whole = await agentd.sessions.fork(sessionId);
  const end = (await gather(agentd.attach(sessionId, { turnId: first.turn.id }))).at(-1)!;
  const part = await agentd.sessions.fork(sessionId, { throughSeq: end.seq, labels: { from: "the first" } });
  assert.deepEqual([part.forkedFrom, part.forkedThroughSeq, part.labels], [sessionId, end.seq, { from: "the first" }]);
  assert.equal((await agentd.run({ sessionId: whole.id, prompt: "go on" }).result()).text, "three");
  assert.equal((await agentd.run({ sessionId: part.id, prompt: "go on" }).result()).text, "two");
  assert.equal((await all(agentd.turns.list({ sessionId }))).length, 2);
});

test("turns of all sessions are listed", async (t) => {
  const agentd = new Agentd((await serve(t, { fails: "answers: [{error: {kind: blocked}}]" })).url);
  const good = (await agentd.run({ agent: echo, prompt: "hi" }).result()).turn;
  const bad = agentd.run({ agent: llm({ name: "a", model: "scripted/fails" }), prompt: "hi" });
  await assert.rejects(bad.result(), refused("CONTENT_BLOCKED"));
  assert.deepEqual((await all(agentd.turns.list({ pageSize: 1 }))).map((turn) => turn.id), [bad.turnId, good.id]);
  assert.deepEqual((await all(agentd.turns.list({ statuses: ["failed"] }))).map((turn) => turn.id), [bad.turnId]);
  const events = await all(agentd.turns.events(bad.sessionId!));
  assert.ok(events.some((e) => e.type === "error" && e.error.code === "CONTENT_BLOCKED"));
});

test("a turn whose start was answered into the void is started once", async (t) => {
  const daemon = await serve(t);
  const way = await proxy(t, daemon.url);
  way.losing.set("CreateTurn", 3);
  const agentd = new Agentd(way.url, { reconnect: { baseMs: 1 } });
  const { text, turn } = await agentd.run({ agent: echo, prompt: "only once" }).result();
  assert.equal(text, "only once");
  assert.equal(way.requests.filter((method) => method === "CreateTurn").length, 4);
  assert.deepEqual((await all(agentd.turns.list())).map(({ id }) => id), [turn.id]);
  // The caller's own key does the same across two runs, such as before and after a reload.
  const once = { agent: echo, prompt: "hi", idempotencyKey: "mine" };
  const [a, b] = [await agentd.run(once).result(), await agentd.run(once).result()];
  assert.equal(a.turn.id, b.turn.id);
  assert.equal(b.text, "hi");
  await assert.rejects(agentd.run({ ...once, prompt: "ho" }).result(), refused("CONFLICT"));
});

test("a session that is busy does what onBusy says", async (t) => {
  const daemon = await serve(t, { wait: "answers: [{calls: [{name: wait}]}, {when: {}, text: '{{last_user}}'}]" });
  const agentd = new Agentd(daemon.url);
  let release = () => {};
  const released = new Promise<void>((resolve) => (release = resolve));
  agentd.addTool("wait", { description: "Waits", run: () => released });
  const first = agentd.run({ agent: llm({ name: "a", model: "scripted/wait", tools: ["wait"] }), prompt: "first" });
  let busy = 0;
  for await (const event of first) {
    if (event.type !== "tool_call") {
      continue;
    }
    busy++;
    const sessionId = first.sessionId!;
    await assert.rejects(agentd.run({ sessionId, prompt: "second" }).result(), refused("SESSION_BUSY"));
    const queued = agentd.run({ sessionId, prompt: "third", onBusy: "enqueue" });
    const third = gather(queued);
    const injected = agentd.run({ sessionId, prompt: "fourth", onBusy: "inject" })[Symbol.asyncIterator]();
    const told = await injected.next();
    assert.ok(told.value?.type === "turn_queued" && told.value.inject, told.value?.type);
    release();
    for (let next = told; next.done !== true; next = await injected.next()) {
      assert.notEqual(next.value.type, "error");
    }
    const events = await third;
    assert.equal(events[0]?.type, "turn_queued");
    assert.equal(events.at(-1)?.type, "end");
    assert.notEqual(queued.turnId, first.turnId);
  }
  assert.equal(busy, 1);
});
