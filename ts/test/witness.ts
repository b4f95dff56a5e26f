// Those who watch a turn together: pages, each in a browser of its own, and a client in Go.
import assert from "node:assert/strict";
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { chromium, type Browser, type BrowserServer, type Page } from "playwright-core";
import { launching } from "./chromium.js";

const program = fileURLToPath(new URL("./witness", import.meta.url));
const prompt = "Find out which tea I would like";

/** How somebody leaves: as one who is done, or killed together with its process. */
export type Leave = "closed" | "killed";

/** Witness is somebody who watches a turn, and may have the tool of the page. */
export interface Witness {
  /** start starts the turn, and has its tool. It returns SESSION/TURN once the tool is asked for. */
  start(): Promise<string>;
  /** join follows a turn from its beginning, and returns when the tool's call is known. */
  join(turn: string, tool: boolean): Promise<void>;
  /** asked resolves when this witness's tool is asked for. */
  asked(): Promise<void>;
  /** answer is what the tool returns. */
  answer(tea: string): Promise<void>;
  /** done resolves when the turn has ended. */
  done(): Promise<void>;
  /** leave goes away and resolves when nothing of the witness is left; no other method may be called then. */
  leave(how: Leave): Promise<void>;
  /** facts are the events so far but for texts, each as its seq, its type and what it holds. */
  facts(): Promise<string[]>;
  /** said is the text so far. */
  said(): Promise<string>;
}

/** InPage is a page, in a browser process of its own. */
export class InPage implements Witness {
  readonly #site: string;
  readonly #daemon: string;
  readonly #server: BrowserServer;
  readonly #browser: Browser;
  readonly #page: Page;

  private constructor(site: string, daemon: string, server: BrowserServer, browser: Browser, page: Page) {
    [this.#site, this.#daemon, this.#server, this.#browser, this.#page] = [site, daemon, server, browser, page];
  }

  /** launch launches a browser for the page of a site that talks to a daemon. */
  static async launch(site: string, daemon: string): Promise<InPage> {
    const server = await chromium.launchServer(launching());
    const browser = await chromium.connect(server.wsEndpoint());
    return new InPage(site, daemon, server, browser, await browser.newPage());
  }

  async start(): Promise<string> {
    await this.#open("", "");
    await this.#page.locator("input[name=prompt]").fill(prompt);
    await this.#page.getByRole("button", { name: "Ask" }).click();
    await this.asked();
    return this.#page.evaluate(() => sessionStorage.getItem("turn") ?? "");
  }

  async join(turn: string, tool: boolean): Promise<void> {
    await this.#open(tool ? "&tool" : "", `#${turn}`);
    await this.#page.locator("#events li", { hasText: /tool_(call|notice)/ }).waitFor();
  }

  asked(): Promise<void> {
    return this.#page.locator("#teas button:enabled", { hasText: "Sencha" }).waitFor();
  }

  answer(tea: string): Promise<void> {
    return this.#page.getByRole("button", { name: tea }).click();
  }

  done(): Promise<void> {
    return this.#page.locator("#status", { hasText: /^completed$/ }).waitFor();
  }

  async leave(how: Leave): Promise<void> {
    if (how === "closed") {
      await this.#browser.close();
      await this.#server.close();
    } else {
      await this.#server.kill();
    }
  }

  facts(): Promise<string[]> {
    return this.#page.locator("#events li").allTextContents();
  }

  async said(): Promise<string> {
    return (await this.#page.locator("#said").textContent()) ?? "";
  }

  async #open(query: string, hash: string): Promise<void> {
    await this.#page.goto(`${this.#site}/?agentd=${encodeURIComponent(this.#daemon)}${query}${hash}`);
  }
}

/** InGo is the program of ts/test/witness. */
export class InGo implements Witness {
  readonly #daemon: string;
  readonly #facts: string[] = [];
  readonly #messages = new Map<string, string>();
  #turn = "";
  #child: ChildProcess | undefined;
  #ended: Promise<unknown> = Promise.resolve();
  #changed = () => {};

  constructor(daemon: string) {
    this.#daemon = daemon;
  }

  async start(): Promise<string> {
    this.#spawn("--tool", `--prompt=${prompt}`);
    await this.asked();
    return this.#turn;
  }

  async join(turn: string, tool: boolean): Promise<void> {
    const [session = "", id = ""] = turn.split("/");
    this.#spawn(`--session=${session}`, `--turn=${id}`, ...(tool ? ["--tool"] : []));
    await this.#has(/ tool_call(_announced)? /);
  }

  asked(): Promise<void> {
    return this.#has(/ tool_call /);
  }

  answer(tea: string): Promise<void> {
    return new Promise((resolve) => this.#child!.stdin!.write(`${tea}\n`, () => resolve()));
  }

  async done(): Promise<void> {
    await this.#ended;
    assert.match(this.#facts.at(-1) ?? "", /^\d+ end completed/);
  }

  /** leave ends the program; a client that is to leave its turn as it is has no other way to be closed. */
  async leave(how: Leave): Promise<void> {
    this.#child?.kill(how === "closed" ? "SIGTERM" : "SIGKILL");
    await this.#ended;
  }

  facts(): Promise<string[]> {
    return Promise.resolve(this.#facts);
  }

  said(): Promise<string> {
    return Promise.resolve([...this.#messages.values()].join("\n"));
  }

  #spawn(...args: string[]): void {
    const child = spawn(program, [`--url=${this.#daemon}`, ...args], { env: {}, stdio: ["pipe", "pipe", "inherit"] });
    this.#child = child;
    this.#ended = once(child, "close").then(() => this.#changed());
    createInterface({ input: child.stdout! }).on("line", (line) => {
      const { turn, message, text, fact } = JSON.parse(line) as { turn: string; message?: string; text?: string; fact?: string };
      this.#turn = turn;
      if (fact !== undefined) {
        this.#facts.push(fact);
      } else if (message !== undefined && text !== undefined) {
        this.#messages.set(message, (this.#messages.get(message) ?? "") + text);
      }
      this.#changed();
    });
  }

  async #has(fact: RegExp): Promise<void> {
    while (!this.#facts.some((line) => fact.test(line))) {
      assert.equal(this.#child?.exitCode, null, `the program has ended without ${fact}:\n${this.#facts.join("\n")}`);
      await new Promise<void>((resolve) => (this.#changed = resolve));
    }
  }
}
