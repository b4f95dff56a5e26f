// Texts and values for the wire.
import { AgentdError } from "./errors.js";
import type { JsonValue } from "./json.js";

const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** wellFormed replaces halves of surrogate pairs, which UTF-8 cannot hold. */
export function wellFormed(text: string): string {
  return /\p{Surrogate}/u.test(text) ? decoder.decode(encoder.encode(text)) : text;
}

/** byteLength is the length of a text in UTF-8. */
export function byteLength(text: string): number {
  return encoder.encode(text).length;
}

/** asJson is a value as JSON carries it. It throws for one that JSON does not have. */
export function asJson(value: JsonValue): JsonValue {
  const text: string | undefined = JSON.stringify(value);
  if (text === undefined) {
    throw new AgentdError("INVALID_REQUEST", `${String(value)} is no JSON value`);
  }
  return JSON.parse(text) as JsonValue;
}

/** newKey makes an idempotency key. */
export function newKey(): string {
  // crypto.randomUUID is missing in pages that were not loaded over HTTPS.
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, "0")).join("");
}

/** messageOf is what an error says. */
export function messageOf(thrown: unknown): string {
  return thrown instanceof Error ? thrown.message : String(thrown);
}
