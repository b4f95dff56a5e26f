// Has MCP hosts that others have written use "agentd mcp serve": the official TypeScript client, over standard input and
// output and over HTTP, and the command line of the official inspector. scripts/mcp runs it:
//
//   node hosts.mjs AGENTD REPOSITORY
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { existsSync, mkdtempSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { CallToolResultSchema, ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';

const [agentd, repository] = process.argv.slice(2);
const dir = mkdtempSync(join(tmpdir(), 'agentd-mcp-'));
const scripts = join(dir, 'scripts');
const files = {
  '.agents/config.json': '{"version": 1}',
  'writer.yaml': `{agent: {name: writer, llm: {model: scripted/writer, tool_names: [write_file]}}}`,
  'sleeper.yaml': `{agent: {name: sleeper, llm: {model: scripted/sleeper, tool_names: [nap]}},
    tools: [{name: nap, description: Sleeps., command: [sh, -c, "touch began; exec sleep 600"], timeout: 20m}]}`,
  'broken.yaml': `{agent: {name: broken, llm: {model: scripted/broken}}}`,
  'scripts/writer.yaml': `{answers: [{calls: [{name: write_file, args: {path: note.txt, content: noted}}]},
    {when: {after_tool: write_file}, text: 'Told: {{tool_result "write_file"}}'}]}`,
  'scripts/sleeper.yaml': `{answers: [{calls: [{name: nap, args: {}}]}, {when: {}, text: awake}]}`,
  'scripts/broken.yaml': `{answers: [{when: {}, error: {kind: invalid, message: the model is broken}}]}`,
};
for (const [name, text] of Object.entries(files)) {
  mkdirSync(dirname(join(dir, name)), { recursive: true });
  writeFileSync(join(dir, name), text);
}
const greeter = join(repository, 'examples/agents/greeter.yaml');
const env = { PATH: process.env.PATH, HOME: dir };

const started = [];

// daemon starts a daemon, which outlives the hosts, and returns its URL.
const daemon = async () =>
  'http://' + (await said(
    ['serve', '--addr', '127.0.0.1:0', '--admin-addr', 'off', '--data', ':memory:', '--scripts', scripts],
    /serving.*?(127\.0\.0\.1:\d+)/,
  ));

// said starts agentd and waits until it has said an address.
async function said(args, pattern) {
  const child = spawn(agentd, args, { cwd: dir, env, stdio: ['ignore', 'ignore', 'pipe'] });
  started.push(child);
  let text = '';
  child.stderr.setEncoding('utf8');
  return await new Promise((resolve, reject) => {
    child.stderr.on('data', (piece) => {
      const found = (text += piece).match(pattern);
      if (found) resolve(found[1] ?? found[0]);
    });
    child.on('exit', () => reject(new Error(`agentd ${args.join(' ')} has ended: ${text}`)));
  });
}

const text = (result) => result.content[0].text;

async function connect(transport, answer) {
  const client = new Client({ name: 'host', version: '1' }, { capabilities: answer ? { elicitation: {} } : {} });
  if (answer) client.setRequestHandler(ElicitRequestSchema, answer);
  await client.connect(transport);
  return client;
}

// status waits until the newest turn of the daemon has a status.
async function status(url, want) {
  let turn;
  for (let i = 0; i < 200; i++) {
    const { stdout } = await promisify(execFile)(agentd, ['turns', 'list', '--url', url, '--limit', '1'], { cwd: dir, env });
    turn = JSON.parse(stdout.split('\n')[0] || '{}');
    if (turn.status === want) return turn;
    await sleep(50);
  }
  assert.fail(`the turn is ${JSON.stringify(turn)}, want ${want}`);
}

async function drive(name, url, make) {
  let asked = '';
  const client = await connect(make(), async (request) => {
    asked = request.params.message;
    return { action: 'accept', content: { decision: 'once' } };
  });
  const { tools } = await client.listTools();
  assert.deepEqual(tools.map((t) => t.name).sort(), ['broken', 'greeter', 'sleeper', 'writer']);

  const heard = [];
  const first = await client.callTool({ name: 'greeter', arguments: { prompt: 'Say hi to Ann' } }, CallToolResultSchema, {
    onprogress: (p) => heard.push(p), resetTimeoutOnProgress: true,
  });
  assert.match(text(first), /Hello, Ann!/);
  assert.equal(first.structuredContent.text, text(first));
  assert.equal(first.structuredContent.usage.model_calls, 2);
  assert.ok(heard.some((p) => /greeter has started/.test(p.message)), JSON.stringify(heard));
  assert.ok(heard.every((p, i) => i === 0 || p.progress > heard[i - 1].progress));
  const { session_id } = first.structuredContent;
  const second = await client.callTool({ name: 'greeter', arguments: { prompt: 'Say hi to Bob', session_id } });
  assert.match(text(second), /Hello, Bob!/);
  assert.equal(second.structuredContent.session_id, session_id);

  assert.match(text(await client.callTool({ name: 'writer', arguments: { prompt: 'x' } })), /written/);
  assert.match(asked, /write_file wants to write: .*note\.txt/);
  assert.equal(readFileSync(join(dir, 'note.txt'), 'utf8'), 'noted');

  const failed = await client.callTool({ name: 'broken', arguments: { prompt: 'x' } });
  assert.equal(failed.isError, true);
  assert.match(text(failed), /the model is broken/);
  assert.match(failed.structuredContent.error.message, /the model is broken/);

  rmSync(join(dir, 'began'), { force: true });
  const stop = new AbortController();
  const call = client.callTool({ name: 'sleeper', arguments: { prompt: 'x' } }, CallToolResultSchema, { signal: stop.signal });
  call.catch(() => {});
  while (!existsSync(join(dir, 'began'))) await sleep(20);
  stop.abort('enough');
  await assert.rejects(call);
  assert.match((await status(url, 'TURN_STATUS_CANCELED')).statusMessage, /canceled by the MCP host/);
  await client.close();
  rmSync(join(dir, 'note.txt'));
  console.log(`the TypeScript client over ${name}: ok`);
}

// inspect runs the inspector's command line, and returns what it prints.
async function inspect(target, ...args) {
  const require = createRequire(import.meta.url);
  const home = dirname(require.resolve('@modelcontextprotocol/inspector/package.json'));
  const bin = JSON.parse(readFileSync(join(home, 'package.json'))).bin['mcp-inspector'];
  const { stdout } = await promisify(execFile)(process.execPath, [join(home, bin), '--cli', ...target, ...args], { cwd: dir, env });
  return JSON.parse(stdout);
}

try {
  const at = await daemon();
  const args = ['mcp', 'serve', '--url', at, greeter, 'writer.yaml', 'sleeper.yaml', 'broken.yaml'];
  await drive('standard input and output', at, () => new StdioClientTransport({ command: agentd, args, cwd: dir, env, stderr: 'inherit' }));
  const http = await said([...args, '--http', '127.0.0.1:0'], /http:\/\/127\.0\.0\.1:\d+\/mcp/);
  await drive('HTTP', at, () => new StreamableHTTPClientTransport(new URL(http)));

  for (const [name, target] of Object.entries({ stdio: [agentd, ...args], http: [http] })) {
    const { tools } = await inspect(target, '--method', 'tools/list', '--strict');
    assert.ok(tools.some((t) => t.name === 'greeter' && t.inputSchema.required.includes('prompt')));
    const result = await inspect(target, '--method', 'tools/call', '--tool-name', 'greeter', '--tool-arg', 'prompt=Say hi to Ann');
    assert.match(text(result), /Hello, Ann!/);
    console.log(`the inspector over ${name}: ok`);
  }
} finally {
  for (const child of started) child.kill();
  rmSync(dir, { recursive: true, force: true, maxRetries: 5 });
}
