/**
 * Schemas of zod 4 for tools and outputs: `@apzuk3/agentd/zod`, the only part of this package that imports zod.
 *
 * @module
 */
import { safeParseAsync, toJSONSchema, type $ZodType, type input, type output } from "zod/v4/core";
import { AgentdError } from "./errors.js";
import type { TypedSchema, Validator } from "./schema.js";

/**
 * zodSchema makes a schema for tools and outputs out of any schema of zod 4: also of zod/mini, and of a zod before 4.2,
 * whose own schemas are no Standard JSON Schemas. It throws INVALID_REQUEST for what is no schema of zod 4.
 */
export function zodSchema<Z extends $ZodType>(
  schema: Z,
): TypedSchema<input<Z>, output<Z>> & Validator<input<Z>, output<Z>> {
  const given: unknown = schema;
  if (typeof given !== "object" || given === null || !("_zod" in given)) {
    throw new AgentdError(
      "INVALID_REQUEST",
      "zodSchema takes a schema of zod 4, such as z.object({ name: z.string() })",
    );
  }
  const generate = (io: "input" | "output") => (options: { target: string }) => ({
    ...toJSONSchema(schema, { io, target: options.target === "draft-07" ? "draft-7" : "draft-2020-12" }),
  });
  return {
    "~standard": {
      version: 1,
      vendor: "zod",
      validate: async (value) => {
        const parsed = await safeParseAsync(schema, value);
        return parsed.success ? { value: parsed.data } : { issues: parsed.error.issues };
      },
      jsonSchema: { input: generate("input"), output: generate("output") },
    },
  };
}
