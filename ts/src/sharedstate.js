// State that sessions share.
import { pageSizeOf } from "./amounts.js";
import { AgentdError } from "./errors.js";
import { given } from "./json.js";
import { asJson, messageOf } from "./text.js";
import { pages } from "./unary.js";
/**
 * SharedState has the keys of state that sessions share: those of `app:`, and the caller's own of `user:`. It is for
 * operators, PERMISSION_DENIED for others. Each method makes one request, a list one for each page, and throws an
 * AgentdError.
 */
export class SharedState {
    #unary;
    /** @internal */
    constructor(unary) {
        this.#unary = unary;
    }
    /** list yields keys and their values, by name, page by page. */
    list(filter = {}) {
        const { prefix } = filter;
        const request = given({ prefix, pageSize: pageSizeOf(filter.pageSize) });
        return pages(async (page) => {
            const { entries, nextPageToken } = await this.#unary("ListSharedState", { ...request, ...page });
            return { items: entries, nextPageToken };
        }, entryOf);
    }
    /**
     * set sets all of the values, at most 1,000, or none of them: each under its key with its scope, `app:plan`. null
     * removes a key; one whose value is undefined stays as it is.
     */
    async set(values) {
        const set = Object.entries(values).filter(([, value]) => value !== undefined);
        await this.#unary("SetSharedState", { values: set.map(([key, value]) => ({ key, value: textOf(key, value) })) });
    }
    /** remove removes keys, at most 1,000, and returns those that were there. One that is not there is no error. */
    async remove(keys) {
        return (await this.#unary("RemoveSharedState", { keys: [...keys] })).removed ?? [];
    }
}
function entryOf({ key = "", value = "null", bytes }) {
    return { key, value: JSON.parse(value), valueText: value, bytes: Number(bytes ?? 0) };
}
function textOf(key, value) {
    try {
        return JSON.stringify(asJson(value));
    }
    catch (thrown) {
        const why = `the value of ${JSON.stringify(key)} is no JSON: ${messageOf(thrown)}`;
        throw new AgentdError("INVALID_REQUEST", why, { cause: thrown });
    }
}
//# sourceMappingURL=sharedstate.js.map