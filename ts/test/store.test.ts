// The store of a session, against a real daemon and without React.
import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";
import { Agentd, llm } from "@apzuk3/agentd";
import { SessionStore, type SessionSnapshot, type SessionStoreOptions } from "@apzuk3/agentd/react";
import { serve } from "./daemon.js";
import { all, gather, Latch } from "./gather.js";
import { proxy } from "./proxy.js";

const scripts = {
  wait: "answers: [{when: {after_tool: wait}, text: 'waited: {{tool_result \"wait\"}}'}, {when: {}, text: 'One moment. ', calls: [{name: wait, args: {}}]}]",
  ask: "answers: [{when: {after_tool: ask_user}, text: '{{tool_result \"ask_user\"}}'}, {when: {}, calls: [{name: ask_user, args: {question: \"which?\"}}]}]",
  fails: "answers: [{when: {}, error: {kind: blocked, message: not that}}]",
};
const echo = llm({ name: "a", model: "echo" });
const waiter = llm({ name: "a", model: "scripted/wait", tools: ["wait"] });

/** until waits until a store is so. */
function until(store: SessionStore, so: (snapshot: SessionSnapshot) => boolean): Promise<SessionSnapshot> {
  return new Promise((resolve) => {
    const look = () => {
      if (so(store.getSnapshot())) {
        queueMicrotask(() => leave());
        resolve(store.getSnapshot());
      }
    };
    const leave = store.subscribe(look);
    look();
  });
}

const texts = ({ messages }: SessionSnapshot) => messages.map(({ role, text }) => `${role}: ${text}`);

test("a conversation is built up turn by turn, and read again by another store", async (t) => {
  const { url } = await serve(t);
  const ids: string[] = [];
  const store = new SessionStore(new Agentd(url), { agent: echo, onSessionId: (id) => ids.push(id), run: { state: { cart: 1 } } });
  const seen: SessionSnapshot[] = [];
  const leave = store.subscribe(() => seen.push(store.getSnapshot()));
  assert.equal(store.getSnapshot(), store.getSnapshot());
  assert.deepEqual([store.getSnapshot().status, store.getSnapshot().messages], ["ready", []]);
  await store.send("one");
  store.configure({ agent: echo });
  const [prompt] = store.getSnapshot().messages;
  await store.send("two");
  const after = store.getSnapshot();
  assert.deepEqual(texts(after), ["user: one", "agent: one", "user: two", "agent: two"]);
  assert.equal(after.messages[0], prompt, "what does not change is the same object");
  assert.deepEqual([after.status, after.state, after.error, ids], ["ready", { cart: 1 }, undefined, [after.sessionId]]);
  assert.ok(seen.some(({ status }) => status === "running"));
  leave();
  const again = new SessionStore(new Agentd(url), { sessionId: ids[0] });
  assert.equal(again.getSnapshot().status, "loading");
  const read = await until(again, ({ status }) => status === "ready");
  assert.deepEqual([texts(read), read.state], [texts(after), { cart: 1 }]);
  const short = await until(new SessionStore(new Agentd(url), { sessionId: ids[0], history: 1 }), ({ status }) => status === "ready");
  assert.deepEqual(texts(short), ["user: two", "agent: two"]);
  assert.equal(new Set(read.messages.map(({ id }) => id)).size, 4);
});

test("a store that nobody looks at leaves the turn, and goes on with it when somebody does", async (t) => {
  const daemon = await serve(t, scripts);
  const way = await proxy(t, daemon.url);
  const release = new Latch();
  let ran = 0;
  const agentd = new Agentd(way.url, { reconnect: { baseMs: 1, capMs: 20 } }).addTool("wait", {
    description: "Waits",
    run: async (_, { signal }) => {
      ran++;
      await Promise.race([release.opened, new Promise((_r, reject) => signal.addEventListener("abort", () => reject(signal.reason as Error)))]);
      return "done";
    },
  });
  const store = new SessionStore(agentd, { agent: waiter });
  const running = (snapshot: SessionSnapshot) => snapshot.toolCalls.some(({ status }) => status === "running");
  const leave = store.subscribe(() => {});
  const sent = store.send("go");
  await until(store, running);
  leave();
  await sent;
  await way.quiet();
  while ((await agentd.turns.get(store.sessionId!)).status !== "waiting_for_client") {
    await new Promise((resolve) => setTimeout(resolve, 5)); // the server notices a moment later that the client has left
  }
  const back = store.subscribe(() => {});
  await until(store, (snapshot) => snapshot.status === "running" && running(snapshot) && ran === 2);
  way.cut();
  await until(store, ({ connection }) => connection === "lost");
  await until(store, ({ connection }) => connection === "ok");
  release.open();
  const over = await until(store, ({ status }) => status === "ready");
  assert.deepEqual(texts(over), ["user: go", "agent: One moment. ", "agent: waited: done"]);
  assert.deepEqual(over.toolCalls.map(({ toolName, status, output }) => [toolName, status, output]), [["wait", "answered", "done"]]);
  back();
});

