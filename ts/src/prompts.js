// Questions of a turn to a person.
import { persist } from "./backoff.js";
import { AgentdError, fromThrown } from "./errors.js";
import { messageOf, newKey, wellFormed } from "./text.js";
import { follows, orAborted } from "./wait.js";
/**
 * @internal
 * resolutionOf translates a resolution. It throws INVALID_REQUEST for one that decides nothing, or two things, such as
 * `{ approve: false }` and `{ answer: null }`: neither is a yes.
 */
export function resolutionOf(resolution, idempotencyKey) {
    const { approve, toolInput, deny, reason, answer } = resolution;
    const said = [approve, deny, answer].filter((one) => one !== undefined);
    if (said.length === 1 && approve === true) {
        const changed = toolInput === undefined ? {} : { toolInput: wellFormed(JSON.stringify(toolInput)) };
        return { idempotencyKey, approve: changed };
    }
    if (said.length === 1 && deny === true) {
        return { idempotencyKey, deny: { reason: wellFormed(reason ?? "") } };
    }
    if (said.length === 1 && typeof answer === "string") {
        return { idempotencyKey, answer: wellFormed(answer) };
    }
    throw new AgentdError("INVALID_REQUEST", "a resolution is one of { approve: true }, { deny: true } and { answer: a text }");
}
/** How many answers of one prompter to one question may be refused. */
const maxRefused = 10;
/** @internal Prompts asks a person what a turn asks, each question once. */
export class Prompts {
    #o;
    #open = new Map(); // by interaction id; settled ones stay for the run
    constructor(options) {
        this.#o = options;
    }
    /** start asks; a question out of the past is looked up first, for it may be settled. */
    start(interaction, replayed) {
        if (this.#open.has(interaction.id) || this.#o.signal.aborted) {
            return;
        }
        const { controller, release } = follows(this.#o.signal);
        this.#open.set(interaction.id, controller);
        void this.#ask(interaction, replayed, controller.signal)
            .catch((thrown) => {
            if (!controller.signal.aborted) {
                this.#o.report(fromThrown(thrown));
            }
        })
            .finally(release);
    }
    /** settled says that nobody is asked any more. */
    settled(id) {
        this.#open.get(id)?.abort(new AgentdError("UNSPECIFIED", "the question is settled"));
    }
    async #ask(asked, replayed, signal) {
        const { wire, headers, reconnect, requestTimeoutMs } = this.#o;
        const options = { signal, headers, timeoutMs: requestTimeoutMs };
        const named = { sessionId: asked.sessionId, interactionId: asked.id };
        if (replayed) {
            const { interaction } = await persist(reconnect, signal, () => wire.call("GetInteraction", named, options));
            if (interaction?.status !== "INTERACTION_STATUS_PENDING") {
                return;
            }
        }
        let refused;
        for (let asks = 1;; asks++) {
            const said = await this.#prompt(asked, signal, refused);
            if (said === undefined || said === null) {
                if (refused !== undefined) {
                    throw refused;
                }
                return;
            }
            try {
                const resolution = resolutionOf(said, newKey());
                await persist(reconnect, signal, () => wire.call("ResolveInteraction", { ...named, resolution }, options));
                return;
            }
            catch (thrown) {
                const failure = fromThrown(thrown);
                if (failure.code === "FAILED_PRECONDITION") {
                    return; // somebody else was faster, which the turn tells
                }
                if ((failure.code !== "INVALID_REQUEST" && failure.code !== "LIMIT_EXCEEDED") || asks === maxRefused) {
                    throw failure;
                }
                refused = failure;
            }
        }
    }
    /** #prompt calls the prompter, whatever it does. */
    async #prompt(asked, signal, refused) {
        try {
            return await orAborted(Promise.resolve(this.#o.prompter(asked, signal, refused)), signal);
        }
        catch (thrown) {
            const { sessionId, turnId } = asked;
            throw new AgentdError("INTERNAL", `the prompter failed: ${messageOf(thrown)}`, {
                cause: thrown,
                sessionId,
                turnId,
            });
        }
    }
}
//# sourceMappingURL=prompts.js.map