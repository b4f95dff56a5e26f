// All of the services can be reached without its generated code, against a real daemon.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Agentd, EventLog, Goals, llm, Schedules } from "@apzuk3/agentd";
import { EventService, GoalService, ScheduleService, SessionService } from "@apzuk3/agentd/proto";
import { serve } from "./daemon.js";
import { all } from "./gather.js";

const scripts = {
  desk: `
answers:
  - {when: {after_tool: ask_user}, text: "{{tool_result \\"ask_user\\"}}"}
  - {when: {user: ask}, calls: [{name: ask_user, args: {question: "which?"}}]}
  - {when: {after_tool: work}, text: worked}
  - {when: {}, calls: [{name: work, args: {}}]}
`,
};

test("a call of the package leads to every method", async (t) => {
  const { url } = await serve(t, scripts, "--eventlog");
  const called = new Set<string>();
  const counting: typeof fetch = (input, init) => {
    called.add(String(input).replace(/.*\.v1\./, ""));
    return fetch(input, init);
  };
  const agentd = new Agentd(url, { fetch: counting }).addTool("work", { description: "Works", run: () => "done" });
  const { sessions, turns, interactions, sharedState } = agentd;
  const agent = llm({ name: "a", model: "scripted/desk", tools: ["work"], builtinTools: ["ask_user"] });

  assert.ok((await agentd.capabilities()).features.length > 0);
  assert.ok((await agentd.models()).models.length > 0);
  const { id: sessionId } = await sessions.create();
  assert.equal((await sessions.get(sessionId)).id, sessionId);
  assert.deepEqual((await sessions.update(sessionId, { labels: { a: "b" } })).labels, { a: "b" });
  assert.ok((await sessions.createToken(sessionId)).expireTime > new Date());
  const { turn } = await agentd.run({ agent, sessionId, prompt: "work" }).result();
  assert.equal((await turns.get(sessionId)).id, turn.id);
  assert.equal((await all(turns.list({ sessionId }))).length, 1);
  assert.equal((await all(turns.events(sessionId))).at(-1)?.type, "end");
  assert.equal((await turns.modelCalls(sessionId)).length, 2);
  assert.equal((await all(sessions.events(sessionId))).at(-1)?.type, "end");
  for await (const event of sessions.watch(sessionId)) {
    if (event.type === "end") {
      break;
    }
  }
  const prompter = async ({ id }: { id: string }) => {
    assert.equal((await interactions.get(sessionId, id)).question, "which?");
    assert.equal((await all(interactions.list({ sessionId }))).length, 1);
    return { answer: "this" };
  };
  assert.equal((await agentd.run({ agent, sessionId, prompt: "ask", prompter }).result()).text, "this");
  assert.equal((await turns.cancel(sessionId)).status, "succeeded");
  await turns.cancelToolCall(sessionId, "none").catch(() => {}); // of a turn that is over
  await interactions.raise(sessionId, "none", 1, { kind: "approval" }).catch(() => {}); // likewise
  assert.ok((await sessions.compact(sessionId, "what was done")) > 0);
  const fork = await sessions.fork(sessionId);
  assert.equal((await all(sessions.list())).length, 2);
  await sessions.delete(fork.id);

  const { agents } = agentd;
  const kept = await agents.apply({ name: "desk", agent, metadata: { team: "a" }, read: 0 });
  assert.ok(kept.created && kept.agent.version === 1 && kept.agent.contentHash.length === 64);
  assert.deepEqual([kept.agent.toolNames, kept.agent.metadata, kept.agent.createdBy], [["work"], { team: "a" }, "local"]);
  assert.equal((await agents.apply({ name: "desk", agent, metadata: { team: "a" } })).created, false);
  await assert.rejects(agents.apply({ name: "desk", agent, read: 3 }), { code: "CONFLICT" });
  const byHash = await agents.get({ name: `desk@${kept.agent.contentHash.slice(0, 8)}` });
  assert.deepEqual(byHash, kept.agent);
  const pinned = await sessions.create({ agentRef: { name: "desk" } });
  assert.deepEqual(pinned.agentRef, { name: "desk", version: 1 });
  assert.equal((await agentd.run({ sessionId: pinned.id, prompt: "work" }).result()).text, "worked");
  assert.equal((await agentd.run({ agentRef: { name: "desk", version: 1 }, prompt: "work" }).result()).text, "worked");
  assert.ok((await agents.archive("desk")).archiveTime !== undefined);
  assert.deepEqual((await all(agents.list())).length, 0);
  assert.deepEqual((await all(agents.list({ archived: true }))).length, 1);
  await agents.delete("desk");
  await assert.rejects(agents.get({ name: "desk" }), { code: "NOT_FOUND" });

  const list = { listed: [1, 2] };
  await sharedState.set({ "app:plan": "sale", "app:list": list, "app:none": null, "app:unset": undefined });
  const entries = await all(sharedState.list({ prefix: "app:", pageSize: 1 }));
  assert.deepEqual(entries.map(({ key, value }) => [key, value]), [["app:list", list], ["app:plan", "sale"]]);
  assert.ok(entries.every(({ value, valueText, bytes }) => valueText === JSON.stringify(value) && bytes > 0));
  assert.deepEqual(await sharedState.remove(["app:none", "app:plan"]), ["app:plan"]);
  const cyclic: { [key: string]: never } = {};
  Object.assign(cyclic, { cyclic });
  for (const wrong of [cyclic, 1n, () => {}] as never[]) {
    await assert.rejects(sharedState.set({ "app:x": wrong }), { code: "INVALID_REQUEST", message: /"app:x" is no JSON/ });
  }

  const [goals, schedules, eventLog] = [new Goals(agentd), new Schedules(agentd), new EventLog(agentd)];
  const goal = await goals.start({ agent: llm({ name: "b", model: "echo" }), goal: "sort it", holdTurns: true, maxTurns: 2 });
  assert.deepEqual([goal.status, goal.wait, goal.turns, goal.goal], ["running", "hold", 0, "sort it"]);
  assert.equal((await goals.get(goal.sessionId)).id, goal.id);
  assert.equal(await goals.inject(goal.sessionId, "by the way"), 1);
  assert.equal((await goals.control(goal.sessionId, "pause")).status, "paused");
  assert.equal((await all(goals.list({ statuses: ["paused"] }))).length, 1);
  assert.equal((await goals.control(goal.sessionId, "stop")).reason, "context_cancelled");
  const resumed = await goals.resume({ agent: llm({ name: "b", model: "echo" }), sessionId: goal.sessionId, goal: "sort it", maxTurns: 1 });
  assert.notEqual(resumed.id, goal.id);
  for await (const event of sessions.watch(goal.sessionId, { cursor: resumed.cursor })) {
    if (event.type === "turn_started") {
      assert.deepEqual([event.goalId, event.goalTurn], [resumed.id, 1]);
    }
    if (event.type === "goal" && event.kind === "ended") {
      break;
    }
  }
  const over = await goals.get(goal.sessionId);
  assert.deepEqual([over.reason, over.turns, over.finalText.includes("by the way")], ["max_turns_exceeded", 1, true]);

  const at = new Date(Date.now() + 3_600_000);
  const once = await schedules.create({ id: "once", at, agent: llm({ name: "b", model: "echo" }), prompt: "hi" });
  assert.deepEqual([once.at, once.nextTime, once.runs], [at, at, 0]);
  await schedules.create({ id: "nightly", cron: "30 2 * * *", zone: "Europe/Berlin", agent: llm({ name: "b", model: "echo" }), goal: "x" });
  assert.equal((await schedules.get("nightly")).zone, "Europe/Berlin");
  assert.deepEqual((await all(schedules.list())).map(({ id }) => id), ["nightly", "once"]);
  await schedules.delete("nightly");
  await assert.rejects(schedules.get("nightly"), { code: "NOT_FOUND" });

  const logged = await all(eventLog.list({ sessionId: goal.sessionId, author: "user" }));
  assert.ok(logged.length > 0 && logged.every(({ sessionId, author }) => sessionId === goal.sessionId && author === "user"));
  for await (const event of eventLog.watch({ afterSeq: 0 })) {
    assert.ok(event.seq > 0 && event.time !== undefined);
    break;
  }

  for (const service of [SessionService, GoalService, ScheduleService, EventService]) {
    const methods = service.methods.map(({ name }) => `${service.typeName.replace(/.*\./, "")}/${name}`);
    assert.ok(methods.length > 1);
    assert.deepEqual(methods.filter((name) => !called.has(name)), []);
  }
});
