// Credentials, against a real daemon that asks who calls.
import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";
import { Agentd, AgentdError, llm, type AgentdOptions, type Event, type Run, type SessionToken } from "@apzuk3/agentd";
import { createKey, guarded, revokeKey, serve, type Daemon } from "./daemon.js";
import { all, gather, Latch, rising, told } from "./gather.js";
import { proxy, type Proxy } from "./proxy.js";

const scripts = {
  work: `
answers:
  - {when: {after_tool: two}, text: '{{tool_result "one"}} {{tool_result "two"}}'}
  - {when: {after_tool: one}, text: "and now", calls: [{name: two}]}
  - {when: {}, text: "first of all", calls: [{name: one}]}
`,
};
const echo = llm({ name: "a", model: "echo" });
const worker = llm({ name: "a", model: "scripted/work", tools: ["one", "two"] });
const quick = { reconnect: { baseMs: 1, capMs: 20 } };
const unavailable = { name: "AgentdError", code: "UNAVAILABLE" } as const;
const unauthenticated = { name: "AgentdError", code: "UNAUTHENTICATED" } as const;

/** Owned is a daemon that asks who calls, the way to it, and a client with a key, behind the back of the way. */
interface Owned {
  daemon: Daemon;
  way: Proxy;
  key: string;
  owner: Agentd;
}

async function owned(t: TestContext): Promise<Owned> {
  const daemon = await serve(t, scripts);
  const { key } = await createKey(daemon, "ada");
  return { daemon, way: await proxy(t, daemon.url), key, owner: new Agentd(daemon.url, { token: key }) };
}

/** renewing is a source of tokens for a session, of which each is kept until its end, and those it has made. */
function renewing(owner: Agentd, sessionId: string, lifetimeMs: number) {
  const made: Promise<SessionToken>[] = [];
  let ends = 0;
  const token = async () => {
    if (Date.now() >= ends) {
      ends = Infinity; // others who ask meanwhile wait for the same
      made.push(owner.sessions.createToken(sessionId, { tools: ["one", "two"], agents: true, lifetimeMs }));
      ends = (await made.at(-1)!).expireTime.getTime();
    }
    return (await made.at(-1)!).token;
  };
  return { token, made };
}

/** working is a client whose tools wait until they are let go, each call once. */
function working(url: string, options: AgentdOptions) {
  const ran: string[] = [];
  const release = { one: new Latch(), two: new Latch() };
  const agentd = new Agentd(url, { ...quick, ...options });
  for (const name of ["one", "two"] as const) {
    agentd.addTool(name, {
      description: name,
      run: async () => {
        ran.push(name);
        await release[name].opened;
        return `result of ${name}`;
      },
    });
  }
  return { agentd, ran, release };
}

const losses = (events: Event[]) => events.flatMap((event) => (event.type === "connection_lost" ? [event.error.code] : []));

/** holds asserts that a run has seen all of its turn, once. */
async function holds(events: Event[], run: Run, owner: Agentd): Promise<void> {
  assert.ok(rising(events));
  const whole = await all(owner.attach(run.sessionId!, { turnId: run.turnId!, observe: true }));
  assert.deepEqual(told(events), told(whole));
  assert.match(JSON.stringify(told(events).messages), /result of one result of two/);
}

test("a key goes with each request", async (t) => {
  const { daemon, way, key, owner } = await owned(t);
  const { createdBy } = await owner.sessions.create();
  assert.equal(createdBy, "ada");
  assert.equal((await owner.run({ agent: echo, prompt: "hi" }).result()).text, "hi");
  const read = new Agentd(daemon.url, { token: ` ${key}\n` }); // from a file
  assert.equal((await read.run({ agent: echo, prompt: "hi" }).result()).text, "hi");
  for (const wrong of [`${key}x`, "unknown"]) {
    const events: Event[] = [];
    const stranger = new Agentd(way.url, { token: wrong, ...quick });
    await assert.rejects(stranger.sessions.create(), unauthenticated);
    await assert.rejects(stranger.run({ agent: echo, prompt: "hi" }).result(), unauthenticated);
    await assert.rejects(
      (async () => {
        for await (const event of stranger.attach("s")) {
          events.push(event);
        }
      })(),
      unauthenticated,
    );
    assert.deepEqual(events, []);
  }
  assert.deepEqual(way.requests, ["CreateSession", "CreateTurn", "WatchTurn", "CreateSession", "CreateTurn", "WatchTurn"]);
});

