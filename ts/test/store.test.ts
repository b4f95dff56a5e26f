// The store of a session, against a real daemon and without React.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Agentd, llm } from "@apzuk3/agentd";
import { SessionStore, type SessionSnapshot, type SessionStoreOptions } from "@apzuk3/agentd/react";
import { serve } from "./daemon.js";
import { Latch } from "./gather.js";
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
  assert.equal((await agentd.turns.get(store.sessionId!)).status, "waiting_for_client");
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
  await store.refresh();
  assert.equal(texts(store.getSnapshot()).at(-1), "agent: by another");

  store.configure({ agent: llm({ name: "a", model: "scripted/fails" }) });
  await store.send("fail");
  assert.equal(store.getSnapshot().error?.code, "CONTENT_BLOCKED");
  assert.equal(store.getSnapshot().status, "ready");
  const nobody = with_({ sessionId: "nobody" });
  const { error } = await until(nobody, (snapshot) => snapshot.error !== undefined);
  assert.equal(error?.code, "SESSION_NOT_FOUND");
  assert.equal(nobody.getSnapshot().status, "ready");
});
