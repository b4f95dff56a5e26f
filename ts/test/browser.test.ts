// The built package in a real browser, in the page of examples/web, over HTTP/1.1 from another origin.
import assert from "node:assert/strict";
import type { AddressInfo } from "node:net";
import { after, before, test, type TestContext } from "node:test";
import { Agentd } from "@apzuk3/agentd";
import { chromium, type Browser, type Page } from "playwright-core";
import { launching, skip } from "./chromium.js";
import { serve, type Daemon, type Scripts } from "./daemon.js";
import { serveExample } from "./example.js";
import { proxy } from "./proxy.js";

const origins: { close: () => void; url: string }[] = [];
let browser: Browser;

before(async () => {
  if (skip !== false) {
    return;
  }
  for (let i = 0; i < 2; i++) {
    const server = await serveExample("127.0.0.1", 0);
    origins.push({ url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, close: () => server.close() });
  }
  browser = await chromium.launch(launching());
});

after(async () => {
  await browser?.close();
  origins.forEach((origin) => origin.close());
});

/** daemonFor starts a daemon that lets the first origin in, and not the second. */
function daemonFor(t: TestContext, scripts: Scripts = {}): Promise<Daemon> {
  return serve(t, scripts, `--cors-origins=${origins[0]!.url}`);
}

async function open(t: TestContext, server: string, origin = 0, hash = ""): Promise<Page> {
  const context = await browser.newContext();
  t.after(() => context.close());
  const page = await context.newPage();
  await page.goto(`${origins[origin]!.url}/?agentd=${encodeURIComponent(server)}${hash}`);
  return page;
}

/** asked waits until the tool in the page asks its visitor. */
const asked = (page: Page) => page.locator("#teas button:enabled", { hasText: "Sencha" }).waitFor();
const ask = (page: Page) => page.getByRole("button", { name: "Ask" }).click();
const pick = (page: Page, tea: string) => page.getByRole("button", { name: tea }).click();
const completed = (page: Page) => page.locator("#status", { hasText: /^completed$/ }).waitFor();
const said = (page: Page) => page.locator("#said").textContent();
const events = async (page: Page) => (await page.locator("#events li").allTextContents()).map((line) => line.replace("tool_call_announced", "tool_call"));
const turnOf = (page: Page) => page.evaluate(() => sessionStorage.getItem("turn") ?? "");

test("a whole turn with a tool in the page, from another origin", { skip }, async (t) => {
  const page = await open(t, (await daemonFor(t)).url);
  await ask(page);
  await asked(page);
  await pick(page, "Sencha");
  await completed(page);
  assert.equal(await said(page), "Let me use pick_tea for that.\nThe tool pick_tea says: Sencha");
  assert.match((await page.locator("#cost").textContent()) ?? "", /^\$0\.0000/);
});

test("a file that the visitor chooses goes with the prompt", { skip }, async (t) => {
  const demo = "answers:\n  - {when: {after_tool: pick_tea}, text: '{{last_user}}'}\n  - {when: {}, calls: [{name: pick_tea, args: {question: which}}]}\n";
  const page = await open(t, (await daemonFor(t, { demo })).url);
  const files = ["image/png", "application/pdf"].map((mimeType) => ({ name: mimeType.replace("/", "."), mimeType, buffer: Buffer.from([0, 128, 255]) }));
  await page.locator("input[name=file]").setInputFiles(files);
  await ask(page);
  await asked(page);
  await pick(page, "Assam");
  await completed(page);
  assert.equal(await said(page), "Find out which tea I would like\n[image/png, 3 bytes]\n[application/pdf, 3 bytes]");
});

test("a page of an origin that is not let in is told so", { skip }, async (t) => {
  const page = await open(t, (await daemonFor(t)).url, 1);
  await ask(page);
  const says = /^failed: AgentdError: http\S+ cannot be reached: .+does it let this page in \(agentd serve --cors-origins=(\S+)\)\?$/;
  const status = page.locator("#status", { hasText: says });
  await status.waitFor();
  assert.equal(says.exec((await status.textContent()) ?? "")?.[1], origins[1]!.url);
});

test("a reload in the middle of a turn goes on with it", { skip }, async (t) => {
  const daemon = await daemonFor(t);
  const page = await open(t, daemon.url);
  await ask(page);
  await asked(page);
  const [sessionId = ""] = (await turnOf(page)).split("/");
  await page.reload();
  await asked(page);
  await pick(page, "Assam");
  await completed(page);
  assert.equal(await said(page), "Let me use pick_tea for that.\nThe tool pick_tea says: Assam");
  const turns = [];
  for await (const turn of new Agentd(daemon.url).turns.list({ sessionId })) {
    turns.push(turn);
  }
  assert.deepEqual(turns.map((turn) => turn.outputText), ["The tool pick_tea says: Assam"]);
});

test("two pages watch one turn and see the same", { skip }, async (t) => {
  const daemon = await daemonFor(t);
  const first = await open(t, daemon.url);
  await ask(first);
  await asked(first);
  const second = await open(t, daemon.url, 0, `#${await turnOf(first)}`);
  await second.locator("#events li", { hasText: "tool_call_announced" }).waitFor();
  assert.equal(await second.locator("#teas button:enabled").count(), 0);
  await pick(first, "Rooibos");
  await Promise.all([completed(first), completed(second)]);
  assert.match((await said(first)) ?? "", /says: Rooibos$/);
  assert.equal(await said(first), await said(second));
  assert.deepEqual(await events(first), await events(second));
  assert.ok((await events(first)).length >= 3);
});

test("a page survives cuts of its connection and a restart of the daemon", { skip }, async (t) => {
  const daemon = await daemonFor(t);
  const way = await proxy(t, daemon.url);
  way.cutAfter = () => 1500;
  const page = await open(t, way.url);
  await ask(page);
  await asked(page);
  await daemon.end("SIGKILL");
  await daemon.start();
  way.target = daemon.url;
  await pick(page, "Sencha");
  await completed(page);
  assert.equal(await said(page), "Let me use pick_tea for that.\nThe tool pick_tea says: Sencha");
  assert.ok(way.cuts > 0);
});
