import assert from "node:assert/strict";
import { test } from "node:test";
import { Agentd, llm } from "@apzuk3/agentd";
import { z } from "zod";
import { serve } from "./daemon.js";
import { gather } from "./gather.js";

test("events say how to show them, and for whom they are", async (t) => {
  const { url } = await serve(t);
  const agentd = new Agentd(url).addTool("greet", { description: "x", input: z.object({ name: z.string() }), run: () => "secret" });
  const agent = llm({ name: "a", model: "scripted/demo", tools: ["greet"] });
  const run = agentd.run({ agent, prompt: "hi", display: true });
  const events = await gather(run);
  assert.ok(events.every((e) => e.display !== undefined && e.display.ref !== ""));
  assert.equal(events.find((e) => e.type === "output_chunk" && e.isThought)?.display?.kind, "reasoning");
  assert.ok(events.some((e) => e.type === "tool_call_answered" && e.output === "secret"));
  const named = { turnId: run.turnId!, visibility: "public" } as const;
  const seen = await gather(agentd.attach(run.sessionId!, { ...named, observe: true, display: true }));
  assert.equal(seen.at(-1)?.type, "end");
  assert.ok(seen.length < events.length && seen.every((e) => e.display?.visibility === "public"));
  assert.ok(!JSON.stringify(seen).includes('"output":"secret"'));
  const listed = await gather(agentd.turns.events(run.sessionId!, { ...named, display: true }));
  assert.ok(listed.length > 0 && listed.every((e) => e.display?.visibility === "public"));
  assert.throws(() => agentd.attach(run.sessionId!, { visibility: "public" }), { code: "INVALID_REQUEST" });
});

test("a server says what it is and which models it knows", async (t) => {
  const agentd = new Agentd((await serve(t)).url);
  const capabilities = await agentd.capabilities();
  assert.notEqual(capabilities.version, "");
  assert.ok(capabilities.providers.some((p) => p.name === "scripted" && p.hasKey));
  assert.ok(capabilities.builtinTools.includes("exit_loop"));
  assert.ok(capabilities.features.includes("SessionService.CreateTurn"));
  const { models } = await agentd.models();
  assert.ok(models.some((m) => m.name.startsWith("claude-") && !m.available));
});