test("questions are told and answered, errors are told, and turns of others are noticed", async (t) => {
  const { url } = await serve(t, scripts);
  const agentd = new Agentd(url);
  const with_ = (options: SessionStoreOptions) => {
    const store = new SessionStore(agentd, options);
    t.after(store.subscribe(() => {}));
    return store;
  };
  const store = with_({ agent: llm({ name: "a", model: "scripted/ask", builtinTools: ["ask_user"] }) });
  await assert.rejects(store.resolve("q", { answer: "x" }), { code: "INVALID_REQUEST" });
  const sent = store.send("ask me");
  const { interactions } = await until(store, (snapshot) => snapshot.interactions.length > 0);
  assert.equal(interactions[0]?.question, "which?");
  await store.resolve(interactions[0]!.id, { answer: "this one" });
  await sent;
  assert.deepEqual([texts(store.getSnapshot()).at(-1), store.getSnapshot().interactions], ["agent: this one", []]);

  const { sessionId } = store;
  await agentd.run({ agent: echo, sessionId, prompt: "by another" }).result();
  await until(store, (snapshot) => texts(snapshot).at(-1) === "agent: by another" && snapshot.status === "ready");
  const before = store.getSnapshot();
  await store.refresh();
  assert.deepEqual(texts(store.getSnapshot()), texts(before));

  store.configure({ agent: llm({ name: "a", model: "scripted/fails" }) });
  await store.send("fail");
  assert.equal(store.getSnapshot().error?.code, "CONTENT_BLOCKED");
  assert.equal(store.getSnapshot().status, "ready");
  const nobody = with_({ sessionId: "nobody" });
  const { error } = await until(nobody, (snapshot) => snapshot.error !== undefined);
  assert.equal(error?.code, "SESSION_NOT_FOUND");
  assert.equal(nobody.getSnapshot().status, "ready");
});

/** store makes one that is looked at until the test ends. */
function looked(t: TestContext, agentd: Agentd, options: SessionStoreOptions): SessionStore {
  const store = new SessionStore(agentd, options);
  t.after(store.subscribe(() => {}));
  return store;
}

/** alike tells whether stores show the same, and none of it twice. */
function alike(...stores: SessionStore[]): void {
  const [first, ...rest] = stores.map((store) => store.getSnapshot());
  for (const other of rest) {
    assert.deepEqual(other.messages, first!.messages);
    assert.deepEqual(other.state, first!.state);
    assert.deepEqual(other.toolCalls.map(({ toolCallId, status, output }) => [toolCallId, status, output]), first!.toolCalls.map(({ toolCallId, status, output }) => [toolCallId, status, output]));
  }
  assert.equal(new Set(first!.messages.map(({ id }) => id)).size, first!.messages.length);
}

const ready = (prompts: number) => ({ status, messages }: SessionSnapshot) => status === "ready" && messages.filter(({ role }) => role === "user").length === prompts;

