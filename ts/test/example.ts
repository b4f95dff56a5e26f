// Bundles one of the pages among the examples and serves it; a program, and what the browser's tests load.
import { readFile } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const root = fileURLToPath(new URL("../", import.meta.url));
const examples = fileURLToPath(new URL("../../examples/", import.meta.url));

/** Each page's program. */
const programs = { web: "main.ts", desk: "page.tsx" } as const;

/** serveExample serves a page on a host and a port, 0 for a free one. */
export async function serveExample(host: string, port: number, name: keyof typeof programs = "web"): Promise<Server> {
  const example = `${examples}${name}/`;
  const { outputFiles } = await build({
    entryPoints: [`${example}${programs[name]}`],
    jsx: "automatic",
    nodePaths: [`${root}node_modules`],
    bundle: true,
    write: false,
    format: "esm",
    target: "es2022",
    alias: { "@apzuk3/agentd/react": `${root}dist/react.js`, "@apzuk3/agentd": `${root}dist/index.js` },
  });
  const files = new Map([
    ["/", { type: "text/html", body: await readFile(`${example}index.html`) }],
    ["/main.js", { type: "text/javascript", body: Buffer.from(outputFiles[0]?.contents ?? []) }],
  ]);
  const server = createServer((request, response) => {
    const file = files.get(new URL(request.url ?? "/", "http://page").pathname);
    response.writeHead(file === undefined ? 404 : 200, { "content-type": file?.type ?? "text/plain" });
    response.end(file?.body);
  });
  server.listen(port, host);
  await once(server, "listening");
  return server;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  await serveExample("localhost", 8081, process.argv[2] === "desk" ? "desk" : "web");
  console.log("http://localhost:8081");
}
