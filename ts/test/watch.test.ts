// A session as it is read and watched across its turns, against a real daemon.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Agentd, AgentdError, llm, type Event, type SessionEvent } from "@apzuk3/agentd";
import { Code, ConnectError } from "@connectrpc/connect";
import type { WatchSessionRequest } from "@apzuk3/agentd/proto";
import { serve } from "./daemon.js";
import { all, Latch, rising, told } from "./gather.js";
import { playing } from "./playing.js";
import { proxy } from "./proxy.js";

const echo = llm({ name: "a", model: "echo" });
const wait = "answers: [{when: {after_tool: wait}, text: '{{tool_result \"wait\"}}'}, {when: {user: plain}, text: '{{last_user}}'}, {when: {}, text: 'One moment. ', calls: [{name: wait, args: {}}]}]";

/** take takes events until there were so many ends of turns. */
async function take(events: AsyncIterable<SessionEvent>, ends: number): Promise<SessionEvent[]> {
  const out: SessionEvent[] = [];
  for await (const event of events) {
    out.push(event);
    ends -= event.type === "end" ? 1 : 0;
    if (ends === 0) {
      break;
    }
  }
  return out;
}

const bare = (events: Event[]) => told(events.filter(({ type }) => !type.startsWith("connection_")));

test("a session is read across its turns, and from each of its cursors on", async (t) => {
  const { url } = await serve(t, { fails: "answers: [{when: {}, error: {kind: blocked, message: not that}}]" });
  const agentd = new Agentd(url);
  const { sessions } = agentd;
  const { id } = await sessions.create();
  assert.deepEqual(await all(sessions.events(id)), []);
  await agentd.run({ agent: echo, sessionId: id, prompt: "one", state: { cart: 1 } }).result();
  await assert.rejects(agentd.run({ agent: llm({ name: "a", model: "scripted/fails" }), sessionId: id, prompt: "two" }).result(), { code: "CONTENT_BLOCKED" });
  await agentd.run({ agent: echo, sessionId: id, prompt: "three" }).result();
  const events = await all(sessions.events(id));
  assert.ok(rising(events));
  assert.equal(new Set(events.map(({ turnId }) => turnId)).size, 3);
  assert.deepEqual(events.filter(({ type }) => type === "end" || type === "error").map(({ type }) => type), ["end", "error", "end", "end"]);
  assert.deepEqual(bare(await all(sessions.events(id, { pageSize: 2 }))), bare(events));
  assert.deepEqual(bare(await take(sessions.watch(id), 3)), bare(events));
  for (const [i, { cursor }] of events.entries()) {
    assert.deepEqual(bare(await all(sessions.events(id, { cursor }))), bare(events.slice(i + 1)));
  }
  const half = events.findIndex(({ type }) => type === "end");
  assert.deepEqual(bare(await take(sessions.watch(id, { cursor: events[half]!.cursor }), 2)), bare(events.slice(half + 1)));
  assert.ok((await all(sessions.events(id, { display: true }))).every(({ display }) => display !== undefined));
  assert.ok((await all(sessions.events(id, { visibility: "public" }))).length < events.length);
  await assert.rejects(all(sessions.events(id, { cursor: "nonsense" })), { code: "INVALID_REQUEST" });
  await assert.rejects(take(sessions.watch("nobody"), 1), { code: "SESSION_NOT_FOUND" });
});

