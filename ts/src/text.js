// Texts and values for the wire.
import { AgentdError } from "./errors.js";
const encoder = new TextEncoder();
const decoder = new TextDecoder();
/** wellFormed replaces halves of surrogate pairs, which UTF-8 cannot hold. */
export function wellFormed(text) {
    return /\p{Surrogate}/u.test(text) ? decoder.decode(encoder.encode(text)) : text;
}
/** byteLength is the length of a text in UTF-8. */
export function byteLength(text) {
    return encoder.encode(text).length;
}
/** jsonText is a value as JSON text. It throws for one that JSON does not have. */
export function jsonText(value) {
    const text = JSON.stringify(value);
    if (text === undefined) {
        throw new AgentdError("INVALID_REQUEST", `${String(value)} is no JSON value`);
    }
    return text;
}
/**
 * jsonValue is the value of JSON text. A number is the nearest of JavaScript's, and the greatest where it is beyond all
 * of them: JSON has no Infinity, and JSON.stringify makes null of it.
 */
export function jsonValue(text) {
    const finite = (_, value) => typeof value === "number" ? Math.min(Math.max(value, -Number.MAX_VALUE), Number.MAX_VALUE) : value;
    return JSON.parse(text, finite);
}
/** asJson is a value as JSON carries it. It throws for one that JSON does not have. */
export function asJson(value) {
    return jsonValue(jsonText(value));
}
/** newKey makes an idempotency key. */
export function newKey() {
    // crypto.randomUUID is missing in pages that were not loaded over HTTPS.
    return Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, "0")).join("");
}
/** messageOf is what an error says. */
export function messageOf(thrown) {
    return thrown instanceof Error ? thrown.message : String(thrown);
}
//# sourceMappingURL=text.js.map