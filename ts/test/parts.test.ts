// Images and other files, to a server of this file's own.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Agentd, llm, ToolOutput, type Part, type ResultPart } from "@apzuk3/agentd";
import { type CreateTurnRequest, type RunRequest_ToolCallResponse } from "@apzuk3/agentd/proto";
import { z } from "zod";
import { gather, Latch } from "./gather.js";
import { serving as fetching } from "./serving.js";

/** serving is a client of a server that calls a tool as often as it is told, and what that server was sent. */
function serving(calls = 0) {
  const asked: CreateTurnRequest[] = [];
  const answers: RunRequest_ToolCallResponse[] = [];
  const answered = new Latch();
  const fetch = fetching({
    createTurn(request) {
      asked.push(request);
      return { turn: { id: "t", sessionId: "s" } };
    },
    async *watchTurn() {
      const call = { sessionId: "s", toolCallId: "c", toolName: "look", toolInput: "{}", agentPath: ["a"] };
      yield { event: { seq: 1n, turnId: "t", response: { case: "turnQueued", value: { sessionId: "s", userParts: [{ content: { case: "text", value: "waits" } }] } } } };
      for (let i = 0; i < calls; i++) {
        yield { event: { seq: BigInt(2 + i), turnId: "t", response: { case: "toolCall", value: call } } };
        await answered.opened;
      }
      const parts = answers[0]?.parts ?? [];
      const future = { content: { case: undefined } } as const;
      yield { event: { seq: 10n, turnId: "t", response: { case: "toolCallAnswered", value: { toolCallId: "c", toolName: "look", parts: [...parts, future] } } } };
      yield { event: { seq: 11n, turnId: "t", response: { case: "messageInjected", value: { userPrompt: "see", userParts: parts } } } };
      yield { event: { seq: 12n, turnId: "t", response: { case: "end", value: { completed: true } } } };
    },
    submitToolResults({ results }) {
      answers.push(...results);
      answered.open();
      return {};
    },
  });
  return { agentd: new Agentd("http://unused", { fetch }), asked, answers };
}

const agent = (...tools: string[]) => llm({ name: "a", model: "echo", tools });
const picture = { mimeType: "image/png", data: Uint8Array.of(137, 80) };

test("a prompt has parts, which may stand for it", async () => {
  const { agentd, asked } = serving();
  const data = picture.data.slice();
  const run = agentd.run({ agent: agent(), parts: [{ text: "see \ud800" }, { mimeType: "image/png", data }, { mimeType: "application/pdf", uri: "gs://b/d.pdf" }], rawPayloads: true });
  data.fill(0); // the caller's own again
  await gather(run);
  const execute = asked[0]!.execute!;
  assert.equal(execute.userPrompt, "");
  assert.equal(execute.rawPayloads, true);
  assert.deepEqual(
    execute.userParts.map(({ content }) => content.value),
    ["see \ufffd", { $typeName: "agentd.v1.InlineData", ...picture }, { $typeName: "agentd.v1.FileUri", mimeType: "application/pdf", uri: "gs://b/d.pdf" }],
  );
});

const wrong: [string, Part, RegExp][] = [
  ["no text", { text: "" }, /1 to 1048576 bytes, got 0/],
  ["a long text", { text: "x".repeat((1 << 20) + 1) }, /got 1048577/],
  ["an empty file", { mimeType: "image/png", data: new Uint8Array() }, /image\/png is empty/],
  ["no bytes", { mimeType: "image/png", data: "x" as unknown as Uint8Array }, /no Uint8Array/],
  ["no type", { mimeType: "", data: picture.data }, /no media type/],
  ["parameters", { mimeType: "text/plain; charset=x", data: picture.data }, /no media type/],
  ["a tool", { toolName: "fetch" } as unknown as Part, /for the result of a tool/],
  ["no uri", { mimeType: "image/png", uri: "" }, /1 to 8192 bytes/],
];

test("parts that cannot be sent are refused before anything is", async () => {
  const { agentd, asked } = serving();
  for (const [name, part, why] of wrong) {
    assert.throws(() => agentd.run({ agent: agent(), prompt: "x", parts: [{ text: "x" }, part] }), { code: "INVALID_REQUEST", message: /part 2: / }, name);
    assert.throws(() => agentd.run({ agent: agent(), prompt: "x", parts: [part] }), why, name);
  }
  assert.throws(() => agentd.run({ agent: agent(), parts: Array<Part>(65).fill({ text: "x" }) }), /65 parts, at most 64/);
  assert.throws(() => agentd.run({ agent: agent(), parts: [] }), /a prompt, or parts/);
  assert.throws(() => agentd.run({ agent: agent() }), /a prompt, or parts/);
  await Promise.resolve();
  assert.equal(asked.length, 0);
});

