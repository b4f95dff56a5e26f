// The tool calls of one run.
import { persist } from "./backoff.js";
import { AgentdError, fromThrown, isLost } from "./errors.js";
import { errorOf } from "./fromjson.js";
import { fitting } from "./resultsize.js";
import { failed } from "./tool.js";
/** Calls runs the tools that a turn asks for, next to each other, and sends their results. */
export class Calls {
    #o;
    #open = new Map(); // by call id: tools that run, and results on their way
    constructor(options) {
        this.#o = options;
        const { signal } = options;
        const stop = () => this.#open.forEach((controller) => controller.abort(signal.reason));
        signal.addEventListener("abort", stop, { once: true }); // one for all calls: Node.js warns of many
    }
    /** start sees to a call, unless that is being done. */
    start(call) {
        if (this.#open.has(call.toolCallId) || this.#o.signal.aborted) {
            return;
        }
        const controller = new AbortController();
        this.#open.set(call.toolCallId, controller);
        void this.#serve(call, controller.signal)
            .catch((thrown) => {
            if (!controller.signal.aborted) {
                this.#o.report(fromThrown(thrown));
            }
        })
            .finally(() => this.#open.delete(call.toolCallId));
    }
    /** stop aborts the tool of a call that nobody waits for any more. */
    stop(callId, reason) {
        this.#open.get(callId)?.abort(new AgentdError("UNSPECIFIED", reason));
    }
    async #serve(call, signal) {
        const { results } = this.#o;
        const result = await results.resultOf(call.sessionId, call.toolCallId, signal, () => this.#run(call, signal));
        const refused = await this.#submit(call, result, signal);
        if (refused === undefined) {
            return;
        }
        this.#o.report(refused);
        if (result.output !== undefined && !isLost(refused)) {
            // The call would wait for ever for a result that does not arrive, such as one that is too large.
            const instead = failed(`the tool ran, but its result was refused: ${refused.message}`);
            await this.#submit(call, instead, signal);
        }
    }
    async #run(call, signal) {
        const tool = this.#o.tools.get(call.toolName);
        if (tool === undefined) {
            return failed(`this client has no tool ${call.toolName}`);
        }
        await this.#o.gate.enter(signal);
        try {
            const result = await tool.call({ ...call, state: this.#o.state }, signal);
            return fitting(result, this.#o.limits);
        }
        finally {
            this.#o.gate.leave();
        }
    }
    /** submit sends a result until it is taken or refused; it returns why it was refused. */
    async #submit(call, result, signal) {
        const { wire, headers, reconnect, requestTimeoutMs } = this.#o;
        const { sessionId, turnId, toolCallId, toolName } = call;
        try {
            return await persist(reconnect, signal, async () => {
                const { refused = [] } = await wire.call("SubmitToolResults", { sessionId, turnId, results: [{ toolCallId, toolName, ...result }] }, { signal, headers, timeoutMs: requestTimeoutMs });
                const error = refused[0]?.error;
                const why = error === undefined ? undefined : errorOf(error, { sessionId, turnId });
                if (why !== undefined && isLost(why)) {
                    throw why; // the server cannot take it now
                }
                return why;
            });
        }
        catch (thrown) {
            signal.throwIfAborted();
            return fromThrown(thrown);
        }
    }
}
//# sourceMappingURL=calls.js.map