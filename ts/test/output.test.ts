import assert from "node:assert/strict";
import { test } from "node:test";
import { Agentd, llm } from "@apzuk3/agentd";
import { z } from "zod";
import { serve } from "./daemon.js";
import { gather } from "./gather.js";

test("an answer that fits an output schema is a value", async (t) => {
  const { url } = await serve(t, {
    city: `answers: [{text: '{"name": "Oslo", "people": 700000}'}]`,
    wrong: `answers: [{when: {}, text: '{"name": 5}'}]`,
  });
  const agentd = new Agentd(url);
  const output = z.object({ name: z.string(), people: z.int() });
  const result = await agentd.run({ agent: llm({ name: "a", model: "scripted/city", output }), prompt: "go" }).result();
  assert.deepEqual(output.parse(result.structuredOutput), { name: "Oslo", people: 700_000 });
  const again = await agentd.attach(result.turn.sessionId, { afterSeq: (await gather(agentd.attach(result.turn.sessionId))).at(-1)!.seq }).result();
  assert.deepEqual([again.completed, again.structuredOutput], [true, result.structuredOutput]);
  await assert.rejects(agentd.run({ agent: llm({ name: "a", model: "scripted/wrong", output }), prompt: "go" }).result(), { code: "OUTPUT_INVALID" });
});
