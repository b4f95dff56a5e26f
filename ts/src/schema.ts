// JSON Schemas for the wire, out of zod's.
import { toJSONSchema, type $ZodType } from "zod/v4/core";
import { AgentdError } from "./errors.js";
import { byteLength, messageOf } from "./text.js";

/** The protocol's bound of a schema, in bytes. */
const maxSchema = 32_768;

/** jsonSchemaOf returns the JSON Schema of a zod schema of objects. It throws INVALID_REQUEST if there is none. */
export function jsonSchemaOf(schema: $ZodType, what: string): string {
  if (!("_zod" in schema)) {
    throw new AgentdError("INVALID_REQUEST", `${what} must be a schema of zod 4, such as z.object({ name: z.string() })`);
  }
  let object: Record<string, unknown>;
  try {
    object = { ...toJSONSchema(schema, { io: "input" }) };
  } catch (thrown) {
    throw new AgentdError("INVALID_REQUEST", `${what} has no JSON Schema: ${messageOf(thrown)}`, { cause: thrown });
  }
  if (object["type"] !== "object") {
    throw new AgentdError("INVALID_REQUEST", `${what} must be an object (z.object), not ${JSON.stringify(object["type"] ?? "anything")}`);
  }
  delete object["$schema"];
  const text = JSON.stringify(object);
  const size = byteLength(text);
  if (size > maxSchema) {
    throw new AgentdError("INVALID_REQUEST", `${what} has a JSON Schema of ${size} bytes, at most ${maxSchema} are allowed`);
  }
  return text;
}
