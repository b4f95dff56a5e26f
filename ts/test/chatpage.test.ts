// useChat of the AI SDK in a real browser, with React's strict mode: a call that waits for approval, and a reload meanwhile.
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { chromium } from "playwright-core";
import { launching, skip } from "./chromium.js";
import { serve } from "./daemon.js";

const root = fileURLToPath(new URL("../", import.meta.url));
const pay = `
answers:
  - {when: {after_tool: pay}, text: '{{tool_result "pay"}}'}
  - {when: {}, text: "Let me see.", calls: [{name: pay, args: {}}]}
`;

test("a chat with approval goes on after a reload", { skip, timeout: 60_000 }, async (t) => {
  const { outputFiles } = await build({
    entryPoints: [`${root}dist-test/chatpage.js`], bundle: true, write: false, format: "esm", target: "es2022", define: { "process.env.NODE_ENV": '"production"' },
    alias: { "@apzuk3/agentd/ai": `${root}dist/ai.js`, "@apzuk3/agentd": `${root}dist/index.js` },
  });
  const site = createServer((request, response) => {
    const script = request.url === "/main.js";
    response.writeHead(200, { "content-type": script ? "text/javascript" : "text/html" });
    response.end(script ? outputFiles[0]?.contents : '<meta charset="utf-8"><title>here</title><div id="page"></div><script type="module" src="/main.js"></script>');
  }).listen(0, "127.0.0.1");
  await once(site, "listening");
  t.after(() => site.close());
  const origin = `http://127.0.0.1:${(site.address() as AddressInfo).port}`;
  const { url } = await serve(t, { pay }, `--cors-origins=${origin}`);
  const browser = await chromium.launch(launching());
  t.after(() => browser.close());
  const page = await browser.newPage();
  page.setDefaultTimeout(20_000);
  const wrong: string[] = [];
  page.on("pageerror", (err) => wrong.push(String(err)));
  await page.goto(`${origin}/?agentd=${encodeURIComponent(url)}#chat-in-a-page`);
  const click = (name: string) => page.getByRole("button", { name }).click();
  const said = () => page.locator("li").allTextContents();
  await page.locator("#status", { hasText: "ready" }).waitFor();
  await click("Ask");
  await page.getByRole("button", { name: "Yes" }).waitFor();
  assert.deepEqual(await said(), ["user: pay", "assistant: Let me see."]);
  await page.reload();
  await page.getByRole("button", { name: "Yes" }).waitFor();
  assert.deepEqual(await said(), ["assistant: Let me see."]); // the page keeps no messages of its own
  await click("Yes");
  await page.locator("li", { hasText: "paid from here" }).waitFor();
  await page.locator("#status", { hasText: "ready" }).waitFor();
  assert.deepEqual(await said(), ["assistant: Let me see.", "assistant: paid from here"]);
  assert.deepEqual(wrong, []);
});