test("who watches sees what others start, across cuts and a restart, and takes no part", async (t) => {
  const daemon = await serve(t, { wait });
  const way = await proxy(t, daemon.url);
  way.cutAfter = () => 700 + Math.floor(Math.random() * 900);
  const release = new Latch();
  const worker = new Agentd(daemon.url, { reconnect: { baseMs: 1, capMs: 20 } }).addTool("wait", {
    description: "Waits",
    run: async () => (await release.opened, "done"),
  });
  const agent = llm({ name: "a", model: "scripted/wait", tools: ["wait"] });
  const { id: sessionId } = await worker.sessions.create();
  const watcher = new Agentd(way.url, { reconnect: { baseMs: 1, capMs: 20 } }).addTool("wait", { description: "Waits", run: () => assert.fail("it ran") });
  const watched = take(watcher.sessions.watch(sessionId), 3);
  await worker.run({ agent, sessionId, prompt: "plain one" }).result();
  const run = worker.run({ agent, sessionId, prompt: "wait", onLeave: "detach" });
  for await (const event of run) {
    if (event.type === "tool_call") {
      break;
    }
  }
  await daemon.end("SIGKILL");
  await daemon.start();
  way.target = daemon.url;
  const again = new Agentd(daemon.url).addTool("wait", { description: "Waits", run: () => "done" });
  release.open();
  await again.attach(sessionId, { turnId: run.turnId }).result();
  await again.run({ agent, sessionId, prompt: "plain two" }).result();
  const events = await watched;
  assert.ok(way.cuts > 0 && rising(events.filter(({ type }) => !type.startsWith("connection_"))));
  assert.ok(events.some(({ type }) => type === "connection_lost") && !events.some(({ type }) => type === "tool_call"));
  const logged = await all(again.sessions.events(sessionId));
  const facts = (of: Event[]) => of.filter(({ type }) => type !== "output_chunk" && type !== "message_retracted" && !type.startsWith("connection_")).map(({ seq, type }) => `${seq} ${type}`);
  assert.deepEqual(facts(events), facts(logged));
  assert.deepEqual(told(events).messages, told(logged).messages);
});

test("a watch is left by its loop, by return and by its signal", async (t) => {
  const { url } = await serve(t);
  const { sessions } = new Agentd(url);
  const { id } = await sessions.create();
  const events = sessions.watch(id);
  const next = events.next();
  await events.return!();
  assert.deepEqual([await next, await events.next()], [{ done: true, value: undefined }, { done: true, value: undefined }]);
  const leave = new AbortController();
  const aborted = take(sessions.watch(id, { signal: leave.signal }), 1);
  leave.abort(new Error("enough"));
  await assert.rejects(aborted, /enough/);
  const deleted = assert.rejects(take(sessions.watch(id), 1), { code: "SESSION_NOT_FOUND" });
  await sessions.delete(id);
  await deleted;
});

test("a lost watch goes on behind the last cursor, and gives up in the end", async () => {
  const asked: string[] = [];
  const piece = (content: string) => ({ turnId: "t", response: { case: "outputChunk" as const, value: { content, messageId: "m", agentPath: ["a"] } } });
  const methods = {
    async *watchSession({ cursor }: WatchSessionRequest) {
      asked.push(cursor);
      if (asked.length === 1) {
        yield { event: { ...piece("one "), seq: 1n }, cursor: "c1" };
        yield { event: piece("two ") }; // the first piece of two
      }
      if (asked.length === 2) {
        yield { event: piece("two ") };
        yield { event: { ...piece("three"), seq: 3n }, cursor: "c3" };
      }
      throw new ConnectError("connection reset", Code.Unknown);
    },
  };
  const { agentd } = playing([], { methods }, { reconnect: { baseMs: 1, capMs: 1, maxElapsedMs: 20 } });
  const seen: string[] = [];
  await assert.rejects(async () => {
    for await (const event of agentd.sessions.watch("s", { cursor: "c0" })) {
      seen.push(`${event.type === "output_chunk" ? event.content : event.type} ${event.cursor}`);
    }
  }, (err) => err instanceof AgentdError && err.code === "UNAVAILABLE" && err.sessionId === "s");
  assert.deepEqual(seen, ["one  c1", "two  c1", "connection_lost c1", "connection_restored c1", "three c3", "connection_lost c3", "connection_abandoned c3"]);
  assert.deepEqual([...new Set(asked)], ["c0", "c1", "c3"]);
});