test("what one store starts the other shows, in both directions and across lost connections", async (t) => {
  const daemon = await serve(t, scripts);
  const way = await proxy(t, daemon.url);
  const ran: string[] = [];
  const clientOf = (url: string, name: string) =>
    new Agentd(url, { reconnect: { baseMs: 1, capMs: 20 } }).addTool("wait", { description: "Waits", run: (_, { setState }) => (ran.push(name), setState("by", name), name) });
  const first = looked(t, clientOf(daemon.url, "first"), { agent: waiter, run: { state: { cart: 1 } } });
  await first.send("one");
  const { sessionId } = first;
  const second = looked(t, clientOf(way.url, "second"), { sessionId, agent: waiter });
  await until(second, ready(1));
  alike(first, second);
  for (let i = 2; i < 6; i++) {
    const [sender, other] = i % 2 === 0 ? [first, second] : [second, first];
    const seen: SessionSnapshot[] = [];
    const leave = other.subscribe(() => seen.push(other.getSnapshot()));
    const sent = sender.send(`prompt ${i}`);
    if (i > 3) {
      way.cut();
    }
    await sent;
    await until(sender, ready(i));
    await until(other, ready(i));
    leave();
    alike(first, second);
    assert.ok(seen.some(({ status }) => status === "running") || i > 3, "a turn of others runs");
  }
  assert.equal(ran.length, 5);
  const third = looked(t, clientOf(daemon.url, "third"), { sessionId, history: 2 });
  const { messages, state } = await until(third, ({ status }) => status === "ready");
  assert.deepEqual(messages, first.getSnapshot().messages.slice(-6));
  assert.deepEqual(state, first.getSnapshot().state);
});

test("a store shows turns that fail, are cancelled, wait and are injected elsewhere", async (t) => {
  const { url } = await serve(t, scripts);
  const agentd = new Agentd(url);
  const store = looked(t, agentd, { agent: echo });
  await store.send("one");
  const sessionId = store.sessionId!;
  await agentd.run({ agent: llm({ name: "a", model: "scripted/fails" }), sessionId, prompt: "two" }).result().catch(() => {});
  await until(store, ready(2));
  assert.equal(store.getSnapshot().error?.code === "CONTENT_BLOCKED" || store.getSnapshot().error === undefined, true);

  const worker = new Agentd(url).addTool("wait", { description: "Waits", run: (_, { signal }) => new Promise((_r, reject) => signal.addEventListener("abort", () => reject(signal.reason as Error))) });
  const run = worker.run({ agent: waiter, sessionId, prompt: "three", onLeave: "detach" });
  const told = gather(run);
  await until(store, ({ status, toolCalls }) => status === "running" && toolCalls.some(({ status: how }) => how === "elsewhere"));
  const queued = agentd.run({ agent: echo, sessionId, prompt: "four", onBusy: "enqueue" }).result();
  const dropped = agentd.run({ agent: echo, sessionId, prompt: "five", onBusy: "enqueue" });
  const drop = gather(dropped).catch(() => {});
  while ((await all(agentd.turns.list({ sessionId, statuses: ["pending"] }))).length < 2) {
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  await dropped.cancel("not this one");
  await drop;
  await store.cancel("enough");
  await told;
  await queued;
  await until(store, ({ status, messages }) => status === "ready" && messages.some(({ text, role }) => text === "four" && role === "agent"));
  const { messages, error } = store.getSnapshot();
  assert.deepEqual(messages.filter(({ role }) => role === "user").map(({ text }) => text).sort(), ["five", "four", "one", "three", "two"]);
  assert.equal(error?.code === "CONTENT_BLOCKED" || error === undefined, true);
  const again = looked(t, agentd, { sessionId });
  await until(again, ready(5));
  assert.deepEqual(new Set(again.getSnapshot().messages.map(({ id }) => id)), new Set(messages.map(({ id }) => id)));
});

test("a store is looked at again and again, and reads nothing twice", async (t) => {
  const { url } = await serve(t, scripts);
  const asked: string[] = [];
  const counting: typeof fetch = (input, init) => (asked.push(String(input).replace(/.*\//, "")), fetch(input, init));
  const other = new Agentd(url);
  const { turn } = await other.run({ agent: echo, prompt: "one" }).result();
  const store = new SessionStore(new Agentd(url, { fetch: counting }), { sessionId: turn.sessionId });
  for (let i = 0; i < 5; i++) {
    store.subscribe(() => {})(); // as React does in strict mode
  }
  await until(store, ready(1));
  await other.run({ sessionId: turn.sessionId, prompt: "two" }).result(); // while nobody looks
  const leave = store.subscribe(() => {});
  await until(store, ready(2));
  leave();
  const { messages } = store.getSnapshot();
  assert.deepEqual(texts(store.getSnapshot()), ["user: one", "agent: one", "user: two", "agent: two"]);
  assert.equal(new Set(messages.map(({ id }) => id)).size, 4);
  assert.ok(asked.filter((name) => name === "WatchSession").length <= 8, asked.join());
  assert.ok(!asked.includes("ListTurnEvents"));
});
