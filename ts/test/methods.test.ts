// All of SessionService can be reached without its generated code, against a real daemon.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Agentd, llm } from "@apzuk3/agentd";
import { SessionService } from "@apzuk3/agentd/proto";
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
  const { url } = await serve(t, scripts);
  const called = new Set<string>();
  const counting: typeof fetch = (input, init) => {
    called.add(String(input).replace(/.*\//, ""));
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

  const methods = SessionService.methods.map(({ name }) => name);
  assert.ok(methods.length > 20);
  assert.deepEqual(methods.filter((name) => !called.has(name)), []);
});
