import assert from "node:assert/strict";
import { test } from "node:test";
import { Agentd, jsonSchema, llm } from "@apzuk3/agentd";
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
  assert.equal(again.structuredText, '{"name": "Oslo", "people": 700000}');
  await assert.rejects(agentd.run({ agent: llm({ name: "a", model: "scripted/wrong", output }), prompt: "go" }).result(), { code: "OUTPUT_INVALID" });
});

test("a structured output is there in the model's own text", async (t) => {
  const text = '{"id": 9007199254740993, "far": 1e400}';
  const { url } = await serve(t, { numbers: `answers: [{text: '${text}'}]` });
  const agent = llm({ name: "a", model: "scripted/numbers", output: jsonSchema({ type: "object" }) });
  const agentd = new Agentd(url);
  const result = await agentd.run({ agent, prompt: "go" }).result();
  assert.equal(result.structuredText, text);
  assert.deepEqual(result.structuredOutput, { id: Number("9007199254740993"), far: Infinity });
  const end = (await gather(agentd.attach(result.turn.sessionId))).at(-1);
  assert.ok(end?.type === "end" && end.structuredText === text);
});
