// How JSON has what the protocol's numbers, times and words are: the smallest pieces of what fromjson.ts and tojson.ts
// convert.

/** JsonValue is a value that JSON has. */
export type JsonValue = string | number | boolean | null | JsonObject | JsonValue[];

/** JsonObject is an object that JSON has. */
export type JsonObject = { [key: string]: JsonValue };

/**
 * numberOf is a count or a position, which JSON has as text. What is beyond the safe integers comes as the greatest of
 * them.
 */
export function numberOf(text: string | number | undefined): number {
  return Math.min(Number(text ?? 0), Number.MAX_SAFE_INTEGER);
}

/** dateOf is a point in time; undefined where there is none. */
export function dateOf(text: string | undefined): Date | undefined {
  return text === undefined ? undefined : new Date(text);
}

/** msOf is a duration such as "1.5s" in milliseconds; undefined where there is none. */
export function msOf(text: string | undefined): number | undefined {
  return text === undefined ? undefined : Number((1000 * Number.parseFloat(text)).toFixed(6));
}

/** durationOf is a duration of milliseconds as JSON has it. */
export function durationOf(ms: number): string {
  return `${(ms / 1000).toFixed(3)}s`;
}

/** Word is a value of an enum without the enum's own name, in lower case: `"TURN_STATUS_RUNNING"` is `"running"`. */
export type Word<Prefix extends string, Json extends string> = Json extends `${Prefix}${infer Rest}`
  ? Lowercase<Rest>
  : never;

/**
 * wordOf is the word of a value of an enum; "unspecified" where there is none. The enums of newer servers have more
 * words: these come as they are, and as "unknown" where the server itself has no name for them.
 */
export function wordOf<P extends string, J extends string>(prefix: P, value: J | number | undefined): Word<P, J> {
  const text =
    value === undefined
      ? "unspecified"
      : typeof value === "string"
        ? value.replace(prefix, "").toLowerCase()
        : "unknown";
  return text as Word<P, J>;
}

/** enumOf is the value of an enum for a word; undefined where there is none. */
export function enumOf<P extends string, W extends string>(prefix: P, word: W): `${P}${Uppercase<W>}`;
export function enumOf<P extends string, W extends string>(
  prefix: P,
  word: W | undefined,
): `${P}${Uppercase<W>}` | undefined;
export function enumOf(prefix: string, word: string | undefined): string | undefined {
  return word === undefined ? undefined : `${prefix}${word.toUpperCase()}`;
}

/**
 * given leaves out of a message what is not set: undefined, false, 0, and empty texts, lists and objects. A server
 * refuses a request with the name of a field that it is too old to know, whatever its value. It is not for fields that
 * mean something else when they are empty than when they are not there.
 */
export function given<T extends object>(message: { [K in keyof T]: T[K] | undefined }): T {
  const empty = (value: unknown) =>
    typeof value === "object" && value !== null ? Object.keys(value).length === 0 : !value;
  return Object.fromEntries(Object.entries(message).filter(([, value]) => !empty(value))) as T;
}

/** bytesOf decodes base64. What JSON.stringify makes of the bytes is their base64 again. */
export function bytesOf(base64: string | undefined): Uint8Array {
  const bytes = Uint8Array.from(atob(base64 ?? ""), (c) => c.charCodeAt(0));
  return Object.defineProperty(bytes, "toJSON", { value: () => base64Of(bytes) });
}

/** base64Of encodes bytes. */
export function base64Of(bytes: Uint8Array): string {
  const pieces: string[] = [];
  const size = 8190; // of a piece: a multiple of 3 that fits into the arguments of a function
  for (let at = 0; at < bytes.length; at += size) {
    pieces.push(btoa(String.fromCharCode(...bytes.subarray(at, at + size))));
  }
  return pieces.join("");
}
