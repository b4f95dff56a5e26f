// Schemas of what models write: the arguments of tools and the outputs of agents.
import { AgentdError } from "./errors.js";
import { byteLength, messageOf } from "./text.js";

/**
 * JsonSchema is a JSON Schema as plain data, whose root has the type "object". It is sent as it is, and validates
 * nothing in this program. The second form is for types that are interfaces: these have no index signature.
 */
export type JsonSchema =
  | { readonly "~standard"?: undefined; readonly [keyword: string]: unknown }
  | { readonly "~standard"?: undefined; readonly type?: unknown; readonly properties?: unknown };

/** Issue is one way in which a value does not fit a schema. */
export interface Issue {
  readonly message: string;
  /** From the root of the value to what does not fit. */
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}

/** Validated is a value as its schema's library makes it, or why it does not fit. */
export type Validated<Output> =
  { readonly value: Output; readonly issues?: undefined } | { readonly issues: readonly Issue[] };

/**
 * Validator is version 1 of Standard Schema (https://standardschema.dev), which zod, Valibot, ArkType and others have.
 */
export interface Validator<Input = unknown, Output = Input> {
  readonly "~standard": {
    readonly version: 1;
    /** The library's name. */
    readonly vendor: string;
    /** Only for the compiler. */
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
    readonly validate: (value: unknown) => Validated<Output> | Promise<Validated<Output>>;
  };
}

/**
 * TypedSchema is version 1 of Standard JSON Schema: it knows its types and its JSON Schema. If it is a {@link
 * Validator} too, it validates; if not, values are taken as they come.
 */
export interface TypedSchema<Input = unknown, Output = Input> {
  readonly "~standard": {
    readonly version: 1;
    readonly vendor: string;
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
    readonly validate?: Validator<Input, Output>["~standard"]["validate"];
    readonly jsonSchema: {
      /** The JSON Schema of what is validated, in a draft such as "draft-2020-12". It throws for an unknown draft. */
      readonly input: (options: { readonly target: string }) => Record<string, unknown>;
      /** The JSON Schema of what validation returns. */
      readonly output: (options: { readonly target: string }) => Record<string, unknown>;
    };
  };
}

/** Schema is a schema of objects. */
export type Schema = TypedSchema | JsonSchema;

type TypesOf<S extends { readonly "~standard": { readonly types?: unknown } }> = NonNullable<S["~standard"]["types"]>;

/** InputOf is what a value has to be that a schema is to take; unknown if the schema does not say. */
export type InputOf<S> = S extends TypedSchema | Validator
  ? TypesOf<S> extends { readonly input: infer T }
    ? T
    : unknown
  : unknown;

/** OutputOf is what a schema makes of a value: what its validation returns, or, where there is none, what came. */
export type OutputOf<S> = S extends Validator
  ? TypesOf<S> extends { readonly output: infer T }
    ? T
    : unknown
  : InputOf<S>;

/** jsonSchema gives a JSON Schema the type of its values. Nothing holds the values against it in this program. */
export function jsonSchema<T = unknown>(schema: JsonSchema): TypedSchema<T>;
/**
 * jsonSchema gives a JSON Schema to a schema of a library that generates none, such as Valibot. The types are those of
 * the library, which validates.
 */
export function jsonSchema<V extends Validator>(
  schema: JsonSchema,
  validator: V,
): TypedSchema<InputOf<V>, OutputOf<V>> & Validator<InputOf<V>, OutputOf<V>>;
export function jsonSchema(schema: JsonSchema, validator?: Validator): TypedSchema {
  const copy = () => ({ ...schema });
  const validate =
    validator === undefined ? {} : { validate: (value: unknown) => validator["~standard"].validate(value) };
  return { "~standard": { version: 1, vendor: "agentd", ...validate, jsonSchema: { input: copy, output: copy } } };
}

/** The protocol's bound of a schema, in bytes. */
const maxSchema = 32_768;

