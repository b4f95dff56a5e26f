/// <reference lib="esnext.disposable" preserve="true" />
// One turn, from its start or from any event to its end.
import { persist } from "./backoff.js";
import { Calls } from "./calls.js";
import { AgentdError, fromThrown, isLost } from "./errors.js";
import { eventOf, ownEvent } from "./events.js";
import { follow } from "./follow.js";
import { callOf, deltaText, interactionOf, turnOf } from "./fromjson.js";
import { Prompts } from "./prompts.js";
import { jsonValue } from "./text.js";
import { Transcript } from "./transcript.js";
import { follows, Mailbox, orAborted } from "./wait.js";
/** How many warnings a Result has at most. */
const maxWarnings = 256;
/** How long who leaves a turn waits for its cancel, in milliseconds; then that goes on behind their back. */
const leaveMs = 2_000;
/** Symbol.asyncDispose, also where it is not known yet. */
const asyncDispose = Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose");
/**
 * Run is a turn that is followed: an iterable of its events that can be iterated once. Nothing happens before that. The
 * run ends with its iteration: then its tools are aborted and nothing is fetched any more. What becomes of a turn that
 * is left before its end says onLeave of its options.
 */
export class Run {
    #c;
    #iterator;
    #sessionId;
    #turnId;
    #over = false; // the turn has told its end
    #begun;
    #cancelling;
    #state = {};
    /** @internal */
    constructor(config) {
        this.#c = config;
    }
    /** sessionId names the session, once it is known: from the first event on. */
    get sessionId() {
        return this.#sessionId;
    }
    /** turnId names the turn, once it is known. */
    get turnId() {
        return this.#turnId;
    }
    /** state is the session's state as the events so far have told it. */
    get state() {
        return this.#state;
    }
    /**
     * Yields the events in order, each once. Throws an AgentdError when the turn has failed or cannot be followed any
     * further, and the reason of a signal that was aborted.
     */
    [Symbol.asyncIterator]() {
        if (this.#iterator !== undefined) {
            throw new AgentdError("INVALID_REQUEST", "a run can be iterated once; attach follows its turn again");
        }
        const { controller, release } = follows(this.#c.signal);
        const events = this.#events(controller.signal);
        const left = new AgentdError("UNSPECIFIED", "the run is over");
        // At once, for the caller may be busy with an event.
        const cancel = () => void this.#leave();
        this.#c.signal?.addEventListener("abort", cancel, { once: true });
        const close = () => {
            this.#c.signal?.removeEventListener("abort", cancel);
            release();
            controller.abort(left);
        };
        this.#iterator = {
            next: async () => {
                try {
                    const next = await events.next();
                    if (next.done === true) {
                        close();
                    }
                    return next;
                }
                catch (thrown) {
                    close();
                    if (thrown === left) {
                        return { done: true, value: undefined }; // return was called meanwhile
                    }
                    throw thrown;
                }
            },
            return: async () => {
                close();
                const leaving = this.#leave();
                await events.return().catch(() => { });
                await leaving;
                return { done: true, value: undefined };
            },
        };
        return this.#iterator;
    }
    /** Leaves the turn, as the end of a loop over its events does. */
    async [asyncDispose]() {
        await this.#iterator?.return?.();
    }
    /**
     * cancel cancels the turn and returns it when nothing of it runs any more; the iteration goes on to its end, which
     * has a receipt. A turn that is over stays as it is. It throws INVALID_REQUEST before the run was iterated, and what
     * the request throws.
     */
    async cancel(reason = "") {
        if (this.#begun === undefined) {
            throw new AgentdError("INVALID_REQUEST", "there is nothing to cancel: a run begins when its events or its result are asked for");
        }
        const { sessionId, turnId } = await this.#begun;
        this.#cancelling ??= this.#cancel({ sessionId, turnId: this.#turnId ?? turnId }, reason);
        this.#cancelling.catch(() => (this.#cancelling = undefined));
        return this.#cancelling;
    }
    /**
     * result iterates the run to its end and gathers it, from where the run began. It throws what the iteration throws.
     */
    async result() {
        const { wire, reconnect, requestTimeoutMs: timeoutMs, headers } = this.#c;
        const transcript = new Transcript();
        const providerToolsUsed = [];
        const warnings = [];
        let end;
        for await (const event of this) {
            transcript.add(event);
            if (event.type === "end") {
                end = event;
            }
            else if (event.type === "provider_tools_used") {
                const { messageId, agentPath, uses, citations } = event;
                providerToolsUsed.push({ messageId, agentPath, uses, citations });
            }
            else if (event.type === "turn_started" || event.type === "tool_call_answered") {
                warnings.push(...event.warnings.slice(0, maxWarnings - warnings.length));
            }
        }
        const named = { sessionId: this.#sessionId ?? "", turnId: this.#turnId ?? "" };
        const signal = this.#c.signal ?? new AbortController().signal;
        const reply = await persist(reconnect, signal, () => wire.call("GetTurn", named, { signal, headers, timeoutMs }));
        if (reply.turn === undefined) {
            throw new AgentdError("INTERNAL", "the server said nothing of the turn", named);
        }
        const turn = turnOf(reply.turn);
        return {
            text: transcript.text,
            messages: transcript.messages,
            providerToolsUsed,
            completed: end?.completed ?? turn.status === "succeeded",
            structuredOutput: turn.structuredOutput,
            structuredText: turn.structuredText,
            warnings,
            usage: turn.usage ?? end?.usage,
            turn,
        };
    }
    async *#events(signal) {
        let place;
        try {
            place = await this.#begin(signal);
        }
        catch (thrown) {
            signal.throwIfAborted();
            throw fromThrown(thrown);
        }
        try {
            yield* this.#follow(place, signal);
        }
        catch (thrown) {
            const error = fromThrown(thrown);
            if (!signal.aborted && !isLost(error) && error.code !== "UNAUTHENTICATED") {
                await this.#leave(); // the server does not let this client follow the turn
            }
            throw thrown;
        }
        finally {
            if (this.#c.signal?.aborted === true) {
                await this.#leave();
            }
        }
    }
    /**
     * begin begins. A turn without another name is cancelled behind the back of a caller who has left before it was
     * known: nobody could find it.
     */
    async #begin(signal) {
        signal.throwIfAborted();
        const { begin, nameless, cancels } = this.#c;
        const waits = nameless || cancels;
        const begun = begin(waits ? new AbortController().signal : signal).then((place) => {
            this.#sessionId = place.sessionId;
            this.#turnId ??= place.turnId || undefined;
            return place;
        });
        this.#begun = begun;
        begun.catch(() => { });
        return orAborted(begun, signal).catch((thrown) => {
            if (signal.aborted && waits) {
                begun.then(() => this.#leave(true)).catch(() => { });
            }
            throw thrown;
        });
    }
    /**
     * leave cancels the turn, if who leaves wants that, or must, and it is known and not over. What fails is nobody's
     * business any more.
     */
    async #leave(must = false) {
        if (this.#over || this.#sessionId === undefined || !(this.#c.cancels || must)) {
            return;
        }
        this.#cancelling ??= this.#cancel({ sessionId: this.#sessionId, turnId: this.#turnId ?? "" }, "");
        const done = this.#cancelling.catch(() => { });
        let timer;
        await Promise.race([done, new Promise((resolve) => (timer = setTimeout(resolve, leaveMs)))]);
        clearTimeout(timer);
    }
    async #cancel({ sessionId, turnId }, reason) {
        const { wire, headers, requestTimeoutMs: timeoutMs, reconnect } = this.#c;
        const { turn } = await persist(reconnect, AbortSignal.timeout(timeoutMs), async () => {
            // An attach without a name follows the last turn.
            const id = turnId || ((await wire.call("GetTurn", { sessionId }, { headers, timeoutMs })).turn?.id ?? "");
            return wire.call("CancelTurn", { sessionId, turnId: id, reason }, { headers, timeoutMs });
        });
        return turnOf(turn ?? {});
    }
    async *#follow(place, signal) {
        const c = this.#c;
        const faults = new Mailbox();
        const shared = { ...c, signal, state: this.#state, report: (error) => faults.put(error) };
        const calls = new Calls(shared);
        const prompts = c.prompter === undefined ? undefined : new Prompts({ ...shared, prompter: c.prompter });
        const messages = follow({ ...c, ...place, toolNames: [...c.tools.keys()], signal });
        let why; // an error that stands in the log is the reason of the turn's end
        let pending;
        try {
            for (;;) {
                pending ??= messages.next();
                await Promise.race([pending, faults.filled()]);
                for (let error = faults.take(); error !== undefined; error = faults.take()) {
                    yield ownEvent(this.#turnId ?? "", { type: "error", error });
                }
                const next = await Promise.race([pending, undefined]);
                if (next === undefined) {
                    continue;
                }
                pending = undefined;
                if (next.done === true) {
                    this.#over = true; // there is nothing after the position that the caller has
                    return;
                }
                if ("connection" in next.value) {
                    yield ownEvent(this.#turnId ?? "", next.value.connection);
                    continue;
                }
                const { message, again } = next.value;
                this.#take(message, calls, prompts);
                const event = again ? undefined : eventOf(message);
                if (event?.type === "error") {
                    why = event.error;
                }
                else if (event?.type === "end" && !event.completed && why !== undefined) {
                    throw why.with({ sessionId: this.#sessionId, turnId: this.#turnId, usage: event.usage });
                }
                else if (event !== undefined) {
                    yield event;
                }
            }
        }
        finally {
            pending?.catch(() => { });
            void messages.return().catch(() => { });
        }
    }
    /** take sees to what a message asks for. */
    #take(message, calls, prompts) {
        const { turnId = "", replayed = false, execute, stateUpdate, toolCall, toolCallCanceled, toolCallAnswered, } = message;
        if (this.#turnId === undefined && message.turnQueued === undefined && turnId !== "") {
            this.#turnId = turnId; // a prompt that waits may be another turn's
        }
        this.#sessionId = execute?.sessionId ?? this.#sessionId;
        this.#over ||= message.end !== undefined;
        for (const [key, value] of Object.entries(jsonValue(deltaText(stateUpdate ?? {})))) {
            if (value === null) {
                delete this.#state[key];
            }
            else {
                Object.defineProperty(this.#state, key, { value, configurable: true, enumerable: true, writable: true });
            }
        }
        if (toolCall !== undefined) {
            calls.start({ ...callOf(toolCall), sessionId: toolCall.sessionId ?? this.#sessionId ?? "", turnId });
        }
        else if (toolCallCanceled !== undefined) {
            calls.stop(toolCallCanceled.toolCallId ?? "", `the tool call was canceled: ${toolCallCanceled.reason ?? ""}`);
        }
        else if (toolCallAnswered !== undefined) {
            // By this client, or another one that was faster.
            calls.stop(toolCallAnswered.toolCallId ?? "", "the tool call has its result");
        }
        const asked = message.interactionRequested?.interaction;
        if (asked !== undefined) {
            prompts?.start({ ...interactionOf(asked), sessionId: this.#sessionId ?? "" }, replayed);
        }
        prompts?.settled(message.interactionResolved?.interaction?.id ?? "");
    }
}
//# sourceMappingURL=run.js.map