// Numbers among the options. All of them pass here: undefined is an option that is not set, and what is no such number
// is refused. docs/go.md has the table of what 0 means.
import { AgentdError } from "./errors.js";
import { durationOf } from "./json.js";
/**
 * The longest wait of a timer in milliseconds, 24.8 days: JavaScript fires a timer at once that is to wait for longer.
 */
export const longestWaitMs = 2 ** 31 - 1;
/** The protocol's longest time for a tool, and for a client to come back: a day in milliseconds. */
export const dayMs = 86_400_000;
/** The longest life of a token for a session, an hour in milliseconds. */
export const hourMs = 3_600_000;
/** amountOf checks a number. It throws INVALID_REQUEST, also for what is no number at all. */
export function amountOf(name, value, { least, most = Infinity, whole = false }) {
    const fits = typeof value === "number" &&
        value >= least &&
        value <= most &&
        (!whole || value === Infinity || Number.isSafeInteger(value));
    if (!fits) {
        const kind = whole ? "a whole number" : "a number";
        const range = most === Infinity ? `of at least ${least}` : `from ${least} to ${most}`;
        throw new AgentdError("INVALID_REQUEST", `${name} is ${shown(value)}, must be ${kind} ${range}; leave it out for the default`);
    }
    return value;
}
function shown(value) {
    return typeof value === "string" ? JSON.stringify(value.slice(0, 80)) : String(value).slice(0, 80);
}
/**
 * waitOf is how long to wait for something, in milliseconds; undefined is the default, 0 stands for Infinity. What is
 * longer than a timer can wait is as long as it can.
 */
export function waitOf(name, value, byDefault) {
    const ms = value === undefined ? byDefault : amountOf(name, value, { least: 0 }) || Infinity;
    return Math.min(ms, longestWaitMs);
}
/** timeOf is a time for the wire, in whole milliseconds; undefined and 0, where that is taken, are none. */
export function timeOf(name, value, { least = 0, most }) {
    const ms = value === undefined ? 0 : Math.ceil(amountOf(name, value, { least, most }));
    return ms === 0 ? undefined : durationOf(ms);
}
/** countOf is a whole number for the wire; undefined is 0, which stands for the server's own. */
export function countOf(name, value) {
    return value === undefined ? 0 : amountOf(name, value, { least: 0, most: longestWaitMs, whole: true });
}
/** The protocol's longest page. */
const maxPage = 1000;
/** pageSizeOf is the size of a page for the wire; undefined is 0, which stands for the server's own. */
export function pageSizeOf(value) {
    return value === undefined ? 0 : amountOf("pageSize", value, { least: 0, most: maxPage, whole: true });
}
/** sumOf is a bound for the wire; undefined and 0 are no bound, which is undefined. */
export function sumOf(name, value) {
    const sum = amountOf(name, value ?? 0, { least: 0, most: Number.MAX_SAFE_INTEGER, whole: true });
    return sum === 0 ? undefined : String(sum);
}
//# sourceMappingURL=amounts.js.map