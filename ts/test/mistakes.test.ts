// What callers get wrong is refused at once, in words that tell what would be right.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Agentd, AgentdError, llm, type ErrorCode, type RunOptions } from "@apzuk3/agentd";
import { z } from "zod";
import { serve } from "./daemon.js";

const agent = llm({ name: "a", model: "scripted/demo" });
const description = "x";
const run = () => 1;
/** Nothing listens there. */
const nowhere = "http://127.0.0.1:1";
const hasty = { reconnect: { off: true } };

/** Mistakes as JavaScript makes them: past the types. */
const loose = (what: object) => what as never;
const asked = (options: Partial<RunOptions>) => new Agentd(nowhere).run({ agent, prompt: "x", ...options }).result();
const twice = async () => {
  const same = new Agentd(nowhere, hasty).run({ agent, prompt: "x" });
  await same.result().catch(() => {});
  await same.result();
};

const mistakes: [string, ErrorCode, RegExp, () => unknown][] = [
  ["a server without a scheme", "INVALID_REQUEST", /^"localhost:8080" is not the URL of a server, such as "http/, () => new Agentd("localhost:8080")],
  ["a server by its name", "INVALID_REQUEST", /^"agents" is not the URL/, () => new Agentd("agents")],
  ["no server", "INVALID_REQUEST", /^"" is not the URL/, () => new Agentd("")],
  ["nobody there", "UNAVAILABLE", /^http:\/\/127\.0\.0\.1:1 cannot be reached: .*(ECONNREFUSED|bad port)/, () => new Agentd(nowhere).capabilities()],
  ["a turn where nobody is", "UNAVAILABLE", /^http:\/\/127\.0\.0\.1:1 cannot be reached: /, () => new Agentd(nowhere, hasty).run({ agent, prompt: "x" }).result()],
  ["a schema of no object", "INVALID_REQUEST", /must be a schema of the type "object", not "string"$/, () => new Agentd(nowhere).addTool("a", { description, input: z.string(), run })],
  ["a bigint in the state", "INVALID_REQUEST", /^the run cannot be sent: .*BigInt/, () => asked({ state: loose({ a: 5n }) })],
  ["half a model call", "INVALID_REQUEST", /^budget.modelCalls is 1\.5, must be a whole number from 0 /, () => asked({ budget: { modelCalls: 1.5 } })],
  ["a prompt that is none", "INVALID_REQUEST", /^the run cannot be sent: /, () => asked({ prompt: loose({}) })],
  ["a position that is none", "INVALID_REQUEST", /^afterSeq is "abc", must be the seq of an event$/, () => new Agentd(nowhere).attach("s", { afterSeq: "abc" })],
  ["a run that is iterated again", "INVALID_REQUEST", /^a run can be iterated once/, twice],
];

for (const [name, code, says, mistake] of mistakes) {
  test(name, async () => {
    await assert.rejects(
      async () => mistake(),
      (err) => err instanceof AgentdError && err.code === code && says.test(err.message),
    );
  });
}

test("state is sent as JSON would carry it, and a tool that sets what JSON has not fails", async (t) => {
  const set = "answers:\n  - {when: {after_tool: one}, text: '{{tool_result \"one\"}}'}\n  - {when: {}, calls: [{name: one, args: {}}]}\n";
  const daemon = await serve(t, { set });
  const agentd = new Agentd(daemon.url).addTool("one", { description, run: (_, { setState }) => setState("b", loose(undefined as never)) });
  const turn = agentd.run({ agent: llm({ name: "a", model: "scripted/set", tools: ["one"] }), prompt: "x", state: loose({ a: 1, gone: undefined }) });
  let text = "";
  for await (const event of turn) {
    if (event.type === "state_update") {
      assert.deepEqual(event.stateDelta, { a: 1 });
    }
    text += event.type === "output_chunk" ? event.content : "";
  }
  assert.match(text, /undefined is no JSON value/);
});
