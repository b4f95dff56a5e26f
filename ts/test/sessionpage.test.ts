// useSession in a real browser, with React's strict mode: pages on one session show each other's turns, without a reload.
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { Agentd, llm } from "@apzuk3/agentd";
import { build } from "esbuild";
import { chromium, type Page } from "playwright-core";
import { launching, skip } from "./chromium.js";
import { serve } from "./daemon.js";
import { proxy } from "./proxy.js";

const root = fileURLToPath(new URL("../", import.meta.url));
const click = (page: Page, name: string) => page.getByRole("button", { name, exact: true }).click();
const ready = (page: Page) => page.locator("#status", { hasText: /^ready$/ }).waitFor();
const said = (page: Page) => page.locator("li").allTextContents();

/** shows waits until a page has so many messages and is ready, and returns them. */
async function shows(page: Page, count: number): Promise<string[]> {
  await page.locator("li").nth(count - 1).waitFor();
  await ready(page);
  return said(page);
}

test("pages on one session show each other's turns, across lost connections, taken down and put up", { skip, timeout: 90_000 }, async (t) => {
  const { outputFiles } = await build({
    entryPoints: [`${root}dist-test/sessionpage.js`], bundle: true, write: false, format: "esm", target: "es2022", define: { "process.env.NODE_ENV": '"development"' },
    alias: { "@apzuk3/agentd/react": `${root}dist/react.js`, "@apzuk3/agentd": `${root}dist/index.js` },
  });
  const site = createServer((request, response) => {
    const script = request.url === "/main.js";
    response.writeHead(200, { "content-type": script ? "text/javascript" : "text/html" });
    response.end(script ? outputFiles[0]?.contents : '<meta charset="utf-8"><div id="page"></div><script type="module" src="/main.js"></script>');
  }).listen(0, "127.0.0.1");
  await once(site, "listening");
  t.after(() => site.close());
  const origin = `http://127.0.0.1:${(site.address() as AddressInfo).port}`;
  const daemon = await serve(t, {}, `--cors-origins=${origin}`);
  const way = await proxy(t, daemon.url);
  const browser = await chromium.launch(launching());
  t.after(() => browser.close());
  const agentd = new Agentd(daemon.url);
  const { id } = await agentd.sessions.create();
  const wrong: string[] = [];
  const open = async (name: string, url: string) => {
    const page = await browser.newPage();
    page.setDefaultTimeout(20_000);
    page.on("pageerror", (err) => wrong.push(String(err)));
    page.on("console", (message) => void (message.type() === "error" && !/favicon|net::ERR/.test(message.text() + message.location().url) && wrong.push(message.text())));
    await page.goto(`${origin}/?name=${name}&session=${id}&agentd=${encodeURIComponent(url)}`);
    await ready(page);
    return page;
  };
  const first = await open("the first", daemon.url);
  const second = await open("the second", way.url);
  const expected: string[] = [];
  const both = async (...more: string[]) => {
    expected.push(...more);
    assert.deepEqual(await shows(first, expected.length), expected);
    assert.deepEqual(await shows(second, expected.length), expected);
  };
  await click(first, "Ask");
  await both("user: by the first", "agent: by the first");
  await click(second, "Ask");
  await both("user: by the second", "agent: by the second");
  await agentd.run({ agent: llm({ name: "a", model: "echo" }), sessionId: id, prompt: "by a program" }).result();
  await both("user: by a program", "agent: by a program");

  way.cut();
  await click(first, "Ask");
  await both("user: by the first", "agent: by the first");

  await click(second, "Take down");
  await click(first, "Ask");
  await shows(first, expected.length + 2);
  await click(second, "Put up");
  await both("user: by the first", "agent: by the first");
  for (let i = 0; i < 3; i++) {
    await click(second, "Take down");
    await click(second, "Put up");
  }
  await ready(second);
  await click(second, "Ask");
  await both("user: by the second", "agent: by the second");
  await second.reload();
  await both();
  assert.deepEqual(wrong, []);
});
