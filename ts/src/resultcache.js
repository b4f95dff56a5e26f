// The results of tool calls that a client keeps.
import { sizeOf } from "./parts.js";
import { orAborted } from "./wait.js";
/** Bounds of the results that are kept. */
const maxResults = 1024;
const maxResultChars = 16 * 1024 * 1024;
/**
 * ResultCache keeps the results of calls, so that one that is asked again, in the same run or in a later one, gets its
 * result without running the tool twice. Beyond the bounds above it drops the oldest results; runs bound the number of
 * the calls that still work.
 */
export class ResultCache {
    #working = new Map();
    #results = new Map(); // oldest first
    #chars = 0;
    /**
     * resultOf returns the kept result of a call, or waits for who works on it, or works. If work throws, nothing is
     * kept; whoever waits then works itself. It throws what its own work has thrown, or the signal's reason.
     */
    async resultOf(sessionId, callId, signal, work) {
        const key = JSON.stringify([sessionId, callId]);
        for (;;) {
            const known = this.#results.get(key);
            if (known !== undefined) {
                return known;
            }
            const other = this.#working.get(key);
            if (other === undefined) {
                break;
            }
            await orAborted(other, signal);
        }
        const working = work();
        this.#working.set(key, working.catch(() => undefined));
        try {
            const result = await working;
            this.#keep(key, result);
            return result;
        }
        finally {
            this.#working.delete(key);
        }
    }
    #keep(key, result) {
        this.#results.set(key, result);
        this.#chars += charsOf(result);
        for (const [oldest, dropped] of this.#results) {
            if (this.#results.size <= maxResults && (this.#chars <= maxResultChars || this.#results.size === 1)) {
                break;
            }
            this.#results.delete(oldest);
            this.#chars -= charsOf(dropped);
        }
    }
}
function charsOf({ output = "", error = "", parts = [], stateDeltaJson = "" }) {
    return output.length + error.length + sizeOf(parts) + stateDeltaJson.length;
}
//# sourceMappingURL=resultcache.js.map