// The transport for useChat, in the AI SDK's own Chat, against a real daemon.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Chat } from "@ai-sdk/react";
import { Agentd, llm, type AgentdOptions } from "@apzuk3/agentd";
import { AgentdChatTransport, isRetracted } from "@apzuk3/agentd/ai";
import { lastAssistantMessageIsCompleteWithApprovalResponses, type UIMessage } from "ai";
import { serve } from "./daemon.js";
import { Latch } from "./gather.js";
import { proxy } from "./proxy.js";

const scripts = {
  pay: `
answers:
  - {when: {after_tool: pay}, text: '{{tool_result "pay"}}'}
  - {when: {}, thoughts: "hm", text: "Let me see.", calls: [{name: pay, args: {amount: 100}}]}
`,
  ask: "answers: [{when: {after_tool: ask_user}, text: '{{tool_result \"ask_user\"}}'}, {when: {}, calls: [{name: ask_user, args: {question: \"which?\"}}]}]",
  slow: "answers: [{when: {}, chunk_delay: 20ms, text: 'one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen'}]",
  fails: "answers: [{when: {}, error: {kind: blocked, message: not that}}]",
  json: `answers: [{when: {}, text: '{"n": 1}'}]`,
};

function client(url: string, needsApproval = false, options: AgentdOptions = {}) {
  const paid: number[] = [];
  const release = new Latch();
  const agentd = new Agentd(url, options).addTool("pay", {
    description: "Pays",
    needsApproval,
    input: { type: "object" },
    run: async (input) => {
      paid.push((input as { amount: number }).amount);
      await release.opened;
      return { paid: paid.length };
    },
  });
  return { agentd, paid, release };
}

const payer = llm({ name: "payer", model: "scripted/pay", tools: ["pay"] });
/** shown is what a user interface shows of messages. */
const shown = (messages: UIMessage[]) =>
  messages.map(({ role, parts }) => [role, ...parts.filter((part) => !isRetracted(part)).map((part) => {
    switch (part.type) {
      case "text":
      case "reasoning":
        return `${part.type}: ${part.text} ${part.state ?? ""}`.trim();
      case "file":
        return part.mediaType;
      default:
        return "state" in part ? `${part.type} ${part.state} ${JSON.stringify("output" in part ? part.output ?? null : null)}` : part.type;
    }
  })]);
