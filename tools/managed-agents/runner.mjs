// Has the session tool runner of Anthropic's TypeScript SDK, unchanged, work for sessions of a real daemon with
// --face managed-agents. scripts/managed-agents runs it:
//
//   node runner.mjs AGENTD
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

import Anthropic from '@anthropic-ai/sdk';

const [agentd] = process.argv.slice(2);
const dir = mkdtempSync(join(tmpdir(), 'agentd-managed-'));
mkdirSync(join(dir, 'scripts'));
const scripts = {
  greets: `{answers: [{when: {after_tool: greet}, text: 'done: {{tool_result "greet"}}'},
    {when: {step: 1}, text: calling, calls: [{name: greet, args: {name: Ada}}]}]}`,
  twice: `{answers: [{when: {step: 1}, calls: [{name: greet, args: {name: Ada}}, {name: greet, args: {name: Bob}}]},
    {when: {step: 2}, calls: [{name: greet, args: {name: Eve}}]}, {when: {step: 3}, text: 'done: {{tool_result "greet"}}'}]}`,
  slow: `{answers: [{when: {after_tool: greet}, delay: 1s, text: 'done: {{tool_result "greet"}}'},
    {when: {step: 1}, calls: [{name: greet, args: {name: Ada}}]}]}`,
  long: `{answers: [{when: {after_tool: greet}, text: 'done: {{tool_result "greet"}}'},
    {when: {user: ^go$}, calls: [{name: greet, args: {name: Ada}}]}, {when: {step: 1}, text: one}]}`,
};
for (const [name, text] of Object.entries(scripts)) writeFileSync(join(dir, 'scripts', `${name}.yaml`), text);

const port = await new Promise((resolve) => {
  const server = createServer().listen(0, '127.0.0.1', () => {
    const { port } = server.address();
    server.close(() => resolve(port));
  });
});
const url = `http://127.0.0.1:${port}`;
let daemon;

// start starts the daemon and waits until it serves.
async function start() {
  daemon = spawn(
    agentd,
    ['serve', '--face', 'managed-agents', '--addr', `127.0.0.1:${port}`, '--admin-addr', 'off',
      '--data', join(dir, 'data'), '--scripts', join(dir, 'scripts'), '--log-level', 'error'],
    { cwd: dir, env: { PATH: process.env.PATH, HOME: dir }, stdio: ['ignore', 'inherit', 'inherit'] },
  );
  for (;;) {
    assert.equal(daemon.exitCode, null, 'the daemon has ended');
    if (await fetch(`${url}/healthz`).then((r) => r.ok, () => false)) return;
    await sleep(20);
  }
}

// kill ends the daemon as it stands.
async function kill() {
  const ended = once(daemon, 'exit');
  daemon.kill('SIGKILL');
  await ended;
}

const client = new Anthropic({ baseURL: url, apiKey: 'none', maxRetries: 0, logLevel: 'error' });
const { agents, environments, sessions } = client.beta;
const greetTool = {
  type: 'custom', name: 'greet', description: 'greets',
  input_schema: { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] },
};
const said = (text) => ({ type: 'user.message', content: [{ type: 'text', text }] });

// tool is a tool of a runner.
const tool = (run) => ({ ...greetTool, type: 'custom', run, parse: (input) => input });
const greet = tool(({ name }) => `hi ${name}`);

// session makes a session of an agent.
async function session(agent) {
  const environment = await environments.create({ name: 'e' });
  return (await sessions.create({ agent, environment_id: environment.id })).id;
}

const agentOf = async (model) => (await agents.create({ name: model, model: { id: `scripted/${model}` }, tools: [greetTool] })).id;

// run has a runner work until the session has been idle for a while.
async function run(id, runs, options = {}) {
  const calls = [];
  for await (const call of sessions.events.toolRunner(id, { tools: [runs], maxIdleMs: 400, ...options })) calls.push(call);
  return calls;
}

async function events(id) {
  const all = [];
  for await (const e of sessions.events.list(id, { limit: 1000 })) all.push(e);
  return all;
}

const lastText = (all) => all.filter((e) => e.type === 'agent.message').at(-1)?.content[0].text;

// until waits until the events of a session are as wanted.
async function until(id, wanted) {
  for (;;) {
    const all = await events(id).catch(() => []); // it is killed just now
    const found = wanted(all);
    if (found) return found;
    await sleep(10);
  }
}