test("a run goes on when its tokens expire, and so does who watches its session", async (t) => {
  const { way, owner } = await owned(t);
  const { id: sessionId } = await owner.sessions.create();
  const { token, made } = renewing(owner, sessionId, 1_500);
  const { agentd, ran, release } = working(way.url, { token });
  const watched = (async () => {
    const events: Event[] = [];
    for await (const event of agentd.sessions.watch(sessionId)) {
      events.push(event);
      if (event.type === "end") {
        break;
      }
    }
    return events;
  })();
  const run = agentd.run({ agent: worker, sessionId, prompt: "go" });
  const events: Event[] = [];
  for await (const event of run) {
    events.push(event);
    if (event.type === "connection_lost") {
      release[losses(events).length === 1 ? "one" : "two"].open();
    }
  }
  assert.deepEqual(losses(events), ["UNAUTHENTICATED", "UNAUTHENTICATED"]);
  assert.deepEqual(ran, ["one", "two"]);
  assert.ok(made.length >= 3, `${made.length} tokens`);
  await holds(events, run, owner);
  const seen = await watched;
  assert.ok(losses(seen).includes("UNAUTHENTICATED"), losses(seen).join());
  assert.ok(rising(seen));
  assert.deepEqual(told(seen), told(events));
});

test("a run goes on with another key when its own is revoked", async (t) => {
  const { daemon, way, owner } = await owned(t);
  const [first, second] = [await createKey(daemon, "ada"), await createKey(daemon, "ada")];
  let revoked = false;
  let late = 0;
  const token = () => (revoked && late++ > 0 ? second.key : first.key); // it has the second one when it is asked again
  const { agentd, ran, release } = working(way.url, { token });
  const run = agentd.run({ agent: worker, prompt: "go" });
  const events: Event[] = [];
  for await (const event of run) {
    events.push(event);
    if (event.type === "tool_call" && !revoked) {
      await revokeKey(daemon, first);
      const old = new Agentd(daemon.url, { token: first.key });
      while (await old.capabilities().then(() => true, () => false)) {
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
      revoked = true;
      way.cut();
    }
    if (event.type === "connection_lost") {
      release.one.open();
      release.two.open();
    }
  }
  assert.deepEqual(ran, ["one", "two"]);
  assert.deepEqual(losses(events), ["UNAVAILABLE"]);
  await holds(events, run, owner);
});

test("a request whose token is refused is made once more, if there is another one", async (t) => {
  const { url } = await guarded(t, {});
  const tries = async (...tokens: string[]) => {
    let requests = 0;
    const counting: typeof fetch = (input, init) => (requests++, fetch(input, init));
    const agentd = new Agentd(url, { fetch: counting, token: () => (tokens.length > 1 ? tokens.shift()! : tokens[0]!) });
    const { createdBy } = await agentd.sessions.create().catch(({ code }: AgentdError) => ({ createdBy: code }));
    return [createdBy, requests];
  };
  assert.deepEqual(await tries("ada"), ["ada", 1]);
  assert.deepEqual(await tries("x/nobody", "ada"), ["ada", 2]);
  assert.deepEqual(await tries("x/nobody"), ["UNAUTHENTICATED", 1]);
  assert.deepEqual(await tries("x/nobody", "y/nobody", "ada"), ["UNAUTHENTICATED", 2]);
});

test("without another token the run ends, and its turn continues", async (t) => {
  const { way, owner, daemon, key } = await owned(t);
  const { id: sessionId } = await owner.sessions.create();
  const options = { tools: ["one", "two"], agents: true, lifetimeMs: 1_000 };
  const held = (await owner.sessions.createToken(sessionId, options)).token;
  let refusals = 0;
  // A cancel, which would be the next request, would succeed.
  const token = () => (way.requests.includes("WatchTurn") && refusals++ > 1 ? key : held);
  const run = working(way.url, { token }).agentd.run({ agent: worker, sessionId, prompt: "go" });
  const events: Event[] = [];
  await assert.rejects(
    (async () => {
      for await (const event of run) {
        events.push(event);
      }
    })(),
    (err) => err instanceof AgentdError && err.code === "UNAUTHENTICATED" && err.turnId === run.turnId && /the turn continues/.test(err.message),
  );
  assert.deepEqual(losses(events), []);
  assert.equal(refusals, 1);
  assert.ok(!way.requests.includes("CancelTurn"));
  const { agentd, release } = working(daemon.url, { token: key });
  release.one.open();
  release.two.open();
  const rest = await gather(agentd.attach(sessionId, { turnId: run.turnId!, afterSeq: events.at(-1)!.seq }));
  await holds([...events, ...rest], run, owner);
});

test("who has a token for a session sees this session alone", async (t) => {
  const { daemon, owner } = await owned(t);
  const [own, other] = [await owner.sessions.create(), await owner.sessions.create()];
  await owner.run({ agent: echo, sessionId: own.id, prompt: "hi" }).result();
  await owner.run({ agent: echo, sessionId: other.id, prompt: "secret" }).result();
  const before = Date.now();
  const { token, expireTime } = await owner.sessions.createToken(own.id);
  assert.ok(expireTime.getTime() >= before + 599_000 && expireTime.getTime() <= Date.now() + 600_000, String(expireTime));
  const page = new Agentd(daemon.url, { token, ...quick });
  assert.equal((await page.sessions.get(own.id)).id, own.id);
  assert.equal((await page.run({ sessionId: own.id, prompt: "again" }).result()).text, "again");
  assert.equal((await all(page.turns.list({ sessionId: own.id }))).length, 2);
  const missing = { code: "SESSION_NOT_FOUND" };
  await assert.rejects(page.sessions.get(other.id), missing);
  await assert.rejects(gather(page.attach(other.id)), missing);
  await assert.rejects(all(page.sessions.events(other.id)), missing);
  await assert.rejects(page.run({ sessionId: other.id, prompt: "again" }).result(), missing);
  const denied = { code: "PERMISSION_DENIED" };
  await assert.rejects(all(page.sessions.list()), denied);
  await assert.rejects(page.sessions.create(), denied);
  await assert.rejects(page.sessions.createToken(own.id), denied);
  await assert.rejects(page.run({ agent: echo, sessionId: own.id, prompt: "my agent" }).result(), denied);
  const one = working(daemon.url, { token: (await owner.sessions.createToken(own.id, { tools: ["one"], agents: true })).token });
  await assert.rejects(one.agentd.run({ agent: worker, sessionId: own.id, prompt: "go" }).result(), { ...denied, message: /does not allow the tool "two"/ });
  const watcher = new Agentd(daemon.url, { token: (await owner.sessions.createToken(own.id, { observe: true })).token });
  assert.equal((await all(watcher.attach(own.id, { observe: true }))).at(-1)?.type, "end");
  await assert.rejects(watcher.run({ sessionId: own.id, prompt: "mine" }).result(), denied);
  for (const lifetimeMs of [-1, Number.NaN, 3_600_001, Infinity]) {
    await assert.rejects(owner.sessions.createToken(own.id, { lifetimeMs }), { code: "INVALID_REQUEST", message: /lifetimeMs is/ });
  }
  const short = await owner.sessions.createToken(own.id, { lifetimeMs: 60_000 });
  assert.ok(short.expireTime.getTime() <= Date.now() + 60_000);
});

test("a source that throws is a connection that cannot be had", async (t) => {
  const { way, key, owner } = await owned(t);
  const down = new Error("the backend is down");
  let failing = Infinity;
  const token = () => (failing-- > 0 ? Promise.reject(down) : key);
  const { agentd, ran, release } = working(way.url, { token });
  await assert.rejects(agentd.sessions.create(), { ...unavailable, message: "the token of this client cannot be had: the backend is down", cause: down });
  assert.deepEqual(way.requests, []);

  failing = 3;
  const run = agentd.run({ agent: worker, prompt: "go" });
  const events: Event[] = [];
  for await (const event of run) {
    events.push(event);
    if (event.type === "tool_call" && event.toolName === "one") {
      failing = 3;
      way.cut();
    }
    if (event.type === "connection_lost") {
      release.one.open();
      release.two.open();
    }
  }
  assert.deepEqual(losses(events), ["UNAVAILABLE"]);
  assert.deepEqual(ran, ["one", "two"]);
  await holds(events, run, owner);

  failing = Infinity;
  const never = new Agentd(way.url, { token, reconnect: { ...quick.reconnect, maxElapsedMs: 50, startElapsedMs: 50 } });
  await assert.rejects(never.run({ agent: echo, prompt: "hi" }).result(), unavailable);
  const told: string[] = [];
  await assert.rejects(
    (async () => {
      for await (const event of never.attach(run.sessionId!)) {
        told.push(event.type);
      }
    })(),
    { ...unavailable, message: /cannot be had/ },
  );
  assert.deepEqual(told, ["connection_lost", "connection_abandoned"]);
  for (const nothing of [undefined, null, "", 5, {}]) {
    const wrong = new Agentd(way.url, { token: () => nothing as unknown as string });
    await assert.rejects(wrong.sessions.create(), { ...unavailable, message: /cannot be had: the token is/ });
  }
  const asleep = new Agentd(way.url, { token: () => new Promise(() => {}), requestTimeoutMs: 20, reconnect: { off: true } });
  await assert.rejects(gather(asleep.attach("s")), { ...unavailable, message: /its source has returned nothing for 20 ms/ });
});

test("a source that throws when a token has expired is asked again", async (t) => {
  const { way, owner } = await owned(t);
  const { id: sessionId } = await owner.sessions.create();
  const { token } = renewing(owner, sessionId, 1_000);
  let failing = 0;
  const { agentd, release } = working(way.url, { token: () => (failing-- > 0 ? Promise.reject(new Error("down")) : token()) });
  const run = agentd.run({ agent: worker, sessionId, prompt: "go" });
  const events: Event[] = [];
  for await (const event of run) {
    events.push(event);
    if (event.type === "tool_call" && event.toolName === "one") {
      failing = 4; // the stream is open
    }
    if (event.type === "connection_lost") {
      assert.ok(failing < 4);
      release.one.open();
      release.two.open();
    }
  }
  assert.deepEqual(losses(events), ["UNAUTHENTICATED"]);
  await holds(events, run, owner);
});

test("a token goes with no other credential, and no error has it", async () => {
  const invalid = { name: "AgentdError", code: "INVALID_REQUEST" } as const;
  const nowhere = (): Promise<Response> => assert.fail("asked");
  for (const name of ["authorization", "Authorization", "X-Api-Key"]) {
    const headers = { [name]: "Bearer other" };
    const both = { ...invalid, message: new RegExp(`there is a token, and headers has ${name.toLowerCase()} too`) };
    assert.throws(() => new Agentd("http://unused", { token: "t", headers }), both);
    const agentd = new Agentd("http://unused", { token: "t", fetch: nowhere });
    await assert.rejects(gather(agentd.run({ agent: echo, prompt: "p", headers })), both);
    await assert.rejects(gather(agentd.attach("s", { headers })), both);
    await assert.rejects(all(agentd.sessions.watch("s", { headers })), both);
    assert.ok(new Agentd("http://unused", { headers, token: undefined }));
  }
  for (const token of ["", " ", "se\ncret", "se cret", "secrét", 5, null, {}] as string[]) {
    assert.throws(
      () => new Agentd("http://unused", { token }),
      (err) => err instanceof AgentdError && err.code === "INVALID_REQUEST" && /token/.test(err.message) && !/secr|se\s?cr|cret/.test(JSON.stringify(err)),
      String(token),
    );
  }
});