const until = async (so: () => boolean) => {
  while (!so()) {
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
};
const answered = ["assistant", "reasoning: hm done", "text: Let me see. done", 'tool-pay output-available {"paid":1}', 'text: {"paid":1} done'];

test("a message starts a turn with a tool, a second one goes on, and metadata says what it took", async (t) => {
  const { agentd, release } = client((await serve(t, scripts)).url);
  const chat = new Chat({ id: "chat-1", transport: new AgentdChatTransport({ agentd, agent: payer }) });
  release.open();
  const file = { type: "file" as const, mediaType: "image/png", url: "data:image/png;base64,AID/" };
  await chat.sendMessage({ text: "pay", files: [file] });
  assert.equal(chat.status, "ready");
  assert.deepEqual(shown(chat.messages), [["user", "image/png", "text: pay"], answered]);
  const [, answer] = chat.messages;
  const metadata = answer?.metadata as { sessionId: string; turnId: string; completed: boolean; usage: { modelCalls: number } };
  assert.deepEqual([metadata.sessionId, metadata.turnId, metadata.completed, metadata.usage.modelCalls], ["chat-1", answer?.id, true, 2]);
  const { userParts: parts } = await agentd.turns.get("chat-1", "", { userParts: true });
  assert.deepEqual(parts, [{ mimeType: "image/png", data: Uint8Array.of(0, 128, 255) }]);
  await chat.sendMessage({ text: "again" });
  assert.equal(chat.messages.length, 4);
  await assert.rejects(new AgentdChatTransport({ agentd }).sendMessages({ trigger: "regenerate-message", chatId: "chat-1", messageId: undefined, messages: chat.messages, abortSignal: undefined }), { code: "INVALID_REQUEST" });
});

test("a call waits for approval and goes on in the same message; a denial is told", async (t) => {
  const { url } = await serve(t, scripts);
  for (const approved of [true, false]) {
    const { agentd, paid, release } = client(url, true);
    release.open();
    const chat = new Chat({
      transport: new AgentdChatTransport({ agentd, agent: payer }),
      sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
    });
    await chat.sendMessage({ text: "pay" });
    const asked = chat.lastMessage?.parts.find((part) => part.type === "tool-pay");
    assert.ok(asked !== undefined && "state" in asked && asked.state === "approval-requested");
    assert.deepEqual([chat.status, paid, (asked as { input: unknown }).input], ["ready", [], { amount: 100 }]);
    await chat.addToolApprovalResponse({ id: (asked as { approval: { id: string } }).approval.id, approved, reason: "too much" });
    await until(() => chat.status === "ready" && shown(chat.messages).at(-1)!.length > 4);
    if (approved) {
      assert.deepEqual(shown(chat.messages)[1], answered);
    } else {
      assert.match(String(shown(chat.messages)[1]), /tool-pay output-denied .*too much/);
    }
    assert.equal(paid.length, approved ? 1 : 0);
    assert.equal(chat.messages.length, 2);
  }
});

test("a page that comes back goes on with the turn, also with one that waits for approval; without one there is nothing", async (t) => {
  const { url } = await serve(t, scripts);
  const first = client(url);
  const transport = new AgentdChatTransport({ agentd: first.agentd, agent: payer });
  const before = new Chat({ id: "chat-2", transport });
  assert.equal(await transport.reconnectToStream({ chatId: "chat-2" }), null);
  void before.sendMessage({ text: "pay" });
  await until(() => first.paid.length === 1);
  const second = client(url);
  const after = new Chat({ id: "chat-2", transport: new AgentdChatTransport({ agentd: second.agentd }), messages: [before.messages[0]!] });
  const resumed = after.resumeStream();
  await until(() => shown(after.messages).length === 2);
  first.release.open();
  await resumed;
  assert.deepEqual(shown(after.messages), [["user", "text: pay"], answered]);
  assert.equal(after.messages[1]?.id, before.messages[1]?.id);
  await after.resumeStream();
  assert.deepEqual([after.status, after.messages.length], ["ready", 2]);

  const third = client(url, true);
  third.release.open();
  const asking = new Chat({ id: "chat-3", transport: new AgentdChatTransport({ agentd: third.agentd, agent: payer }) });
  await asking.sendMessage({ text: "pay" });
  const again = new Chat({
    id: "chat-3", // with all that the page had: the answer is told anew, not twice
    transport: new AgentdChatTransport({ agentd: third.agentd }),
    messages: asking.messages,
    sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
  });
  await again.resumeStream();
  const asked = again.lastMessage?.parts.find((part) => part.type === "tool-pay") as { approval: { id: string } };
  await again.addToolApprovalResponse({ id: asked.approval.id, approved: true });
  await until(() => again.status === "ready" && shown(again.messages).at(-1)!.length > 4);
  assert.deepEqual(shown(again.messages), [["user", "text: pay"], answered]);
});

test("an approval goes on in a page that has the messages and not the stream, and in one of many chats", async (t) => {
  const { agentd, release } = client((await serve(t, scripts)).url, true);
  release.open();
  const approvals = { sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses };
  const transport = new AgentdChatTransport({ agentd, agent: payer });
  const chats = ["a", "b", "c", "d"].map((id) => new Chat({ id, transport, ...approvals }));
  for (const chat of chats) {
    await chat.sendMessage({ text: "pay" });
  }
  const messages = JSON.parse(JSON.stringify(chats.pop()!.messages)) as UIMessage[];
  chats.push(new Chat({ id: "d", transport: new AgentdChatTransport({ agentd }), messages, ...approvals }));
  for (const [i, chat] of chats.entries()) {
    const asked = chat.lastMessage?.parts.find((part) => part.type === "tool-pay") as { approval: { id: string } };
    await chat.addToolApprovalResponse({ id: asked.approval.id, approved: true });
    await until(() => chat.status !== "submitted" && chat.status !== "streaming" && shown(chat.messages).at(-1)!.length > 4);
    assert.deepEqual(shown(chat.messages)[1], answered.map((part) => part.replace('"paid":1', `"paid":${i + 1}`)));
    assert.equal(chat.messages.length, 2);
  }
});

test("stop cancels the turn", async (t) => {
  const { agentd } = client((await serve(t, scripts)).url);
  const chat = new Chat({ id: "chat-4", transport: new AgentdChatTransport({ agentd, agent: llm({ name: "a", model: "scripted/slow" }) }) });
  const sent = chat.sendMessage({ text: "go" });
  await until(() => String(shown(chat.messages)[1]).includes("two"));
  await chat.stop();
  await sent;
  assert.equal(chat.status, "ready");
  for (let status = ""; status !== "canceled"; ) {
    ({ status } = await agentd.turns.get("chat-4"));
  }
});

test("a failure is an error of the chat, and the chat goes on after it", async (t) => {
  const { agentd } = client((await serve(t, scripts)).url);
  const options = { agentd, agent: llm({ name: "a", model: "scripted/fails" }) };
  const transport = new AgentdChatTransport(options);
  const chat = new Chat({ id: "chat-5", transport });
  await chat.sendMessage({ text: "go" });
  assert.equal(chat.status, "error");
  assert.match(chat.error?.message ?? "", /not that/);
  options.agent = llm({ name: "a", model: "scripted/json", output: { type: "object" } });
  await chat.sendMessage({ text: "again" });
  assert.equal(chat.status, "ready");
  assert.deepEqual((chat.lastMessage?.metadata as { structuredOutput: unknown }).structuredOutput, { n: 1 });
});

test("an agent's question is a part, and the answer goes on when it is answered", async (t) => {
  const { agentd } = client((await serve(t, scripts)).url);
  const transport = new AgentdChatTransport({ agentd, agent: llm({ name: "a", model: "scripted/ask", builtinTools: ["ask_user"] }), sessionId: (id) => `s-${id}` });
  const chat = new Chat({ id: "chat-6", transport });
  const sent = chat.sendMessage({ text: "ask me" });
  const asked = () => chat.lastMessage?.parts.find((part) => part.type === "data-interaction") as { data: { id: string; question: string; status: string } } | undefined;
  await until(() => asked() !== undefined);
  assert.equal(asked()!.data.question, "which?");
  await transport.resolve("chat-6", asked()!.data.id, { answer: "this" });
  await sent;
  assert.equal(asked()!.data.status, "resolved");
  assert.match(String(shown(chat.messages)[1]), /text: this done/);
  assert.equal((await agentd.turns.get("s-chat-6")).status, "succeeded");
});

test("text that is taken back is marked, and said once more", async (t) => {
  const daemon = await serve(t, scripts);
  const way = await proxy(t, daemon.url);
  const { agentd } = client(way.url, false, { reconnect: { baseMs: 1, capMs: 20 } });
  const chat = new Chat({ id: "chat-7", transport: new AgentdChatTransport({ agentd, agent: llm({ name: "a", model: "scripted/slow" }) }) });
  const sent = chat.sendMessage({ text: "go" });
  await until(() => String(shown(chat.messages)[1]).includes("three"));
  await daemon.end("SIGKILL");
  await daemon.start();
  way.target = daemon.url;
  await sent;
  assert.ok(chat.lastMessage?.parts.some(isRetracted));
  assert.match(String(shown(chat.messages)[1]), /^assistant,text: one two three .* sixteen done$/);
});
