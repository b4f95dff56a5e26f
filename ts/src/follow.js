// Following a turn, or a session, over as many streams as it takes.
import { Outage } from "./backoff.js";
import { AgentdError, fromThrown, isLost } from "./errors.js";
import { errorOf } from "./fromjson.js";
import { given, numberOf } from "./json.js";
import { byteLength } from "./text.js";
import { follows, orAborted, sleep } from "./wait.js";
/**
 * follow yields the messages of a turn in order, each once, up to its end; heartbeats and what only ends a stream are
 * not among them. A stream that breaks or is silent, or whose token is refused while there is another one, is replaced
 * by another one that begins where it ended, which is told. It returns early when nothing comes after afterSeq. It throws an AgentdError when the turn cannot be followed
 * any further, or the signal's reason.
 */
export function follow(options) {
    const { wire, sessionId, toolNames, observe, display, visibility, turnId, afterSeq } = options;
    const open = (at, streamed) => {
        const request = given({
            sessionId,
            turnId: at.turnId,
            toolNames,
            observe,
            display,
            visibility,
        });
        return wire.watch("WatchTurn", { ...request, ...(at.seq === undefined ? {} : { afterSeq: at.seq }) }, streamed);
    };
    return streams({ ...options, open, endless: false }, new Position(turnId, afterSeq, ""));
}
/** followWhole is follow for a session, which has no end. */
export function followWhole(options) {
    const { wire, sessionId, display, visibility } = options;
    const open = ({ cursor }, streamed) => {
        return wire.watch("WatchSession", given({ sessionId, cursor, display, visibility }), streamed);
    };
    return streams({ ...options, open, endless: true }, new Position("", undefined, options.cursor));
}
async function* streams(options, state) {
    const outage = new Outage(options.reconnect);
    const { credential } = options.wire;
    for (;;) {
        options.signal.throwIfAborted();
        const failure = yield* stream(options, state, outage);
        if (failure === undefined) {
            return;
        }
        const turnId = options.endless ? undefined : state.turnId || undefined;
        const error = failure.with({ sessionId: options.sessionId, turnId });
        const { cursor } = state;
        const again = isLost(failure) ||
            (failure.code === "UNAUTHENTICATED" && (await credential.renewed(state.token, options.signal)));
        const wait = again ? outage.next(failure.retryAfterMs) : undefined;
        if (wait === undefined) {
            if (state.lost !== undefined) {
                yield { connection: { type: "connection_abandoned", ...sinceOf(state.lost), error }, cursor };
            }
            throw error;
        }
        if (state.lost === undefined) {
            state.lost = { at: performance.now(), attempts: 0 };
            yield { connection: { type: "connection_lost", error }, cursor };
        }
        state.lost.attempts++;
        await sleep(wait, options.signal);
    }
}
/** stream follows the turn over one stream. It returns why that ended, undefined when there is no more to come. */
async function* stream(o, state, outage) {
    const { controller, release } = follows(o.signal);
    let openedAt; // when the server took the stream
    const onHeader = () => void (openedAt = performance.now());
    const onToken = (token) => void (state.token = token);
    const messages = o.open(state, { signal: controller.signal, headers: o.headers, onHeader, onToken });
    const giveUp = () => controller.abort(new AgentdError("UNAVAILABLE", `nothing came for ${o.silenceMs} ms, not even a heartbeat`));
    state.reconnected();
    let closing;
    try {
        for (;;) {
            const silent = setTimeout(giveUp, o.silenceMs);
            let next;
            try {
                next = await orAborted(messages.next(), controller.signal);
            }
            catch (thrown) {
                o.signal.throwIfAborted();
                if (openedAt !== undefined && performance.now() - openedAt > o.reconnect.capMs) {
                    outage.over(); // a quiet turn, of which nothing was to be told
                }
                return closing ?? fromThrown(thrown);
            }
            finally {
                clearTimeout(silent);
            }
            if (next.done === true) {
                if (closing === undefined && (o.endless || !state.nothingCame())) {
                    return new AgentdError("UNAVAILABLE", "the server closed the stream before the end");
                }
                return closing;
            }
            const message = next.value.event;
            if (message?.error !== undefined && message.seq === undefined) {
                closing = errorOf(message.error); // of the stream; it says why it ends
                continue;
            }
            if (message === undefined) {
                continue;
            }
            if (state.lost !== undefined) {
                const since = sinceOf(state.lost);
                state.lost = undefined;
                yield { connection: { type: "connection_restored", ...since }, cursor: state.cursor };
            }
            const taken = state.take(message, next.value.cursor);
            if (message.heartbeat !== undefined || taken === "new") {
                outage.over();
            }
            if (message.heartbeat !== undefined || taken === "old") {
                continue;
            }
            yield { message, again: taken === "again", cursor: state.cursor };
            if (message.end !== undefined && !o.endless) {
                return undefined;
            }
        }
    }
    finally {
        release();
        controller.abort(new AgentdError("UNSPECIFIED", "the stream is no longer wanted"));
    }
}
function sinceOf({ at, attempts }) {
    return { afterMs: Math.round(performance.now() - at), attempts };
}
/** Position is how far a caller has come. */
class Position {
    /** The seq of the last message. */
    seq;
    /** The cursor of the last message that had one. */
    cursor;
    turnId;
    /** Since when the connection is lost, as was told, and how often it was tried. */
    lost;
    /** The token of the last stream. */
    token;
    #resumes;
    #news = false;
    #stream = 0;
    // By call: the last stream on which it was said; bounded by the turn's calls.
    #unserved = new Map();
    // Of a text that comes in several pieces only the last has a seq. After a lost connection all of them come again:
    // ahead is what the caller has had of it, skip how many bytes of that are still to come.
    #ahead = { of: "", bytes: 0 };
    #skip = 0;
    constructor(turnId, afterSeq, cursor) {
        this.seq = afterSeq;
        this.cursor = cursor;
        this.turnId = turnId;
        this.#resumes = afterSeq !== undefined;
    }
    /** reconnected says that a stream begins. */
    reconnected() {
        this.#stream++;
        this.#skip = this.#ahead.bytes;
    }
    /** nothingCame tells whether there is nothing after the position that the caller began with. */
    nothingCame() {
        return this.#resumes && !this.#news;
    }
    /** take tells what the caller has to see of a message: a new one, a call that is asked again, or nothing. */
    take(message, cursor = "") {
        const { seq } = message;
        this.cursor = cursor || this.cursor;
        if (seq !== undefined && this.seq !== undefined && numberOf(seq) <= numberOf(this.seq)) {
            return message.toolCall === undefined ? "old" : "again";
        }
        if (seq !== undefined) {
            this.seq = seq;
            this.#news = true;
            if (this.turnId === "" && message.turnQueued === undefined) {
                this.turnId = message.turnId ?? ""; // a prompt that waits may be another turn's
            }
        }
        if (message.toolCallUnserved !== undefined) {
            // It has no seq and is said again to whoever comes back.
            const { toolCallId = "" } = message.toolCallUnserved;
            const said = this.#unserved.get(toolCallId) ?? this.#stream;
            this.#unserved.set(toolCallId, this.#stream);
            return said === this.#stream ? "new" : "old";
        }
        if (message.outputChunk !== undefined) {
            return this.#cut(message.outputChunk, seq !== undefined) ? "new" : "old";
        }
        if (seq !== undefined) {
            this.#forget();
        }
        return "new";
    }
    /** cut takes off what the caller has had of a piece, and tells whether something is left. */
    #cut(chunk, stored) {
        const { content = "", last = false, isThought = false } = chunk;
        const of = JSON.stringify([chunk.messageId, isThought, chunk.agentPath]);
        if (this.#ahead.of !== of) {
            this.#ahead = { of, bytes: 0 };
            this.#skip = 0;
        }
        const size = byteLength(content);
        const skipped = Math.min(this.#skip, size);
        if (skipped > 0) {
            chunk.content = new TextDecoder().decode(new TextEncoder().encode(content).subarray(skipped));
        }
        this.#skip -= skipped;
        this.#ahead.bytes += size - skipped;
        if (stored) {
            this.#forget();
        }
        return skipped === 0 || chunk.content !== "" || last;
    }
    #forget() {
        this.#ahead = { of: "", bytes: 0 };
        this.#skip = 0;
    }
}
//# sourceMappingURL=follow.js.map