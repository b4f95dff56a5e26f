// The package as npm publishes it, in a project that has nothing else: it needs no zod, and a page with it is small.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";
import { serve } from "./daemon.js";

const run = promisify(execFile);
const root = fileURLToPath(new URL("../", import.meta.url));
/** Where the package is installed: outside of this repository, so that nothing here is found from there. */
let project = "";

/** How large a page with one tool may be, in bytes, minified and gzipped: 40 kB is what was promised, and it had 20,200 when this was set. */
const maxPage = 22_000;

/** A module with a tool that is called and one whose arguments have no type. */
const program = `import { Agentd, jsonSchema, llm } from "@apzuk3/agentd";

export async function greet(url: string): Promise<string> {
  const agentd = new Agentd(url);
  agentd.addTool("greet", {
    description: "Returns a greeting",
    input: jsonSchema<{ name: string }>({ type: "object", properties: { name: { type: "string" } }, required: ["name"] }),
    run: ({ name }) => \`Hello, \${name.toUpperCase()}!\`,
  });
  agentd.addTool("plain", {
    description: "Takes anything",
    input: { type: "object" },
    // @ts-expect-error nothing is known of the arguments of a plain JSON Schema
    run: (input) => input.name,
  });
  const agent = llm({ name: "greeter", model: "scripted/demo", tools: ["greet"] });
  const { text } = await agentd.run({ agent, prompt: "Say hi to Alice" }).result();
  return text;
}
`;

const config = {
  compilerOptions: {
    target: "es2022",
    lib: ["es2022", "dom", "dom.iterable", "dom.asynciterable"],
    module: "nodenext",
    types: [],
    strict: true,
    skipLibCheck: false,
  },
  files: ["program.ts"],
};

/** packed makes tarballs of packages in the project and returns their names. */
async function packed(folders: string[]): Promise<string[]> {
  const { stdout } = await run(
    "npm",
    ["pack", "--json", "--ignore-scripts", `--pack-destination=${project}`, ...folders],
    { cwd: root },
  );
  return (JSON.parse(stdout.slice(stdout.indexOf("["))) as { filename: string }[]).map(({ filename }) => filename);
}

before(async () => {
  project = await mkdtemp(join(tmpdir(), "agentd-package-"));
  // It depends on nothing, so that no registry is asked.
  const tarballs = await packed([root]);
  await writeFile(join(project, "package.json"), '{"private": true, "type": "module"}');
  await run(
    "npm",
    ["install", "--offline", "--no-audit", "--no-fund", "--ignore-scripts", ...tarballs.map((name) => `./${name}`)],
    { cwd: project },
  );
  await writeFile(join(project, "program.ts"), program);
  await writeFile(join(project, "tsconfig.json"), JSON.stringify(config));
  await run(process.execPath, [`${root}node_modules/typescript/bin/tsc`, "-p", project]).catch(
    (err: { stdout: string }) => {
      throw new Error(`tsc: ${err.stdout}`);
    },
  );
});

after(() => rm(project, { recursive: true, force: true }));

/** said runs a module in the project and returns what it writes. */
async function said(code: string): Promise<string> {
  const { stdout } = await run(process.execPath, ["--input-type=module", "--eval", code], { cwd: project });
  return stdout.trim();
}

test("a program with a tool of a JSON Schema needs no zod", async (t) => {
  const { url } = await serve(t);
  assert.equal(
    await said(`console.log(await (await import("./program.js")).greet(${JSON.stringify(url)}))`),
    "Let me use greet for that.The tool greet says: Hello, ALICE!",
  );
});

test("only the entries that need others ask for them", async () => {
  const failing = (entry: string) =>
    said(`await import(${JSON.stringify(entry)}).then(() => console.log("found"), (err) => console.log(err.message))`);
  assert.equal(await failing("@apzuk3/agentd"), "found");
  assert.match(await failing("@apzuk3/agentd/proto"), /^Cannot find package '@bufbuild\/protobuf'/);
  assert.match(await failing("@apzuk3/agentd/zod"), /^Cannot find package 'zod'/);
  assert.equal(await failing("@apzuk3/agentd/ai"), "found"); // which takes types alone from it
  assert.match(await failing("@apzuk3/agentd/react"), /^Cannot find package 'react'/);
});

test("a page with one tool is small", async (t) => {
  const { outputFiles } = await build({
    stdin: {
      contents: 'import { greet } from "./program.js"; document.title = await greet(location.origin);',
      resolveDir: project,
    },
    bundle: true,
    minify: true,
    write: false,
    format: "esm",
    target: "es2022",
  });
  const page = outputFiles[0]?.contents ?? new Uint8Array();
  const size = gzipSync(page, { level: 9 }).length;
  t.diagnostic(`a page with one tool: ${page.length} bytes minified, ${size} gzipped`);
  assert.ok(size > 0 && size <= maxPage, `${size} bytes gzipped, at most ${maxPage} are allowed`);
});