const scenarios = {
  async 'two calls in one response, and one more'() {
    const id = await session(await agentOf('twice'));
    await sessions.events.send(id, { events: [said('go')] });
    const calls = await run(id, greet);
    assert.deepEqual(calls.map((c) => [c.name, c.isError, c.posted]), Array(3).fill(['greet', false, true]));
    assert.equal(lastText(await events(id)), 'done: hi Eve');
  },

  async 'a call that is confirmed, and one that is not'() {
    const registered = await fetch(`${url}/agentd.v1.SessionService/ApplyAgent`, {
      method: 'POST', headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify({
        name: 'desk', agent: { name: 'desk', llm: { model: 'scripted/greets', toolNames: ['greet'] } },
        tools: [{ name: 'greet', description: 'greets', inputSchema: '{"type":"object"}', needsApproval: true }],
      }),
    });
    assert.ok(registered.ok, await registered.text());
    for (const result of ['allow', 'deny']) {
      const id = await session('desk');
      await sessions.events.send(id, { events: [said('go')] });
      const use = await until(id, (all) => all.find((e) => e.type === 'agent.tool_use'));
      const running = run(id, greet);
      await sleep(200); // while the runner holds the call
      await sessions.events.send(id, { events: [{ type: 'user.tool_confirmation', tool_use_id: use.id, result }] });
      const calls = await running;
      assert.deepEqual(calls.map((c) => [c.confirmation, c.posted]), [[result, result === 'allow']]);
      const all = await events(id);
      assert.equal(all.some((e) => e.type === 'user.tool_result'), result === 'allow');
      assert.equal(all.at(-1).stop_reason.type, 'end_turn');
    }
  },

  async 'an interrupt'() {
    const id = await session(await agentOf('greets'));
    let first = true;
    const interrupts = tool(async () => {
      if (!first) return 'hi again';
      first = false;
      await sessions.events.send(id, { events: [{ type: 'user.interrupt' }, said('once more')] });
      return 'too late'; // this runner does not stop a tool
    });
    await sessions.events.send(id, { events: [said('go')] });
    const calls = await run(id, interrupts);
    assert.deepEqual(calls.map((c) => c.posted), [false, true]);
    assert.equal(lastText(await events(id)), 'done: hi again');
  },

  async 'a stream that is cut'() {
    const id = await session(await agentOf('twice'));
    let streams = 0;
    const cut = new Anthropic({
      baseURL: url, apiKey: 'none', maxRetries: 0, logLevel: 'off',
      fetch: async (at, init) => {
        const resp = await fetch(at, init);
        if (!String(at).includes('/stream') || streams++ > 0) return resp;
        let frames = 0;
        const body = resp.body.pipeThrough(new TransformStream({
          transform(piece, out) {
            frames += new TextDecoder().decode(piece).split('\n\n').length - 1;
            if (frames > 5) out.error(new Error('the connection is cut'));
            else out.enqueue(piece);
          },
        }));
        return new Response(body, { status: resp.status, headers: resp.headers });
      },
    });
    const running = (async () => {
      const calls = [];
      for await (const c of cut.beta.sessions.events.toolRunner(id, { tools: [greet], maxIdleMs: 400 })) calls.push(c);
      return calls;
    })();
    while (streams === 0) await sleep(5);
    await sessions.events.send(id, { events: [said('go')] });
    assert.equal((await running).filter((c) => c.posted).length, 3);
    assert.ok(streams > 1, `${streams} streams`);
    assert.equal(lastText(await events(id)), 'done: hi Eve');
  },

  async 'a daemon that is killed'() {
    const id = await session(await agentOf('slow'));
    let kills = 0;
    const fatal = tool(async ({ name }) => {
      if (kills++ === 0) {
        await kill();
        await start();
      }
      return `hi ${name}`;
    });
    await sessions.events.send(id, { events: [said('go')] });
    const stop = new AbortController();
    const running = run(id, fatal, { maxIdleMs: 0, signal: stop.signal });
    await until(id, (all) => all.find((e) => e.type === 'user.custom_tool_result'));
    await kill(); // in the model call behind it
    await start();
    const all = await until(id, (all) => all.at(-1)?.stop_reason?.type === 'end_turn' && all);
    stop.abort();
    await running;
    assert.equal(all.filter((e) => e.type === 'user.custom_tool_result').length, 1);
    assert.equal(lastText(all), 'done: hi Ada');
  },

  async 'a session with 3,000 events'() {
    const id = await session(await agentOf('long'));
    for (let turn = 0; turn < 500; turn++) { // with six events each
      while (await sessions.events.send(id, { events: [said('hello')] }).then(() => false, (err) => {
        assert.ok(err instanceof Anthropic.RateLimitError, err); // as many wait as may
        return true;
      })) await sleep(10);
    }
    const ended = (all) => all.filter((e) => e.stop_reason?.type === 'end_turn').length;
    await until(id, (all) => ended(all) === 500);
    await sessions.events.send(id, { events: [said('go')] });
    assert.deepEqual((await run(id, greet)).map((c) => c.posted), [true]);
    const all = await events(id);
    assert.ok(all.length > 3000, `${all.length} events`);
    assert.equal(new Set(all.map((e) => e.id)).size, all.length);
    assert.equal(lastText(all), 'done: hi Ada');
  },

  async 'bad input'() {
    const id = await session(await agentOf('twice'));
    await sessions.events.send(id, { events: [said('go')] });
    const use = await until(id, (all) => all.at(-1)?.stop_reason?.type === 'requires_action' &&
      all.find((e) => e.type === 'agent.custom_tool_use').id);
    const result = (of, text) => ({ type: 'user.custom_tool_result', custom_tool_use_id: of, content: [{ type: 'text', text }] });
    const send = (...list) => sessions.events.send(id, { events: list });
    const before = (await events(id)).length;
    for (const [refused, error, says, status] of [
      [() => agents.create({ name: 'x', model: 'echo', colour: 'red' }), Anthropic.BadRequestError, 'colour'],
      [() => agents.create({ name: 'x' }), Anthropic.BadRequestError, 'model is missing'],
      [() => sessions.retrieve('sesn_none'), Anthropic.NotFoundError, 'sesn_none'],
      [() => send(result('sevt_none', 'x')), Anthropic.BadRequestError, 'no such call'],
      [() => send(result(use, 'x'), said('and this'), result('sevt_none', 'x')), Anthropic.BadRequestError, 'no such call'],
      [() => send({ type: 'user.tool_confirmation', tool_use_id: use, result: 'allow' }), Anthropic.BadRequestError, 'tool_use_id'],
      [() => send({ type: 'user.shout' }), Anthropic.BadRequestError, 'user.shout'],
      [() => send(said('x'.repeat(20 << 20))), Anthropic.APIError, 'bytes', 413],
    ]) {
      await assert.rejects(refused, (err) => {
        assert.ok(err instanceof error && err.message.includes(says), `${err} does not say ${says}`);
        assert.equal(err.error.type, 'error');
        if (status) assert.equal(err.status, status);
        return true;
      });
    }
    assert.equal((await events(id)).length, before);
    const [first, again] = [await send(result(use, 'hi')), await send(result(use, 'hi'))];
    assert.deepEqual(again.data, first.data);
    await assert.rejects(send(result(use, 'other')), Anthropic.BadRequestError);
    await run(id, greet);
    assert.equal(lastText(await events(id)), 'done: hi Eve');
  },

  async 'many runners'() {
    const id = await session(await agentOf('twice'));
    await sessions.events.send(id, { events: [said('go')] });
    await Promise.all([1, 2, 3].map(() => run(id, greet)));
    const results = (await events(id)).filter((e) => e.type === 'user.custom_tool_result');
    assert.equal(new Set(results.map((e) => e.custom_tool_use_id)).size, 3);
    assert.equal(results.length, 3);
  },

  async 'objects'() {
    const agent = await agents.create({ name: 'mine', model: 'echo', system: 'be {kind}' });
    const changed = await agents.update(agent.id, { version: 1, description: 'changed' });
    assert.equal(changed.version, 2);
    await assert.rejects(agents.update(agent.id, { version: 1, description: 'stale' }), Anthropic.ConflictError);
    const versions = [];
    for await (const v of agents.versions.list(agent.id, { limit: 1 })) versions.push(v.version);
    assert.deepEqual(versions, [2, 1]);
    const id = await session({ type: 'agent_with_overrides', id: agent.id, version: 1, system: 'own' });
    const got = await sessions.retrieve(id);
    assert.deepEqual([got.agent.system, got.agent.version, got.status], ['own', 1, 'idle']);
    let text = '';
    const stream = await sessions.events.stream(id, { event_deltas: ['agent.message'] });
    await sessions.events.send(id, { events: [said('one two three')] });
    for await (const e of stream) {
      if (e.type === 'event_delta') text += e.delta.content.text;
      if (e.type === 'session.status_idle') break;
    }
    assert.equal(text, 'one two three');
    assert.ok((await sessions.archive(id)).archived_at);
    await assert.rejects(sessions.events.send(id, { events: [said('more')] }), Anthropic.BadRequestError);
    await sessions.delete(id);
    await assert.rejects(sessions.retrieve(id), Anthropic.NotFoundError);
  },
};

try {
  await start();
  for (const [name, scenario] of Object.entries(scenarios)) {
    await scenario();
    console.log(`ok: ${name}`);
  }
} finally {
  daemon?.kill('SIGKILL');
  rmSync(dir, { recursive: true, force: true, maxRetries: 5 });
}
