// Texts and names for the wire.

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

/** newKey makes an idempotency key. */
export function newKey(): string {
  // crypto.randomUUID is missing in pages that were not loaded over HTTPS.
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, "0")).join("");
}

/** messageOf is what an error says. */
export function messageOf(thrown: unknown): string {
  return thrown instanceof Error ? thrown.message : String(thrown);
}
