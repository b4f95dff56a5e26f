// useSession in a real browser, with React's strict mode: pages on one session show each other's turns, without a reload.
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test, type TestContext } from "node:test";
import { fileURLToPath } from "node:url";
import { Agentd, llm } from "@apzuk3/agentd";
import { build } from "esbuild";
import { chromium, type Page } from "playwright-core";
import { launching, skip } from "./chromium.js";
import { createKey, serve } from "./daemon.js";
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

/** serveSite serves the page, and under /token what token returns. It returns the site's origin. */
async function serveSite(t: TestContext, token: () => Promise<string> = () => assert.fail("no tokens")): Promise<string> {
  const { outputFiles } = await build({
    entryPoints: [`${root}dist-test/sessionpage.js`], bundle: true, write: false, format: "esm", target: "es2022", define: { "process.env.NODE_ENV": '"development"' },
    alias: { "@apzuk3/agentd/react": `${root}dist/react.js`, "@apzuk3/agentd": `${root}dist/index.js` },
  });
  const site = createServer((request, response) => {
    if (request.url === "/token") {
      void token().then((text) => response.end(text), () => response.destroy());
      return;
    }
    const script = request.url === "/main.js";
    response.writeHead(200, { "content-type": script ? "text/javascript" : "text/html" });
    response.end(script ? outputFiles[0]?.contents : '<meta charset="utf-8"><div id="page"></div><script type="module" src="/main.js"></script>');
  }).listen(0, "127.0.0.1");
  await once(site, "listening");
  t.after(() => site.close());
  return `http://127.0.0.1:${(site.address() as AddressInfo).port}`;
}

test("pages on one session show each other's turns, across lost connections, taken down and put up", { skip, timeout: 90_000 }, async (t) => {
  const origin = await serveSite(t);
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

test("a page has tokens for its session from its own server, from another origin, and goes on when one expires", { skip, timeout: 90_000 }, async (t) => {
  let token = (): Promise<string> => assert.fail("asked too early");
  const origin = await serveSite(t, () => token());
  const daemon = await serve(t, {}, `--cors-origins=${origin}`);
  const owner = new Agentd(daemon.url, { token: (await createKey(daemon, "ada")).key });
  const { id } = await owner.sessions.create();
  token = async () => (await owner.sessions.createToken(id, { agents: true, lifetimeMs: 1_500 })).token;
  const way = await proxy(t, daemon.url);
  const browser = await chromium.launch(launching());
  t.after(() => browser.close());
  const open = async (session: string) => {
    const page = await browser.newPage();
    page.setDefaultTimeout(20_000);
    await page.goto(`${origin}/?tokens=/token&name=the page&session=${session}&agentd=${encodeURIComponent(way.url)}`);
    return page;
  };
  const page = await open(id);
  await ready(page);
  await click(page, "Ask");
  assert.deepEqual(await shows(page, 2), ["user: by the page", "agent: by the page"]);
  const { length } = way.requests.filter((method) => method === "WatchSession");
  await way.seen("WatchSession", length + 2); // the token of the stream has expired, and so has the next one
  await owner.run({ agent: llm({ name: "a", model: "echo" }), sessionId: id, prompt: "by the owner" }).result();
  assert.deepEqual((await shows(page, 4)).slice(2), ["user: by the owner", "agent: by the owner"]);
  await click(page, "Ask");
  assert.deepEqual((await shows(page, 6)).slice(4), ["user: by the page", "agent: by the page"]);

  // To the holder of the token another session does not exist.
  const other = await owner.sessions.create();
  await owner.run({ agent: llm({ name: "a", model: "echo" }), sessionId: other.id, prompt: "secret" }).result();
  const stranger = await open(other.id);
  await stranger.locator("#status", { hasText: `"${other.id}" does not exist` }).waitFor();
  assert.deepEqual(await said(stranger), []);
});
