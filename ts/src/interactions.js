// Interactions: what turns ask people.
import { pageSizeOf } from "./amounts.js";
import { interactionOf } from "./fromjson.js";
import { given } from "./json.js";
import { resolutionOf } from "./prompts.js";
import { newKey } from "./text.js";
import { interactionStatusesOf } from "./tojson.js";
import { pages, required } from "./unary.js";
/** Interactions looks at questions and answers them for people who watch no run. Each method throws an AgentdError. */
export class Interactions {
    #unary;
    /** @internal */
    constructor(unary) {
        this.#unary = unary;
    }
    /** get says how an interaction is. */
    async get(sessionId, interactionId) {
        const { interaction } = await this.#unary("GetInteraction", { sessionId, interactionId });
        return interactionOf(required(interaction, "an interaction"));
    }
    /** list yields what a session, or all, ask of people, newest first, page by page. */
    list(filter = {}) {
        const { sessionId, turnId } = filter;
        const statuses = interactionStatusesOf(filter.statuses);
        const pageSize = pageSizeOf(filter.pageSize);
        const request = given({ sessionId, turnId, statuses, pageSize });
        return pages(async (page) => {
            const { interactions, nextPageToken } = await this.#unary("ListInteractions", { ...request, ...page });
            return { items: interactions, nextPageToken };
        }, interactionOf);
    }
    /**
     * resolve answers for a person. The first resolution stands; a second one is FAILED_PRECONDITION, unless it has the
     * key of the first.
     */
    async resolve(sessionId, interactionId, resolution, idempotencyKey = newKey()) {
        const { interaction } = await this.#unary("ResolveInteraction", {
            sessionId,
            interactionId,
            resolution: resolutionOf(resolution, idempotencyKey),
        });
        return interactionOf(required(interaction, "an interaction"));
    }
}
//# sourceMappingURL=interactions.js.map