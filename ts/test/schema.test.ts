// What tools and outputs take for a schema, what it makes of arguments, and their types.
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  Agentd,
  AgentdError,
  jsonSchema,
  llm,
  type InputOf,
  type OutputOf,
  type Schema,
  type TypedSchema,
  type Validator,
} from "@apzuk3/agentd";
import { zodSchema } from "@apzuk3/agentd/zod";
import { z } from "zod";
import * as mini from "zod/mini";
import { Tool, type ToolResult } from "../dist/tool.js";
import { serve } from "./daemon.js";

const description = "x";
const asked = { toolCallId: "c", sessionId: "s", agentPath: [], state: {} };
const people = { type: "object", properties: { people: { type: "integer" } }, required: ["people"] };

/** Same is whether two types are the same. */
type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
const holds = <T extends true>(): T | undefined => undefined;

/** declared is the JSON Schema that the server is told. */
function declared(input: Schema): unknown {
  return JSON.parse(new Tool("t", { description, input, run: () => 1 }).declaration.inputSchema ?? "null");
}

/** echoed is what a tool with a schema gets for arguments, as JSON, or why it is not run. */
function echoed(input: Schema, args: unknown): Promise<ToolResult> {
  return new Tool("t", { description, input, run: (got) => got }).call(
    { ...asked, toolInput: JSON.stringify(args) },
    new AbortController().signal,
  );
}

/** byHand is a schema of no library that counts as one. */
function byHand<T>(validate: Validator<unknown, T>["~standard"]["validate"]): Validator<unknown, T> {
  return { "~standard": { version: 1, vendor: "byhand", validate } };
}

const refused = (says: RegExp) => (err: unknown) =>
  err instanceof AgentdError && err.code === "INVALID_REQUEST" && says.test(err.message);

test("a plain JSON Schema is declared as it is, and refuses nothing", async () => {
  assert.deepEqual(declared(people), people);
  assert.deepEqual(declared({ $schema: "http://json-schema.org/draft-07/schema#", ...people }), {
    $schema: "http://json-schema.org/draft-07/schema#",
    ...people,
  });
  assert.deepEqual(await echoed(people, { people: "none" }), { output: '{"people":"none"}' });
  assert.deepEqual(people, { type: "object", properties: { people: { type: "integer" } }, required: ["people"] });
});

test("what changes in a JSON Schema after its tool was added is not declared", () => {
  const schema = { type: "object", properties: {} as Record<string, unknown> };
  const tool = new Tool("t", { description, input: schema, run: () => 1 });
  schema.properties["late"] = { type: "string" };
  assert.equal(tool.declaration.inputSchema, '{"type":"object","properties":{}}');
});

test("schemas of zod, of zod/mini and plain ones declare the same", () => {
  const want = {
    ...people,
    properties: { people: { type: "integer", minimum: Number.MIN_SAFE_INTEGER, maximum: Number.MAX_SAFE_INTEGER } },
  };
  const schema = z.object({ people: z.int() });
  for (const input of [
    schema,
    zodSchema(schema),
    zodSchema(mini.object({ people: mini.int() })),
    z.toJSONSchema(schema, { io: "input" }),
  ]) {
    assert.deepEqual(declared(input), want);
  }
});

test("zod's own refusal is that of zodSchema, in zod's words", async () => {
  const schema = z.object({ name: z.string(), list: z.array(z.object({ "a b": z.number() })) });
  const args = { name: 5, list: [{ "a b": 1 }, { "a b": "x" }] };
  const why = `the arguments do not fit the schema of t:\n${z.prettifyError(schema.safeParse(args).error!)}`;
  assert.match(why, /✖ .*expected number.*\n {2}→ at list\[1\]\["a b"\]$/);
  for (const input of [schema, zodSchema(schema)]) {
    assert.deepEqual(await echoed(input, args), { error: why });
  }
});

test("a tool gets what validation returns, also later", async () => {
  const twice = z.object({ n: z.number().transform((n) => Promise.resolve(2 * n)) });
  for (const input of [twice, zodSchema(twice)]) {
    assert.deepEqual(await echoed(input, { n: 2 }), { output: '{"n":4}' });
  }
  const slow = jsonSchema(
    people,
    byHand((value) => Promise.resolve({ value: [value] })),
  );
  assert.deepEqual(await echoed(slow, 1), { output: "[1]" });
});

test("refusals of any library name the place", async () => {
  const issues = [
    { message: "deep", path: ["list", { key: 0 }, { key: Symbol("s") }] },
    { message: "whole" },
    { message: "also whole", path: [] },
    { message: "odd", path: ["a-b", "c"] },
  ];
  const refusal = await echoed(
    jsonSchema(
      people,
      byHand(() => ({ issues })),
    ),
    {},
  );
  const want = '✖ whole\n✖ also whole\n✖ odd\n  → at ["a-b"].c\n✖ deep\n  → at list[0]["Symbol(s)"]';
  assert.deepEqual(refusal, { error: `the arguments do not fit the schema of t:\n${want}` });
});

test("a validator that throws, or returns nothing, is a tool error", async () => {
  const thrower = byHand(() => {
    throw new Error("no luck");
  });
  assert.deepEqual(await echoed(jsonSchema(people, thrower), {}), { error: "no luck" });
  const mute = byHand(() => undefined as never);
  assert.ok((await echoed(jsonSchema(people, mute), {})).error);
});

