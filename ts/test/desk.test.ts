// useSession with React in a real browser, strict mode and all, in the page of examples/desk, against a real daemon.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import type { AddressInfo } from "node:net";
import { after, before, test, type TestContext } from "node:test";
import { Agentd } from "@apzuk3/agentd";
import { chromium, type Browser, type Page } from "playwright-core";
import { launching, skip } from "./chromium.js";
import { serve } from "./daemon.js";
import { serveExample } from "./example.js";

const scripts = {
  triage: "answers: [{when: {}, calls: [{name: transfer_to_agent, args: {agent_name: billing}}]}]",
  billing: `
answers:
  - {when: {after_tool: refund}, text: '{{tool_result "refund"}}'}
  - {when: {after_tool: find_order}, text: "Let me see. ", calls: [{name: refund, args: {order: "7", amount: 30}}]}
  - {when: {user: parcel}, calls: [{name: transfer_to_agent, args: {agent_name: shipping}}]}
  - {when: {}, calls: [{name: find_order, args: {order: "7"}}]}
`,
  shipping: `
answers:
  - {when: {after_tool: track_parcel}, text: '{{tool_result "track_parcel"}}'}
  - {when: {}, calls: [{name: track_parcel, args: {order: "7"}}]}
`,
  closer: `answers: [{when: {}, text: '{"solved": true, "summary": "all is well"}'}]`,
};

test("it is at most 100 lines of at most 120 columns", () => {
  const lines = readFileSync(new URL("../../examples/desk/page.tsx", import.meta.url), "utf8").trimEnd().split("\n");
  assert.ok(lines.length <= 100, `${lines.length} lines`);
  assert.deepEqual(lines.filter((line) => line.length > 120), []);
});

let site: { url: string; close: () => void };
let browser: Browser;

before(async () => {
  if (skip === false) {
    const server = await serveExample("127.0.0.1", 0, "desk");
    site = { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, close: () => server.close() };
    browser = await chromium.launch(launching());
  }
});

after(async () => {
  await browser?.close();
  site?.close();
});

/** open opens the page and collects what goes wrong in it. */
async function open(t: TestContext, server: string, hash = ""): Promise<Page> {
  const context = await browser.newContext();
  const page = await context.newPage();
  const wrong: string[] = [];
  page.on("pageerror", (err) => wrong.push(String(err)));
  page.on("console", (message) => void (message.type() === "error" && !/favicon|net::ERR/.test(message.text() + message.location().url) && wrong.push(message.text())));
  t.after(async () => {
    await context.close();
    assert.deepEqual(wrong, []);
  });
  page.setDefaultTimeout(20_000);
  await page.goto(`${site.url}/?scripted&agentd=${encodeURIComponent(server)}${hash}`);
  return page;
}

const button = (page: Page, name: string) => page.getByRole("button", { name, exact: true }).click();
const said = (page: Page) => page.locator("#messages li").allTextContents();
const calls = async (page: Page) => (await page.locator("#calls li").allTextContents()).filter((line) => !line.startsWith("transfer_to_agent"));
const ready = (page: Page) => page.locator("#status", { hasText: /^ready$/ }).waitFor();
const ask = async (page: Page, prompt: string) => {
  await page.locator("input").fill(prompt);
  await button(page, "Ask");
};

test("a conversation with approval, a reload, a transfer and a value at the end", { skip, timeout: 90_000 }, async (t) => {
  const { url } = await serve(t, scripts, `--cors-origins=${site.url}`);
  const page = await open(t, url);
  await ask(page, "I want a refund for order 7");
  await page.locator(".approval", { hasText: 'refund {"amount":30,"order":"7"}?' }).waitFor();
  const before = ["user: I want a refund for order 7", "billing: Let me see. "];
  assert.deepEqual(await said(page), before);
  assert.equal(await page.locator("#status").textContent(), "running");
  await page.reload();
  await page.locator(".approval").waitFor();
  assert.deepEqual(await said(page), before);
  await button(page, "Yes");
  await ready(page);
  const refunded = [...before, "billing: refunded 30 dollars"];
  assert.deepEqual(await said(page), refunded);
  assert.deepEqual(await calls(page), ["find_order answered", "refund answered"]);
  assert.equal(await page.locator(".approval").count(), 0);

  await ask(page, "And where is my parcel?");
  await page.locator("#messages li", { hasText: "Oslo" }).waitFor();
  await ready(page);
  const whole = [...refunded, "user: And where is my parcel?", "shipping: P-1 is in Oslo"];
  assert.deepEqual(await said(page), whole);
  const second = await open(t, url, new URL(page.url()).hash);
  await ready(second);
  assert.deepEqual(await said(second), whole);
  assert.deepEqual(await calls(second), await calls(page));

  await ask(second, "And where is my parcel now?");
  whole.push("user: And where is my parcel now?", "shipping: P-1 is in Oslo");
  for (const one of [page, second]) {
    await one.locator("#messages li").nth(whole.length - 1).waitFor();
    await ready(one);
    assert.deepEqual(await said(one), whole);
  }

  await button(page, "Close the case");
  await page.locator("#closed", { hasText: "well" }).waitFor();
  assert.deepEqual(JSON.parse((await page.locator("#closed").textContent()) ?? ""), { solved: true, summary: "all is well" });
});

test("two pages see one turn; a denial reaches both, and a stop", { skip, timeout: 90_000 }, async (t) => {
  const { url } = await serve(t, scripts, `--cors-origins=${site.url}`);
  const first = await open(t, url);
  await ask(first, "refund 7");
  await first.locator(".approval").waitFor();
  const second = await open(t, url, new URL(first.url()).hash);
  await second.locator(".approval").waitFor();
  await button(second, "No");
  for (const page of [first, second]) {
    await page.locator("#messages li", { hasText: "not today" }).waitFor();
    await ready(page);
    assert.deepEqual(await calls(page), ["find_order answered"]); // a call that is denied is made nowhere
  }
  await ask(first, "refund 7");
  await first.locator(".approval").waitFor();
  await button(first, "Stop");
  await ready(first);
  assert.equal(await first.locator(".approval").count(), 0);
  assert.equal((await new Agentd(url).turns.get(new URL(first.url()).hash.slice(1))).status, "canceled");
});
