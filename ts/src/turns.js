// Turns: what one prompt sets off.
import { countOf, pageSizeOf } from "./amounts.js";
import { eventOf } from "./events.js";
import { modelCallOf, turnOf } from "./fromjson.js";
import { given } from "./json.js";
import { seqOf, visibilityOf } from "./options.js";
import { timesOf, turnStatusesOf } from "./tojson.js";
import { pages, required } from "./unary.js";
/**
 * Turns looks at turns and cancels them. Each method makes one request, a list one for each page, and throws an
 * AgentdError.
 */
export class Turns {
    #unary;
    /** @internal */
    constructor(unary) {
        this.#unary = unary;
    }
    /**
     * get says how a turn is; without turnId, the session's last one. With userParts it gives back the files of the
     * prompt too.
     */
    async get(sessionId, turnId = "", options = {}) {
        const request = given({ sessionId, turnId, userParts: options.userParts });
        return turnOf(required((await this.#unary("GetTurn", request)).turn, "a turn"));
    }
    /** list yields turns, newest first, page by page. */
    list(filter = {}) {
        const request = given({
            sessionId: filter.sessionId,
            statuses: turnStatusesOf(filter.statuses),
            pageSize: pageSizeOf(filter.pageSize),
            ...timesOf(filter, ["createdSince", "createdBefore"]),
        });
        return pages(async (page) => {
            const { turns, nextPageToken } = await this.#unary("ListTurns", { ...request, ...page });
            return { items: turns, nextPageToken };
        }, turnOf);
    }
    /**
     * cancel cancels a turn and returns when nothing of it runs any more. One that is over stays as it is. Without turnId
     * it is the session's last one as of now, which is read first.
     */
    async cancel(sessionId, turnId = "", reason = "") {
        turnId ||= (await this.get(sessionId)).id;
        return turnOf(required((await this.#unary("CancelTurn", given({ sessionId, turnId, reason }))).turn, "a turn"));
    }
    /**
     * cancelToolCall cancels one tool call: the model sees a cancelled tool, and the turn goes on. A call that has its
     * result stays as it is, and so does a turn that is over. Without turnId it is a call of the session's last turn as
     * of now, which is read first.
     */
    async cancelToolCall(sessionId, toolCallId, turnId = "") {
        turnId ||= (await this.get(sessionId)).id;
        return turnOf(required((await this.#unary("CancelToolCall", { sessionId, turnId, toolCallId })).turn, "a turn"));
    }
    /**
     * modelCalls says what the models of a turn were told, call by call, page by page; without turnId, of the session's
     * last one. pageSize is that of one page.
     */
    async modelCalls(sessionId, turnId = "", pageSize) {
        const request = given({ sessionId, turnId, pageSize: pageSizeOf(pageSize) });
        const all = [];
        const calls = pages(async (page) => {
            const { calls, nextPageToken } = await this.#unary("ListModelCalls", { ...request, ...page });
            return { items: calls, nextPageToken };
        }, modelCallOf);
        for await (const call of calls) {
            all.push(call);
        }
        return all;
    }
    /**
     * events yields what has happened in a turn so far, after a position; without turnId, in the session's last one.
     * Unlike a Run it yields the error of a turn that failed as an event.
     */
    async *events(sessionId, options = {}) {
        const { turnId, afterSeq, display, visibility } = options;
        let request = {
            ...given({
                sessionId,
                turnId,
                pageSize: countOf("pageSize", options.pageSize),
                display,
                visibility: visibilityOf(visibility),
            }),
            ...(afterSeq === undefined ? {} : { afterSeq: seqOf(afterSeq) }),
        };
        for (;;) {
            const { events = [], more = false, nextAfterSeq } = await this.#unary("ListTurnEvents", request);
            for (const message of events) {
                const event = eventOf(message);
                if (event !== undefined) {
                    yield event;
                }
            }
            const last = events.at(-1);
            if (!more || last === undefined || nextAfterSeq === undefined) {
                return;
            }
            request = { ...request, turnId: request.turnId || (last.turnId ?? ""), afterSeq: nextAfterSeq };
        }
    }
}
//# sourceMappingURL=turns.js.map