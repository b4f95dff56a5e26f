// The trace that a tool call is part of.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Agentd, llm } from "@apzuk3/agentd";
import { serving as fetching } from "./serving.js";

test("a tool is told the trace of its call, and a call without one has none", async () => {
  const trace = { traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", tracestate: "a=1" };
  const call = { sessionId: "s", toolName: "work", toolInput: "{}", agentPath: ["a"] };
  const fetch = fetching({
    createTurn: () => ({ turn: { id: "t", sessionId: "s" } }),
    async *watchTurn() {
      yield { event: { seq: 1n, turnId: "t", response: { case: "toolCall", value: { ...call, toolCallId: "traced", ...trace, metadata: { dir: "/a" } } } } };
      yield { event: { seq: 2n, turnId: "t", response: { case: "toolCall", value: { ...call, toolCallId: "plain" } } } };
      yield { event: { seq: 3n, turnId: "t", response: { case: "end", value: { completed: true } } } };
    },
    submitToolResults: () => ({}),
    getTurn: () => ({ turn: { id: "t" } }),
  });
  const agentd = new Agentd("http://unused", { fetch, reconnect: { baseMs: 1, capMs: 2 } });
  const told: Record<string, unknown> = {};
  const called = new Promise<void>((resolve) => {
    agentd.addTool("work", {
      description: "Works",
      run: (_, { toolCallId, traceparent, tracestate, metadata }) => {
        told[toolCallId] = { traceparent, tracestate, metadata };
        if (Object.keys(told).length === 2) {
          resolve();
        }
        return "done";
      },
    });
  });
  for await (const event of agentd.run({ agent: llm({ name: "a", model: "echo", tools: ["work"] }), prompt: "go" })) {
    if (event.type === "tool_call") {
      const expected = event.toolCallId === "traced" ? trace : {};
      assert.deepEqual({ ...(event.traceparent && { traceparent: event.traceparent }), ...(event.tracestate && { tracestate: event.tracestate }) }, expected);
    }
  }
  await called;
  assert.deepEqual(told, { traced: { ...trace, metadata: { dir: "/a" } }, plain: { traceparent: undefined, tracestate: undefined, metadata: {} } });
});
