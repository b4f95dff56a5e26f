import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { serve } from "./daemon.js";

const run = promisify(execFile);
const root = fileURLToPath(new URL("../", import.meta.url));

/** What the README's lines about schemas and files stand in. */
const around = `import { llm, ToolOutput, type Agent, type Agentd } from "@apzuk3/agentd";
declare const agentd: Agentd, agent: Agent, file: File;
declare function picture(): Promise<Uint8Array>;
`;

test("the program of the README compiles as strict code and runs", async (t) => {
  const daemon = await serve(t);
  const readme = await readFile(`${root}README.md`, "utf8");
  const [program = "", schemas = "", files = "", hook = "", chat = "", backend = "", source = ""] = Array.from(readme.matchAll(/```ts\n([^]*?)```/g), (block) => block[1]);
  const ours = program.replace("http://127.0.0.1:8080", daemon.url);
  assert.notEqual(ours, program, "the README names no server");
  const dir = `${root}dist-test/readme`;
  await mkdir(dir, { recursive: true });
  await writeFile(`${dir}/program.ts`, ours);
  assert.match(files, /new ToolOutput/);
  await writeFile(`${dir}/files.ts`, around.replace("llm, ", "") + files);
  assert.match(chat, /AgentdChatTransport\(/);
  await writeFile(`${dir}/chat.ts`, `${around.replace("llm, ToolOutput, ", "").replace(", file: File", "").replace(/declare function.*\n/, "")}${chat}export { useDeskChat };`);
  assert.match(backend + source, /createToken[^]*new Agentd\([^]*, { token }\)/);
  await writeFile(`${dir}/token.ts`, `import { Agentd, type SessionToken } from "@apzuk3/agentd";\n${backend}${source}export { page, tokenFor };`);
  assert.match(hook, /useSession\(/);
  await writeFile(`${dir}/hook.ts`, `${around.replace("llm, ToolOutput, ", "").replace(", file: File", "").replace(/declare function.*\n/, "")}${hook}export { useDesk };`);
  assert.match(schemas, /zodSchema\(/);
  await writeFile(`${dir}/schemas.ts`, `${around.replace("ToolOutput, ", "")}${schemas}export { city };`);
  await writeFile(`${dir}/tsconfig.json`, '{"extends": "../../test/tsconfig.json", "compilerOptions": {"rootDir": ".", "outDir": "."}, "include": [], "files": ["program.ts", "schemas.ts", "files.ts", "hook.ts", "chat.ts", "token.ts"]}');
  await run(process.execPath, [`${root}node_modules/typescript/bin/tsc`, "-p", dir]);
  const { stdout } = await run(process.execPath, [`${dir}/program.js`]);
  assert.match(stdout, /The \ntool \ngreet \nsays: \nHello, \nAlice!/);
  assert.match(stdout, /completed: true/);
  assert.match(stdout, /The tool greet says: Hello, Bob!\n$/);
});

test("the package holds what it promises, and nothing else", async () => {
  const { stdout } = await run("npm", ["pack", "--dry-run", "--json", "--ignore-scripts"], { cwd: root });
  const [{ files }] = JSON.parse(stdout.slice(stdout.indexOf("["))) as [{ files: { path: string }[] }];
  const paths = files.map(({ path }) => path);
  const pack = JSON.parse(await readFile(`${root}package.json`, "utf8")) as { exports: Record<string, string | Record<string, string>> };
  for (const target of Object.values(pack.exports).flatMap((e) => (typeof e === "string" ? [e] : Object.values(e)))) {
    assert.ok(paths.includes(target.replace("./", "")), `${target} is missing`);
  }
  assert.deepEqual(paths.filter((path) => !/^(dist\/.*\.(js|d\.ts|js\.map)|package\.json|README\.md|LICENSE)$/.test(path)), []);
});
