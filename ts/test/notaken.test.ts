// Answers of tools that the server cannot take now: they are sent again, and never replaced.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Event } from "@apzuk3/agentd";
import { ErrorCode, type SubmitToolResultsRequest } from "@apzuk3/agentd/proto";
import { Code, ConnectError } from "@connectrpc/connect";
import { Latch } from "./gather.js";
import { end, playing, type Message } from "./playing.js";

const call: Message = {
  seq: 1n, turnId: "t",
  response: { case: "toolCall", value: { sessionId: "s", toolCallId: "c", toolName: "work", toolInput: "{}", agentPath: ["a"] } },
};
const refusal = { refused: [{ toolCallId: "c", error: { code: ErrorCode.UNAVAILABLE, message: "no room now", retryable: true } }] };

/** asking is a server that asks for one call and ends its turn when over is opened. take says what becomes of the n-th answer. */
function asking(take: (n: number) => typeof refusal | { refused: [] }, over: Latch, maxElapsedMs: number) {
  const said: string[] = [];
  const { agentd } = playing([], {
    methods: {
      async *watchTurn() {
        yield { event: call };
        await over.opened;
        yield { event: end };
      },
      submitToolResults({ results }: SubmitToolResultsRequest) {
        const { result } = results[0]!;
        said.push(`${result.case}: ${String(result.value)}`);
        return take(said.length);
      },
    },
  }, { reconnect: { baseMs: 1, capMs: 2, maxElapsedMs } });
  let ran = 0;
  agentd.addTool("work", { description: "Works", run: () => `done ${++ran}` });
  return { agentd, said };
}

test("an answer that the server cannot take now is sent again", async () => {
  const over = new Latch();
  const { agentd, said } = asking((n) => {
    if (n < 4) {
      return refusal;
    }
    over.open();
    return { refused: [] };
  }, over, 60_000);
  const events: Event[] = [];
  for await (const event of agentd.attach("s")) {
    events.push(event);
  }
  assert.deepEqual(said, Array(4).fill("output: done 1"));
  assert.deepEqual(events.map((e) => e.type), ["tool_call", "end"]);
});

test("an outage that is longer than the policy replaces no answer", async () => {
  const outages: [string, () => typeof refusal][] = [
    ["refused", () => refusal],
    ["not reached", () => { throw new ConnectError("no", Code.Unavailable); }],
  ];
  for (const [name, take] of outages) {
    const over = new Latch();
    const { agentd, said } = asking(take, over, 20);
    const codes: string[] = [];
    for await (const event of agentd.attach("s")) {
      if (event.type === "error") {
        codes.push(event.error.code);
        over.open();
      }
    }
    assert.deepEqual(codes, ["UNAVAILABLE"], name);
    assert.ok(said.length > 1, name);
    assert.deepEqual([...new Set(said)], ["output: done 1"], name);
  }
});
