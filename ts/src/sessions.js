// Sessions: conversations of many turns.
import { countOf, hourMs, timeOf } from "./amounts.js";
import { AgentdError } from "./errors.js";
import { eventOf, ownEvent } from "./events.js";
import { followWhole } from "./follow.js";
import { sessionOf } from "./fromjson.js";
import { dateOf, given } from "./json.js";
import { budgetOf, headersOf, seqOf, visibilityOf } from "./options.js";
import { filterOf } from "./tojson.js";
import { pages, required } from "./unary.js";
import { follows } from "./wait.js";
/**
 * Sessions makes, finds and removes sessions. Each method makes one request, a list one for each page, and throws an
 * AgentdError.
 */
export class Sessions {
    #unary;
    #streams;
    /** @internal */
    constructor(unary, streams) {
        this.#unary = unary;
        this.#streams = streams;
    }
    /** create makes a session without turns. */
    async create(options = {}) {
        const { labels, clientRef, idempotencyKey, budget } = options;
        const bounds = budget === undefined ? undefined : budgetOf("budget", budget);
        const request = given({ labels, clientRef, idempotencyKey, budget: bounds });
        const { session } = await this.#unary("CreateSession", request);
        return sessionOf(required(session, "a session"));
    }
    /** get says what is known of a session. */
    async get(sessionId) {
        return sessionOf(required((await this.#unary("GetSession", { sessionId })).session, "a session"));
    }
    /** list yields sessions, newest first, page by page. */
    list(filter = {}) {
        const request = filterOf(filter);
        return pages(async (page) => {
            const { sessions, nextPageToken } = await this.#unary("ListSessions", { ...request, ...page });
            return { items: sessions, nextPageToken };
        }, sessionOf);
    }
    /** update changes what a session is called and may spend, or archives it. */
    async update(sessionId, options) {
        const { version, labels, clientRef, state, budget } = options;
        const { session } = await this.#unary("UpdateSession", {
            ...given({ sessionId, labels }),
            ...(version === undefined ? {} : { version: String(version) }),
            ...(clientRef === undefined ? {} : { clientRef }),
            ...(budget === undefined ? {} : { budget: budgetOf("budget", budget) }),
            ...(state === undefined
                ? {}
                : { state: state === "archived" ? "SESSION_STATE_ARCHIVED" : "SESSION_STATE_ACTIVE" }),
        });
        return sessionOf(required(session, "a session"));
    }
    /** delete cancels what runs in a session and removes it for good. */
    async delete(sessionId) {
        await this.#unary("DeleteSession", { sessionId });
    }
    /** fork makes a session that begins with what another one had up to a position. */
    async fork(sessionId, options = {}) {
        const { throughSeq, labels, clientRef, idempotencyKey } = options;
        const through = throughSeq === undefined ? {} : { throughSeq: seqOf(throughSeq, "throughSeq") };
        const request = given({ sessionId, labels, clientRef, idempotencyKey });
        const { session } = await this.#unary("ForkSession", { ...request, ...through });
        return sessionOf(required(session, "a session"));
    }
    /**
     * createToken makes a token for one session, which a server hands to a page in place of its own key: to its holder no
     * other session exists. The token ends with the key of this client.
     */
    async createToken(sessionId, options = {}) {
        const { tools = [], observe, agents } = options;
        const lifetime = timeOf("lifetimeMs", options.lifetimeMs, { most: hourMs });
        const toolNames = [...tools];
        const request = given({ sessionId, toolNames, lifetime, observe, agents });
        const { token, expireTime } = await this.#unary("CreateSessionToken", request);
        return { token: required(token, "a token"), expireTime: required(dateOf(expireTime), "the end of the token") };
    }
    /**
     * events yields what has happened in a session so far, in all of its turns, page by page. The error of a turn that
     * has failed is an event, and its end follows.
     */
    async *events(sessionId, options = {}) {
        const { cursor, display, visibility } = options;
        let request = given({
            sessionId,
            cursor,
            pageSize: countOf("pageSize", options.pageSize),
            display,
            visibility: visibilityOf(visibility),
        });
        for (;;) {
            const { events = [], nextCursor = "", more = false } = await this.#unary("ListSessionEvents", request);
            for (const { event: message, cursor = "" } of events) {
                const event = eventOf(message ?? {});
                if (event !== undefined) {
                    yield { ...event, cursor };
                }
            }
            if (!more || nextCursor === "") {
                return;
            }
            request = { ...request, cursor: nextCursor };
        }
    }
    /**
     * watch follows a session: what events yields, then what happens from now on, of whichever turn and whoever has
     * started it. It takes no part: it wakes no turn and is asked for nothing. It has no end; who leaves the loop ends
     * it. A connection that is lost is replaced, and no event is lost, nor comes twice. It throws an AgentdError when the
     * session cannot be followed any further, such as SESSION_NOT_FOUND for one that was deleted, and the reason of a
     * signal that was aborted.
     */
    watch(sessionId, options = {}) {
        const { controller, release } = follows(options.signal);
        const left = new AgentdError("UNSPECIFIED", "the session is no longer watched");
        const over = { done: true, value: undefined };
        const followed = followWhole({
            ...this.#streams,
            sessionId,
            cursor: options.cursor ?? "",
            display: options.display ?? false,
            visibility: visibilityOf(options.visibility),
            headers: headersOf(this.#streams.headers, options.headers),
            signal: controller.signal,
        });
        const events = told(followed);
        const close = () => {
            release();
            controller.abort(left);
        };
        return {
            next: async () => {
                try {
                    return await events.next();
                }
                catch (thrown) {
                    close();
                    if (thrown === left) {
                        return over; // return was called meanwhile
                    }
                    throw thrown;
                }
            },
            return: async () => {
                close();
                await events.return().catch(() => { });
                return over;
            },
            [Symbol.asyncIterator]() {
                return this;
            },
        };
    }
}
async function* told(followed) {
    for await (const { cursor, ...of } of followed) {
        const event = "connection" in of ? ownEvent("", of.connection) : eventOf(of.message);
        if (event !== undefined) {
            yield { ...event, cursor };
        }
    }
}
//# sourceMappingURL=sessions.js.map