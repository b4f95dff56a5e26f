// What happens in and around model calls, from a server of this file's own and from a real one.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { durationFromMs } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError } from "@connectrpc/connect";
import { Agentd, citedPart, llm, Transcript, type Event } from "@apzuk3/agentd";
import {
  ErrorCode,
  HistoryCompacted_Reason,
  ModelCallEnded_Outcome,
  StopReason,
  type RunResponseSchema,
} from "@apzuk3/agentd/proto";
import { serve } from "./daemon.js";
import { gather } from "./gather.js";
import { serving as fetching } from "./serving.js";

type Response = NonNullable<MessageInitShape<typeof RunResponseSchema>["response"]>;

const agentPath = ["root"];
const messageId = "m1";
const responses: Response[] = [
  { case: "historyCompacted", value: { agentPath, summary: "they met", throughSeq: 7n, reason: HistoryCompacted_Reason.OVERFLOW, promptTokens: 900n, contextTokens: 1000n } },
  { case: "rawPayloadReceived", value: { agentPath, messageId, attempt: 1, provider: "openai", status: 503, contentType: "text/html", body: Uint8Array.of(1, 255), truncated: true } },
  { case: "modelCallFellBack", value: { agentPath, messageId, model: "gpt-x", nextModel: "claude-x", code: ErrorCode.MODEL_UNAVAILABLE, message: "busy" } },
  { case: "outputChunk", value: { agentPath, messageId, content: "Es ist schön." } },
  {
    case: "providerToolsUsed",
    value: {
      agentPath,
      messageId,
      uses: [{ id: "u1", toolName: "web_search", input: '{"q":"sun"}', output: '["x"]' }, { toolName: "code_execution", error: "no" }],
      citations: [{ uri: "https://sun.example", title: "Sun", citedText: "sunny", startByte: 7, endByte: 13 }, { uri: "https://sky.example" }],
    },
  },
  {
    case: "modelCallEnded",
    value: {
      agentPath,
      messageId,
      model: "claude-x",
      servedModel: "claude-x-1",
      provider: "anthropic",
      usage: { promptTokens: 5n, cacheWriteTokens: 2n ** 60n, modelCalls: 2n, costUsd: 0.25 },
      stopReason: StopReason.MAX_TOKENS,
      outcome: ModelCallEnded_Outcome.ANSWERED,
      duration: durationFromMs(3000),
      timeToFirstText: durationFromMs(1000),
      toolCalls: 2,
    },
  },
  { case: "modelCallEnded", value: { agentPath, usage: { modelCalls: 1n, unpricedCalls: 1n }, stopReason: 4711 as StopReason, outcome: 4711 as ModelCallEnded_Outcome } },
  { case: "modelCallEnded", value: { agentPath, usage: { modelCalls: 1n, unpricedCalls: 1n }, outcome: ModelCallEnded_Outcome.SUMMARIZED } },
  { case: "modelCallFellBack", value: { agentPath, model: "gpt-x", nextModel: "claude-x", code: ErrorCode.TIMEOUT } },
  { case: "end", value: { completed: true } },
];

/** serving is a client of a server whose first stream ends after some messages. */
function serving(cut: number): Agentd {
  let streams = 0;
  const fetch = fetching({
    async *watchTurn({ afterSeq = 0n }) {
      const first = streams++ === 0;
      for (const [i, response] of responses.entries()) {
        if (first && i === cut) {
          throw new ConnectError("connection reset", Code.Unknown);
        }
        const seq = BigInt(i + 1);
        if (seq > afterSeq - (first ? 0n : 1n)) { // some come twice
          yield { event: { seq, turnId: "t", response } };
        }
      }
    },
    getTurn: () => ({ turn: { id: "t" } }),
  });
  return new Agentd("http://unused", { fetch, reconnect: { baseMs: 1, capMs: 2 } });
}

