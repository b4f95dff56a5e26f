// How JSON has what the protocol's numbers, times and words are: the smallest pieces of what fromjson.ts and tojson.ts
// convert.
/**
 * numberOf is a count or a position, which JSON has as text. What is beyond the safe integers comes as the greatest of
 * them.
 */
export function numberOf(text) {
    return Math.min(Number(text ?? 0), Number.MAX_SAFE_INTEGER);
}
/** dateOf is a point in time; undefined where there is none. */
export function dateOf(text) {
    return text === undefined ? undefined : new Date(text);
}
/** msOf is a duration such as "1.5s" in milliseconds; undefined where there is none. */
export function msOf(text) {
    return text === undefined ? undefined : Number((1000 * Number.parseFloat(text)).toFixed(6));
}
/** durationOf is a duration of milliseconds as JSON has it. */
export function durationOf(ms) {
    return `${(ms / 1000).toFixed(3)}s`;
}
/**
 * wordOf is the word of a value of an enum; "unspecified" where there is none. The enums of newer servers have more
 * words: these come as they are, and as "unknown" where the server itself has no name for them.
 */
export function wordOf(prefix, value) {
    const text = value === undefined
        ? "unspecified"
        : typeof value === "string"
            ? value.replace(prefix, "").toLowerCase()
            : "unknown";
    return text;
}
export function enumOf(prefix, word) {
    return word === undefined ? undefined : `${prefix}${word.toUpperCase()}`;
}
/**
 * given leaves out of a message what is not set: undefined, false, 0, and empty texts, lists and objects. A server
 * refuses a request with the name of a field that it is too old to know, whatever its value. It is not for fields that
 * mean something else when they are empty than when they are not there.
 */
export function given(message) {
    const empty = (value) => typeof value === "object" && value !== null ? Object.keys(value).length === 0 : !value;
    return Object.fromEntries(Object.entries(message).filter(([, value]) => !empty(value)));
}
/** bytesOf decodes base64. What JSON.stringify makes of the bytes is their base64 again. */
export function bytesOf(base64) {
    const bytes = Uint8Array.from(atob(base64 ?? ""), (c) => c.charCodeAt(0));
    return Object.defineProperty(bytes, "toJSON", { value: () => base64Of(bytes) });
}
/** base64Of encodes bytes. */
export function base64Of(bytes) {
    const pieces = [];
    const size = 8190; // of a piece: a multiple of 3 that fits into the arguments of a function
    for (let at = 0; at < bytes.length; at += size) {
        pieces.push(btoa(String.fromCharCode(...bytes.subarray(at, at + size))));
    }
    return pieces.join("");
}
//# sourceMappingURL=json.js.map