test("a tool returns parts, each call once", async () => {
  let runs = 0;
  const { agentd, answers } = serving(3);
  agentd.addTool("look", {
    description: "x",
    input: z.object({}),
    run: () => new ToolOutput({ n: ++runs }, [picture, { text: "a cat" }]),
  });
  const events = await gather(agentd.run({ agent: agent("look"), prompt: "x" }));
  assert.equal(runs, 1);
  for (const answer of answers) {
    assert.deepEqual(answer.result, { case: "output", value: '{"n":1}' });
    assert.deepEqual(answer.parts.map(({ content }) => content.case), ["inline", "text"]);
  }
  const want: Part[] = [picture, { text: "a cat" }];
  for (const [type, parts] of [["turn_queued", [{ text: "waits" }]], ["tool_call_answered", want], ["message_injected", want]] as const) {
    const event = events.find((e) => e.type === type);
    assert.ok(event !== undefined && ("parts" in event || "userParts" in event), type);
    assert.deepEqual("parts" in event ? event.parts : event.userParts, parts, type);
  }
});

test("a tool that looks for others returns their names", async () => {
  const { agentd, answers } = serving(1);
  const found: ResultPart[] = [{ toolName: "fetch" }, { toolName: "a.b:c-d" }];
  agentd.addTool("look", { description: "x", run: () => new ToolOutput("found", found) });
  const events = await gather(agentd.run({ agent: agent("look"), prompt: "x" }));
  assert.deepEqual(
    answers[0]?.parts.map(({ content }) => content),
    found.map((part) => ({ case: "tool", value: { $typeName: "agentd.v1.ToolReference", ...part } })),
  );
  const result = events.find((e) => e.type === "tool_call_answered");
  assert.deepEqual(result?.parts, found);
});

test("what a tool returns with parts", async () => {
  for (const [returned, want] of [
    [new ToolOutput("as it is", [picture]), ["output", "as it is", 1]],
    [new ToolOutput(undefined, [picture]), ["output", "", 1]],
    [new ToolOutput(undefined, []), ["output", "null", 0]],
    [new ToolOutput("x", Array<Part>(65).fill(picture)), ["error", "there are 65 parts, at most 64 are allowed", 0]],
    [new ToolOutput(undefined, [{ toolName: "fetch" }]), ["output", "", 1]],
    [new ToolOutput("x", [{ toolName: "no name" }]), ["error", 'part 1: "no name" is no name of a tool', 0]],
    [new ToolOutput("x", [{ text: "" }]), ["error", "part 1: a text has 1 to 1048576 bytes, got 0", 0]],
  ] as const) {
    const { agentd, answers } = serving(1);
    agentd.addTool("look", { description: "x", run: () => returned });
    await gather(agentd.run({ agent: agent("look"), prompt: "x" }));
    assert.deepEqual([answers[0]?.result.case, answers[0]?.result.value, answers[0]?.parts.length], want);
  }
});

test("a request says what else an agent and a tool may have", async () => {
  const { agentd, asked } = serving();
  agentd.addTool("rare", { description: "x", run: () => 1, deferred: true }).addTool("common", { description: "x", run: () => 1 });
  const fallbackModels = ["gpt-x", "gemini-x"];
  const settings = { name: "a", model: "claude-x", tools: ["rare", "common"], fallbackModels };
  await gather(agentd.run({ agent: llm({ ...settings, compaction: { atShare: 0.8, contextTokens: 100_000, model: "m", instruction: "numbers" } }), prompt: "x" }));
  const { agent: sent, tools } = asked[0]!.execute!;
  assert.ok(sent?.agentType.case === "llm");
  assert.deepEqual(sent.agentType.value.fallbackModels, fallbackModels);
  const { $typeName: _, ...compaction } = sent.agentType.value.compaction!;
  assert.deepEqual(compaction, { atShare: 0.8, contextTokens: 100_000n, model: "m", instruction: "numbers" });
  assert.deepEqual(tools.map(({ name, deferred }) => [name, deferred]), [["rare", true], ["common", false]]);
  assert.throws(() => llm({ ...settings, compaction: { atShare: 0.5, contextTokens: 0.5 } }), { code: "INVALID_AGENT_TREE" });
});