test("what happens to model calls is told once, wherever the connection breaks", async () => {
  for (let cut = 0; cut < responses.length; cut++) {
    const events = await gather(serving(cut).attach("s"));
    assert.deepEqual(events.map(({ seq }) => seq), responses.map((_, i) => i + 1), `cut at ${cut}`);
    const bodies = events.map(({ seq: _s, turnId: _t, time: _i, replayed: _r, display: _d, ...body }) => body);
    const [compacted, raw, fallback, , tools, ended, failed, summarised, another] = bodies;
    assert.deepEqual(compacted, { type: "history_compacted", agentPath, summary: "they met", throughSeq: 7, reason: "overflow", promptTokens: 900, contextTokens: 1000 });
    assert.deepEqual(raw, { type: "raw_payload_received", agentPath, messageId, attempt: 1, provider: "openai", status: 503, contentType: "text/html", body: Uint8Array.of(1, 255), truncated: true });
    assert.deepEqual(fallback, { type: "model_call_fell_back", agentPath, messageId, model: "gpt-x", nextModel: "claude-x", code: "MODEL_UNAVAILABLE", message: "busy" });
    assert.deepEqual(tools, {
      type: "provider_tools_used",
      agentPath,
      messageId,
      uses: [{ id: "u1", toolName: "web_search", input: '{"q":"sun"}', output: '["x"]', error: "" }, { id: "", toolName: "code_execution", input: "", output: "", error: "no" }],
      citations: [
        { uri: "https://sun.example", title: "Sun", citedText: "sunny", startByte: 7, endByte: 13 },
        { uri: "https://sky.example", title: "", citedText: "", startByte: 0, endByte: 0 },
      ],
    });
    assert.ok(ended?.type === "model_call_ended");
    assert.deepEqual(ended, {
      type: "model_call_ended",
      agentPath,
      messageId,
      model: "claude-x",
      servedModel: "claude-x-1",
      provider: "anthropic",
      outcome: "answered",
      usage: {
        promptTokens: 5,
        completionTokens: 0,
        cachedTokens: 0,
        cacheWriteTokens: Number.MAX_SAFE_INTEGER,
        thoughtsTokens: 0,
        totalTokens: 0,
        modelCalls: 2,
        costUsd: 0.25,
        unpricedCalls: 0,
      },
      stopReason: "max_tokens",
      durationMs: 3000,
      timeToFirstTextMs: 1000,
      toolCalls: 2,
    });
    assert.ok(failed?.type === "model_call_ended" && failed.usage?.costUsd === undefined && failed.timeToFirstTextMs === undefined && failed.stopReason === "unknown" && failed.outcome === "unknown");
    assert.ok(summarised?.type === "model_call_ended" && summarised.outcome === "summarized");
    assert.deepEqual(another, { type: "model_call_fell_back", agentPath, messageId: "", model: "gpt-x", nextModel: "claude-x", code: "TIMEOUT", message: "" });
  }
});

test("a result has what is cited, in the bytes of its text", async () => {
  const { text, providerToolsUsed } = await serving(3).attach("s").result();
  assert.equal(providerToolsUsed.length, 1);
  assert.deepEqual(providerToolsUsed[0]?.citations.map((c) => citedPart(text, c)), ["schön", ""]);
});

test("text whose model call is over is not retracted with what is unfinished", () => {
  const base = { seq: 0, turnId: "t", time: undefined, replayed: false, display: undefined };
  for (const finished of [true, false]) {
    const transcript = new Transcript();
    const events: Event[] = [
      { ...base, type: "output_chunk", content: "one ", isThought: false, last: false, messageId: "1", agentPath },
      ...(finished ? [{ ...base, type: "model_call_ended", messageId: "1", agentPath, outcome: "answered", model: "", servedModel: "", provider: "", usage: undefined, stopReason: "stop", durationMs: 1, timeToFirstTextMs: 1, toolCalls: 0 } satisfies Event] : []),
      { ...base, type: "message_retracted", messageId: "", agentPath },
      { ...base, type: "output_chunk", content: "two", isThought: false, last: false, messageId: "2", agentPath },
    ];
    events.forEach((event) => transcript.add(event));
    assert.equal(transcript.text, finished ? "one two" : "two");
  }
});

test("a real server tells of each model call, and the calls add up to the turn", async (t) => {
  const agentd = new Agentd((await serve(t)).url).addTool("look", { description: "x", run: () => "fine" });
  const run = agentd.run({ agent: llm({ name: "a", model: "scripted/demo", instruction: "Look around.", tools: ["look"] }), prompt: "hi" });
  const events = await gather(run);
  const calls = events.flatMap((e) => (e.type === "model_call_ended" ? [e] : []));
  const end = events.at(-1);
  assert.ok(end?.type === "end");
  assert.equal(calls.length, 2);
  assert.equal(calls.reduce((sum, c) => sum + (c.usage?.modelCalls ?? 0), 0), end.usage?.modelCalls);
  assert.equal(calls.reduce((sum, c) => sum + (c.usage?.totalTokens ?? 0), 0), end.usage?.totalTokens);
  for (const call of calls) {
    assert.equal(call.outcome, "answered");
    assert.equal(call.model, "scripted/demo");
    assert.equal(call.provider, "scripted");
    assert.ok(events.some((e) => e.type === "output_chunk" && e.messageId === call.messageId) && call.durationMs >= 0);
  }
  const told = await agentd.turns.modelCalls(run.sessionId!, run.turnId!);
  assert.deepEqual(told.map(({ call }) => call?.messageId), calls.map((call) => call.messageId));
  assert.deepEqual(await agentd.turns.modelCalls(run.sessionId!, run.turnId!, 1), told);
  for (const { instruction, toolNames } of told) {
    assert.match(instruction, /Look around\./);
    assert.deepEqual(toolNames, ["look"]);
  }
});
