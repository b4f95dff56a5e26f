// Schemas of what models write: the arguments of tools and the outputs of agents.
import { AgentdError } from "./errors.js";
import { byteLength, messageOf } from "./text.js";
export function jsonSchema(schema, validator) {
    const copy = () => ({ ...schema });
    const validate = validator === undefined ? {} : { validate: (value) => validator["~standard"].validate(value) };
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
export function schemaText(schema, what) {
    const object = keywordsOf(schema, what);
    if (object["type"] !== "object") {
        throw new AgentdError("INVALID_REQUEST", `${what} must be a schema of the type "object", not ${JSON.stringify(object["type"] ?? "anything")}`);
    }
    if (object["$schema"] === draft2020) {
        delete object["$schema"];
    }
    let text;
    try {
        text = JSON.stringify(object);
    }
    catch (thrown) {
        throw noJsonSchema(what, thrown);
    }
    const size = byteLength(text);
    if (size > maxSchema) {
        throw new AgentdError("INVALID_REQUEST", `${what} has a JSON Schema of ${size} bytes, at most ${maxSchema} are allowed`);
    }
    return text;
}
/** keywordsOf returns a copy of the root of a schema's JSON Schema. */
function keywordsOf(schema, what) {
    const given = schema;
    if (given === null || (typeof given !== "object" && typeof given !== "function") || Array.isArray(given)) {
        throw new AgentdError("INVALID_REQUEST", `${what} must be a JSON Schema or a Standard Schema, such as { type: "object", properties: … }`);
    }
    const standard = schema["~standard"];
    if (standard === undefined) {
        return { ...schema };
    }
    if (typeof standard.jsonSchema?.input !== "function") {
        const { vendor } = standard;
        const remedy = vendor === "zod"
            ? "zodSchema(schema) of @apzuk3/agentd/zod adds it"
            : "jsonSchema(itsJsonSchema, schema) adds it";
        throw new AgentdError("INVALID_REQUEST", `${what} is a schema of ${vendor} without a JSON Schema: ${remedy}`);
    }
    try {
        return { ...generated(standard.jsonSchema) };
    }
    catch (thrown) {
        throw noJsonSchema(what, thrown);
    }
}
/** generated returns a JSON Schema in the newest draft that its library knows. */
function generated(converter) {
    try {
        return converter.input({ target: "draft-2020-12" });
    }
    catch (thrown) {
        try {
            return converter.input({ target: "draft-07" });
        }
        catch {
            throw thrown;
        }
    }
}
function noJsonSchema(what, thrown) {
    return new AgentdError("INVALID_REQUEST", `${what} has no JSON Schema: ${messageOf(thrown)}`, { cause: thrown });
}
/** validated holds a value against a schema, if that validates; else it is the value as it is. */
export async function validated(schema, value) {
    const standard = schema["~standard"];
    return standard?.validate === undefined ? { value } : standard.validate(value);
}
/** listOf says issues in the order of their depth, a line each and another for its place. */
export function listOf(issues) {
    return [...issues]
        .sort((a, b) => (a.path?.length ?? 0) - (b.path?.length ?? 0))
        .map(({ message, path = [] }) => `✖ ${message}${path.length > 0 ? `\n  → at ${placeOf(path)}` : ""}`)
        .join("\n");
}
/** placeOf writes a path as JavaScript would: people[0].name. */
function placeOf(path) {
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
//# sourceMappingURL=schema.js.map