test("a schema may be a function, and know an older draft alone", () => {
  const input = ({ target }: { target: string }) => {
    assert.equal(target, "draft-07", "unknown draft");
    return { ...people };
  };
  const standard = { version: 1, vendor: "byhand", jsonSchema: { input, output: input } } as const;
  assert.deepEqual(declared(Object.assign(() => 1, { "~standard": standard })), people);
});

test("what has no JSON Schema of an object is refused", () => {
  const loose = (what: unknown) => () => declared(what as Schema);
  for (const wrong of [null, 5, "object", [], true]) {
    assert.throws(loose(wrong), refused(/^the input of tool t must be a JSON Schema or a Standard Schema/));
  }
  assert.throws(loose({}), refused(/must be a schema of the type "object", not "anything"$/));
  assert.throws(loose({ type: "array" }), refused(/must be a schema of the type "object", not "array"$/));
  const cycle: Record<string, unknown> = { type: "object" };
  cycle["properties"] = cycle;
  assert.throws(loose(cycle), refused(/has no JSON Schema: .*circular/));
  assert.throws(
    loose(byHand(() => ({ issues: [] }))),
    refused(/a schema of byhand without a JSON Schema: jsonSchema\(/),
  );
  assert.throws(
    loose(mini.object({})),
    refused(/a schema of zod without a JSON Schema: zodSchema\(schema\) of @apzuk3\/agentd\/zod/),
  );
  assert.throws(loose(z.object({ d: z.date() })), refused(/has no JSON Schema: .*Date/));
  assert.throws(loose(zodSchema(z.object({ d: z.date() }))), refused(/has no JSON Schema: .*Date/));
  for (const wrong of [undefined, null, 5, people]) {
    assert.throws(() => zodSchema(wrong as never), refused(/takes a schema of zod 4/));
  }
});

test("an input and an output that are undefined are left out", () => {
  const tool = new Tool("t", { description, input: undefined as never, run: () => 1 });
  assert.equal(tool.declaration.inputSchema, undefined);
  const agent = llm({ name: "a", model: "echo", output: undefined as never });
  assert.ok(!JSON.stringify(agent).includes("outputSchema"));
});

test("an agent's output is a JSON Schema", async (t) => {
  const { url } = await serve(t, {
    city: `answers: [{text: '{"people": 700000}'}]`,
    wrong: `answers: [{when: {}, text: '{"people": "many"}'}]`,
  });
  const agentd = new Agentd(url);
  for (const output of [
    people,
    jsonSchema<{ people: number }>(people),
    zodSchema(mini.object({ people: mini.int() })),
  ]) {
    const { structuredOutput } = await agentd
      .run({ agent: llm({ name: "a", model: "scripted/city", output }), prompt: "go" })
      .result();
    assert.deepEqual(structuredOutput, { people: 700_000 });
    await assert.rejects(
      agentd.run({ agent: llm({ name: "a", model: "scripted/wrong", output }), prompt: "go" }).result(),
      { code: "OUTPUT_INVALID" },
    );
  }
});

/** As types of JSON Schema in other packages are declared. */
interface Foreign {
  type?: string;
  properties?: Record<string, Foreign>;
}

test("arguments have the types of their schema", () => {
  const agentd = new Agentd("http://127.0.0.1:1");
  const length = z.object({ n: z.string().transform((s) => s.length) });
  const foreign: Foreign = { type: "object" };
  const constant = { type: "object", required: ["n"] } as const;
  const run = () => 1;
  agentd
    .addTool("zod", { description, input: length, run: (a) => holds<Same<typeof a, { n: number }>>() })
    .addTool("zodSchema", { description, input: zodSchema(length), run: (a) => holds<Same<typeof a, { n: number }>>() })
    .addTool("plain", { description, input: people, run: (a) => holds<Same<typeof a, unknown>>() })
    .addTool("literal", {
      description,
      input: { type: "object", additionalProperties: false },
      run: (a) => holds<Same<typeof a, unknown>>(),
    })
    .addTool("constant", { description, input: constant, run: (a) => holds<Same<typeof a, unknown>>() })
    .addTool("foreign", { description, input: foreign, run: (a) => holds<Same<typeof a, unknown>>() })
    .addTool("none", { description, run: (a) => holds<Same<typeof a, unknown>>() })
    .addTool("untyped", { description, input: jsonSchema(people), run: (a) => holds<Same<typeof a, unknown>>() })
    .addTool("typed", {
      description,
      input: jsonSchema<{ n: 1 }>(people),
      run: (a) => holds<Same<typeof a, { n: 1 }>>(),
    })
    .addTool("both", {
      description,
      input: jsonSchema(people, length),
      run: (a) => holds<Same<typeof a, { n: number }>>(),
    })
    .addTool("general", { description, input: people as Schema, run: (a) => holds<Same<typeof a, unknown>>() })
    // What is not validated is what came, not what validation would return.
    .addTool("came", {
      description,
      input: jsonSchema(people) as TypedSchema<1, 2>,
      run: (a) => holds<Same<typeof a, 1>>(),
    });
  holds<Same<InputOf<typeof length>, { n: string }>>();
  holds<Same<OutputOf<typeof length>, { n: number }>>();
  const bare = byHand(() => ({ value: 1 }));
  // @ts-expect-error a validator alone has no JSON Schema
  assert.throws(() => agentd.addTool("bare", { description, input: bare, run }));
  // @ts-expect-error neither has one of zod/mini
  assert.throws(() => agentd.addTool("mini", { description, input: mini.object({}), run }));
  // @ts-expect-error a type is no schema
  assert.throws(() => agentd.addTool("text", { description, input: "object", run }));
});
