// How long to wait before something is tried again.
import { amountOf, longestWaitMs, waitOf } from "./amounts.js";
import { AgentdError, fromThrown, isLost } from "./errors.js";
import { sleep } from "./wait.js";
/** defaultReconnect is what holds for what an option leaves out. */
export const defaultReconnect = {
    maxElapsedMs: 120_000,
    startElapsedMs: 5_000,
    baseMs: 50,
    capMs: 5_000,
    off: false,
};
/**
 * policyOf is a policy with the defaults for what is left out, undefined, or 0. It throws INVALID_REQUEST for what
 * cannot be.
 */
export function policyOf(policy = {}) {
    const { maxElapsedMs, startElapsedMs, baseMs, capMs } = defaultReconnect;
    return {
        maxElapsedMs: policy.off === true
            ? -1
            : amountOf("reconnect.maxElapsedMs", policy.maxElapsedMs ?? 0, { least: 0 }) || maxElapsedMs,
        startElapsedMs: policy.off === true
            ? -1
            : amountOf("reconnect.startElapsedMs", policy.startElapsedMs ?? 0, { least: 0 }) || startElapsedMs,
        baseMs: waitOf("reconnect.baseMs", policy.baseMs === 0 ? undefined : policy.baseMs, baseMs),
        off: policy.off === true,
        capMs: waitOf("reconnect.capMs", policy.capMs === 0 ? undefined : policy.capMs, capMs),
    };
}
/** The longest that one attempt counts, in milliseconds: a computer that sleeps meanwhile has not tried. */
const longestAttempt = 60_000;
/** Outage is the time since there was progress. A new one is no outage. */
export class Outage {
    #policy;
    #last; // when next was called
    #spent = 0;
    #tries = 0;
    constructor(policy) {
        this.#policy = policy;
    }
    /** over says that there was progress. */
    over() {
        this.#last = undefined;
        this.#spent = 0;
        this.#tries = 0;
    }
    /**
     * next returns how long to wait before the next attempt, at least what the server has asked for, in milliseconds;
     * undefined when there is none.
     */
    next(asked = 0, now = performance.now()) {
        this.#spent += Math.min(Math.max(now - (this.#last ?? now), 0), longestAttempt);
        this.#last = now;
        const left = this.#policy.maxElapsedMs - this.#spent;
        if (left <= asked) {
            return undefined;
        }
        const limit = Math.min(this.#policy.capMs, this.#policy.baseMs * 2 ** this.#tries++);
        // An attempt at the very end of the time, rather than none.
        return Math.min(asked + Math.random() * limit, left, longestWaitMs);
    }
}
/**
 * persist calls attempt until it succeeds, or is refused, or the policy's time is over. Only for requests that may
 * arrive twice. It throws an AgentdError, or the signal's reason.
 */
export async function persist(policy, signal, attempt) {
    const outage = new Outage(policy);
    for (;;) {
        signal.throwIfAborted();
        let failure;
        try {
            return await attempt();
        }
        catch (thrown) {
            signal.throwIfAborted();
            failure = fromThrown(thrown);
        }
        const wait = isLost(failure) ? outage.next(failure.retryAfterMs) : undefined;
        if (wait === undefined) {
            throw failure;
        }
        await sleep(wait, signal);
    }
}
//# sourceMappingURL=backoff.js.map