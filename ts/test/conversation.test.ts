// What a run says of its turn besides the prompt, to a real daemon.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Agentd, AgentdError, llm } from "@apzuk3/agentd";
import { serve } from "./daemon.js";

const look = `
answers:
  - when: {user: ask}
    text: 'call {{call}}: {{system}}'
  - when: {step: 1}
    calls: [{name: look, args: {}}]
  - when: {}
    text: '{{tool_result "look"}}'
`;

test("a run has a history, a place for its instruction, labels, an author and metadata; and it may run on a fork", async (t) => {
  const { url } = await serve(t, { look });
  const agentd = new Agentd(url).addTool("look", { description: "Looks", run: (_, { metadata }) => `dir ${metadata["dir"]}` });
  const agent = llm({ name: "a", model: "scripted/look", instruction: "own", tools: ["look"] });
  const seedMessages = [{ role: "user", content: "hello" }, { role: "assistant", content: "hi" }] as const;
  const more = { labels: { channel: "c1" }, author: "ann", metadata: { dir: "/a" } };
  const first = await agentd.run({ agent, prompt: "ask", seedMessages, instruction: "caller", instructionMode: "prepend", ...more }).result();
  assert.match(first.text, /^call 2: caller\n\nown/); // the assistant has spoken before
  assert.deepEqual(first.turn.author, "ann");
  const { sessionId } = first.turn;
  const listed = [];
  for await (const { id } of agentd.sessions.list({ labels: { channel: "c1" } })) {
    listed.push(id);
  }
  assert.deepEqual(listed, [sessionId]);
  assert.equal((await agentd.run({ sessionId, prompt: "go", metadata: { dir: "/b" } }).result()).text, "dir /b");
  const fork = await agentd.run({ sessionId, fork: true, prompt: "ask", instruction: "caller", instructionMode: "replace" }).result();
  assert.notEqual(fork.turn.sessionId, sessionId);
  assert.match(fork.text, /^call 5: caller\n\nYou/);
  assert.equal((await agentd.sessions.get(fork.turn.sessionId)).forkedFrom, sessionId);
  await assert.rejects(agentd.run({ sessionId, prompt: "ask", seedMessages }).result(), (err) => {
    assert.ok(err instanceof AgentdError);
    assert.deepEqual([err.code, err.violations.map((v) => v.field)], ["INVALID_REQUEST", ["execute.seed_messages"]]);
    return true;
  });
  assert.throws(() => agentd.run({ agent, fork: true, prompt: "ask" }), { code: "INVALID_REQUEST" });
});