/** What a schema is written in that does not say. */
const draft2020 = "https://json-schema.org/draft/2020-12/schema";

/**
 * schemaText returns the JSON Schema of a schema as JSON. It throws INVALID_REQUEST if there is none, or one of no
 * object.
 */
export function schemaText(schema: Schema, what: string): string {
  const object = keywordsOf(schema, what);
  if (object["type"] !== "object") {
    throw new AgentdError(
      "INVALID_REQUEST",
      `${what} must be a schema of the type "object", not ${JSON.stringify(object["type"] ?? "anything")}`,
    );
  }
  if (object["$schema"] === draft2020) {
    delete object["$schema"];
  }
  let text: string;
  try {
    text = JSON.stringify(object);
  } catch (thrown) {
    throw noJsonSchema(what, thrown);
  }
  const size = byteLength(text);
  if (size > maxSchema) {
    throw new AgentdError(
      "INVALID_REQUEST",
      `${what} has a JSON Schema of ${size} bytes, at most ${maxSchema} are allowed`,
    );
  }
  return text;
}

/** keywordsOf returns a copy of the root of a schema's JSON Schema. */
function keywordsOf(schema: Schema, what: string): Record<string, unknown> {
  const given: unknown = schema;
  if (given === null || (typeof given !== "object" && typeof given !== "function") || Array.isArray(given)) {
    throw new AgentdError(
      "INVALID_REQUEST",
      `${what} must be a JSON Schema or a Standard Schema, such as { type: "object", properties: … }`,
    );
  }
  const standard = schema["~standard"];
  if (standard === undefined) {
    return { ...schema };
  }
  if (typeof standard.jsonSchema?.input !== "function") {
    const { vendor } = standard;
    const remedy =
      vendor === "zod"
        ? "zodSchema(schema) of @apzuk3/agentd/zod adds it"
        : "jsonSchema(itsJsonSchema, schema) adds it";
    throw new AgentdError("INVALID_REQUEST", `${what} is a schema of ${vendor} without a JSON Schema: ${remedy}`);
  }
  try {
    return { ...generated(standard.jsonSchema) };
  } catch (thrown) {
    throw noJsonSchema(what, thrown);
  }
}

/** generated returns a JSON Schema in the newest draft that its library knows. */
function generated(converter: TypedSchema["~standard"]["jsonSchema"]): Record<string, unknown> {
  try {
    return converter.input({ target: "draft-2020-12" });
  } catch (thrown) {
    try {
      return converter.input({ target: "draft-07" });
    } catch {
      throw thrown;
    }
  }
}

function noJsonSchema(what: string, thrown: unknown): AgentdError {
  return new AgentdError("INVALID_REQUEST", `${what} has no JSON Schema: ${messageOf(thrown)}`, { cause: thrown });
}

/** validated holds a value against a schema, if that validates; else it is the value as it is. */
export async function validated(schema: Schema, value: unknown): Promise<Validated<unknown>> {
  const standard = schema["~standard"];
  return standard?.validate === undefined ? { value } : standard.validate(value);
}

/** listOf says issues in the order of their depth, a line each and another for its place. */
export function listOf(issues: readonly Issue[]): string {
  return [...issues]
    .sort((a, b) => (a.path?.length ?? 0) - (b.path?.length ?? 0))
    .map(({ message, path = [] }) => `✖ ${message}${path.length > 0 ? `\n  → at ${placeOf(path)}` : ""}`)
    .join("\n");
}

/** placeOf writes a path as JavaScript would: people[0].name. */
function placeOf(path: NonNullable<Issue["path"]>): string {
  return path
    .map((segment) => (typeof segment === "object" ? segment.key : segment))
    .map((key, i) => {
      if (typeof key === "number") {
        return `[${key}]`;
      }
      const name = String(key);
      return /^[\w$]+$/.test(name) ? `${i > 0 ? "." : ""}${name}` : `[${JSON.stringify(name)}]`;
    })
    .join("");
}
