// A real daemon for tests: the command, in a process of its own, on loopback.
import { execFile, spawn, type ChildProcess } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { TestContext } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

/** program is one of those that `npm test` builds first. */
const program = (name: string) => fileURLToPath(new URL(`./${name}`, import.meta.url));

/** Scripts of the models `scripted/…`, by name. */
export type Scripts = Record<string, string>;

/** Daemon is a daemon that can be stopped and started again on the same data. */
export class Daemon {
  url = "";
  readonly dir: string;
  readonly #program: string;
  readonly #args: string[];
  #child: ChildProcess | undefined;
  #ended: Promise<void> = Promise.resolve();

  constructor(dir: string, name: string, args: string[]) {
    this.dir = dir;
    this.#program = program(name);
    this.#args = args;
  }

  /** start starts it on a free port and waits until it serves. */
  async start(): Promise<void> {
    const child = spawn(this.#program, this.#args, {
      env: {}, // no keys
      stdio: ["pipe", "ignore", "pipe"],
    });
    this.#child = child;
    this.#ended = new Promise((resolve) => child.once("close", () => resolve()));
    const log: string[] = [];
    const lines = createInterface({ input: child.stderr! });
    this.url = await new Promise<string>((resolve, reject) => {
      lines.on("line", (line) => {
        log.push(line);
        const entry = JSON.parse(line) as { msg?: string; addr?: string };
        if (entry.msg === "serving") {
          resolve(`http://${entry.addr}`);
        }
      });
      child.once("error", reject);
      child.once("close", (code) => reject(new Error(`agentd ended with ${code}:\n${log.join("\n")}`)));
    });
  }

  /** end ends it with a signal and waits until it has ended. */
  async end(signal: NodeJS.Signals): Promise<void> {
    this.#child?.kill(signal);
    await this.#ended;
  }
}

/** serve starts a daemon for one test. Its data is on disk if it is to survive a restart. */
export function serve(t: TestContext, scripts: Scripts = {}, ...args: string[]): Promise<Daemon> {
  const base = ["serve", "--addr=127.0.0.1:0", "--admin-addr=off", "--log-format=json", "--handover-grace=50ms"];
  return start(t, scripts, "agentd", (dir) => [...base, `--data=${join(dir, "data")}`, `--scripts=${dir}`, ...args]);
}

/** Key is an API key: its id, and the text that its holder sends. */
export interface Key {
  id: string;
  key: string;
}

/** createKey makes an API key for a daemon of serve. From the first one on it asks who calls. */
export async function createKey(daemon: Daemon, name: string): Promise<Key> {
  const args = ["keys", "create", name, `--data=${join(daemon.dir, "data")}`, "--json"];
  const { stdout } = await promisify(execFile)(program("agentd"), args, { env: {} });
  return JSON.parse(stdout) as Key;
}

/** revokeKey ends one. */
export async function revokeKey(daemon: Daemon, { id }: Key): Promise<void> {
  await promisify(execFile)(program("agentd"), ["keys", "revoke", id, `--data=${join(daemon.dir, "data")}`], { env: {} });
}

/** guarded starts one that asks who calls: a bearer token is a name, and behind a slash a role. */
export function guarded(t: TestContext, scripts: Scripts): Promise<Daemon> {
  return start(t, scripts, "guarded", (dir) => [`-scripts=${dir}`]);
}

async function start(
  t: TestContext,
  scripts: Scripts,
  name: string,
  args: (dir: string) => string[],
): Promise<Daemon> {
  const dir = await mkdtemp(join(tmpdir(), "agentd-test-"));
  for (const [name, script] of Object.entries(scripts)) {
    await writeFile(join(dir, `${name}.yaml`), script);
  }
  const daemon = new Daemon(dir, name, args(dir));
  t.after(async () => {
    await daemon.end("SIGKILL");
    await rm(dir, { recursive: true, force: true });
  });
  await daemon.start();
  return daemon;
}
